"""A rollout's waves are begun, watched and judged, and reverted when one fails.

The verbs are in `fleethpa.cli.rollout`; what a wave is judged by is in `streams.analysis.wavemeasures`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from fleethpa.cli.common.failures import ANSWER_IS_NO, OK, CommandError
from fleethpa.cli.common.fleetstate import read_state
from fleethpa.cli.common.rolloutlisting import WaveReading, gates_of, listed, measured, said
from fleethpa.cli.common.rollouts import RolloutMark, StagedRollout, manifest_part, marked, members, rollouts_in
from fleethpa.cli.common.schedules import ANNOTATION as SCHEDULE_ANNOTATION
from fleethpa.cli.common.schedules import annotation_of, renewed
from fleethpa.cli.common.session import Session
from fleethpa.cli.common.writing import PlannedRecord, write_all
from fleethpa.cli.output.times import span
from fleethpa.cli.output.words import counted
from schemas.autoscalers import AutoscalerSet
from schemas.kubernetes.jsontypes import Json
from streams.analysis.revisions import differences

if TYPE_CHECKING:
    from fleethpa.cli.common.failif import FailIf
    from fleethpa.cli.common.views import FleetState, HpaView
    from fleethpa.cli.common.writer import Writer
    from streams.analysis.wavemeasures import WaveMeasures

RECORDED: Final = "30s"
"""How long a wave's records may take to be in the log."""
LATE_MS: Final = 60_000
"""If log time stands still, a wave ends this long after its end by the clock of this machine."""
CUMULATIVE: Final = frozenset({"replicas_removed", "recommended_removal", "scale_events", "direction_flips"})
"""Measures that only grow, so that a wave need not be waited for once one of them is above its limit."""


@dataclass(frozen=True)
class WaveResult:
    """How a wave ended: `failed` has the condition that was met, `stopped` why nothing more can be done here."""

    said: str
    failed: str = ""
    stopped: str = ""


