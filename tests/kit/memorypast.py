"""A past in memory: records as if read from topics, and the state rows that were stored last."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence

from streams.archive.layout import LOG, ArchivedRecord
from streams.history.past import Past
from streams.state.rowcodec import row_partition


class MemoryPast(Past):
    """Records by (topic, partition), their offsets their own; nothing more comes in."""

    def __init__(
        self,
        made: Mapping[tuple[str, int], Sequence[ArchivedRecord]],
        rows: Mapping[bytes, bytes] | None = None,
        *,
        partitions: int = 1,
        at_ms: int | None = None,
        live: bool = False,
    ) -> None:
        super().__init__("memory", at_ms)
        self.made, self._rows, self._partitions, self._live = made, rows or {}, partitions, live

    async def partitions(self) -> int:
        return self._partitions

    async def stretches(
        self, topic: str, partition: int, first: int = 0
    ) -> AsyncGenerator[Sequence[ArchivedRecord], None]:
        for record in self.made[topic, partition]:
            if record.offset >= first:
                yield (record,)

    async def backwards(
        self, topic: str, partition: int, upto_ms: int | None = None
    ) -> AsyncGenerator[list[ArchivedRecord], None]:
        yield list(self.made[topic, partition])

    async def newest_rows(self, partition: int) -> Mapping[bytes, bytes]:
        return {key: value for key, value in self._rows.items() if row_partition(key) == partition}

    async def checkpoint(
        self, partition: int, *, below: int | None = None, before_ms: int | None = None
    ) -> Mapping[bytes, bytes]:
        return {}

    async def arriving(self, positions: dict[int, int]) -> AsyncGenerator[tuple[int, ArchivedRecord], None]:
        return
        yield

    async def offsets(self, topic: str, partition: int) -> range:
        kept = self.made[topic, partition]
        return range(kept[0].offset, kept[-1].offset + 1) if kept else range(0)

    async def last_ms(self, partition: int) -> int:
        log = self.made[LOG, partition]
        return log[-1].timestamp_ms if log else 0

    async def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        return 0

    async def first_decision(self, partition: int, seq: int) -> int:
        return 0

    def is_live(self) -> bool:
        return self._live
