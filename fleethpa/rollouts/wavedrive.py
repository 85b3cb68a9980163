"""A rollout: its waves are begun, watched, judged, reverted when one fails, and shown.

The verbs are in `fleethpa.rollouts.rollout`; what a wave is judged by is in `streams.analysis.measures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from fleethpa.changes.owners import without_owned
from fleethpa.changes.records import PlannedRecord, central_record
from fleethpa.changes.schedules import ANNOTATION as SCHEDULE_ANNOTATION
from fleethpa.changes.schedules import annotation_of, renewed
from fleethpa.changes.writing import RECORDED, WriteOptions, rest, write_all
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import ANSWER_IS_NO, OK, CommandError, not_found
from fleethpa.frame.options import WAVE_MEASURES, FailIf, parse_fail_if
from fleethpa.frame.session import Session
from fleethpa.rollouts.marks import RolloutMark, StagedRollout, manifest_part, marked, members, rollouts_in
from fleethpa.show.text import Column, rfc3339, shown, span
from fleethpa.show.words import counted, listed
from schemas.keys import HpaId
from schemas.kubernetes.shape import Json
from streams.analysis.measures import EvaluatedMoment, WaveMeasures, condensed, moment_of, wave_measures
from streams.analysis.revisions import differences

if TYPE_CHECKING:
    from fleethpa.frame.writer import Writer
    from streams.history.past import Past


def rollout_of_id(state: FleetState, rollout_id: str) -> StagedRollout:
    """The rollout that an id means. Raises CommandError: no HPA carries a rollout of this id (exit 4)."""
    known = rollouts_in(state)
    if rollout_id not in known:
        none = "No HPA carried one when it was last known." if state.is_last_known else "No HPA carries one."
        cause = f"There are {', '.join(sorted(known))}." if known else none
        raise not_found(f"no rollout {rollout_id}", cause=cause, next_step="fleethpa rollout status")
    return known[rollout_id]


def gates_of(plan: RolloutMark) -> list[FailIf]:
    """The conditions under which a wave fails."""
    return [parse_fail_if(text, WAVE_MEASURES) for text in plan.fail_if]


class WaveReading:
    """What was read of the decisions of a wave: who measures it again reads only what is new.

    One that is over is not read again. Of a wave that has become another (an HPA was changed since, or reverted),
    everything is read again.
    """

    def __init__(self) -> None:
        self._of: object = None
        self._read: dict[int, tuple[int, int]] = {}
        """Partition → number and log time of the last decision that was taken."""
        self.before: dict[HpaId, list[EvaluatedMoment]] = {}
        self.after: dict[HpaId, list[EvaluatedMoment]] = {}

    async def read(self, past: Past, rollout: StagedRollout, wave: int, since_ms: int) -> None:
        """Read the decisions of a wave's HPAs from a log time to the end of the wave that were not taken yet."""
        marks, ends_ms = rollout.running(wave), rollout.ends_ms(wave)
        generations = {hpa: int(rollout.views[hpa].hpa["metadata"].get("generation") or 0) for hpa in marks}
        of = (rollout.id, wave, since_ms, ends_ms, generations)
        if of != self._of:
            self._of, self._read, self.before, self.after = of, {}, {}, {}
        for number in sorted({rollout.views[hpa].partition for hpa in marks}):
            begin = self._read.get(number, (0, since_ms))
            if begin[1] < ends_ms:
                self._read[number] = await self._add_decisions(past, number, begin, ends_ms, generations)
        for side in (self.before, self.after):
            side.update({hpa: condensed(moments) for hpa, moments in side.items()})

    async def _add_decisions(
        self, past: Past, number: int, begin: tuple[int, int], ends_ms: int, generations: Mapping[HpaId, int]
    ) -> tuple[int, int]:
        """Read the decisions of a partition after one (its number and log time); return the last one that was read.

        It reads past the end of the wave, so that the wave is known to be whole.
        """
        seq, time_ms = begin
        async with aclosing(past.decisions(number, time_ms)) as decisions:
            async for recorded in decisions:
                decision = recorded.decision
                if decision.seq <= seq:
                    continue
                seq, time_ms = decision.seq, recorded.time_ms
                if time_ms >= ends_ms:
                    break
                if recorded.hpa in generations and decision.kind == "evaluation":
                    side = self.after if decision.generation >= generations[recorded.hpa] else self.before
                    side.setdefault(recorded.hpa, []).append(moment_of(decision, time_ms))
        return seq, time_ms


