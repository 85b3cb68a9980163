"""Every change of the fleet, newest first, with its density over time, and how far each rollout has come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from fleethpa.changes.rolloutdrive import (
    WaveReading,
    found_rollout,
    measured_waves,
    rollout_columns,
    rollout_lines,
    rollout_next,
)
from fleethpa.changes.rollouts import rollouts_in
from fleethpa.fleet.decisions import (
    DIRECTIONS,
    Filter,
    decision_columns,
    endings_of,
    newest,
    one_each,
    read_back,
    reasons,
)
from fleethpa.fleet.finding import Selection
from fleethpa.fleet.views import FleetState
from fleethpa.page.fleetview import CHANGE_FLAGS, CHANGE_WORDS, filter_of
from fleethpa.page.hpapast import LastUsed
from fleethpa.show.words import counted
from schemas.keys import HpaId
from streams.history.past import Past
from streams.history.recorded import Recorded

SHOWN: Final = 200
KEPT: Final = 8
"""Rollouts whose readings are kept."""


def rollouts_view(state: FleetState, now_ms: int) -> dict[str, Any]:
    """What the template of all rollouts shows, the newest first."""
    found = sorted(rollouts_in(state).values(), key=lambda each: each.plan.begun_ms, reverse=True)
    return {
        "columns": rollout_columns("utc", now_ms, state.clock_ms),
        "rollouts": found[:SHOWN],
        "found": len(found),
        "shown": SHOWN,
    }


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
    """What the template of one rollout shows. `readings`: of the present; None: nothing is kept.

    Raises CommandError: no HPA carries a rollout of this id (exit 4).
    """
    rollout = found_rollout(state, id_)
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
        "lines": rollout_lines(rollout, state.clock_ms, waves),
        "next": rollout_next(rollout, state.clock_ms),
        "hpas": sorted(ids)[:SHOWN],
        "all": counted(len(ids), "HPA"),
        "shown": SHOWN,
    }


BARS: Final = 48
LEFT_OUT: Final = frozenset({"TIME", "HPA", "ID", "WHY", "KIND", "MODE", "GENERATION", "REASON"})


async def read_changes(past: Past, since_ms: int, until_ms: int, *, every: bool) -> list[Recorded]:
    """The decisions of the fleet in a window, oldest first; `every`: also those that changed nothing."""
    wanted = Filter(Selection(), since_ms, until_ms, changes=not every)
    return newest(await read_back(past, wanted, None), wanted.matches, None)


def changes_view(
    found: Sequence[Recorded], query: str, since_ms: int, now_ms: int, bar: int | None, *, every: bool = False
) -> dict[str, Any]:
    """What the template shows; `bar`: the stretch of time that is picked in the bar chart; `every`: as was read."""
    wanted, mistake = filter_of(query, CHANGE_WORDS)
    fitting = [each for each in one_each(found) if wanted.fits(_words(each))]
    # The bars cover the window, from the first thing in it on.
    begin = max(since_ms, fitting[0].time_ms) if fitting else since_ms
    end = max(now_ms, begin + BARS)
    bar = bar if bar is not None and bar < BARS else None
    picked = [each for each in fitting if bar is None or _bar(each.time_ms, begin, end) == bar]
    columns, bars = decision_columns(endings_of(found), "utc", now_ms), _bars(fitting, begin, end)
    return {
        "query": query,
        "mistake": mistake,
        "words": CHANGE_WORDS,
        "flags": wanted.flags(CHANGE_FLAGS),
        "verdict": _verdict(picked, every=every),
        "bars": bars,
        "most": max(each["count"] for each in bars),
        "bar": bar,
        "begin_ms": begin,
        "end_ms": end,
        "columns": [column for column in columns if column.header not in LEFT_OUT],
        "why": next(column for column in columns if column.header == "WHY"),
        "rows": picked[: -SHOWN - 1 : -1],
        "found": len(picked),
        "shown": SHOWN,
    }


def _verdict(found: Sequence[Recorded], *, every: bool) -> str:
    """What was found in one sentence."""
    if every:
        return counted(len(found), "decision")
    if not found:
        return "No change was decided"
    up = sum(each.facts.final_desired_replicas > each.facts.current_replicas for each in found)
    noun = "change" if len(found) == 1 else "changes"
    return f"{len(found):,} {noun} decided: {up:,} up, {len(found) - up:,} down"


def newer_view(state: FleetState, after_ms: int) -> dict[str, Any]:
    """How many HPAs have other replicas since a moment: what is shown is not moved, but may be out of date."""
    count = sum(any(move.time_ms > after_ms for move in view.moves) for view in state.hpas.values())
    return {"count": count, "after_ms": after_ms}


def _words(recorded: Recorded) -> dict[str, Sequence[str]]:
    decision = recorded.decision
    directions = {value: name for name, value in DIRECTIONS.items()}
    return {
        "cluster": (decision.cluster,),
        "namespace": (decision.namespace,),
        "name": (decision.name,),
        "mode": (decision.mode,),
        "reason": reasons(recorded),
        "limit": decision.constraints_applied,
        "direction": (directions.get(decision.direction, ""),),
        "kind": (decision.kind,),
    }


def _bar(time_ms: int, begin: int, end: int) -> int:
    return min(BARS - 1, max(0, (time_ms - begin) * BARS // (end - begin)))


def _bars(found: Sequence[Recorded], begin: int, end: int) -> list[dict[str, Any]]:
    counts = [0] * BARS
    for each in found:
        counts[_bar(each.time_ms, begin, end)] += 1
    most = max([1, *counts])
    width = (end - begin) // BARS
    return [
        {"number": number, "count": count, "height": round(60 * count / most), "time_ms": begin + number * width}
        for number, count in enumerate(counts)
    ]
