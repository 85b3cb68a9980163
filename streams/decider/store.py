"""The state rows as Faust's table keeps them: raw bytes in memory, recovered from the changelog.

Row keys begin with the partition, `b"<partition>|…"`; values with the log offset that the row has applied, 8 bytes
big-endian, signed. Deleted rows are rows too. What is inside a row is the core's affair.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import faust
from faust.stores import memory
from faust.types import TP

from streams.decider.exits import Exit, die

APPLIED_BYTES = 8


def row_partition(key: bytes) -> int:
    """The log partition that the row belongs to."""
    return int(key.partition(b"|")[0])


def row_applied(value: bytes) -> int:
    """The log offset that the row has applied; -1: nothing."""
    return int.from_bytes(value[:APPLIED_BYTES], "big", signed=True)


def applied_prefix(offset: int) -> bytes:
    """The inverse of `row_applied`."""
    return offset.to_bytes(APPLIED_BYTES, "big", signed=True)


def merge_row(rows: dict[bytes, bytes], key: bytes, value: bytes) -> None:
    """Keep the copy that has applied more: a worker that was paused may write an old one after its successor's."""
    held = rows.get(key)
    if held is None or row_applied(held) <= row_applied(value):
        rows[key] = value


class RowStore(memory.Store):  # type: ignore[misc]
    """Faust's memory store, with the rule that the row which has applied more wins."""

    def apply_changelog_batch(self, batch: Iterable[Any], to_key: Any, to_value: Any) -> None:
        """Merge recovered rows. Faust would log an error here and go on with wrong state, so any is the end."""
        try:
            for event in batch:
                merge_row(self.data, event.message.key, event.message.value)
        except Exception as error:
            die(Exit.SOFTWARE, f"a changelog record is no state row: {error!r}", error=error)

    async def on_recovery_completed(self, active_tps: set[TP], standby_tps: set[TP]) -> None:
        """Forget the rows of partitions that are no longer ours; not on revoke, as kept ones are not read again."""
        own = {tp.partition for tp in active_tps}
        for key in [key for key in self.data if row_partition(key) not in own]:
            del self.data[key]


class StateTable(faust.Table):  # type: ignore[misc]
    """The decider's one table. Checkpoints write its changelog and `data` themselves, in their own order."""

    def _new_store(self) -> RowStore:
        return RowStore("memory://", self.app, self, table_name=self.name, key_type=bytes, value_type=bytes)


def rows_by_partition(rows: Mapping[bytes, bytes], numbers: Iterable[int]) -> dict[int, dict[bytes, bytes]]:
    """The rows of each of these partitions."""
    found: dict[int, dict[bytes, bytes]] = {number: {} for number in numbers}
    for key, value in rows.items():
        if (number := row_partition(key)) in found:
            found[number][key] = value
    return found