async def measured(
    past: Past, rollout: StagedRollout, wave: int, gates: Sequence[FailIf], reading: WaveReading | None = None
) -> tuple[WaveMeasures, WaveMeasures]:
    """Measure the HPAs of a wave: in as much time before it, where a condition asks for that, and in its own time.

    `reading`: what was read the last time.
    """
    marks = rollout.running(wave)
    begun_ms = min((mark.begun_ms for mark in marks.values()), default=0)
    since_ms = begun_ms - rollout.plan.wait_ms if any(gate.compares for gate in gates) else begun_ms
    reading = reading or WaveReading()
    await reading.read(past, rollout, wave, since_ms)
    had = {hpa: moments[0].before for hpa, moments in reading.before.items()}
    begun = {hpa: mark.replicas for hpa, mark in marks.items()}
    return wave_measures(reading.before, begun | had), wave_measures(reading.after, begun)


async def measured_waves(
    past: Past, rollout: StagedRollout, readings: dict[int, WaveReading] | None = None
) -> list[tuple[WaveMeasures, WaveMeasures]]:
    """Measure every wave that has begun: before it (where a condition asks for that), and in its own time.

    `readings`: what was read of each wave the last time, by its number.
    """
    gates, kept = gates_of(rollout.plan), {} if readings is None else readings
    numbers = range(1, rollout.wave + 1)
    return [await measured(past, rollout, each, gates, kept.setdefault(each, WaveReading())) for each in numbers]


def stated(measures: WaveMeasures) -> str:
    """The measures of a wave in words."""
    return (
        f"{measures.replicas_removed:.0f}% of the replicas removed, {measures.at_max:.0f}% at maxReplicas, "
        f"{measures.failing:.0f}% failing, {measures.scale_events:.1f} scale events per HPA"
    )


def rollout_columns(time_style: str, now_ms: int, clock_ms: int) -> tuple[Column[StagedRollout], ...]:
    """The columns of `rollout status`. `now_ms`: what ages refer to; `clock_ms`: log time, which decides the states."""
    return (
        Column("ROLLOUT", lambda r: r.id),
        Column("STATE", lambda r: r.state(clock_ms)),
        Column("WAVE", lambda r: f"{r.wave}/{len(r.plan.waves)}"),
        Column("CLUSTERS", lambda r: f"{len({hpa.cluster for hpa in r.running()})}/{sum(map(len, r.plan.waves))}"),
        Column("BEGAN", lambda r: shown(r.began_ms, time_style, now_ms)),
        Column("BY", lambda r: r.plan.author or "-"),
        Column("REASON", lambda r: r.plan.reason or "-"),
    )


def rollout_document(rollout: StagedRollout, now_ms: int) -> Json:
    """A rollout for programs, without the measures of its waves. `now_ms`: log time."""
    plan = rollout.plan
    return {
        "id": rollout.id,
        "state": rollout.state(now_ms),
        "wave": rollout.wave,
        "clusters": plan.waves,
        "hpas": plan.hpas,
        "began": rfc3339(rollout.began_ms),
        "waveEnds": rfc3339(rollout.ends_ms(rollout.wave)) if rollout.running(rollout.wave) else None,
        "waitSeconds": plan.wait_ms // 1000,
        "failIf": plan.fail_if,
        "author": plan.author,
        "reason": plan.reason,
        "reverted": rollout.reverted,
        "changed": sorted(str(hpa) for hpa in rollout.running()),
        "overtaken": sorted(str(hpa) for hpa in rollout.marks if rollout.is_overtaken(hpa)),
    }


def wave_documents(rollout: StagedRollout, waves: Sequence[tuple[WaveMeasures, WaveMeasures]]) -> list[Json]:
    """Each wave that has begun for programs: its clusters, its measures, and the conditions of failure that are met."""
    gates = gates_of(rollout.plan)
    return [
        {
            "wave": number,
            "clusters": rollout.plan.waves[number - 1],
            "measures": msgspec.to_builtins(now),
            "met": [gate.text for gate in gates if gate.holds(before, now)],
        }
        for number, (before, now) in enumerate(waves, 1)
    ]


def rollout_lines(
    rollout: StagedRollout, now_ms: int, waves: Sequence[tuple[WaveMeasures, WaveMeasures]]
) -> list[tuple[str, str]]:
    """The lines that show one rollout: label, text. `now_ms`: log time; `waves`: as `measured_waves` gives them."""
    numbers = range(1, len(rollout.plan.waves) + 1)
    in_waves = [(f"Wave {number}", wave_line(rollout, number, waves)) for number in numbers]
    return [*rollout_head(rollout, now_ms), *in_waves, *overtaken_lines(rollout)]


