"""State rows as they stood at an earlier checkpoint, from the versions of them that the changelog topic still holds.

Compaction keeps every version for an hour at least (`schemas.topics`), then only the newest. A checkpoint ends with the
partition's own row, which names the version of every other: restoring from rows of which one is gone fails, it never
gives another state.
"""

from streams.state.logerrors import StateError
from streams.state.partition import Partition
from streams.state.rowcopies import applied_offset, wins
from streams.state.rows import PartitionRow, decode_row, partition_key


class CheckpointRows:
    """Takes the records of one changelog partition in order and keeps the rows of the newest checkpoint that fits.

    Args:
        number: partition of the log.
        below: the checkpoint must have applied nothing from this log offset on.
        before_ms: its log time must be earlier than this.
        least: instead of both: keep the oldest that can be restored and has applied this log offset.
    """

    def __init__(
        self, number: int, *, below: int | None = None, before_ms: int | None = None, least: int | None = None
    ) -> None:
        self.number = number
        self.rows: dict[bytes, bytes] = {}
        self._below, self._before_ms, self._least = below, before_ms, least
        self._since: dict[bytes, bytes] = {}

    def take(self, key: bytes, value: bytes | None) -> bool:
        """Take a record; False: no later one can matter."""
        if value is None:
            return True
        if not wins(value, self._since.get(key) or self.rows.get(key)):
            return True
        self._since[key] = value
        if key != partition_key(self.number):
            return True
        if not self._fits(key, value):
            return False
        self.rows |= self._since
        self._since.clear()
        return self._least is None or applied_offset(value) < self._least or not self.restorable()

    def _fits(self, key: bytes, value: bytes) -> bool:
        if self._below is not None and applied_offset(value) >= self._below:
            return False
        if self._before_ms is None:
            return True
        row = decode_row(key, value)
        return isinstance(row, PartitionRow) and row.clock_ms < self._before_ms

    def restorable(self) -> dict[bytes, bytes]:
        """The rows, if none of that checkpoint has been compacted away; else nothing."""
        try:
            Partition.restore(self.number, self.rows)
        except StateError:
            return {}
        return self.rows
