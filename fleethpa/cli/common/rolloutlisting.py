"""What is shown of rollouts: a table, a document, the lines of one of them, and the measures of its waves."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from fleethpa.cli.common.failif import WAVE_MEASURES, FailIf, parse_fail_if
from fleethpa.cli.common.failures import not_found
from fleethpa.cli.common.rollouts import RolloutMark, StagedRollout, rollouts_in
from fleethpa.cli.output.table import Column
from fleethpa.cli.output.times import rfc3339, shown
from fleethpa.cli.output.words import counted
from schemas.keys import HpaId
from schemas.kubernetes.jsontypes import Json
from streams.analysis.wavemeasures import EvaluatedMoment, WaveMeasures, condensed, moment_of, wave_measures

if TYPE_CHECKING:
    from fleethpa.cli.common.views import FleetState
    from streams.history.past import Past


def found_rollout(state: FleetState, rollout_id: str) -> StagedRollout:
    """The rollout that an id means.

    Raises:
        CommandError: no HPA carries a rollout of this id (exit 4).
    """
    known = rollouts_in(state)
    if rollout_id not in known:
        cause = f"There are {', '.join(sorted(known))}." if known else "No HPA carries one."
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
        """Take the decisions of a wave's HPAs from a log time to the end of the wave that were not taken yet."""
        marks, ends_ms = rollout.running(wave), rollout.ends_ms(wave)
        generations = {hpa: int(rollout.views[hpa].hpa["metadata"].get("generation") or 0) for hpa in marks}
        of = (rollout.id, wave, since_ms, ends_ms, generations)
        if of != self._of:
            self._of, self._read, self.before, self.after = of, {}, {}, {}
        for number in sorted({rollout.views[hpa].partition for hpa in marks}):
            seq, time_ms = self._read.get(number, (0, since_ms))
            if time_ms >= ends_ms:
                continue
            # Past the end of the wave, so that it is known to be whole.
            async with aclosing(past.decisions(number, time_ms)) as decisions:
                async for recorded in decisions:
                    decision = recorded.decision
                    if decision.seq <= seq:
                        continue
                    seq, time_ms = decision.seq, recorded.time_ms
                    if time_ms >= ends_ms:
                        break
                    if recorded.hpa in marks and decision.kind == "evaluation":
                        side = self.after if decision.generation >= generations[recorded.hpa] else self.before
                        side.setdefault(recorded.hpa, []).append(moment_of(decision, time_ms))
            self._read[number] = seq, time_ms
        for side in (self.before, self.after):
            side.update({hpa: condensed(found) for hpa, found in side.items()})


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
    had = {hpa: found[0].before for hpa, found in reading.before.items()}
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


def said(measures: WaveMeasures) -> str:
    """The measures of a wave in words."""
    return (
        f"{measures.replicas_removed:.0f}% of the replicas removed, {measures.at_max:.0f}% at maxReplicas, "
        f"{measures.failing:.0f}% failing, {measures.scale_events:.1f} scale events per HPA"
    )


def listed(names: Sequence[str]) -> str:
    """Some names, of many only the first five."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def rollout_columns(time_style: str, now_ms: int, clock_ms: int) -> tuple[Column[StagedRollout], ...]:
    """The columns of `rollout status`. `now_ms`: what ages refer to; `clock_ms`: log time, which decides the states."""
    return (
        Column("ROLLOUT", lambda r: r.id),
        Column("STATE", lambda r: r.state(clock_ms)),
        Column("WAVE", lambda r: f"{r.wave}/{len(r.plan.waves)}"),
        Column("CLUSTERS", lambda r: f"{len({hpa.cluster for hpa in r.running()})}/{sum(map(len, r.plan.waves))}"),
        Column("BEGAN", lambda r: shown(_begun_ms(r), time_style, now_ms)),
        Column("BY", lambda r: r.plan.author or "-"),
        Column("REASON", lambda r: r.plan.reason or "-"),
    )


def _begun_ms(rollout: StagedRollout) -> int:
    return min(mark.begun_ms for mark in rollout.marks.values())


def rollout_document(rollout: StagedRollout, now_ms: int) -> Json:
    """A rollout for programs, without the measures of its waves. `now_ms`: log time."""
    plan = rollout.plan
    return {
        "id": rollout.id,
        "state": rollout.state(now_ms),
        "wave": rollout.wave,
        "clusters": plan.waves,
        "hpas": plan.hpas,
        "began": rfc3339(_begun_ms(rollout)),
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
    plan, state = rollout.plan, rollout.state(now_ms)
    rows = [
        ("Rollout", f"{rollout.id}, by {plan.author or 'unknown'}" + (f": {plan.reason}" if plan.reason else "")),
        ("State", state + (f" ({rollout.reverted})" if rollout.reverted else "")),
        ("HPAs", listed(plan.hpas)),
        ("Fails if", " or ".join(plan.fail_if)),
    ]
    for number, clusters in enumerate(plan.waves, 1):
        begun = number <= rollout.wave
        fared = said(waves[number - 1][1]) if begun and not rollout.reverted else "" if begun else "not begun"
        text = f"{counted(len(clusters), 'cluster')} ({listed(clusters)})" + (f": {fared}" if fared else "")
        rows.append((f"Wave {number}", text))
    return [*rows, *(("Changed since", str(hpa)) for hpa in rollout.marks if rollout.is_overtaken(hpa))]


def rollout_next(rollout: StagedRollout, now_ms: int) -> str:
    """What a person can do now; empty: nothing is waited for."""
    state = rollout.state(now_ms)
    if state == "waiting":
        return f"fleethpa rollout resume {rollout.id}, or fleethpa rollout abort {rollout.id}"
    return f"fleethpa rollout abort {rollout.id}" if state == "reverting" else ""
