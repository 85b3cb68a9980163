"""One HPA at one moment: the verdict, the arithmetic, its metrics, who moved it, and what happened before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

import msgspec

from fleethpa.changes.specs import change_text, revisions_in
from fleethpa.fleet.decisionpage import metric_health
from fleethpa.fleet.finding import check_known, find_decision
from fleethpa.fleet.selection import Ref, Selection
from fleethpa.fleet.troubles import ClusterTrouble
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import CommandError, usage
from fleethpa.frame.options import parse_duration_ms
from fleethpa.page.chartseries import ChartSeries, Mark, hand_marks, restart_marks, series, spec_marks
from fleethpa.questions.explaining import Again, evaluated_again, troubles_of
from fleethpa.show import words
from schemas.keys import HpaId, partition_for
from streams.analysis.revisions import Revision
from streams.history.past import Past
from streams.history.recorded import Recorded
from streams.state.moves import FLEETHPA, moved

SPANS: Final = ("15m", "1h", "6h", "24h", "7d")
DEFAULT_SPAN: Final = "1h"
LONGEST_FOLD_MS: Final = 6 * 3_600_000
"""How far back changes of the spec are read: that folds the log, of which a week takes long."""
FIRST_PART_MS: Final = 3 * 3_600_000
"""Of a longer span, so much is read for the timeline at first."""
EVALUATIONS_KEPT: Final = 32
TIMELINE: Final = 200
"""Lines of the timeline at most."""


@dataclass(frozen=True)
class HpaPast:
    """What was read of an HPA: its evaluations and ended writes of a span, its changes, and one decision explained."""

    decisions: Sequence[Recorded]
    """The newest of the span, as many as the timeline shows; or all of them."""
    revisions: Sequence[Revision]
    is_whole: bool
    """Whether the changes reach as far back as the span."""
    again: Again | None = None
    ending: Recorded | None = None
    troubles: Sequence[ClusterTrouble] = ()
    note: str = ""


class KeptEvaluations:
    """The decisions that were evaluated again last, by id: that of one decision is always the same.

    To evaluate one again folds the log since the newest stored state before it, which an archive has once an hour; a
    view is read again whenever something is new.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Again] = OrderedDict()

    async def of(self, past: Past, found: Recorded) -> Again:
        """A decision, evaluated again; one that could not be is tried again."""
        id_ = found.decision.id
        if (again := self._kept.get(id_)) is None or again.recorded.value != found.value:
            again = await evaluated_again(past, found)
        if not again.lacking:
            self._kept[id_] = again
            self._kept.move_to_end(id_)
        while len(self._kept) > EVALUATIONS_KEPT:
            self._kept.popitem(last=False)
        return again


async def read_hpa(past: Past, hpa: HpaId, at_ms: int, span_ms: int, kept: KeptEvaluations) -> HpaPast:
    """Read what the view of an HPA shows. Raises CommandError: there is no such HPA; the source cannot be read."""
    decisions = await read_timeline(past, hpa, at_ms, span_ms)
    revisions, _ = await revisions_in(past, hpa, max(0, at_ms - min(span_ms, LONGEST_FOLD_MS)))
    is_whole = span_ms <= LONGEST_FOLD_MS
    try:
        newest, ending = newest_of(decisions) or await find_decision(past, str(hpa), None, at_ms=at_ms)
    except CommandError as error:
        return HpaPast(decisions, revisions, is_whole, note=error.text())
    again = await kept.of(past, newest)
    note = f"What would have changed the answer cannot be found out: {again.lacking}" if again.lacking else ""
    return HpaPast(decisions, revisions, is_whole, again, ending, await troubles_of(past, newest, ending, at_ms), note)


async def read_timeline(past: Past, hpa: HpaId, at_ms: int, span_ms: int) -> list[Recorded]:
    """The newest decisions of an HPA in the span that ends at a moment, oldest first: at least what the timeline shows.

    A long span is read backwards, in parts of which each is twice as long, until there are enough.

    Raises CommandError: there are none, and there is no such HPA.
    """
    found: list[Recorded] = []
    since_ms, until_ms, part_ms = max(0, at_ms - span_ms), at_ms + 1, FIRST_PART_MS
    while until_ms > since_ms:
        part_since_ms = max(since_ms, until_ms - part_ms)
        found = [*await _decisions_of(past, hpa, part_since_ms, until_ms), *found]
        # One line more than is shown: the oldest of them is whole then.
        if sum(1 for _ in groupby(found, key=_likeness)) > TIMELINE:
            break
        until_ms, part_ms = part_since_ms, 2 * part_ms
    return found or await _none_of(past, hpa)


def newest_of(decisions: Sequence[Recorded]) -> tuple[Recorded, Recorded | None] | None:
    """The newest evaluation among some decisions and, where its write has ended, the record that completed it."""
    for recorded in reversed(decisions):
        if recorded.head.kind == "evaluation":
            id_ = recorded.head.id
            return recorded, next((each for each in decisions if each.head.completes == id_), None)
    return None