def rollout_head(rollout: StagedRollout, now_ms: int) -> list[tuple[str, str]]:
    """The lines about a rollout before those of its waves: label, text. `now_ms`: log time."""
    plan, state = rollout.plan, rollout.state(now_ms)
    return [
        ("Rollout", f"{rollout.id}, by {plan.author or 'unknown'}" + (f": {plan.reason}" if plan.reason else "")),
        ("State", state + (f" ({rollout.reverted})" if rollout.reverted else "")),
        ("HPAs", listed(plan.hpas)),
        ("Fails if", " or ".join(plan.fail_if)),
    ]


def wave_line(rollout: StagedRollout, number: int, waves: Sequence[tuple[WaveMeasures, WaveMeasures]]) -> str:
    """The clusters of a wave, and how it fared."""
    clusters, begun = rollout.plan.waves[number - 1], number <= rollout.wave
    fared = stated(waves[number - 1][1]) if begun and not rollout.reverted else "" if begun else "not begun"
    return f"{counted(len(clusters), 'cluster')} ({listed(clusters)})" + (f": {fared}" if fared else "")


def overtaken_lines(rollout: StagedRollout) -> list[tuple[str, str]]:
    """The HPAs that somebody has changed since: label, text."""
    return [("Changed since", str(hpa)) for hpa in rollout.marks if rollout.is_overtaken(hpa)]


def rollout_next(rollout: StagedRollout, now_ms: int) -> str:
    """Return what a person can do now; empty: nothing is waited for."""
    state = rollout.state(now_ms)
    if state == "waiting":
        return f"fleethpa rollout resume {rollout.id}, or fleethpa rollout abort {rollout.id}"
    return f"fleethpa rollout abort {rollout.id}" if state == "reverting" else ""


LATE_MS: Final = 60_000
"""If log time stops, a wave ends this long after its end by the clock of this machine."""
CUMULATIVE: Final = frozenset({"replicas_removed", "recommended_removal", "scale_events", "direction_flips"})
"""Measures that only grow, so that a wave need not be waited for once one of them is above its limit."""


@dataclass(frozen=True)
class WaveResult:
    """How a wave ended: `failed` has the condition that was met, `stopped` why nothing more can be done here."""

    stated: str
    failed: str = ""
    stopped: str = ""


