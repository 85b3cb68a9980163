"""Rollouts on the page: all of them, and one with how its waves fared."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

from fleethpa.changes.specs import revisions_in
from fleethpa.fleet.views import FleetState
from fleethpa.frame.options import WAVE_MEASURES, FailIf
from fleethpa.page.fleetview import SHOWN_CHANGES
from fleethpa.page.hpapast import LastUsed
from fleethpa.rollouts.marks import StagedRollout, digest, rollouts_in
from fleethpa.rollouts.wavedrive import (
    WaveReading,
    gates_of,
    measured_waves,
    overtaken_lines,
    rollout_columns,
    rollout_head,
    rollout_next,
    rollout_of_id,
    wave_line,
)
from fleethpa.show.text import time_ago
from fleethpa.show.words import counted, spec_diff
from schemas.keys import HpaId
from streams.analysis.measures import WaveMeasures
from streams.analysis.revisions import differences
from streams.history.past import Past

KEPT: Final = 8
"""Rollouts whose readings are kept."""
MOST_DIFFS: Final = 5
"""Diffs that the view shows: HPAs whose spec changes alike have one together."""


class WaveGate(NamedTuple):
    """A condition under which a wave fails, and what the wave has. `value` is empty where nothing was measured."""

    text: str
    value: str
    is_met: bool


class RolloutWave(NamedTuple):
    """A wave as the view shows it.

    `x`, `width` and `done`: its part of a bar of 100, by its clusters, and how much of its time is over. `style`:
    `passed`, `watched`, `waiting`, `back` or `none`. `ends_ms`: None where it has no end, as it was reverted.
    """

    number: int
    text: str
    state: str
    style: str
    x: float
    width: float
    done: float
    begun_ms: int | None
    ends_ms: int | None
    gates: Sequence[WaveGate]


class SpecDiff(NamedTuple):
    """A change of the specs of some HPAs: in words, and as lines of a diff with their kinds."""

    hpas: Sequence[HpaId]
    words: str
    lines: Sequence[tuple[str, str]]


def rollouts_view(state: FleetState, now_ms: int) -> dict[str, Any]:
    """Return what the template of all rollouts shows, the newest first."""
    rollouts = sorted(rollouts_in(state).values(), key=lambda each: each.plan.begun_ms, reverse=True)
    return {
        "columns": [
            replace(each, cell=lambda rollout: time_ago(rollout.began_ms, now_ms)) if each.header == "BEGAN" else each
            for each in rollout_columns("utc", now_ms, state.clock_ms)
        ],
        "rollouts": rollouts[:SHOWN_CHANGES],
        "found": len(rollouts),
        "shown": SHOWN_CHANGES,
    }


async def reverted_ms(past: Past, state: FleetState, id_: str) -> int | None:
    """Return when the newest wave of a rollout got its earlier specs again; None: it did not, or it is not known.

    Raises ArchiveError, CoreError: the source cannot be read.
    """
    rollout = rollouts_in(state).get(id_)
    if rollout is None or not rollout.reverted:
        return None
    hpa, mark = max(rollout.marks.items(), key=lambda each: (each[1].wave, each[1].begun_ms))
    if not mark.reverted:
        return None
    revisions, _ = await revisions_in(past, hpa, mark.begun_ms)
    new = mark.spec_digest.get(f"{hpa.namespace}/{hpa.name}")
    return next((then.time for one, then in pairwise(revisions) if one.spec and digest(one.spec) == new), None)


def with_what_it_had(found: dict[str, Any], before: Mapping[str, Any], ended_ms: int, now_ms: int) -> dict[str, Any]:
    """Return what the template of a reverted rollout shows. `before`: the same as of before that, or empty."""
    head = [*found["head"], ("Reverted", time_ago(ended_ms, now_ms))]
    if not before:
        return found | {"head": head}
    waves: list[RolloutWave] = [
        now._replace(
            text=then.text, gates=then.gates, ends_ms=None if then.ends_ms is None else min(then.ends_ms, ended_ms)
        )
        for now, then in zip(found["waves"], before["waves"], strict=True)
    ]
    return found | {"head": head, "waves": waves, "diffs": before["diffs"], "more_diffs": before["more_diffs"]}


class RolloutReadings:
    """What was read of the waves of the rollouts that were looked at last; a live update reads only what is new."""

    def __init__(self) -> None:
        self._kept = LastUsed[str, dict[int, WaveReading]](KEPT)
        self.turn = asyncio.Lock()
        """Held while a rollout is read."""

    def of(self, rollout_id: str) -> dict[int, WaveReading]:
        """The readings of one rollout, by the number of its wave."""
        return self._kept.keep(rollout_id, self._kept.get(rollout_id, {}))


async def read_rollout(
    past: Past, state: FleetState, id_: str, readings: RolloutReadings | None = None
) -> dict[str, Any]:
    """Return what the template of one rollout shows. `readings`: of the present; None: nothing is kept.

    Raises CommandError: no HPA carries a rollout of this id (exit 4).
    """
    rollout = rollout_of_id(state, id_)
    if readings is None:
        waves = await measured_waves(past, rollout)
    else:
        async with readings.turn:
            waves = await measured_waves(past, rollout, readings.of(id_))
    ids: list[tuple[HpaId, str]] = [
        (hpa, "changed since" if rollout.is_overtaken(hpa) else "reverted" if mark.reverted else f"wave {mark.wave}")
        for hpa, mark in rollout.marks.items()
    ]
    return {
        "id": id_,
        "is_reverted": bool(rollout.reverted),
        "head": rollout_head(rollout, state.clock_ms),
        "waves": waves_view(rollout, state.clock_ms, waves),
        "overtaken": overtaken_lines(rollout),
        "diffs": (diffs := changed_specs(rollout))[:MOST_DIFFS],
        "more_diffs": max(0, len(diffs) - MOST_DIFFS),
        "next": rollout_next(rollout, state.clock_ms),
        "hpas": sorted(ids)[:SHOWN_CHANGES],
        "all": counted(len(ids), "HPA") + (f", the first {SHOWN_CHANGES}" if len(ids) > SHOWN_CHANGES else ""),
    }


def waves_view(
    rollout: StagedRollout, now_ms: int, measured: Sequence[tuple[WaveMeasures, WaveMeasures]]
) -> list[RolloutWave]:
    """Return the waves of a rollout. `now_ms`: log time; `measured`: as `measured_waves` gives it."""
    sizes = [len(clusters) for clusters in rollout.plan.waves]
    ends = [100 * end / sum(sizes) for end in accumulate(sizes)]
    gates = gates_of(rollout.plan)
    waves = []
    for number, (size, end) in enumerate(zip(sizes, ends, strict=True), 1):
        state, style = _state(rollout, number, now_ms)
        marks, width = [mark for mark in rollout.marks.values() if mark.wave == number], 100 * size / sum(sizes)
        ends_ms = rollout.ends_ms(number) if rollout.running(number) else None
        left = 0.0 if ends_ms is None else min(1.0, max(0, ends_ms - now_ms) / max(1, rollout.plan.wait_ms))
        waves.append(
            RolloutWave(
                number,
                wave_line(rollout, number, measured),
                state,
                style,
                round(end - width, 2),
                round(width, 2),
                round(width * (1 - left), 2) if style == "watched" else 0.0,
                min((mark.begun_ms for mark in marks), default=None),
                ends_ms,
                [] if number > rollout.wave or rollout.reverted else _gates(gates, *measured[number - 1]),
            )
        )
    return waves


def _state(rollout: StagedRollout, number: int, now_ms: int) -> tuple[str, str]:
    """How far a wave has come, in a word, and its style."""
    marks = [mark for mark in rollout.marks.values() if mark.wave == number]
    if not marks:
        return "not begun", "none"
    if any(mark.reverted for mark in marks):
        return ("reverting" if rollout.running(number) else "reverted"), "back"
    if not rollout.running(number):
        return "changed since", "back"
    if number < rollout.wave:
        return "passed", "passed"
    if now_ms < rollout.ends_ms(number):
        return "watched", "watched"
    return ("complete", "passed") if number == len(rollout.plan.waves) else ("waiting for the next wave", "waiting")


def _gates(gates: Sequence[FailIf], before: WaveMeasures, now: WaveMeasures) -> list[WaveGate]:
    if now.unevaluated >= now.hpas:
        return [WaveGate(gate.text, "", is_met=False) for gate in gates]
    return [WaveGate(gate.text, _measured(gate, before, now), gate.holds(before, now)) for gate in gates]


def _measured(gate: FailIf, before: WaveMeasures, now: WaveMeasures) -> str:
    """The measure of a condition in a wave; with the one before, where the condition compares."""
    unit = "%" if WAVE_MEASURES[gate.measure].unit == "percent" else " per HPA"
    value = f"{gate.value(now):.4g}{unit}"
    if gate.compares:
        was = "not known" if before.unevaluated >= before.hpas else f"{gate.value(before):.4g}{unit}"
        value = f"{value} ({was} before)"
    return f"{value}; {counted(now.unevaluated, 'HPA')} without an evaluation" if now.unevaluated else value


def changed_specs(rollout: StagedRollout) -> list[SpecDiff]:
    """Return what the rollout changes in the specs of its HPAs, each kind of change once; what was reverted is none."""
    alike: dict[tuple[str, ...], list[HpaId]] = {}
    said: dict[tuple[str, ...], str] = {}
    for hpa, mark in sorted(rollout.running().items()):
        if mark.previous is None:
            continue
        before, after = mark.previous["spec"], rollout.views[hpa].spec
        lines = tuple(spec_diff(before, after, "", "")[2:])
        alike.setdefault(lines, []).append(hpa)
        said[lines] = "; ".join(differences(before, after))
    kinds = {"+": "added", "-": "removed", "@": "place"}
    return [
        SpecDiff(hpas, said[lines], [(kinds.get(line[:1], "same"), line) for line in lines])
        for lines, hpas in alike.items()
    ]
