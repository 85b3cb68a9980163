"""Answers of metrics APIs and pushed points, as the fold takes them from the log: answers stay JSON, points become
rates.

Most of a log is what metrics APIs answered for pods. The fold needs only what was asked, an evaluation reads the
values once, and rows store them as they are.

Rates are integers in milli units per second, cut toward zero. A counter's first point gives no value, which is not
zero.
"""

from typing import Literal

import msgspec
from msgspec import Raw, Struct

from schemas.answers import DEFAULT_WINDOW_MS, AnswerIdentity
from schemas.entries import PlainBody, Source
from schemas.limits import SyncPeriods
from schemas.observed import EntryBody, Point
from streams.hpa.gofloat import trunc_div, wrap64
from streams.state.ledger import LogError
from streams.state.namespacerows import query_key
from streams.state.rows import QueryKey, SampleRow, SeriesKey


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

    @property
    def is_tick(self) -> bool:
        """Whether a decider appended it to say that it works."""
        return not self.entries and self.by != "ingest"


_QUESTION = msgspec.json.Decoder(AnswerIdentity)
_RECORD = msgspec.json.Decoder(FoldedRecord)


def read_record(partition: int, offset: int, value: bytes) -> FoldedRecord:
    """Read the log record of an offset of a partition.

    Raises LogError: it is not a log record; the text says where it is.
    """
    try:
        return _RECORD.decode(value)
    except msgspec.DecodeError as error:
        raise LogError(f"log partition {partition} offset {offset} is not a log record: {error}") from error


def read_question(json: bytes | Raw, place: str) -> QueryKey:
    """Read what an answer answers. Raises LogError: it cannot be read; the text has its place in the log."""
    try:
        return query_key(_QUESTION.decode(json))
    except msgspec.DecodeError as error:
        raise LogError(f"log {place}: an answer cannot be read: {error}") from error


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
