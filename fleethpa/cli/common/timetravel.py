"""The world as the log had it at some moment: the snapshot before it, folded up to it, and the decisions until then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from fleethpa.cli.common.decisionreading import Recorded, expand_all, place_of
from fleethpa.cli.common.failures import not_found, usage
from fleethpa.cli.common.readers import Enough, LogRecordAt
from fleethpa.cli.output.times import rfc3339
from streams.archive.layout import DECISIONS, LOG
from streams.archive.segments import ArchiveError
from streams.state.logerrors import CoreError
from streams.state.partition import Partition

if TYPE_CHECKING:
    from streams.history.pastsources import Source

_BREATH: Final = 500
_BEFORE_MS: Final = 15 * 60_000
"""How far back decisions are read at first: a full record is at most ten minutes older than a short one."""


class PastReader:
    """A `fleethpa.cli.common.readers.Reader` of the past: everything up to and including log time `at_ms`."""

    def __init__(self, source: Source, at_ms: int) -> None:
        self.source, self.at_ms = source, at_ms
        self.name = f"{source.name} at {rfc3339(at_ms)}"
        self._folded: dict[int, Partition] | None = None
        self._rows: dict[bytes, bytes] = {}
        self._lock = asyncio.Lock()
        self.read = 0

    async def rows(self) -> Mapping[bytes, bytes]:
        await self._fold()
        return self._rows

    async def _fold(self) -> dict[int, Partition]:
        async with self._lock:
            if self._folded is None:
                try:
                    numbers = range(await self.source.partitions())
                    self._folded = {number: await self._fold_one(number) for number in numbers}
                except (ArchiveError, CoreError) as error:
                    raise usage(str(error), next_step="fleethpa audit verify") from error
                if all(partition.applied_offset < 0 for partition in self._folded.values()):
                    raise not_found(f"the log has nothing as old as {rfc3339(self.at_ms)}", cause=await self._begin())
            return self._folded

    async def _begin(self) -> str:
        async with aclosing(self.source.records(LOG, 0)) as records:
            async for record in records:
                return f"It begins at {rfc3339(record.timestamp_ms)}."
        return "It is empty."

    async def _fold_one(self, number: int) -> Partition:
        # Not before `at_ms` but after it: a snapshot whose last record is exactly as old counts.
        rows = dict(await self.source.checkpoint(number, before_ms=self.at_ms + 1))
        partition = Partition.restore(number, rows)
        if partition.clock_ms > self.at_ms:
            raise ArchiveError(
                f"log partition {number} can be folded from {rfc3339(partition.clock_ms)} on, not from "
                f"{rfc3339(self.at_ms)}: the archive was begun later"
            )
        async with aclosing(self.source.records(LOG, number, partition.applied_offset + 1)) as records:
            async for record in records:
                if record.offset > partition.applied_offset + 1:
                    raise ArchiveError(
                        f"log partition {number} begins at offset {record.offset}: what was before is lost; "
                        "time travel needs an archive that was begun earlier"
                    )
                if record.timestamp_ms > self.at_ms:
                    break
                partition.apply(record.offset, record.timestamp_ms, record.value)
                self.read += 1
                if self.read % _BREATH == 0:
                    await asyncio.sleep(0)  # folding holds the loop: the progress is told in between
        rows.update(partition.checkpoint())
        if partition.applied_offset >= 0:
            self._rows |= rows
        return partition

    async def count(self) -> int:
        return await self.source.partitions()

    async def tail(
        self, enough: Enough, partitions: Iterable[int] | None = None, upto_ms: int | None = None
    ) -> dict[int, list[Recorded]]:
        folded = await self._fold()
        found: dict[int, list[Recorded]] = {}
        for number in folded if partitions is None else partitions:
            found[number] = await self._tail(number, folded[number], enough)
        return found

    async def _tail(self, number: int, partition: Partition, enough: Enough) -> list[Recorded]:
        first = await self.source.offset_at(DECISIONS, number, self.at_ms - _BEFORE_MS)
        while True:
            taken = []
            async with aclosing(self.source.records(DECISIONS, number, first)) as records:
                async for record in records:
                    if place_of(number, record.offset, record.value).seq > partition.seq:
                        break
                    taken.append((record.offset, record.value))
            decisions, lacking = expand_all(number, taken)
            if not first or (not lacking and enough(number, decisions)):
                return decisions
            first = 0

    async def follow(self) -> AsyncIterator[Recorded]:
        raise usage("--at and --follow exclude each other")
        yield

    async def checkpoint(
        self, partition: int, *, below: int | None = None, before_ms: int | None = None
    ) -> Mapping[bytes, bytes]:
        return {}

    async def log(self, partition: int, first: int) -> AsyncGenerator[LogRecordAt, None]:
        """Nothing: the rows are of exactly that moment."""
        return
        yield