async def read_decisions(past: Past, hpa: HpaId, at_ms: int, span_ms: int) -> list[Recorded]:
    """The decisions of an HPA in the span that ends at a moment, oldest first.

    Raises CommandError: there are none, and there is no such HPA.
    """
    return await _decisions_of(past, hpa, max(0, at_ms - span_ms), at_ms + 1) or await _none_of(past, hpa)


async def _none_of(past: Past, hpa: HpaId) -> list[Recorded]:
    await check_known(past, Selection((Ref(hpa.name, hpa.namespace, hpa.cluster),)))
    return []


async def _decisions_of(past: Past, hpa: HpaId, since_ms: int, until_ms: int) -> list[Recorded]:
    number = partition_for(hpa.namespace_key, await past.partitions())
    async with aclosing(past.decisions(number, since_ms, until_ms, hpa.__eq__)) as decisions:
        return [recorded async for recorded in decisions]


def span_of(text: str) -> int:
    """Read the span of the charts in milliseconds; an empty text is the default.

    Raises CommandError: it is not a duration, or holds no time.
    """
    found = parse_duration_ms(text or DEFAULT_SPAN, "span")
    if not found:
        raise usage(f"span {text!r} holds no time", cause=f"Write one of {', '.join(SPANS)}, or another duration.")
    return found


def hpa_view(state: FleetState, hpa: HpaId, read: HpaPast, now_ms: int) -> dict[str, Any]:
    """What the template shows; of an HPA that was deleted there is only its past."""
    view = state.hpas.get(hpa)
    if view is not None and read.again is not None:
        view = replace(view, decision=read.again.recorded)
    return {
        "hpa": hpa,
        "view": view,
        "moves": list(reversed(view.moves)) if view is not None else [],
        "has_rivals": view is not None and any(move.writer != FLEETHPA for move in view.moves),
        "timeline": timeline(read),
        "marks": to_marks(read.revisions) if read.is_whole else None,
        "revisions": list(reversed(read.revisions)),
        "change_text": change_text,
        "note": read.note,
        "explained": read.again.explained(read.ending, read.troubles) if read.again is not None else None,
        "health": metric_health(read.again.recorded.decision, now_ms) if read.again is not None else [],
    }


# --- the timeline -----------------------------------------------------------------------------------------------------


def timeline(read: HpaPast) -> list[dict[str, Any]]:
    """What happened, newest first; evaluations that came out alike are one line."""
    runs = [list(run) for _, run in groupby(read.decisions, key=_likeness)]
    lines = [_alike(run) for run in reversed(runs[-TIMELINE:])]
    lines += [_changed(each) for each in read.revisions]
    lines += [line for recorded in read.decisions if (line := _by_hand(recorded)) is not None]
    return sorted(lines, key=lambda line: -line["time_ms"])[:TIMELINE]


def _likeness(recorded: Recorded) -> tuple[Any, ...]:
    decision = recorded.facts
    if decision.kind == "completion" or decision.direction != "None":
        return (recorded.head.id,)
    return (decision.final_desired_replicas, tuple(decision.constraints_applied), decision.reason, decision.error)


def _alike(run: Sequence[Recorded]) -> dict[str, Any]:
    first, last = run[0], run[-1]
    decision = last.decision
    kind = "write" if decision.kind == "completion" else "scale" if decision.direction != "None" else "same"
    return {
        "kind": "failed" if decision.error or decision.refused else kind,
        "time_ms": last.time_ms,
        "since_ms": first.time_ms,
        "count": len(run),
        "id": decision.id,
        "change": "" if decision.kind == "completion" else words.change(decision),
        "text": words.why(decision),
    }


def _changed(each: Revision) -> dict[str, Any]:
    by = each.author or each.manager
    text = f"{change_text(each)}{f', by {by}' if by else ''}{f': {each.reason}' if each.reason else ''}"
    change = f"revision {each.generation}" if each.generation else each.what
    return _line("spec", each.time, change, text)


def to_marks(revisions: Sequence[Revision]) -> str:
    """Every change as a mark of the charts, at the time at which it was recorded (JSON)."""
    kinds = {"mode": "command", "pause": "command", "resume": "command"}
    found = [
        Mark(time=each.time / 1000, kind=kinds.get(each.what, "spec"), text=_changed(each)["text"])
        for each in revisions
    ]
    return msgspec.json.encode(found).decode()


def _by_hand(recorded: Recorded) -> dict[str, Any] | None:
    change = recorded.facts.observed.get("change")
    if not change or change["by"] == "decision":
        return None
    move = moved(recorded.time_ms, change)
    return _line("hand", move.time_ms, f"{move.before} → {move.after}", f"written by {move.writer}")


def _line(kind: str, time_ms: int, change: str, text: str) -> dict[str, Any]:
    return {"kind": kind, "time_ms": time_ms, "since_ms": time_ms, "count": 1, "id": "", "change": change, "text": text}


# --- the charts -------------------------------------------------------------------------------------------------------


def charts(decisions: Sequence[Recorded]) -> ChartSeries:
    """The lines of an HPA's charts, with marks for other specs, pauses in force, restarts, and for who wrote."""
    return series(decisions, [*spec_marks(decisions), *restart_marks(decisions), *hand_marks(decisions)])
