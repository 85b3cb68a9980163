"""The writing end of ingest: log records of one partition each, none larger than the log accepts, and rejected records
with the original bytes and the reason in headers. Both are acknowledged by all replicas before offsets are committed.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer, ConsumerRecord
from msgspec import structs
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from runtime.brokerclock import append_time_ms
from runtime.kafkaclients import queue
from schemas import limits
from schemas.answers import Answers
from schemas.codec import encode
from schemas.entries import VERSION, WHOLE_PARTITION_KEY, Body, ControlTransferred, Entry, LeftNative, Source
from schemas.keys import namespace_key
from schemas.limits import Refusal
from schemas.observed import Heartbeat, Samples
from schemas.partitioning import by_partition, partition_for
from schemas.topics import LOG, MAX_LOG_RECORD_BYTES, REJECTED, REJECTED_KEPT_BYTES
from streams.ingest.appendtimes import AppendTimes
from streams.ingest.mapping import Mapping
from streams.ingest.pieces import Conversion, Piece, RawRecord

_HEAD = b'{"v":%d,"entries":[' % VERSION
_TAIL = b"]}"
MAX_ENTRY_BYTES = MAX_LOG_RECORD_BYTES - len(_HEAD) - len(_TAIL)


class LogEntry(NamedTuple):
    """An encoded entry, where it goes (None: every partition), and its source time (ms)."""

    key: str
    partition: int | None
    time_ms: int
    data: bytes


class Batch(NamedTuple):
    """A log record that is ready to send."""

    partition: int
    key: str
    time_ms: int
    value: bytes
    entries: int


def log_entries(pieces: Iterable[Piece], raw: RawRecord, time_ms: int, partitions: int) -> Iterator[LogEntry | Refusal]:
    """Encode pieces as entries of the log, numbered by their place in the record; too large ones are split.

    One that cannot be split is given as a refusal.
    """
    index = 0
    for piece, partition in _placed(pieces, partitions):
        for body, data in _fitting(piece, raw, time_ms, index):
            if len(data) > MAX_ENTRY_BYTES:
                kind = body.__struct_config__.tag
                text = f"a {kind!r} entry of {len(data)} bytes, a log record holds {MAX_ENTRY_BYTES}"
                yield Refusal("tooLarge", f"{text}: send it in smaller parts")
                continue
            yield LogEntry(_key(piece), partition, time_ms, data)
            index += 1


def _placed(pieces: Iterable[Piece], partitions: int) -> Iterator[tuple[Piece, int | None]]:
    """Each piece with its partition. A change of hands concerns all partitions, a native HPA only that of its
    namespace: each partition gets the change with its own. A heartbeat is divided where its namespaces are not all in
    one partition: an agent has one topic partition for all of them.
    """
    for piece in pieces:
        body = piece.body
        if isinstance(body, Heartbeat) and body.namespaces:
            groups = by_partition(piece.cluster, (piece.namespace, *body.namespaces), partitions)
            for number, names in groups.items():
                own_body = structs.replace(body, namespaces=names[1:])
                yield piece._replace(namespace=names[0], body=own_body), number
            continue
        if not isinstance(body, ControlTransferred) or not body.natives:
            yield piece, _partition(piece, partitions)
            continue
        natives: dict[int, list[LeftNative]] = {number: [] for number in range(partitions)}
        for native in body.natives:
            natives[partition_for(namespace_key(body.cluster, native.namespace), partitions)].append(native)
        for number, own in natives.items():
            yield piece._replace(body=structs.replace(body, natives=own)), number


def _key(piece: Piece) -> str:
    return namespace_key(piece.cluster, piece.namespace) if piece.namespace else WHOLE_PARTITION_KEY


def _partition(piece: Piece, partitions: int) -> int | None:
    """The log partition that a piece goes into; None: all of them."""
    if piece.is_whole_partition:
        return None
    return partition_for(_key(piece) if piece.namespace else piece.cluster, partitions)


def _fitting(piece: Piece, raw: RawRecord, time_ms: int, index: int) -> Iterator[tuple[Body, bytes]]:
    """The body whole or, where it is too large and may be taken apart, in parts numbered from `index`."""
    waiting: list[Body] = [piece.body]
    while waiting:
        body = waiting.pop()
        source = Source(topic=raw.topic, partition=raw.partition, offset=raw.offset, index=index, time=time_ms)
        data = encode(Entry(key=_key(piece), body=body, source=source))
        halves = _halves(body) if len(data) > MAX_ENTRY_BYTES else None
        if halves:
            waiting += [halves[1], halves[0]]
            continue
        yield body, data
        index += len(data) <= MAX_ENTRY_BYTES


_DIVISIBLE: dict[type, str] = {Samples: "points", Answers: "items", ControlTransferred: "natives"}
"""Bodies that can be split anywhere, and of what: samples, answers and native HPAs do not depend on each other, and a
change of hands that comes twice counts once.
"""


def _halves(body: Body) -> tuple[Body, Body] | None:
    """Split a body; None: it cannot be split."""
    field = _DIVISIBLE.get(type(body), "")
    items = getattr(body, field) if field else ()
    middle = len(items) // 2
    if not middle:
        return None
    return structs.replace(body, **{field: items[:middle]}), structs.replace(body, **{field: items[middle:]})


class Batcher:
    """Collects entries per partition, in the order in which they arrive, and divides them into log records.

    Args:
        partitions: partition count of the log.
        by_time: start a new log record where the source time changes (playback stamps records with it).
    """

    def __init__(self, partitions: int, *, by_time: bool = False) -> None:
        self._partitions = partitions
        self._by_time = by_time
        self._open: dict[int, list[LogEntry]] = {}
        self._bytes: dict[int, int] = {}
        self._done: list[Batch] = []

    def add(self, entry: LogEntry) -> None:
        """Put an entry behind the others of its partition, or of each partition."""
        for partition in range(self._partitions) if entry.partition is None else (entry.partition,):
            self._add(partition, entry)

    def _add(self, partition: int, entry: LogEntry) -> None:
        held = self._open.setdefault(partition, [])
        size = self._bytes.get(partition, 0) + len(entry.data) + 1
        is_other_time = bool(held) and self._by_time and held[-1].time_ms != entry.time_ms
        if is_other_time or size > MAX_ENTRY_BYTES + 1:
            self._close(partition)
            held = self._open.setdefault(partition, [])
            size = len(entry.data) + 1
        held.append(entry)
        self._bytes[partition] = size

    def _close(self, partition: int) -> None:
        held = self._open.pop(partition, [])
        self._bytes.pop(partition, None)
        if held:
            value = _HEAD + b",".join(entry.data for entry in held) + _TAIL
            newest_ms = max(entry.time_ms for entry in held)
            self._done.append(Batch(partition, _record_key(held), newest_ms, value, len(held)))

    def batches(self) -> list[Batch]:
        """Everything collected, as log records; those of one partition in order."""
        for partition in sorted(self._open):
            self._close(partition)
        done, self._done = self._done, []
        return done


def _record_key(held: list[LogEntry]) -> str:
    """The key of a log record, which only people read: the namespace if all entries share it, else `*`."""
    keys = {entry.key for entry in held}
    return keys.pop() if len(keys) == 1 else WHOLE_PARTITION_KEY


class IngestMetrics:
    """Counters and gauges of one worker, all named `fleethpa_ingest_…`."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        records = counter(
            "fleethpa_ingest_records",
            "Records read, by what became of them: ok, partial, rejected or unmatched.",
            ["topic", "format", "result", "reason"],
        )
        self._records_of = cache(records.labels)
        self._points = counter("fleethpa_ingest_points", "Pushed samples taken.", ["topic", "format"])
        self._left_out = counter(
            "fleethpa_ingest_points_left_out",
            "Pushed samples that matched no rule or had no value.",
            ["topic", "format"],
        )
        self.log_records = counter("fleethpa_ingest_log_records", "Records appended.")
        self.log_entries = counter("fleethpa_ingest_log_entries", "Entries appended.")
        self.log_bytes = counter("fleethpa_ingest_log_bytes", "Bytes appended.")
        self.forced = counter(
            "fleethpa_ingest_merges_forced",
            "Times that records went on without waiting for a partition that is behind.",
        )
        self.held = gauge("fleethpa_ingest_held_records", "Records that wait for their turn.")
        self.lag = gauge(
            "fleethpa_ingest_lag_records", "Records of a partition not yet in the log.", ["topic", "partition"]
        )
        self.delay = Histogram(
            "fleethpa_ingest_delay_seconds",
            "From a record's Kafka timestamp until the log has it.",
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
            registry=registry,
        )

    def count(self, topic: str, conversion: Conversion) -> None:
        """Count one converted record."""
        self._records_of(topic, conversion.format, conversion.result, conversion.code).inc()
        if conversion.points:
            self._points.labels(topic, conversion.format).inc(conversion.points)
        if conversion.left_out:
            self._left_out.labels(topic, conversion.format).inc(sum(conversion.left_out.values()))


