"""A bounded pool of workers for one cluster, so that a slow or dead cluster delays no other."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Pool(Generic[K, V]):
    """Works on the items of a queue, oldest first, at most `workers` at once.

    An exception of the work ends the pool, and with it the process: work tells its troubles by other ways.
    """

    def __init__(self, work: Callable[[V], Awaitable[None]], *, workers: int, limit: int) -> None:
        self._work, self._workers, self._limit = work, workers, limit
        self._queue: dict[K, V] = {}
        self._arrived = asyncio.Event()
        self._running = 0

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
        return self._queue.pop(key, None)

    def __len__(self) -> int:
        return len(self._queue) + self._running

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            while not self._queue:
                self._arrived.clear()
                await self._arrived.wait()
            key = next(iter(self._queue))
            item = self._queue.pop(key)
            self._running += 1
            try:
                await self._work(item)
            finally:
                self._running -= 1
