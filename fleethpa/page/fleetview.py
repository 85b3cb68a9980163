"""The fleet at a glance: what needs a look, the clusters, and every HPA with its problems first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from fleethpa.cli.common.clustertable import cluster_listing
from fleethpa.cli.common.hpatable import hpa_listing
from fleethpa.cli.common.views import FleetState, HpaView
from fleethpa.cli.output import words
from fleethpa.cli.output.table import Column
from fleethpa.page.pagefilter import FLEET_FLAGS, FLEET_WORDS, FilterTextError, RowFilter, read_filter
from runtime.jsonlog import clean
from schemas.kubernetes.gotimes import parse_time_ms

SHOWN: Final = 100
"""Rows on one page."""
SPARK_MS: Final = 3_600_000
SPARK_WIDTH: Final = 90
SPARK_HEIGHT: Final = 18
LEFT_OUT: Final = frozenset({"NAMESPACE", "NAME", "CLUSTER", "AGE", "REFERENCE"})
"""Columns of `get hpa` that the row says in its first cell, or that the HPA's own view has."""


def fleet_view(state: FleetState, query: str, number: int, now_ms: int) -> dict[str, Any]:
    """What the template shows; `number`: of the page of rows, from 1 on; one that is not there is the nearest."""
    wanted, mistake = filter_of(query, FLEET_WORDS)
    order = sorted(state.hpas.values(), key=lambda view: (-_weight(view), view.id))
    found = [view for view in order if wanted.fits(_words(view))] if wanted.terms else order
    pages = max(1, -(-len(found) // SHOWN))
    number = min(max(1, number), pages)
    first = (number - 1) * SHOWN
    rows = found[first : first + SHOWN]
    listing = hpa_listing(rows, now_ms, namespaces=True, left_out=LEFT_OUT, problems=_problems)
    columns = [column for column in listing.columns if not column.wide]
    return {
        "verdict": verdict(state),
        "query": query,
        "mistake": mistake,
        "words": FLEET_WORDS,
        "flags": wanted.flags(FLEET_FLAGS),
        "headers": [column.header for column in columns],
        "rows": [_row(view, columns) for view in rows],
        "labels": Counter(problem.label for view in order for problem in view.problems).most_common(),
        "clusters": cluster_rows(state),
        "found": len(found),
        "all": len(order),
        "first": first,
        "page": number,
        "pages": pages,
    }


def verdict(state: FleetState) -> str:
    """The fleet in one sentence."""
    troubled = sum(bool(view.problems) for view in state.hpas.values())
    silent = [cluster.name for cluster in state.clusters.values() if cluster.hidden is not None]
    if not state.hpas:
        return "No HPA is known yet."
    text = f"{words.counted(troubled, 'HPA')} of {len(state.hpas)} need a look" if troubled else "No HPA has a problem"
    if troubled == 1:
        text = f"1 HPA of {len(state.hpas)} needs a look"
    return f"{text}; {', '.join(silent)} shown as last known" if silent else f"{text}."


def filter_of(query: str, known: Sequence[str]) -> tuple[RowFilter, str]:
    """The filter of an address, and what is wrong with it; a filter that cannot be read keeps nothing out."""
    try:
        return read_filter(query, known), ""
    except FilterTextError as error:
        return RowFilter(), str(error)


def cluster_rows(state: FleetState) -> list[dict[str, Any]]:
    """The clusters as `get clusters` has them, each with its style and every column's text."""
    listing = cluster_listing(list(state.clusters.values()))
    return [
        {
            "name": view.name,
            "style": (listing.style(view) if listing.style else "") or "green",
            "cells": {column.header: clean(column.cell(view)) for column in listing.columns},
        }
        for view in listing.items
    ]


def _weight(view: HpaView) -> int:
    """How early a row comes: those that wait for what they want, then those with a remark, then the others."""
    problems = view.problems
    return 2 if any(problem.waits for problem in problems) else 1 if problems else 0


def _words(view: HpaView) -> dict[str, Sequence[str]]:
    return {
        "cluster": (view.id.cluster,),
        "namespace": (view.id.namespace,),
        "name": (view.id.name,),
        "mode": (view.mode,),
        "problem": [text for problem in view.problems for text in (problem.label, problem.text)],
    }


def _problems(view: HpaView) -> list[str]:
    return [problem.text for problem in view.problems]


def _row(view: HpaView, columns: Sequence[Column[HpaView]]) -> dict[str, Any]:
    return {
        "id": view.id,
        "level": _weight(view),
        "cells": [(column.header, clean(column.cell(view))) for column in columns],
        "spark": sparkline(view),
    }


def sparkline(view: HpaView) -> str:
    """The path (SVG) of the replicas over the last hour, as the last moves tell it; empty: they do not.

    Of an HPA that was created in this hour it begins there.
    """
    now = view.status.get("currentReplicas")
    if not isinstance(now, int):
        return ""
    begin_ms = view.clock_ms - SPARK_MS
    moves = [move for move in view.moves if move.time_ms >= begin_ms]
    counts = [*(move.before for move in moves), *(move.after for move in moves), now]
    most = max(1, *counts)

    def x(time_ms: int) -> float:
        return round(SPARK_WIDTH * min(1.0, (time_ms - begin_ms) / SPARK_MS), 1)

    def y(count: int) -> float:
        return round(SPARK_HEIGHT - 1 - (SPARK_HEIGHT - 2) * count / most, 1)

    path = f"M{x(max(begin_ms, _created_ms(view)))} {y(moves[0].before if moves else now)}"
    for move in moves:
        path += f"H{x(move.time_ms)}V{y(move.after)}"
    return f"{path}H{SPARK_WIDTH}"


def _created_ms(view: HpaView) -> int:
    """When the HPA was created; 0: not known."""
    text = (view.hpa.get("metadata") or {}).get("creationTimestamp")
    return parse_time_ms(text) if text else 0
