"""The state rows as Faust's table keeps them: raw bytes in memory, recovered from the changelog."""

from collections.abc import Iterable
from typing import Any

import faust
from faust.stores import memory
from faust.types import TP

from streams.decider.exits import Exit, die
from streams.state.rowcopies import merge_row, row_partition


class RowStore(memory.Store):  # type: ignore[misc]
    """Faust's memory store, with the rule that the row which has applied more wins."""

    def apply_changelog_batch(self, batch: Iterable[Any], to_key: Any, to_value: Any) -> None:
        """Do nothing: the consumer has merged the rows when it fetched them."""

    def merge(self, key: bytes, value: bytes | None) -> None:
        """Merge a recovered row or its deletion; another record ends the process, since the state would be wrong."""
        try:
            merge_row(self.data, key, value)
        except (TypeError, ValueError) as error:
            die(Exit.SOFTWARE, f"a changelog record is not a state row: {error!r}", error=error)

    async def on_recovery_completed(self, active_tps: set[TP], standby_tps: set[TP]) -> None:
        """Drop rows of partitions that are no longer owned; not on revoke: kept partitions are not read again."""
        own = {tp.partition for tp in active_tps}
        for key in [key for key in self.data if row_partition(key) not in own]:
            del self.data[key]


class StateTable(faust.Table):  # type: ignore[misc]
    """The decider's one table. Checkpoints write its changelog and `data` themselves, in their own order."""

    def _new_store(self) -> RowStore:
        return RowStore("memory://", self.app, self, table_name=self.name, key_type=bytes, value_type=bytes)
