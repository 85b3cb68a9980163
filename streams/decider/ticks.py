"""Ticks: once a second the owner of a log partition appends a record without entries, so that time passes."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from schemas.codec import encode
from schemas.entries import VERSION, LogRecord
from streams.decider.assignment import Assignment
from streams.decider.fence import Fence

TICK = encode(LogRecord(v=VERSION, entries=[]))
TICK_S = 1.0


class Producer(Protocol):
    """The part of aiokafka's producer that is used: `send` puts a record in the buffer, its future is the broker's."""

    async def send(self, topic: str, value: bytes, *, key: bytes | None, partition: int) -> "asyncio.Future[Any]": ...


class Ticker:
    """Appends ticks; none to a partition whose last tick the broker has not acknowledged."""

    def __init__(self, topic: str, assignment: Assignment, fence: Fence, producer: Callable[[], Producer]) -> None:
        self._topic = topic
        self._assignment = assignment
        self._fence = fence
        self._producer = producer
        self._under_way: dict[int, asyncio.Future[Any]] = {}

    async def run(self) -> None:
        """Tick for ever. A failed send is raised at the next tick."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + TICK_S, loop.time())
            await asyncio.sleep(due - loop.time())
            await self.tick()

    async def tick(self) -> None:
        """Append one tick to every owned partition that waits for none."""
        self._fence.check()
        for number in sorted(self._assignment.owned):
            before = self._under_way.get(number)
            if before is not None:
                if not before.done():
                    continue
                before.result()
            self._under_way[number] = await self._producer().send(self._topic, TICK, key=None, partition=number)
