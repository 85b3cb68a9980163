"""Rates of pushed counters and sums, and answers of metrics APIs that come in parts.

Rates are integers in milli units per second, cut toward zero. A counter's first point gives no value, which is not
zero. Each part of an answer has a slot of its own; the answer in force depends only on the slots, and a slot only on
its own parts, so that slots may be stored in rows of different age.
"""

from collections.abc import Mapping, Sequence

from msgspec import structs

from schemas.observed import Point
from streams.hpa.gofloat import trunc_div, wrap64
from streams.state.rows import AnswerRow, SampleRow, SeriesKey, answer_row

KEPT = 3
"""Parts that a slot keeps: of the answer in force, of one that was interrupted, and of one that is coming in."""

Slots = Mapping[int, tuple[AnswerRow, ...]]
"""Number of a part -> what came for it, the newest first."""


def with_part(slots: Slots, row: AnswerRow) -> dict[int, tuple[AnswerRow, ...]]:
    """The slots after one more part; an answer that is not divided is its only part."""
    older = slots.get(row.part, ()) if row.parts > 1 else ()
    return {**slots, row.part: (row, *older[: KEPT - 1])}


def in_force(slots: Slots) -> list[AnswerRow]:
    """The parts of the newest complete answer, in order; empty if no answer is complete."""
    for first in slots.get(0, ()):
        parts = [_of_answer(slots.get(number, ()), first) for number in range(first.parts)]
        found = [part for part in parts if part is not None]
        if len(found) == len(parts):
            return found
    return []


def _of_answer(slot: Sequence[AnswerRow], first: AnswerRow) -> AnswerRow | None:
    wanted = first.answer_id, first.parts
    return next((row for row in slot if (row.answer_id, row.parts) == wanted), None)


def joined(parts: Sequence[AnswerRow]) -> AnswerRow:
    """Join the parts into one answer, with the time of the oldest part and the source of the last."""
    if len(parts) == 1:
        return parts[0]
    answers = [part.answer for part in parts]
    answer = structs.replace(
        answers[0],
        usages=[usage for each in answers for usage in each.usages],
        values=[value for each in answers for value in each.values],
        items=[item for each in answers for item in each.items],
        answer_id="",
        part=0,
        parts=1,
    )
    return answer_row(answer, min(part.time_ms for part in parts), parts[-1].source)


_DEFAULT_WINDOW_MS = 60_000
REMEMBERED_MS = 3_600_000
"""Answers and samples older than this (log time) are as if they had never come, so they may be dropped at any time."""


def series_key(point: Point) -> SeriesKey:
    """Identity of the metric that a point is of."""
    return point.type, point.metric, point.container, point.object_kind, point.object


def series_name(point: Point) -> str:
    """Identity of the point's series within its metric: its pod, or its labels in order (`a=1,b=2`)."""
    if point.type == "External":
        return ",".join([f"{name}={point.labels[name]}" for name in sorted(point.labels)])
    return point.pod


def fold_point(old: SampleRow | None, point: Point, source: str, now_ms: int) -> SampleRow | None:
    """Make the newest sample of a series from the one before and a point; None: the point is not newer, or too old."""
    if now_ms - point.time > REMEMBERED_MS:
        return None
    if old is not None and now_ms - old.time_ms > REMEMBERED_MS:
        old = None
    if old is not None and point.time <= old.time_ms:
        return None
    if point.temporality == "gauge":
        return SampleRow(point.milli, point.time, _DEFAULT_WINDOW_MS, source, point.utilization)
    if point.temporality == "delta":
        since_ms = point.start_time or (old.time_ms if old is not None else 0)
        return _rate(point, point.milli, since_ms, source, None)
    return _of_counter(old, point, source)


def _of_counter(old: SampleRow | None, point: Point, source: str) -> SampleRow:
    if old is None or old.last_milli is None:
        return SampleRow(None, point.time, _DEFAULT_WINDOW_MS, source, point.utilization, point.milli, point.start_time)
    restarted = point.milli < old.last_milli or (point.start_time and old.start_ms and point.start_time > old.start_ms)
    if not restarted:
        return _rate(point, point.milli - old.last_milli, old.time_ms, source, point.milli)
    # After a reset the counter began at zero, at its start time if that is given and later than the last point.
    since_ms = point.start_time if point.start_time > old.time_ms else 0
    return _rate(point, point.milli, since_ms, source, point.milli)


def _rate(point: Point, change: int, since_ms: int, source: str, last_milli: int | None) -> SampleRow:
    window_ms = point.time - since_ms
    if since_ms <= 0 or window_ms <= 0:
        return SampleRow(None, point.time, 0, source, point.utilization, last_milli, point.start_time)
    milli = trunc_div(wrap64(change * 1000), window_ms)
    return SampleRow(milli, point.time, window_ms, source, point.utilization, last_milli, point.start_time)
