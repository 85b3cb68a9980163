"""Slots for requests, in turn by key: `schemas/shares.py` for tasks that wait."""

import asyncio
import time
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from schemas.shares import Turns

K = TypeVar("K", bound=Hashable)


class FairSlots(Generic[K]):
    """So many tasks at once, of one key at most its share; the key that used least time is next.

    Takes the place of a semaphore where several namespaces, clusters or producers want the same slots:
    `async with slots.turn(namespace): …`. The seconds that a task keeps its slot count as used by its key.

    Args:
        slots, per_key: as `schemas.shares.Turns`.
    """

    def __init__(self, slots: int, per_key: int | None = None) -> None:
        self._turns: Turns[K, asyncio.Future[None]] = Turns(slots, per_key)

    @asynccontextmanager
    async def turn(self, key: K) -> AsyncIterator[None]:
        """Wait for a slot and keep it. Who is cancelled while it waits leaves no slot taken."""
        ready = asyncio.get_running_loop().create_future()
        self._turns.add(key, ready, 0.0)
        self._start()
        try:
            await ready
        except asyncio.CancelledError:
            if not self._turns.drop(key, lambda each: each is ready):
                self._end(key, 0.0)  # its turn had come in the same moment
            raise
        began_s = time.monotonic()
        try:
            yield
        finally:
            self._end(key, time.monotonic() - began_s)

    def _end(self, key: K, used_s: float) -> None:
        self._turns.end(key, used_s)
        self._start()

    def _start(self) -> None:
        while (found := self._turns.next()) is not None:
            if not found[1].done():
                found[1].set_result(None)
