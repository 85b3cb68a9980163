"""A bounded pool of workers for one cluster, so that a slow or dead cluster delays no other."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class WorkerPool(Generic[K, V]):
    """Works on the items of a queue, oldest first, at most `workers` at once and never on two of one key: an older one
    that is slow would undo what a newer one has done.

    An exception of the work ends the pool, and with it the process: work tells its troubles by other ways.
    """

    def __init__(self, work: Callable[[V], Awaitable[None]], *, workers: int, limit: int) -> None:
        self._work, self._workers, self._limit = work, workers, limit
        self._queue: dict[K, V] = {}
        self._arrived = asyncio.Event()
        self._busy: set[K] = set()
        self._ended = asyncio.Event()

    def put(self, key: K, item: V) -> V | None:
        """Queue an item (one that waits under this key keeps its place); returns the oldest one if the queue
        overflows.
        """
        self._queue[key] = item
        self._arrived.set()
        if len(self._queue) <= self._limit:
            return None
        return self._queue.pop(next(iter(self._queue)))

    def waiting(self, key: K) -> V | None:
        """The item that waits under this key."""
        return self._queue.get(key)

    def take_back(self, key: K) -> V | None:
        """Remove an item that has not been begun; None: it is not waiting."""
        item = self._queue.pop(key, None)
        self._ended.set()
        return item

    def take_all(self) -> list[V]:
        """Remove everything that has not been begun."""
        items = list(self._queue.values())
        self._queue.clear()
        self._ended.set()
        return items

    async def idle(self) -> None:
        """Wait until nothing is being worked on and nothing waits."""
        while self._queue or self._busy:
            self._ended.clear()
            await self._ended.wait()

    def __len__(self) -> int:
        return len(self._queue) + len(self._busy)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            while (key := self._next()) is None:
                self._arrived.clear()
                await self._arrived.wait()
            item = self._queue.pop(key)
            self._busy.add(key)
            try:
                await self._work(item)
            finally:
                self._busy.discard(key)
                self._ended.set()
                self._arrived.set()  # what waits under this key may go now

    def _next(self) -> K | None:
        return next((key for key in self._queue if key not in self._busy), None)
