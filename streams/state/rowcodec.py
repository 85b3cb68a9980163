"""How state rows are stored: their keys and bytes, and which copies of them count.

A key begins with the log partition, `<partition>|…`; a value is the applied log offset (8 bytes, big-endian, signed)
and the MessagePack of its struct, a large one compressed with zstd. A namespace is cut into rows by what they take, so
that any size fits; nothing depends on where. A checkpoint counts from its last row on, which is the partition's own
(`WholeCheckpoints`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from itertools import accumulate, count
from typing import Any

import msgspec
from msgspec import structs

from schemas import limits
from schemas.keys import HpaId, namespace_key, split_namespace_key
from schemas.packing import MAGIC, pack, unpack
from schemas.topics import MAX_ROW_BYTES
from streams.state.answers import read_question
from streams.state.ledger import StateError
from streams.state.namespace import Namespace
from streams.state.namespacerows import (
    VIEW_SIDE,
    answer_size,
    encoded_size,
    hpa_size,
    limit_of_arrival,
    pod_size,
    sample_size,
    scale_size,
    side_of,
)
from streams.state.partitionrow import IndexRow, PartitionRow, index_key
from streams.state.rows import SIDES, HpaRow, NamespaceRow, PodEntry, ViewRow


def row_of_namespace(namespace: Namespace, side: int) -> NamespaceRow:
    """Make a row of all that a namespace keeps in rows of this kind (`SIDES`), however large it is."""
    row = NamespaceRow(cluster=namespace.cluster, namespace=namespace.name, part=side)
    if side == VIEW_SIDE:
        row.view = None if namespace.view == ViewRow() else namespace.view
        return row
    row.arrivals = [each for each in namespace.arrivals.items() if side_of(limit_of_arrival(each[0])) == side]
    if side:
        row.pods = [PodEntry(each.pod, each.mark) for each in namespace.pods.values()]
        row.samples = [(key, name, each) for key, samples in namespace.series.items() for name, each in samples.items()]
        return row
    row.autoscalers = list(namespace.directory.items())
    row.answers, row.scales = list(namespace.answers.values()), list(namespace.scales.items())
    row.refused = namespace.held.refused
    for name in _OF_FIRST_ROW:
        setattr(row, name, getattr(namespace, name))
    return row


_OF_FIRST_ROW = (
    "pod_list",
    "hpa_list",
    "conflicting",
    "conflicting_coming",
    "watches",
    "listed",
    "born",
    "commands",
    "ignored",
    "idle_ms",
    "unused",
)
"""What the first row of a namespace has under the same name as the namespace."""
_CUT = ("autoscalers", "answers", "scales", "pods", "samples", "arrivals")
"""What may be in any row of a kind; all else is in the first."""


def bodies_of_namespace(namespace: Namespace, side: int, pieces: int = 0) -> list[bytes]:
    """Encode what a namespace keeps in rows of a kind, in order: in so many rows, or (0) in as many as it takes.

    What counts is the size before compression, which depends on the library.
    """
    row = row_of_namespace(namespace, side)
    if side == VIEW_SIDE and row.view is None:
        return []
    body = _ENCODER.encode(row)
    items = sum([len(getattr(row, name)) for name in _CUT])
    if not pieces and len(body) > MAX_ROW_BYTES:
        pieces = min(2 * len(body) // MAX_ROW_BYTES + 1, items)
    return [_compressed(body)] if pieces < 2 else [_compressed(_ENCODER.encode(each)) for each in _cut(row, pieces)]


def _cut(row: NamespaceRow, pieces: int) -> Iterator[NamespaceRow]:
    """Cut a row into several, as evenly as things of different sizes allow."""
    items = [(name, item) for name in _CUT for item in getattr(row, name)]
    ends = list(accumulate([len(_ENCODER.encode(item)) for _, item in items]))
    own: list[dict[str, list[Any]]] = [{name: [] for name in _CUT} for _ in range(pieces)]
    for (name, item), end in zip(items, ends, strict=True):
        own[(end - 1) * pieces // ends[-1]][name].append(item)
    for at, lists in enumerate(own):
        piece = NamespaceRow(cluster=row.cluster, namespace=row.namespace) if at else row
        yield structs.replace(piece, part=row.part + len(SIDES) * at, **lists)


def load_namespace(namespace: Namespace, rows: Iterable[NamespaceRow]) -> None:
    """Load stored rows, in order."""
    namespace.is_stored = True
    for row in rows:
        _load_row(namespace, row)
    _count(namespace)


def _load_row(namespace: Namespace, row: NamespaceRow) -> None:
    for entry in row.pods:
        namespace.membership.put(entry.pod, entry.mark)
    for answer in row.answers:
        namespace.answers[read_question(answer.json, f"answer in a row of {namespace.key}")] = answer
    for key, name, sample in row.samples:
        namespace.series.setdefault(key, {})[name] = sample
    namespace.arrivals.update(row.arrivals)
    namespace.scales.update(row.scales)
    for hpa, known in row.autoscalers:
        namespace.directory[hpa] = known
        namespace.join_target(known.target, hpa)
    if row.view is not None:
        namespace.view = row.view
    if row.part == 0:
        namespace.held.refused = row.refused
        for name in _OF_FIRST_ROW:
            setattr(namespace, name, getattr(row, name))


def _count(namespace: Namespace) -> None:
    """Count what was read back from rows."""
    held = namespace.held
    for answer in namespace.answers.values():
        held.add(limits.NAMESPACE_ANSWERS, answer_size(answer))
    for entry in namespace.pods.values():
        held.add(limits.NAMESPACE_PODS, pod_size(entry.pod))
    for key, samples in namespace.series.items():
        for name, sample in samples.items():
            held.add(limits.NAMESPACE_SAMPLES, sample_size(key, name, sample))
    for question in namespace.arrivals:
        held.add(limit_of_arrival(question), encoded_size(question))
    for hpa, known in namespace.directory.items():
        held.add(limits.NAMESPACE_HPAS, hpa_size(hpa, known), known.own, hpas=1)
    for target, scale in namespace.scales.items():
        held.add(limits.NAMESPACE_SCALES, scale_size(target, scale))
    for other in (*namespace.conflicting, *namespace.conflicting_coming):
        held.add(limits.NAMESPACE_CONFLICTING, encoded_size(other))
    for name, command in namespace.commands.items():
        held.add(limits.NAMESPACE_COMMANDS, encoded_size((name, command)))


APPLIED_BYTES = 8
DELETED = b""
"""In the place of a row's value: the row is deleted, on the changelog a record without value."""


