"""How state rows are stored: their keys and bytes, and which copies of them count.

A key begins with the log partition, `<partition>|…`; a value is the applied log offset (8 bytes, big-endian, signed)
and the MessagePack of its struct, a large one compressed with zstd. A namespace is stored part by part. A checkpoint
counts from its last row on, which is the partition's own (`WholeCheckpoints`).
"""

from collections.abc import Collection, Iterable, Mapping, MutableMapping
from typing import Any

import msgspec

from schemas import limits
from schemas.keys import HpaId, namespace_key, split_namespace_key
from schemas.packing import MAGIC, pack, unpack
from streams.state.answers import read_question
from streams.state.ledger import StateError
from streams.state.namespace import Namespace
from streams.state.namespacerows import (
    FIRST_ROW,
    VIEW_ROW,
    answer_size,
    encoded_size,
    hpa_size,
    limit_of_arrival,
    pod_size,
    row_of_question,
    sample_size,
    scale_size,
    spread_over,
    stored_part,
)
from streams.state.partitionrow import IndexRow, PartitionRow, index_key
from streams.state.rows import SPLIT_PARTS, HpaRow, NamespaceRow, PodEntry, SampleRow, ViewRow, is_series


def rows_of_namespace(namespace: Namespace, parts: Iterable[int]) -> list[tuple[int, NamespaceRow]]:
    """Make the rows of these parts, in order."""
    made = {
        part: NamespaceRow(cluster=namespace.cluster, namespace=namespace.name, part=part, parts=namespace.parts)
        for part in sorted(parts)
    }
    _spread(namespace, made)
    if 0 in made:
        for name in _OF_FIRST_ROW:
            setattr(made[0], name, getattr(namespace, name))
        made[0].autoscalers = list(namespace.directory.items())
    for part, row in made.items():
        row.refused = namespace.held.refused.get(part, {})
    if VIEW_ROW in made and namespace.view != ViewRow():
        made[VIEW_ROW].view = namespace.view
    return list(made.items())


_OF_FIRST_ROW = (
    "pod_list",
    "hpa_list",
    "rivals",
    "rivals_coming",
    "watches",
    "listed",
    "born",
    "commands",
    "ignored",
    "idle_ms",
    "unused",
)
"""What the first row of a namespace has under the same name as the namespace."""


def _spread(namespace: Namespace, made: dict[int, NamespaceRow]) -> None:
    """Put what is spread over the rows of a namespace into those that are made."""
    if namespace.parts <= SPLIT_PARTS:
        return _divide(namespace, made)

    def row_with(limit: limits.Limit, row: int) -> NamespaceRow | None:
        return made.get(namespace.part_of(limit, row))

    _spread_pods(namespace, made)
    for query, answer in namespace.answers.items():
        if (row := row_with(limits.ROW_ANSWERS, row_of_question(query))) is not None:
            row.answers.append(answer)
    for question, arrival in namespace.arrivals.items():
        if (row := row_with(limit_of_arrival(question), row_of_question(question))) is not None:
            row.arrivals.append((question, arrival))
    for target, scale in namespace.scales.items():
        if (row := row_with(limits.ROW_SCALES, row_of_question(target))) is not None:
            row.scales.append((target, scale))
    return None


def _divide(namespace: Namespace, made: dict[int, NamespaceRow]) -> None:
    """Put it into the two rows of a namespace: by its kind (`held.side_of`)."""
    if (first := made.get(0)) is not None:
        first.answers = list(namespace.answers.values())
        first.scales = list(namespace.scales.items())
        first.arrivals = [each for each in namespace.arrivals.items() if not is_series(each[0])]
    if (second := made.get(1)) is not None:
        second.pods = {name: PodEntry(each.pod, each.mark) for name, each in namespace.pods.items()}
        second.samples = list(namespace.series.items())
        second.arrivals = [each for each in namespace.arrivals.items() if is_series(each[0])]


def _spread_pods(namespace: Namespace, made: dict[int, NamespaceRow]) -> None:
    """Put pods and pushed samples into the rows of many that are made."""
    for name, each in namespace.pods.items():
        if (row := made.get(spread_over(name))) is not None:
            row.pods[name] = PodEntry(each.pod, each.mark)
    for key, samples in namespace.series.items():
        split: dict[int, dict[str, SampleRow]] = {}
        for name, sample in samples.items():
            split.setdefault(spread_over(name), {})[name] = sample
        for part in split.keys() & made.keys():
            made[part].samples.append((key, split[part]))


def load_namespace(namespace: Namespace, rows: Mapping[int, NamespaceRow]) -> None:
    """Load stored rows, by part."""
    namespace.parts, namespace.is_stored = rows[0].parts, True
    for part in range(namespace.parts):
        if (row := rows.get(stored_part(part, namespace.parts))) is not None:
            _load_part(namespace, row)
    _count(namespace)