KEPT_WHOLE_BYTES = 512 * 1024
"""Up to here the original is kept whole, above it only its first part."""


class Rejected(NamedTuple):
    """Value and headers for the topic of rejected records."""

    value: bytes
    headers: list[tuple[str, bytes]]


def rejected(raw: RawRecord, code: str, reason: str, format_: str) -> Rejected:
    """Make the rejected record of a raw one.

    Headers: `topic`, `partition`, `offset`, `time` (Kafka's, ms), `format`, `code` (one word), `reason` (a sentence);
    where the value is cut also `length` and `sha256` of the whole; the original's own headers as `original.<name>`.
    """
    value = raw.value or b""
    headers = [
        ("topic", raw.topic.encode()),
        ("partition", b"%d" % raw.partition),
        ("offset", b"%d" % raw.offset),
        ("time", b"%d" % raw.timestamp_ms),
        ("format", format_.encode()),
        ("code", code.encode()),
        ("reason", reason.encode("utf-8", "replace")[: limits.REASON.most]),
    ]
    if len(value) > KEPT_WHOLE_BYTES:
        headers += [("length", b"%d" % len(value)), ("sha256", hashlib.sha256(value).hexdigest().encode())]
        value = value[:REJECTED_KEPT_BYTES]
    # The first headers of the original: a producer may send any number of any size.
    originals = [(f"original.{name[:100]}", (text or b"")[:1_024]) for name, text in raw.headers[:16]]
    return Rejected(value, headers + originals)


