"""The fleet at a glance (what needs a look, clusters, HPAs), every change of it, and the filter of these.

`cluster:east !mode:shadow problem:fight check` asks for everything of cluster east that is not in shadow, has a
problem whose text has `fight` in it, and has `check` in its name. Values are globs where they hold `*`, `?` or `[`.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Any, Final, get_args

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
from fleethpa.fleet.hung import is_of_hung
from fleethpa.fleet.lists import cluster_listing, hpa_listing
from fleethpa.fleet.troubles import SharedTrouble, shared_troubles
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.show import words
from fleethpa.show.html import scale, step_path
from fleethpa.show.words import counted
from schemas.constraints import CONSTRAINTS
from schemas.keys import HpaId
from schemas.kubernetes.gotimes import parse_time_ms
from schemas.observed import Mode
from streams.history.past import Past
from streams.history.recorded import Recorded
from streams.state.moves import Move

FLEET_WORDS: Final = ("cluster", "namespace", "name", "mode", "problem")
CHANGE_WORDS: Final = ("cluster", "namespace", "name", "mode", "reason", "limit", "direction", "kind")
_PLAIN: Final = re.compile(r"[\w.*?-]+")
"""Values that a command line takes as they are, or in quotes."""
VALUES: Final[Mapping[str, Collection[str]]] = {
    "mode": get_args(Mode),
    "limit": CONSTRAINTS.keys(),
    "direction": tuple(DIRECTIONS),
    "kind": ("evaluation", "completion"),
}
"""All values that a word can have, where they are few."""
ANY: Final = "any"
"""The value that every row has which has the word at all: `problem:any`."""
FLEET_FLAGS: Final = {"cluster": "-C", "problem": "--problem"}
"""The flags of `get hpa` for words of the filter."""
CHANGE_FLAGS: Final = {"cluster": "-C", "limit": "--limited-by", "direction": "--direction"}
"""The flags of `decisions` for words of the filter."""


class FilterTextError(ValueError):
    """The text of a filter cannot be read; says what may be written."""


@dataclass(frozen=True)
class Term:
    """One word of a filter; an empty `word` looks into every name."""

    word: str
    value: str
    negated: bool

    def __str__(self) -> str:
        return f"{'!' if self.negated else ''}{f'{self.word}:' if self.word else ''}{self.value}"

    def fits(self, row: Mapping[str, Sequence[str]]) -> bool:
        """Whether a row has what the term asks for."""
        if self.word:
            is_there = any(self._is(text) for text in row.get(self.word, ()) if text)
        else:
            wanted = self.value.lower()
            is_there = any(wanted in text.lower() for word in ("cluster", "namespace", "name") for text in row[word])
        return is_there != self.negated

    def _is(self, text: str) -> bool:
        if self.value == ANY:
            return True
        if any(sign in self.value for sign in "*?["):
            return fnmatchcase(text, self.value)
        return self.value.lower() in text.lower() if self.word in ("problem", "reason") else text == self.value


@dataclass(frozen=True)
class RowFilter:
    """Terms that must all fit."""

    terms: tuple[Term, ...] = ()

    def flags(self, known: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """The filter as flags of a command, and the terms for which it has none.

        Args:
            known: the flag of each word that takes the value as it is; of `problem`, that of `problem:any`.
        """
        given: dict[str, str] = {}
        missing = []
        for term in self.terms:
            flag = known.get(term.word, "")
            is_any = term.value == ANY
            is_twice = term.word in given
            choices = VALUES.get(term.word)  # the flag of a word with few values takes no globs
            is_plain = term.value in choices if choices else _PLAIN.fullmatch(term.value) is not None
            if not flag or term.negated or is_twice or not is_plain or is_any != (term.word == "problem"):
                missing.append(str(term))
            else:
                given[term.word] = flag if is_any else f"{flag} {shlex.quote(term.value)}"
        return list(given.values()), missing

    def fits(self, row: Mapping[str, Sequence[str]]) -> bool:
        """Whether a row (its texts by word) is asked for."""
        return all(term.fits(row) for term in self.terms)


def read_filter(text: str, words: Sequence[str]) -> RowFilter:
    """Read the text of a filter.

    Raises:
        FilterTextError: a word that does not exist, a value that its word cannot have, or a quote that is not closed.
    """
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise FilterTextError(f"{text!r}: a quotation mark is not closed") from error
    return RowFilter(tuple(_term(part, words) for part in parts))


def _term(part: str, words: Sequence[str]) -> Term:
    negated = part.startswith("!")
    word, sign, value = part.removeprefix("!").partition(":")
    if not sign:
        return Term("", word, negated)
    if word not in words:
        raise FilterTextError(f"there is no word {word!r}; the words are {', '.join(words)}")
    known = VALUES.get(word, ())
    if known and value != ANY and not any(fnmatchcase(each, value) for each in known):
        raise FilterTextError(f"there is no {word} {value!r}; there are {', '.join(known)}")
    return Term(word, value, negated)


SHOWN: Final = 50
"""Rows on one page."""
SPARK_MS: Final = 3_600_000
SPARK_WIDTH: Final = 90
SPARK_HEIGHT: Final = 18
LEFT_OUT: Final = frozenset({"NAMESPACE", "NAME", "CLUSTER", "AGE", "REFERENCE"})
"""Columns of `get hpa` that the row says in its first cell, or that the HPA's own view has."""


