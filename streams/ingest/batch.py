"""Log records made of entries: one partition each, none larger than the log accepts."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import structs

from schemas.codec import encode
from schemas.entries import VERSION, WHOLE_PARTITION_KEY, Body, Entry, Source
from schemas.hands import HandsChanged, LeftNative
from schemas.keys import namespace_key, partition_for
from schemas.samples import Answers, Samples
from schemas.topics import MAX_LOG_RECORD_BYTES
from streams.ingest.pieces import Piece, RawRecord, Refusal

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
    namespace: each partition gets the change with its own.
    """
    for piece in pieces:
        body = piece.body
        if not isinstance(body, HandsChanged) or not body.natives:
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


def _halves(body: Body) -> tuple[Body, Body] | None:
    """Split a body. Samples, answers and native HPAs do not depend on each other, so a batch of them can be split
    anywhere; a change of hands that comes twice counts once.
    """
    if isinstance(body, Samples) and len(body.points) > 1:
        middle = len(body.points) // 2
        return Samples(points=body.points[:middle]), Samples(points=body.points[middle:])
    if isinstance(body, Answers) and len(body.items) > 1:
        middle = len(body.items) // 2
        return structs.replace(body, items=body.items[:middle]), structs.replace(body, items=body.items[middle:])
    if isinstance(body, HandsChanged) and len(body.natives) > 1:
        middle = len(body.natives) // 2
        first, second = body.natives[:middle], body.natives[middle:]
        return structs.replace(body, natives=first), structs.replace(body, natives=second)
    return None


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

    def take(self) -> list[Batch]:
        """Everything collected, as log records; those of one partition in order."""
        for partition in sorted(self._open):
            self._close(partition)
        done, self._done = self._done, []
        return done


def _record_key(held: list[LogEntry]) -> str:
    """The key of a log record, which only people read: the namespace if all entries share it, else `*`."""
    keys = {entry.key for entry in held}
    return keys.pop() if len(keys) == 1 else WHOLE_PARTITION_KEY