def _load_part(namespace: Namespace, row: NamespaceRow) -> None:
    for entry in row.pods.values():
        namespace.membership.put(entry.pod, entry.mark)
    for stored in row.answers:
        namespace.answers[read_question(stored.json, f"answer in a row of {namespace.key}")] = stored
    for key, samples in row.samples:
        namespace.series.setdefault(key, {}).update(samples)
    namespace.arrivals.update(row.arrivals)
    if row.view is not None:
        namespace.view = row.view
    namespace.scales.update(row.scales)
    if row.refused:
        namespace.held.refused[row.part] = row.refused
    if row.part:
        return
    for name in _OF_FIRST_ROW:
        setattr(namespace, name, getattr(row, name))
    namespace.directory = dict(row.autoscalers)
    for hpa, known in namespace.directory.items():
        namespace.join_target(known.target, hpa)


def _count(namespace: Namespace) -> None:
    """Count what was read back from rows."""
    held = namespace.held
    for query, answer in namespace.answers.items():
        held.add(limits.ROW_ANSWERS, row_of_question(query), answer_size(answer))
    for name, entry in namespace.pods.items():
        held.add(limits.ROW_PODS, spread_over(name), pod_size(entry.pod))
    for key, samples in namespace.series.items():
        for name, sample in samples.items():
            held.add(limits.ROW_SAMPLES, spread_over(name), sample_size(key, name, sample))
    for question in namespace.arrivals:
        held.add(limit_of_arrival(question), row_of_question(question), encoded_size(question))
    _count_targets(namespace)


def _count_targets(namespace: Namespace) -> None:
    """Count HPAs, scales, rivals and commands."""
    held = namespace.held
    for hpa, known in namespace.directory.items():
        held.add(limits.ROW_HPAS, FIRST_ROW, hpa_size(hpa, known), known.own, hpas=1)
    for target, scale in namespace.scales.items():
        held.add(limits.ROW_SCALES, row_of_question(target), scale_size(target, scale))
    for rival in (*namespace.rivals, *namespace.rivals_coming):
        held.add(limits.ROW_RIVALS, FIRST_ROW, encoded_size(rival))
    for name, command in namespace.commands.items():
        held.add(limits.ROW_COMMANDS, FIRST_ROW, encoded_size((name, command)))


APPLIED_BYTES = 8
DELETED = b""
"""In the place of a row's value: the row is deleted, on the changelog a record without value."""


def row_partition(key: bytes) -> int:
    """Give the log partition that a row belongs to."""
    return int(key.partition(b"|")[0])


def rows_by_partition(rows: Mapping[bytes, bytes], numbers: Iterable[int]) -> dict[int, dict[bytes, bytes]]:
    """Give the rows of each of these partitions."""
    found: dict[int, dict[bytes, bytes]] = {number: {} for number in numbers}
    for key, value in rows.items():
        if (number := row_partition(key)) in found:
            found[number][key] = value
    return found


def applied_offset(value: bytes) -> int:
    """Give the log offset that a stored row has applied; -1: nothing."""
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
    anything else (`Partition.restore`).
    """

    def __init__(self, rows: MutableMapping[bytes, bytes]) -> None:
        self.rows = rows
        self.torn: dict[int, Collection[bytes]] = {}
        """Log partition -> keys of which a checkpoint that has not ended left copies, as of the last `end`."""
        self._waiting: dict[int, list[tuple[bytes, bytes]]] = {}
        """Log partition -> rows of which the checkpoint has not ended."""

    def take(self, key: bytes, value: bytes | None) -> None:
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

    def _named(self, its: dict[bytes, bytes], own: bytes) -> dict[bytes, bytes]:
        """Leave out what the checkpoint does not name as of its own offset: a worker that crashed there wrote it."""
        row, ends = decode_row(own, its[own]), applied_offset(its[own])
        if not isinstance(row, PartitionRow) or len(its) - 1 == row.rows_written:
            return its
        named = {index_key(row.number, len(row.index), at): written for at, written in enumerate(row.index)}
        for key in list(named):
            value = its.get(key) if named[key] == ends else self.rows.get(key)
            piece = decode_row(key, value) if value else None
            if isinstance(piece, IndexRow):
                named |= {name.encode(): written for name, written in piece.written.items()}
        return {key: value for key, value in its.items() if key == own or named.get(key) == ends}

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


def partition_key(partition: int) -> bytes:
    return f"{partition}|p".encode()


def encode_row(applied_offset: int, row: Row) -> bytes:
    """Encode a row as of log offset `applied_offset`."""
    body = _ENCODER.encode(row)
    if len(body) >= _PLAIN_BYTES:
        body = pack(body, _LEVEL)
    return applied_prefix(applied_offset) + body


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
