"""The state rows of one checkpoint, picked out of the records of a changelog partition. No I/O.

A checkpoint ends with the partition's own row and, before it, the index that names the version of every other:
restoring from rows of which one is gone fails, it never gives another state.
"""

from collections.abc import Mapping

from streams.partition import Partition
from streams.state.ledger import StateError
from streams.state.partitionrow import IndexRow, PartitionRow, index_key
from streams.state.rowcodec import WholeCheckpoints, applied_offset, decode_row, encode_row, partition_key


class NewestCheckpoint:
    """Takes the records of one changelog partition, the newest first, until it has the rows of the newest checkpoint.

    So no more is read than has changed since the oldest of those rows was written. Of each row the copy counts that the
    checkpoint names; a newer one, which a torn checkpoint has left, only where compaction has left no other. A
    checkpoint that a paused worker wrote late may be taken for the newest one: the fold from it gives the same state.

    Args:
        number: partition of the log.
        below: the checkpoint must have applied nothing from this log offset on; None: any will do.
        before_ms: its log time must be earlier than this; None: any will do.
    """

    def __init__(self, number: int, below: int | None = None, before_ms: int | None = None) -> None:
        self.own: PartitionRow | None = None
        """The partition's own row, once it was found."""
        self.named: dict[bytes, int] = {}
        """Key → applied offset of the rows that the pieces of the index name that were found, and of the pieces."""
        self.missing: dict[bytes, int] = {}
        """Those of which that copy was not found yet."""
        self._copies: dict[bytes, dict[int, bytes]] = {}
        """Key → applied offset → row; of a named one, the copy that counts only."""
        self._pieces: set[bytes] = set()
        self.end_record = -1
        """Offset on the changelog of the last record that ends a checkpoint, be it this one or another; -1: none was
        found.
        """
        self._key = partition_key(number)
        self._below, self._before_ms = below, before_ms

    @property
    def rows(self) -> dict[bytes, bytes]:
        """The rows of the checkpoint that were found; none before its own was."""
        keys = [key for key in (self._key, *self.named) if key in self._copies]
        return {key: value for key in keys for value in self._copies[key].values()} if self.own is not None else {}

    @property
    def gone(self) -> set[bytes]:
        """Rows that it names and of which neither that copy nor a newer one was found."""
        return {key for key, written in self.missing.items() if max(self._copies.get(key, ()), default=-1) < written}

    def add(self, key: bytes, value: bytes | None, offset: int = -1) -> None:
        """Add a record; after the partition's own row was found, the order of further ones does not matter.

        `offset`: of the record on the changelog.
        """
        if not value:
            return
        applied, newest = applied_offset(value), self.own.offset if self.own is not None else None
        if self._below is not None and applied >= self._below:
            return
        if key == self._key:
            self.end_record = max(self.end_record, offset)
            if newest is None or applied > newest:
                self._add_own(applied, value)
        elif (newest is None or applied <= newest) and (key not in self.named or key in self.missing):
            self._copies.setdefault(key, {})[applied] = value
            self._settle(key)

    def end(self) -> None:
        """Make do with newer copies of the index, where compaction has left no other: everything has been read."""
        for key in sorted(self._pieces & self.missing.keys()):
            for value in self._copies.get(key, {}).values():
                self._add_piece(key, value)

    def _add_own(self, applied: int, value: bytes) -> None:
        row = decode_row(self._key, value)
        if not isinstance(row, PartitionRow):
            raise StateError(f"state row {self._key.decode()} is not a partition's")
        if self._before_ms is not None and row.clock_ms >= self._before_ms:
            return
        self.own, self.named, self.missing = row, {}, {}
        self._copies = {
            key: {at: copy for at, copy in copies.items() if at <= applied} for key, copies in self._copies.items()
        } | {self._key: {applied: value}}
        pieces = {index_key(row.number, len(row.index), at): written for at, written in enumerate(row.index)}
        self._pieces = set(pieces)
        self._name(pieces)

    def _name(self, named: Mapping[bytes, int]) -> None:
        self.named |= named
        self.missing |= named
        for key in named:
            self._settle(key)

    def _settle(self, key: bytes) -> None:
        """Of a row that is named keep the copy that counts, as far as it is known."""
        copies = self._copies.get(key)
        if key not in self.missing or not copies:
            return
        written = self.missing[key]
        counts = written if written in copies else max(copies)
        self._copies[key] = {counts: copies[counts]}
        if counts == written:
            del self.missing[key]
            if key in self._pieces:
                self._add_piece(key, copies[counts])

    def _add_piece(self, key: bytes, value: bytes) -> None:
        piece = decode_row(key, value)
        if isinstance(piece, IndexRow):
            self._name({name.encode(): written for name, written in piece.written.items()})


def without(rows: dict[bytes, bytes], own: PartitionRow, lost: set[bytes]) -> dict[bytes, bytes]:
    """Return the rows of a checkpoint as if it had never named some of them."""
    kept = dict(rows)
    for at, written in enumerate(own.index):
        key = index_key(own.number, len(own.index), at)
        piece = decode_row(key, rows[key]) if key in rows else IndexRow()
        if isinstance(piece, IndexRow):
            left = {name: offset for name, offset in piece.written.items() if name.encode() not in lost}
            kept[key] = encode_row(written, IndexRow(left))
    return kept


class OldestCheckpoint:
    """Takes the records of one changelog partition in order, until it has the oldest rows that can be restored from.

    Args:
        number: partition of the log.
        least: the checkpoint must have applied this log offset.
    """

    def __init__(self, number: int, least: int) -> None:
        self.number, self._least = number, least
        self.rows: dict[bytes, bytes] = {}
        self._checkpoints = WholeCheckpoints(self.rows)

    def add(self, key: bytes, value: bytes | None) -> bool:
        """Add a record; False: no later one can matter."""
        self._checkpoints.add(key, value)
        if not value or key != partition_key(self.number):
            return True
        return applied_offset(value) < self._least or not restorable(self.number, self.rows)


def restorable(number: int, rows: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the rows, if none of their checkpoint has been compacted away; else nothing."""
    try:
        Partition.restore(number, rows)
    except StateError:
        return {}
    return rows