class WaveDrive:
    """Begins waves and watches them, until the last is over or one fails."""

    def __init__(
        self, session: Session, plan: RolloutMark, examples: Mapping[str, Json], written: dict[str, Any]
    ) -> None:
        self._session, self._plan, self._examples = session, plan, examples
        self._author = session.config.author
        self._reason: str = written["reason"] or plan.reason

    async def run(self, first: int) -> int:
        """Begin this wave, as far as it has not begun, and those after it; returns the exit code."""
        plan, session = self._plan, self._session
        session.note(f"If this is interrupted: fleethpa rollout resume {plan.id}, or fleethpa rollout abort {plan.id}")
        async with session.writer() as writer:
            for wave in range(first, len(plan.waves) + 1):
                if (code := await self._begin(writer, wave)) != OK:
                    return code
                result = await self._watch(wave)
                if result.stopped:
                    session.tell(self._stopped(result))
                    return ANSWER_IS_NO
                if result.failed:
                    session.out(f"{wave_named(plan, wave)} failed: {result.failed}")
                    return await self._revert(writer, f"wave {wave}: {result.failed}")
                session.out(f"{wave_named(plan, wave)} passed: {result.said}")
        session.out(f"rollout {plan.id} is complete")
        return OK

    async def _begin(self, writer: Writer, wave: int) -> int:
        state = await state_now(self._session)
        rollout = rollouts_in(state).get(self._plan.id) or StagedRollout(self._plan.id)
        new = [view for view in members(self._plan, state, wave) if view.id not in rollout.marks]
        clusters = counted(len(self._plan.waves[wave - 1]), "cluster")
        self._session.out(f"{wave_named(self._plan, wave)} begins: {clusters} ({listed(self._plan.waves[wave - 1])})")
        writes = [self._write(view, wave, max(self._session.now_ms(), state.clock_ms)) for view in new]
        if not writes:
            return OK
        return await write_all(self._session, writer, writes, RECORDED, must_arrive=True)

    def _write(self, view: HpaView, wave: int, now_ms: int) -> PlannedRecord:
        hpa, part = view.id, self._examples[f"{view.id.namespace}/{view.id.name}"]
        # The rules hold again when the rollout is over: until then every HPA of it has the spec that is judged.
        schedule = renewed(view.hpa, {"metadata": {"annotations": part["annotations"]}, "spec": part["spec"]})
        if schedule is not None:
            part = part | {"annotations": part["annotations"] | {SCHEDULE_ANNOTATION: annotation_of(schedule)}}
        mark = structs.replace(
            self._plan,
            wave=wave,
            begun_ms=now_ms,
            replicas=int(view.status.get("currentReplicas") or 0),
            previous=manifest_part(view),
            reverted="",
            kept_schedule=schedule is not None,
        )
        why = f"rollout {mark.id} wave {wave}/{len(mark.waves)}" + (f": {self._reason}" if self._reason else "")
        body = AutoscalerSet(hpa=marked(hpa, part, mark), origin="central", author=self._author, reason=why)
        subject = f"hpa {hpa} configured ({'; '.join(differences(view.spec, part['spec']))})"
        return PlannedRecord(subject, body, hpa.cluster, hpa.namespace)

    async def _watch(self, wave: int) -> WaveResult:
        """Wait for the end of a wave's time, or for what ends it before."""
        gates, period_s = gates_of(self._plan), min(30.0, max(1.0, self._plan.wait_ms / 30_000))
        told, reading = "", WaveReading()
        while True:
            async with self._session.past() as past:
                state = await read_state(past)
                rollout = rollouts_in(state).get(self._plan.id)
                if stopped := why_stopped(state, self._plan, rollout, wave):
                    return WaveResult("", stopped=stopped)
                assert rollout is not None
                before, now = await measured(past, rollout, wave, gates, reading)
            over = state.clock_ms >= rollout.ends_ms(wave) or self._session.now_ms() >= rollout.ends_ms(wave) + LATE_MS
            counting = [gate for gate in gates if over or (gate.measure in CUMULATIVE and gate.compare in (">", ">="))]
            met = [gate for gate in counting if gate.holds(before, now)]
            if met:
                return WaveResult(said(now), failed="; ".join(_met(gate, before, now) for gate in met))
            if over and now.unevaluated:
                lacking = f"{now.unevaluated} of {counted(now.hpas, 'HPA')}"
                return WaveResult("", stopped=f"{lacking} of wave {wave} have no decision under the new spec")
            if over:
                return WaveResult(said(now))
            if said(now) != told:
                told = said(now)
                left = span(max(0, rollout.ends_ms(wave) - state.clock_ms) // 1000 * 1000)
                self._session.note(f"{wave_named(self._plan, wave)}, {left} left: {told}")
            await rest(period_s)

    async def _revert(self, writer: Writer, why: str) -> int:
        rollout = rollouts_in(await state_now(self._session)).get(self._plan.id)
        if rollout is not None:
            await write_all(self._session, writer, reverting(rollout, self._author, why), RECORDED)
        self._session.note(f"Next: fleethpa rollout status {self._plan.id}")
        return ANSWER_IS_NO

    def _stopped(self, result: WaveResult) -> CommandError:
        step = f"fleethpa rollout status {self._plan.id}, or to end it: fleethpa rollout abort {self._plan.id}"
        cause = "No further wave begins, and nothing is reverted."
        return CommandError(f"rollout {self._plan.id} stops: {result.stopped}", cause=cause, next_step=step)


async def rest(seconds: float) -> None:
    """Wait until the next look at a wave."""
    await asyncio.sleep(seconds)


def why_stopped(state: FleetState, plan: RolloutMark, rollout: StagedRollout | None, wave: int) -> str:
    """Why a rollout cannot go on: somebody has aborted it, or changed one of its HPAs; empty if it can."""
    if rollout is not None and rollout.reverted:
        return f"it was reverted ({rollout.reverted})"
    for number in range(1, wave + 1):
        for view in members(plan, state, number):
            if rollout is None or view.id not in rollout.marks or rollout.is_overtaken(view.id):
                by = f" by {view.author}" if view.author else ""
                return f"{view.id} was changed{by}{f' ({view.reason})' if view.reason else ''}"
    return "" if rollout is not None else "its HPAs are gone"


def reverting(rollout: StagedRollout, author: str, why: str) -> list[PlannedRecord]:
    """The records that give all HPAs of a rollout their earlier spec again."""
    writes = []
    for hpa, mark in rollout.running().items():
        if mark.previous is None:
            continue
        body = AutoscalerSet(
            hpa=marked(hpa, mark.previous, structs.replace(mark, previous=None, reverted=why)),
            origin="central",
            author=author,
            reason=f"rollout {rollout.id} reverted: {why}",
        )
        changes = "; ".join(differences(rollout.views[hpa].spec, mark.previous["spec"]))
        writes.append(PlannedRecord(f"hpa {hpa} reverted ({changes})", body, hpa.cluster, hpa.namespace))
    return writes


def _met(gate: FailIf, before: WaveMeasures, now: WaveMeasures) -> str:
    was = f", {gate.value(before):.4g} before" if gate.compares else ""
    return f"{gate.text} (it is {gate.value(now):.4g}{was})"


def wave_named(plan: RolloutMark, number: int) -> str:
    """A wave as lines name it: `wave 2/3`."""
    return f"wave {number}/{len(plan.waves)}"


async def state_now(session: Session) -> FleetState:
    """Read the state of the fleet, without the remarks that read verbs print beside it."""
    async with session.past() as past:
        return await read_state(past)