def raw_record(record: ConsumerRecord) -> RawRecord:
    """Return what conversion needs of a consumed record."""
    return RawRecord(
        record.topic, record.partition, record.offset, record.timestamp, record.value, tuple(record.headers or ())
    )


class Item(NamedTuple):
    """A record that waits to be written. It is encoded already: its objects take several times as much memory.

    `size`: of its value, in bytes. `time_ms`: of its source. `reject`: what goes to the topic of rejected records.
    """

    offset: int
    timestamp_ms: int
    size: int
    time_ms: int
    entries: list[LogEntry]
    reject: Rejected | None


class Recorder:
    """Encodes and counts converted records, and writes them into the log and the topic of rejected records."""

    def __init__(
        self, mapping: Mapping, metrics: IngestMetrics, partitions: int, writer: "LogWriter", *, by_time: bool = False
    ) -> None:
        self._mapping, self._metrics, self._partitions = mapping, metrics, partitions
        self._writer, self._by_time = writer, by_time

    async def write(
        self, items: Sequence[Item], beats: Callable[[Sequence[Batch]], Iterable[Batch]] = lambda _: ()
    ) -> None:
        """Write records in their order and wait until the brokers have all of them.

        `beats`: what else the log gets beside these batches. Raises KafkaError: something was not written; nothing of
        this may then be committed.
        """
        batcher = Batcher(self._partitions, by_time=self._by_time)
        for item in items:
            for entry in item.entries:
                batcher.add(entry)
        rejects = [item.reject for item in items if item.reject]
        batches = batcher.batches()
        if (every := [*batches, *beats(batches)]) or rejects:
            await self._writer.write(every, rejects)
        for item in items:
            self._metrics.delay.observe(max(0.0, time.time() - item.timestamp_ms / 1000))
        self._metrics.log_records.inc(len(batches))
        self._metrics.log_entries.inc(sum(batch.entries for batch in batches))
        self._metrics.log_bytes.inc(sum(len(batch.value) for batch in batches))

    def encoded(self, raw: RawRecord, conversion: Conversion) -> Item:
        """Encode and count what a record gave."""
        kept = []
        for entry in log_entries(conversion.pieces, raw, conversion.time_ms, self._partitions):
            if isinstance(entry, Refusal):
                conversion.refuse(entry)
            else:
                kept.append(entry)
        if not kept:
            conversion.pieces.clear()
        self._metrics.count(raw.topic, conversion)
        is_only_counted = conversion.result == "unmatched" and self._mapping.unmatched == "count"
        reject = None
        if conversion.is_rejected and not is_only_counted:
            reject = rejected(raw, conversion.code, conversion.reason(), conversion.format)
        return Item(raw.offset, raw.timestamp_ms, len(raw.value or b""), conversion.time_ms, kept, reject)


class LogWriter:
    """Appends to the log.

    Args:
        last_times: for playback: timestamp (ms) of the last record per partition; None lets the broker stamp.
        append_times: is told when the broker appended each record.
        headers: those of each record of the log.
    """

    def __init__(
        self,
        producer: AIOKafkaProducer,
        last_times: dict[int, int] | None,
        append_times: AppendTimes | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        self._headers = list(headers)
        self._producer = producer
        self._last_times = last_times
        self._append_times = append_times

    async def write(self, batches: Iterable[Batch], rejects: Iterable[Rejected]) -> None:
        """Send all and wait until the brokers have all of it.

        Raises KafkaError: something was not written; nothing of this may then be committed.
        """
        sent = []
        batches = list(batches)
        for batch in batches:
            where: dict[str, Any] = {
                "partition": batch.partition,
                "timestamp_ms": self._stamp(batch),
                "headers": self._headers,
            }
            sent.append(await queue(self._producer, LOG, batch.value, key=batch.key.encode(), **where))
        for reject in rejects:
            sent.append(await queue(self._producer, REJECTED, reject.value, headers=reject.headers))
        placed = await asyncio.gather(*sent)
        for batch, place in zip(batches, placed, strict=False):  # the rest are rejects
            if self._append_times is not None and (append_ms := append_time_ms(place)) is not None:
                self._append_times.appended(batch.partition, append_ms)

    def _stamp(self, batch: Batch) -> int | None:
        if self._last_times is None:
            return None
        stamp_ms = max(self._last_times.get(batch.partition, 0), batch.time_ms)
        self._last_times[batch.partition] = stamp_ms
        return stamp_ms