SORTS: Final = ("HPA", "MINPODS", "MAXPODS", "REPLICAS", "WANTS", "MODE")
"""Columns that the list can be sorted by; with `-` before it, the largest first."""


def fleet_view(state: FleetState, query: str, number: int, now_ms: int, sort: str = "") -> dict[str, Any]:
    """Return what the template shows; `number`: of the page of rows, from 1 on; one that is not there is the nearest.

    `sort`: one of `SORTS`, with or without `-`; anything else: those with a problem first.
    """
    wanted, mistake = filter_of(query, FLEET_WORDS)
    order = state.ordered
    # Without a filter, clusters of a FleetHPA that have no problem of their own are in its row.
    views = [
        view for view in order if (wanted.fits(_words(view)) if wanted.terms else not _is_in_fleet_hpa(view, state))
    ]
    sort = sort if sort.removeprefix("-") in SORTS else ""
    views = sorted_rows(views, sort, now_ms) if sort else views
    pages = max(1, -(-len(views) // SHOWN))
    number = min(max(1, number), pages)
    first = (number - 1) * SHOWN
    rows = views[first : first + SHOWN]
    listing = hpa_listing(rows, now_ms, namespaces=True, left_out=LEFT_OUT, problems=_problems)
    return {
        "verdict": verdict(state),
        "query": query,
        "sort": sort,
        "sorts": SORTS,
        "mistake": mistake,
        "words": FLEET_WORDS,
        "flags": wanted.flags(FLEET_FLAGS),
        "columns": [column for column in listing.columns if not column.wide],
        "rows": rows,
        "sparkline": lambda view: sparkline(
            replace(view, moves=moves_of_fleet_hpa(view, state)) if view.members else view
        ),
        "member_of": member_of,
        "in_wholes": 0 if wanted.terms else len(order) - len(views),
        "labels": Counter(problem.label for view in order for problem in view.problems).most_common(),
        "found": len(views),
        "all": len(order),
        "first": first,
        "page": number,
        "pages": pages,
    }


def sorted_rows(views: Sequence[HpaView], sort: str, now_ms: int) -> list[HpaView]:
    """Sort rows by what a column of the list shows; a count that is not known comes last either way."""
    key, is_reversed = sort.removeprefix("-"), sort.startswith("-")
    if key == "HPA":
        return sorted(views, key=lambda view: view.id, reverse=is_reversed)
    columns = hpa_listing([], now_ms, namespaces=True, problems=_problems).columns
    cell = next(column.cell for column in columns if column.header == key)
    told = [(view, cell(view)) for view in views]
    if key == "MODE":
        return [view for view, _ in sorted(told, key=lambda each: each[1], reverse=is_reversed)]
    known = sorted((each for each in told if each[1].isdigit()), key=lambda each: int(each[1]), reverse=is_reversed)
    return [view for view, _ in (*known, *(each for each in told if not each[1].isdigit()))]


def verdict(state: FleetState) -> str:
    """The fleet in one sentence."""
    ills = "; ".join(state.ills)
    if state.is_last_known:
        return f"{ills[:1].upper()}{ills[1:]}: {words.counted(len(state.hpas), 'HPA')} shown as last known."
    if not state.hpas:
        return f"{ills[:1].upper()}{ills[1:]}; no HPA is known yet." if ills else "No HPA is known yet."
    said = _of_hpas(state)
    return f"{ills[:1].upper()}{ills[1:]}. {said}" if ills else said


def _of_hpas(state: FleetState) -> str:
    troubled = sum(1 for _ in takewhile(lambda view: view.weight, state.ordered))
    silent = [cluster.name for cluster in state.clusters.values() if cluster.hidden is not None]
    text = (
        f"{words.counted(troubled, 'HPA')} of {len(state.hpas):,} need a look" if troubled else "No HPA has a problem"
    )
    if troubled == 1:
        text = f"1 HPA of {len(state.hpas):,} needs a look"
    return f"{text}; {', '.join(silent)} shown as last known" if silent else f"{text}."


def filter_of(query: str, known: Sequence[str]) -> tuple[RowFilter, str]:
    """The filter of an address, and what is wrong with it; a filter that cannot be read keeps nothing out."""
    try:
        return read_filter(query, known), ""
    except FilterTextError as error:
        return RowFilter(), str(error)


def cluster_rows(state: FleetState, now_ms: int) -> list[dict[str, Any]]:
    """The clusters as `get clusters` has them, each with its style and every column's text."""
    listing = cluster_listing(list(state.clusters.values()), now_ms)
    return [
        {
            "name": view.name,
            "style": (listing.style(view) if listing.style else "") or "green",
            "cells": {column.header: column.cell(view) for column in listing.columns},
            "has_watch_problem": bool(view.problems),
        }
        for view in listing.items
    ]


def cluster_troubles(state: FleetState) -> list[SharedTrouble]:
    """Return the troubles of clusters, each once; without the silence of a process that every view says hangs."""
    pairs = [(cluster, trouble) for cluster in state.clusters.values() for trouble in cluster.troubles]
    return shared_troubles((cluster, trouble) for cluster, trouble in pairs if not is_of_hung(trouble, state.hung))


def said_above(state: FleetState) -> set[str]:
    """Return the clusters of which a trouble is left out there, as every view says that a process hangs."""
    clusters = state.clusters.values()
    return {cluster.name for cluster in clusters if any(is_of_hung(each, state.hung) for each in cluster.troubles)}


def clusters_verdict(state: FleetState) -> str:
    """Whether all clusters are there, in one sentence."""
    views = state.clusters.values()
    if state.is_last_known:
        return f"{words.counted(len(views), 'cluster')}, none of them known now: {'; '.join(state.ills)}"
    away = [view.name for view in views if view.hidden is not None]
    troubled = sum(view.hidden is None and bool(view.troubles or view.problems) for view in views)
    wrong = [f"{', '.join(away)} not seen now"] * bool(away) + [f"{troubled} with a problem"] * bool(troubled)
    return f"{words.counted(len(views), 'cluster')}, {' and '.join(wrong) or 'none with a problem'}"


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


def member_of(view: HpaView, cluster: str) -> HpaId:
    """The HPA of a FleetHPA in one of its clusters."""
    return view.id._replace(cluster=cluster)


def _is_in_fleet_hpa(view: HpaView, state: FleetState) -> bool:
    return view.fleet_hpa is not None and view.fleet_hpa in state.hpas and not view.problems


def moves_of_fleet_hpa(view: HpaView, state: FleetState) -> tuple[Move, ...]:
    """The moves of a FleetHPA's total: those of its clusters, counted back from what it has now."""
    members = [state.hpas[hpa] for each in view.members if (hpa := member_of(view, each.cluster.name)) in state.hpas]
    count: int = view.status.get("currentReplicas") or 0
    moves = []
    for move in sorted((move for each in members for move in each.moves), key=lambda move: -move.time_ms):
        before = count - (move.after - move.before)
        moves.append(move._replace(before=before, after=count))
        count = before
    return tuple(reversed(moves))


def sparkline(view: HpaView) -> str:
    """The path (SVG) of the replicas over the last hour, by the last moves; empty: they do not show it.

    Of an HPA that was created in this hour it begins there, and fills the width with the time that there is.
    """
    now = view.status.get("currentReplicas")
    if not isinstance(now, int):
        return ""
    begin_ms = view.clock_ms - SPARK_MS
    moves = [move for move in view.moves if move.time_ms >= begin_ms]
    counts = [*(move.before for move in moves), *(move.after for move in moves), now]
    first_ms = min(max(begin_ms, _created_ms(view)), view.clock_ms - 1)
    x = scale(first_ms, view.clock_ms, 0, SPARK_WIDTH)
    y = scale(0, max(1, *counts), SPARK_HEIGHT - 1, 1)
    first = (first_ms, moves[0].before if moves else now)
    return step_path([first, *((move.time_ms, move.after) for move in moves)], x, y, view.clock_ms)


def _created_ms(view: HpaView) -> int:
    """When the HPA was created; 0: not known."""
    text = (view.hpa.get("metadata") or {}).get("creationTimestamp")
    return parse_time_ms(text) if text else 0


# --- changes ------------------------------------------------------------------------------------------------------

SHOWN_CHANGES: Final = 200
BARS: Final = 48
LEFT_OUT_OF_CHANGES: Final = frozenset({"TIME", "HPA", "ID", "WHY", "KIND", "MODE", "GENERATION", "REASON"})


async def read_changes(past: Past, since_ms: int, until_ms: int, *, every: bool) -> list[Recorded]:
    """The decisions of the fleet in a window, oldest first; `every`: also those that changed nothing."""
    wanted = Filter(Selection(), since_ms, until_ms, changes=not every)
    return newest(await read_back(past, wanted, None), wanted.matches, None)


def changes_view(
    decisions: Sequence[Recorded], query: str, since_ms: int, now_ms: int, bar: int | None, *, every: bool = False
) -> dict[str, Any]:
    """Return what the template shows; `bar`: the stretch of time that is picked in the bar chart; `every`: as was
    read.
    """
    wanted, mistake = filter_of(query, CHANGE_WORDS)
    endings = endings_of(decisions)
    fitting = [each for each in one_each(decisions) if wanted.fits(_change_words(each))]
    # What shadow mode decides is written by nobody: it is shown where it is asked for.
    is_shadow_hidden = not every and all(term.word != "mode" for term in wanted.terms)
    shown = [each for each in fitting if not (is_shadow_hidden and _is_in_shadow(each))]
    in_shadow, fitting = len(fitting) - len(shown), shown
    # The bars cover the window, from the first thing in it on.
    begin = max(since_ms, fitting[0].time_ms) if fitting else since_ms
    end = max(now_ms, begin + BARS)
    bar = bar if bar is not None and bar < BARS else None
    picked = [each for each in fitting if bar is None or _bar(each.time_ms, begin, end) == bar]
    columns, bars = decision_columns(endings, "utc", now_ms), _bars(fitting, begin, end)
    return {
        "query": query,
        "mistake": mistake,
        "words": CHANGE_WORDS,
        "flags": wanted.flags(CHANGE_FLAGS),
        "verdict": _verdict(picked, endings, every=every),
        "in_shadow": in_shadow,
        "bars": bars,
        "most": max(each["count"] for each in bars),
        "bar": bar,
        "begin_ms": begin,
        "end_ms": end,
        "columns": [column for column in columns if column.header not in LEFT_OUT_OF_CHANGES],
        "why": next(column for column in columns if column.header == "WHY"),
        "rows": picked[: -SHOWN_CHANGES - 1 : -1],
        "found": len(picked),
        "shown": SHOWN_CHANGES,
    }


def _is_in_shadow(recorded: Recorded) -> bool:
    return recorded.decision.kind == "evaluation" and recorded.decision.mode == "shadow"


def _verdict(decisions: Sequence[Recorded], endings: Mapping[str, Recorded], *, every: bool) -> str:
    """Return what was found in one sentence: a change counts once it was applied."""
    if every:
        return counted(len(decisions), "decision")
    applied = [each for each in decisions if _result(each, endings) == "applied"]
    shadow = sum(map(_is_in_shadow, decisions))
    others = len(decisions) - len(applied) - shadow
    up = sum(each.decision.final_desired_replicas > each.decision.current_replicas for each in applied)
    text = f"{counted(len(applied), 'change')} applied: {up:,} up, {len(applied) - up:,} down"
    rest = [f"{others:,} decided and not applied"] * bool(others) + [f"{shadow:,} decided in shadow"] * bool(shadow)
    return "; ".join([text if applied else "No change was applied", *rest])


def _result(recorded: Recorded, endings: Mapping[str, Recorded]) -> str:
    """Return what became of a change; empty: it was not written, or nothing is known yet."""
    ending = recorded if recorded.decision.kind == "completion" else endings.get(recorded.decision.id)
    return str(ending.decision.outcome.get("result", "")) if ending is not None else ""


def newer_view(state: FleetState, after_ms: int) -> dict[str, Any]:
    """How many HPAs have other replicas since a moment: what is shown is not moved, but may be out of date."""
    count = sum(any(move.time_ms > after_ms for move in view.moves) for view in state.hpas.values())
    return {"count": count, "after_ms": after_ms, "newest_ms": state.clock_ms}


def _change_words(recorded: Recorded) -> dict[str, Sequence[str]]:
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


def _bars(decisions: Sequence[Recorded], begin: int, end: int) -> list[dict[str, Any]]:
    counts = [0] * BARS
    for each in decisions:
        counts[_bar(each.time_ms, begin, end)] += 1
    most = max([1, *counts])
    width = (end - begin) // BARS
    return [
        {"number": number, "count": count, "height": round(60 * count / most), "time_ms": begin + number * width}
        for number, count in enumerate(counts)
    ]
