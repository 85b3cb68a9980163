"""The state rows of one checkpoint, picked out of the records of a changelog partition. No I/O.

A checkpoint ends with the partition's own row and, before it, the index that names the version of every other:
restoring from rows of which one is gone fails, it never gives another state.
"""

from collections.abc import Mapping

from streams.state.ledger import StateError
from streams.state.partition import Partition
from streams.state.partitionrow import IndexRow, PartitionRow
from streams.state.rowcodec import WholeCheckpoints, applied_offset, decode_row, encode_row, index_key, partition_key


class NewestCheckpoint:
    """Takes the records of one changelog partition, the newest first, until it has the rows of the newest checkpoint.

    So no more is read than has changed since the oldest of those rows was written. Rows that are newer than the
    partition's own row, of a checkpoint that is being written, are left out. A checkpoint that a paused worker wrote
    late may be taken for the newest one: the fold from it gives the same state.

    Args:
        number: partition of the log.
        below: the checkpoint must have applied nothing from this log offset on; None: any will do.
        before_ms: its log time must be earlier than this; None: any will do.
    """

    def __init__(self, number: int, below: int | None = None, before_ms: int | None = None) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.own: PartitionRow | None = None
        """The partition's own row, once it was found."""
        self.lacking: dict[bytes, int] = {}
        """Key → applied offset of the rows that the checkpoint names and that were not found yet."""
        self.named = 0
        """How many rows the pieces of the index name that were found."""
        self._pieces: set[bytes] = set()
        self._key = partition_key(number)
        self._below, self._before_ms = below, before_ms

    def take(self, key: bytes, value: bytes | None) -> None:
        """Take a record; after the partition's own row was found, the order of further ones does not matter."""
        if not value:
            return
        applied, held = applied_offset(value), self.rows.get(key)
        if (self._below is not None and applied >= self._below) or (held and applied_offset(held) >= applied):
            return
        if key == self._key:
            self._take_own(value)
        elif applied <= (self.own.offset if self.own is not None else applied):
            self.rows[key] = value
            if applied >= self.lacking.get(key, applied + 1):
                del self.lacking[key]
                if key in self._pieces:
                    self._take_piece(key, value)

    def _take_own(self, value: bytes) -> None:
        row = decode_row(self._key, value)
        if not isinstance(row, PartitionRow):
            raise StateError(f"state row {self._key.decode()} is not a partition's")
        if self._before_ms is not None and row.clock_ms >= self._before_ms:
            return
        self.own = row
        kept = {key: stored for key, stored in self.rows.items() if applied_offset(stored) <= row.offset}
        self.rows = kept | {self._key: value}
        pieces = {index_key(row.number, len(row.index), at): written for at, written in enumerate(row.index)}
        self._pieces = set(pieces)
        self._want(pieces)
        for key in sorted(pieces.keys() - self.lacking.keys()):
            self._take_piece(key, kept[key])

    def _want(self, named: Mapping[bytes, int]) -> None:
        self.named += len(named)
        self.lacking |= {
            key: written
            for key, written in named.items()
            if key not in self.rows or applied_offset(self.rows[key]) < written
        }

    def _take_piece(self, key: bytes, value: bytes) -> None:
        piece = decode_row(key, value)
        if isinstance(piece, IndexRow) and self.own is not None:
            self._want({name.encode(): written for name, written in piece.written.items()})


def without(rows: dict[bytes, bytes], own: PartitionRow, lost: set[bytes]) -> dict[bytes, bytes]:
    """Return the rows of a checkpoint as if it had never named some of them."""
    found = dict(rows)
    for at, written in enumerate(own.index):
        key = index_key(own.number, len(own.index), at)
        piece = decode_row(key, rows[key]) if key in rows else IndexRow()
        if isinstance(piece, IndexRow):
            left = {name: offset for name, offset in piece.written.items() if name.encode() not in lost}
            found[key] = encode_row(written, IndexRow(left))
    return found


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

    def take(self, key: bytes, value: bytes | None) -> bool:
        """Take a record; False: no later one can matter."""
        self._checkpoints.take(key, value)
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
