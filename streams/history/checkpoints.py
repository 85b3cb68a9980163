"""State rows as of a checkpoint, found in the versions of them that the changelog topic still holds.

Compaction keeps every version for an hour at least (`schemas.topics`), then only the newest. A checkpoint ends with the
partition's own row, whose manifest names the version of every other: restoring from rows of which one is gone fails, it
never gives another state.
"""

from streams.state.logerrors import StateError
from streams.state.partition import Partition
from streams.state.partitionrow import PartitionRow
from streams.state.rowcodec import decode_row, encode_row, partition_key
from streams.state.rowcopies import applied_offset, wins


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
        self._key = partition_key(number)
        self._below, self._before_ms = below, before_ms

    def take(self, key: bytes, value: bytes | None) -> None:
        """Take a record; after the partition's own row was found, the order of further ones does not matter."""
        if value is None:
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

    def _take_own(self, value: bytes) -> None:
        row = decode_row(self._key, value)
        if not isinstance(row, PartitionRow):
            raise StateError(f"state row {self._key.decode()} is not a partition's")
        if self._before_ms is not None and row.clock_ms >= self._before_ms:
            return
        self.own = row
        kept = {key: stored for key, stored in self.rows.items() if applied_offset(stored) <= row.offset}
        self.rows = kept | {self._key: value}
        named = ((text.encode(), written) for text, written in row.manifest.items())
        self.lacking = {
            key: written for key, written in named if key not in kept or applied_offset(kept[key]) < written
        }


def without(rows: dict[bytes, bytes], own: PartitionRow, lost: set[bytes]) -> dict[bytes, bytes]:
    """Return the rows of a checkpoint as if it had never named some of them."""
    own.manifest = {text: at for text, at in own.manifest.items() if text.encode() not in lost}
    return rows | {partition_key(own.number): encode_row(own.offset, own)}


class OldestCheckpoint:
    """Takes the records of one changelog partition in order, until it has the oldest rows that can be restored from.

    Args:
        number: partition of the log.
        least: the checkpoint must have applied this log offset.
    """

    def __init__(self, number: int, least: int) -> None:
        self.number = number
        self.rows: dict[bytes, bytes] = {}
        self._least = least
        self._since: dict[bytes, bytes] = {}

    def take(self, key: bytes, value: bytes | None) -> bool:
        """Take a record; False: no later one can matter."""
        if value is None or not wins(value, self._since.get(key) or self.rows.get(key)):
            return True
        self._since[key] = value
        if key != partition_key(self.number):
            return True
        self.rows |= self._since
        self._since.clear()
        return applied_offset(value) < self._least or not restorable(self.number, self.rows)


def restorable(number: int, rows: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the rows, if none of their checkpoint has been compacted away; else nothing."""
    try:
        Partition.restore(number, rows)
    except StateError:
        return {}
    return rows
