"""Reading the decisions of a partition one at a time, also those that a running fleet is about to write."""

import asyncio
from collections.abc import AsyncGenerator

from streams.archive.layout import DECISIONS
from streams.archive.segments import ArchivedRecord
from streams.history.past import Past

LAG_S = 10.0
"""How long the newest decisions of a running fleet may be waited for."""
_POLL_S = 0.25


class Lookahead:
    """The decisions of one partition, one at a time; reads on where a running fleet has written more."""

    def __init__(self, past: Past, partition: int, first: int) -> None:
        self._past, self._partition, self._next = past, partition, first
        self._iterator: AsyncGenerator[ArchivedRecord, None] | None = None
        self._given_back: ArchivedRecord | None = None

    def back(self, record: ArchivedRecord) -> None:
        """Give a record back: it is the next one again."""
        self._given_back = record

    async def next(self) -> ArchivedRecord | None:
        """The next record; None: none stands (yet)."""
        if self._given_back is not None:
            record, self._given_back = self._given_back, None
            return record
        if self._iterator is None:
            self._iterator = self._past.records(DECISIONS, self._partition, self._next)
        found = await anext(self._iterator, None)
        if found is None:
            self._iterator = None
            return None
        self._next = found.offset + 1
        return found

    async def close(self) -> None:
        """Let go of the source."""
        if self._iterator is not None:
            await self._iterator.aclose()

    async def wait(self) -> ArchivedRecord | None:
        """The next record, waiting for it as long as a running fleet may lag."""
        deadline = asyncio.get_running_loop().time() + (LAG_S if self._past.is_live() else 0)
        while (record := await self.next()) is None:
            if asyncio.get_running_loop().time() >= deadline:
                return None
            await asyncio.sleep(_POLL_S)
        return record