def row_partition(key: bytes) -> int:
    """Return the log partition that a row belongs to."""
    return int(key.partition(b"|")[0])


def rows_by_partition(rows: Mapping[bytes, bytes], numbers: Iterable[int]) -> dict[int, dict[bytes, bytes]]:
    """Return the rows of each of these partitions."""
    rows_of: dict[int, dict[bytes, bytes]] = {number: {} for number in numbers}
    for key, value in rows.items():
        if (number := row_partition(key)) in rows_of:
            rows_of[number][key] = value
    return rows_of


def applied_offset(value: bytes) -> int:
    """Return the log offset that a stored row has applied; -1: nothing."""
    return int.from_bytes(value[:APPLIED_BYTES], "big", signed=True)


def applied_prefix(offset: int) -> bytes:
    """Write the head of a stored row: the inverse of `applied_offset`."""
    return offset.to_bytes(APPLIED_BYTES, "big", signed=True)


def wins(value: bytes, held: bytes | None) -> bool:
    """Whether a row that is read later replaces the copy that is held: it must not have applied less.

    A worker that was paused may write an old copy after its successor's.
    """
    return held is None or applied_offset(held) <= applied_offset(value)


def merge_row(rows: MutableMapping[bytes, bytes], key: bytes, value: bytes | None) -> None:
    """Put a row that is read later among the others, unless the copy there wins. One without value deletes the row."""
    if not value:
        rows.pop(key, None)
    elif wins(value, rows.get(key)):
        rows[key] = value


def merge_rows(rows: MutableMapping[bytes, bytes], written: Iterable[tuple[bytes, bytes]]) -> None:
    """Put the rows of a checkpoint among those of the checkpoints before it."""
    for key, value in written:
        merge_row(rows, key, value)