class WaveDrive:
    """Begins waves and watches them, until the last is over or one fails."""

    def __init__(
        self, session: Session, plan: RolloutMark, examples: Mapping[str, Json], options: WriteOptions
    ) -> None:
        self._session, self._plan, self._examples = session, plan, examples
        self._author = session.config.author
        self._reason: str = options.reason or plan.reason

    async def run(self, first: int) -> int:
        """Begin this wave, as far as it has not begun, and those after it; return the exit code."""
        plan, session = self._plan, self._session
        session.note(f"If this is interrupted: fleethpa rollout resume {plan.id}, or fleethpa rollout abort {plan.id}")
        async with session.writer() as writer:
            for wave in range(first, len(plan.waves) + 1):
                if (code := await self._begin(writer, wave)) != OK:
                    return code
                result = await self._watch(wave)
                if result.stopped:
                    return session.report(self._stopped(result))
                if result.failed:
                    session.out(f"{wave_named(plan, wave)} failed: {result.failed}")
                    return await self._revert(writer, f"wave {wave}: {result.failed}")
                session.out(f"{wave_named(plan, wave)} passed: {result.stated}")
        session.out(f"rollout {plan.id} is complete")
        return OK

    async def _begin(self, writer: Writer, wave: int) -> int:
        state = await state_now(self._session)
        if state.is_last_known:
            return self._session.report(_unjudged(state, wave_named(self._plan, wave)))
        rollout = rollouts_in(state).get(self._plan.id) or StagedRollout(self._plan.id)
        new = [view for view in members(self._plan, state, wave) if view.id not in rollout.marks]
        clusters = counted(len(self._plan.waves[wave - 1]), "cluster")
        self._session.out(f"{wave_named(self._plan, wave)} begins: {clusters} ({listed(self._plan.waves[wave - 1])})")
        writes = [self._write(view, wave, max(self._session.now_ms(), state.clock_ms)) for view in new]
        if not writes:
            return OK
        free, owned = without_owned(state, writes)
        if owned:  # since the rollout began
            return self._session.report(*owned)
        return await write_all(self._session, writer, free, RECORDED, must_arrive=True)

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
        words = f"configured ({'; '.join(differences(view.spec, part['spec']))})"
        return central_record(hpa, words, marked(hpa, part, mark), self._author, why, over=view)

    async def _watch(self, wave: int) -> WaveResult:
        """Wait for the end of a wave's time, or for what ends it before."""
        gates, period_s = gates_of(self._plan), min(30.0, max(1.0, self._plan.wait_ms / 30_000))
        reported, reading = "", WaveReading()
        while True:
            async with self._session.past(remarks=False) as past:
                state = await read_state(past)
                rollout = rollouts_in(state).get(self._plan.id)
                if stopped := why_stopped(state, self._plan, rollout, wave):
                    return WaveResult("", stopped=stopped)
                assert rollout is not None
                before, now = await measured(past, rollout, wave, gates, reading)
            over = state.clock_ms >= rollout.ends_ms(wave) or self._session.now_ms() >= rollout.ends_ms(wave) + LATE_MS
            if result := _result(wave, gates, before, now, over=over):
                return result
            if stated(now) != reported:
                reported = stated(now)
                left = span(max(0, rollout.ends_ms(wave) - state.clock_ms) // 1000 * 1000)
                self._session.note(f"{wave_named(self._plan, wave)}, {left} left: {reported}")
            await rest(period_s)

    async def _revert(self, writer: Writer, why: str) -> int:
        state = await state_now(self._session)
        rollout = rollouts_in(state).get(self._plan.id)
        if rollout is not None:
            writes, owned = without_owned(state, reverting(rollout, self._author, why))
            self._session.report(*owned)
            await write_all(self._session, writer, writes, RECORDED)
        self._session.note(f"Next: fleethpa rollout status {self._plan.id}")
        return ANSWER_IS_NO

    def _stopped(self, result: WaveResult) -> CommandError:
        step = f"fleethpa rollout status {self._plan.id}, or to end it: fleethpa rollout abort {self._plan.id}"
        cause = "No further wave begins, and nothing is reverted."
        return CommandError(f"rollout {self._plan.id} stops: {result.stopped}", cause=cause, next_step=step)


def _result(
    wave: int, gates: Sequence[FailIf], before: WaveMeasures, now: WaveMeasures, *, over: bool
) -> WaveResult | None:
    """How a wave ended; None: it has not. `over`: its time has passed. Before that only what can but grow counts."""
    counting = [gate for gate in gates if over or (gate.measure in CUMULATIVE and gate.compare in (">", ">="))]
    if met := [gate for gate in counting if gate.holds(before, now)]:
        return WaveResult(stated(now), failed="; ".join(condition_met(gate, before, now) for gate in met))
    if over and now.unevaluated:
        without_decision = f"{now.unevaluated:,} of {counted(now.hpas, 'HPA')}"
        return WaveResult("", stopped=f"{without_decision} of wave {wave} have no decision under the new spec")
    return WaveResult(stated(now)) if over else None


def _unjudged(state: FleetState, wave: str) -> CommandError:
    """Why no wave begins now: its HPAs may be other ones by now, and no decision would follow by which it is judged."""
    process = state.stopped_by
    why = "nothing is known of the present" if process is None else process.what
    step = "fleethpa doctor" if process is None else process.next_step
    return CommandError(f"{wave} does not begin: {why}", cause="Nothing was changed for it.", next_step=step)


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
        body = marked(hpa, mark.previous, structs.replace(mark, previous=None, reverted=why))
        words = f"reverted ({'; '.join(differences(rollout.views[hpa].spec, mark.previous['spec']))})"
        reason = f"rollout {rollout.id} reverted: {why}"
        writes.append(central_record(hpa, words, body, author, reason, over=rollout.views[hpa]))
    return writes


def condition_met(gate: FailIf, before: WaveMeasures, now: WaveMeasures) -> str:
    """A condition that a wave meets, in words with its value."""
    was = f", {gate.value(before):.4g} before" if gate.compares else ""
    return f"{gate.text} (it is {gate.value(now):.4g}{was})"


def wave_named(plan: RolloutMark, number: int) -> str:
    """A wave as lines name it: `wave 2/3`."""
    return f"wave {number}/{len(plan.waves)}"


async def state_now(session: Session) -> FleetState:
    """Read the state of the fleet, without the remarks that read verbs print beside it."""
    async with session.past(remarks=False) as past:
        return await read_state(past)
