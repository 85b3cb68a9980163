"""Every change of the fleet, newest first, filtered, with its density over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fleethpa.cli.common.decisionlists import decision_columns, newest, read_back
from fleethpa.cli.common.filters import DIRECTIONS, Filter, reasons
from fleethpa.cli.common.selection import Selection
from fleethpa.cli.common.views import FleetState
from fleethpa.page.fleetview import filter_of
from fleethpa.page.pagefilter import CHANGE_FLAGS, CHANGE_WORDS
from runtime.jsonlog import clean
from streams.history.past import Past
from streams.history.recorded import Recorded

SHOWN: Final = 200
BARS: Final = 48
LEFT_OUT: Final = frozenset({"TIME", "HPA", "ID", "WHY", "KIND", "MODE", "GENERATION"})


async def read_changes(past: Past, since_ms: int, until_ms: int, *, every: bool) -> list[Recorded]:
    """The decisions of the fleet in a window, oldest first; `every`: also those that changed nothing."""
    wanted = Filter(Selection(), since_ms, until_ms, changes=not every)
    return newest(await read_back(past, wanted, None), wanted.matches, None)


def changes_view(
    found: Sequence[Recorded], query: str, since_ms: int, until_ms: int, bar: int | None, now_ms: int
) -> dict[str, Any]:
    """What the template shows; `bar`: the stretch of time that is picked in the bar chart."""
    wanted, mistake = filter_of(query, CHANGE_WORDS)
    endings = {each.head.completes: each for each in found if each.head.completes}
    fitting = [each for each in found if wanted.fits(_words(each))]
    begin, end = _stretch(fitting, since_ms, until_ms)
    bar = bar if bar is not None and bar < BARS else None
    picked = [each for each in fitting if bar is None or _bar(each.time_ms, begin, end) == bar]
    columns = decision_columns(endings, "utc", now_ms)
    shown = [column for column in columns if column.header not in LEFT_OUT]
    why = next(column for column in columns if column.header == "WHY")
    return {
        "query": query,
        "mistake": mistake,
        "words": CHANGE_WORDS,
        "flags": wanted.flags(CHANGE_FLAGS),
        "bars": _bars(fitting, begin, end),
        "bar": bar,
        "begin_ms": begin,
        "end_ms": end,
        "headers": [column.header for column in shown],
        "rows": [
            {
                "time_ms": each.time_ms,
                "hpa": each.hpa,
                "id": each.head.id,
                "cells": [(column.header, clean(column.cell(each))) for column in shown],
                "why": clean(why.cell(each)),
            }
            for each in reversed(picked[-SHOWN:])
        ],
        "found": len(picked),
        "shown": SHOWN,
    }


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


def _stretch(found: Sequence[Recorded], since_ms: int, until_ms: int) -> tuple[int, int]:
    """The time that the bars cover: the window, from the first thing in it on."""
    begin = max(since_ms, found[0].time_ms) if found else since_ms
    return begin, max(until_ms, begin + BARS)


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