class WholeCheckpoints:
    """Puts the rows of a changelog, in its order, into `rows`: those of a checkpoint once its last one has come.

    All rows of a checkpoint have its offset. What a crash has left of another one is passed over, and taken only where
    compaction has left no other copy: the checkpoint that has reached it would have written anew what has changed. The
    rows before it are there: compaction leaves each for an hour at least (`schemas.topics`), and longer while nobody
    writes, since it does not touch the newest segment. The next owner of the partition writes them again before
    anything else (`PartitionKernel.restore`).
    """

    def __init__(self, rows: MutableMapping[bytes, bytes]) -> None:
        self.rows = rows
        self.torn: dict[int, Collection[bytes]] = {}
        """Log partition -> keys of which a checkpoint that has not ended left copies, as of the last `end`."""
        self._waiting: dict[int, list[tuple[bytes, bytes]]] = {}
        """Log partition -> rows of which the checkpoint has not ended."""

    def add(self, key: bytes, value: bytes | None) -> None:
        """Take the next row, or (no value) its deletion, which follows a checkpoint that does not name it."""
        if not value:
            self.rows.pop(key, None)
            return
        number = row_partition(key)
        self._waiting.setdefault(number, []).append((key, value))
        if key == partition_key(number):
            self._waiting[number] = self._end(self._waiting[number], key, value)

    def _end(self, waiting: list[tuple[bytes, bytes]], own: bytes, last: bytes) -> list[tuple[bytes, bytes]]:
        """Take the rows of a checkpoint that has ended; give those that wait for a later one."""
        ends = applied_offset(last)
        reached = [(key, value) for key, value in waiting if applied_offset(value) <= ends]
        if wins(last, self.rows.get(own)):  # otherwise a paused worker wrote it
            self.rows.update(self._named({key: value for key, value in reached if applied_offset(value) == ends}, own))
        for key, value in reversed(reached):
            self.rows.setdefault(key, value)
        return [(key, value) for key, value in waiting if applied_offset(value) > ends]

    def _named(self, rows: dict[bytes, bytes], own: bytes) -> dict[bytes, bytes]:
        """Leave out what the checkpoint does not name as of its own offset: a worker that crashed there wrote it."""
        row, ends = decode_row(own, rows[own]), applied_offset(rows[own])
        if not isinstance(row, PartitionRow) or len(rows) - 1 == row.rows_written:
            return rows
        named = {index_key(row.number, len(row.index), at): written for at, written in enumerate(row.index)}
        for key in list(named):
            value = rows.get(key) if named[key] == ends else self.rows.get(key)
            piece = decode_row(key, value) if value else None
            if isinstance(piece, IndexRow):
                named |= {name.encode(): written for name, written in piece.written.items()}
        return {key: value for key, value in rows.items() if key == own or named.get(key) == ends}

    def replace(self, number: int, rows: Mapping[bytes, bytes]) -> None:
        """Put the rows of a whole checkpoint in the place of all rows of a log partition."""
        for key in rows_by_partition(self.rows, [number])[number]:
            del self.rows[key]
        self.rows.update(rows)

    def end(self) -> None:
        """Forget what no checkpoint has ended but for its keys: everything has been read."""
        self.torn |= {number: {key for key, _ in waiting} for number, waiting in self._waiting.items() if waiting}
        self._waiting.clear()


_LEVEL = 1
_PLAIN_BYTES = 16_384
"""Smaller rows are stored as they are: compressing one costs more than it saves, and the broker compresses batches."""

Row = HpaRow | NamespaceRow | IndexRow | PartitionRow
_ENCODER = msgspec.msgpack.Encoder()
_HPA = msgspec.msgpack.Decoder(HpaRow)
_NAMESPACE = msgspec.msgpack.Decoder(NamespaceRow)
_PARTITION = msgspec.msgpack.Decoder(PartitionRow)
_INDEX = msgspec.msgpack.Decoder(IndexRow)


def hpa_key(partition: int, hpa: HpaId) -> bytes:
    return f"{partition}|h/{hpa}".encode()


def namespace_row_key(partition: int, cluster: str, namespace: str, part: int) -> bytes:
    """Key of a part of a namespace."""
    return f"{partition}|n/{namespace_key(cluster, namespace)}#{part}".encode()


def namespace_row_keys(partition: int, namespace: Namespace, side: int, first: int = 0) -> Iterator[str]:
    """Yield the keys of the rows of a kind of a namespace, without end, from one on."""
    for part in count(side + len(SIDES) * first, len(SIDES)):
        yield namespace_row_key(partition, namespace.cluster, namespace.name, part).decode()


def partition_key(partition: int) -> bytes:
    return f"{partition}|p".encode()


def encode_row(applied_offset: int, row: Row) -> bytes:
    """Encode a row as of log offset `applied_offset`."""
    return applied_prefix(applied_offset) + _compressed(_ENCODER.encode(row))


def _compressed(body: bytes) -> bytes:
    return pack(body, _LEVEL) if len(body) >= _PLAIN_BYTES else body


def decode_row(key: bytes, value: bytes) -> Row:
    """Read a stored row. Raises StateError: key or value is not a row's; the text names the row."""
    kind = key.partition(b"|")[2][:1]
    decoder: Any = {b"h": _HPA, b"n": _NAMESPACE, b"i": _INDEX, b"p": _PARTITION}.get(kind)
    stored = value[APPLIED_BYTES:]
    if decoder is None or not stored:
        raise StateError(f"{key!r} is not a state row of fleethpa")
    try:
        row: Row = decoder.decode(unpack(stored) if stored.startswith(MAGIC) else stored)
    except (ValueError, RecursionError) as error:  # msgspec.DecodeError is a ValueError
        raise StateError(f"state row {key.decode(errors='replace')} cannot be read: {error}") from error
    return row


def row_kind(key: bytes) -> tuple[str, str]:
    """Split a row key into kind and rest.

    `h`: `cluster/namespace/name`; `n`: `cluster/namespace#part`; `i`: `pieces.piece`; `p`: nothing.
    """
    rest = key.partition(b"|")[2].decode()
    return rest[:1], rest[2:]


def namespace_of_key(rest: str) -> tuple[str, str, int]:
    """(cluster, namespace, part) in a namespace row's key."""
    key, _, part = rest.rpartition("#")
    cluster, namespace = split_namespace_key(key)
    return cluster, namespace, int(part)
