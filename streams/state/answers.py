"""Answers of metrics APIs and pushed points, as the fold takes them from the log: answers stay JSON and come in parts,
points become rates.

Most of a log is what metrics APIs answered for pods. The fold needs only what was asked, an evaluation reads the
values once, and rows store them as they are.

Rates are integers in milli units per second, cut toward zero. A counter's first point gives no value, which is not
zero. What is kept of a part of an answer depends on what came for this part only, and the answer in force on what is
kept, so that parts may be stored in rows of different age.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Raw, Struct, structs

from schemas.answers import DEFAULT_WINDOW_MS, AnswerIdentity, MetricAnswer
from schemas.entries import PlainBody, Source
from schemas.limits import SyncPeriods
from schemas.observed import EntryBody, Point
from streams.hpa.gofloat import trunc_div, wrap64
from streams.state.ledger import LogError
from streams.state.rows import AnswerRow, SampleRow, SeriesKey

PACKED = b',"packed":['
"""What comes behind the question in an answer about pods."""


class AnswerHead(AnswerIdentity, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """What a `MetricAnswer` answers, and which part of an answer it is."""

    answer_id: str = ""
    part: int = 0
    parts: int = 1
    error: str | None = None


class FoldedAnswers(EntryBody, frozen=True, gc=False, kw_only=True, tag="answers"):
    """`schemas.answers.Answers` whose items are still JSON."""

    items: list[Raw]
    session: str = ""


FoldedBody = FoldedAnswers | PlainBody


class FoldedEntry(Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """`schemas.entries.Entry`."""

    key: str
    body: FoldedBody
    source: Source | None = None


class FoldedRecord(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """`schemas.entries.LogRecord`."""

    v: int
    entries: list[FoldedEntry]
    by: Literal["", "ingest"] = ""
    every: SyncPeriods = 1


_HEAD = msgspec.json.Decoder(AnswerHead)
_ANSWER = msgspec.json.Decoder(MetricAnswer)
_RECORD = msgspec.json.Decoder(FoldedRecord)


def read_record(partition: int, offset: int, value: bytes) -> FoldedRecord:
    """Read the log record of an offset of a partition.

    Raises LogError: it is not a log record; the text says where it is.
    """
    try:
        return _RECORD.decode(value)
    except msgspec.DecodeError as error:
        raise LogError(f"log partition {partition} offset {offset} is not a log record: {error}") from error


def question_in(item: bytes) -> bytes:
    """Give the JSON of what an answer answers: what ingest writes before the answer's values. The same question has the
    same bytes each time, so that it need not be read again. Empty: the answer is an error, a part, or without a list of
    values, or some text of the question is escaped.
    """
    end = item.find(b'":[') if item.endswith(b"]}") else -1
    # Without a backslash every quote begins or ends a text, so that these bytes do not stand in one.
    if end < 0 or b"\\" in item[: end + 1]:
        return b""
    question = item[: item.rfind(b',"', 0, end)]
    return b"" if b'"error":' in question or b'"answerId":' in question else question


def read_answer(item: Raw, time_ms: int, source: str, place: str) -> tuple[AnswerHead, AnswerRow]:
    """Read what an answer answers, and make its row.

    Raises LogError: it cannot be decoded as an answer; the text has its place in the log.
    """
    json = bytes(item)
    try:
        head = _HEAD.decode(item)
    except msgspec.DecodeError as error:
        raise LogError(f"log {place}: an answer cannot be read: {error}") from error
    return head, AnswerRow(time_ms, source, json, head.part, head.parts, head.answer_id)


def asked(row: AnswerRow) -> AnswerIdentity:
    """Say what an answer answers. Raises msgspec.DecodeError: it cannot be read."""
    return _HEAD.decode(row.json)


KEPT = 3
"""How many of a part are kept: of the answer in force, of one that was interrupted, and of one that is coming in."""


def with_part(known: Sequence[AnswerRow], row: AnswerRow) -> tuple[AnswerRow, ...]:
    """Give what is kept of a part of an answer after one more came; an answer that is not divided is its only part.

    `known`: what is kept of that part, the newest first.
    """
    return (row, *known[: KEPT - 1]) if row.parts > 1 else (row,)


def in_force(kept: Sequence[AnswerRow]) -> Sequence[AnswerRow]:
    """Give the parts of the newest complete answer, in order; empty if no answer is complete.

    `kept`: what is kept of all parts; of each part the newest first.
    """
    if len(kept) == 1 and kept[0].parts == 1:
        return kept
    newest = {(each.answer_id, each.parts, each.part): each for each in reversed(kept)}
    for first in kept:
        if first.part == 0:
            parts = [newest.get((first.answer_id, first.parts, number)) for number in range(first.parts)]
            found = [part for part in parts if part is not None]
            if len(found) == first.parts:
                return found
    return ()


def joined(parts: Sequence[AnswerRow]) -> MetricAnswer:
    """Join the parts of an answer."""
    if len(parts) == 1:
        return parts[0].answer
    answers = [part.answer for part in parts]
    return structs.replace(
        answers[0],
        usages=[usage for each in answers for usage in each.usages],
        values=[value for each in answers for value in each.values],
        items=[item for each in answers for item in each.items],
        answer_id="",
        part=0,
        parts=1,
    )


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
        return SampleRow(point.milli, point.time, DEFAULT_WINDOW_MS, source, point.utilization)
    if point.temporality == "delta":
        since_ms = point.start_time or (old.time_ms if old is not None else 0)
        return _rate(point, point.milli, since_ms, source, None)
    return _of_counter(old, point, source)


def _of_counter(old: SampleRow | None, point: Point, source: str) -> SampleRow:
    if old is None or old.last_milli is None:
        return SampleRow(None, point.time, DEFAULT_WINDOW_MS, source, point.utilization, point.milli, point.start_time)
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
