"""Slots for requests, in turn by key: `schemas/shares.py` for tasks that wait."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Final, Generic, TypeVar

from schemas.shares import Turns

K = TypeVar("K", bound=Hashable)


BURST_S: Final = 1.0
"""So much of a second's requests may come at once."""


class Pace:
    """Spreads requests so that there are no more than so many a second."""

    def __init__(self, per_second: int) -> None:
        self._gap_s, self._next_s = 1 / per_second, 0.0

    def left_s(self, now_s: float) -> float:
        """Return how long the next request would wait; 0: it may be sent now."""
        return max(0.0, self._next_s - now_s)

    def wait_s(self, now_s: float, most_s: float) -> float | None:
        """How long the next request waits, whose turn is taken; None: longer than `most_s`, so it is not sent."""
        turn_s = max(self._next_s, now_s - BURST_S)
        if turn_s - now_s > most_s:
            return None
        self._next_s = turn_s + self._gap_s
        return max(0.0, turn_s - now_s)


class FairSlots(Generic[K]):
    """So many tasks at once, of one key at most its share; the key that used least time is next.

    Takes the place of a semaphore where several namespaces, clusters or producers want the same slots:
    `async with slots.turn(namespace): …`. The seconds that a task keeps its slot count as used by its key.

    Args:
        slots, per_key: as `schemas.shares.Turns`.
        pace: how many may begin in a second; None: any number.
        clock: the time in seconds, of which slots and pace are counted.
    """

    def __init__(
        self,
        slots: int,
        per_key: int | None = None,
        *,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._turns: Turns[K, asyncio.Future[None]] = Turns(slots, per_key)
        self._pace, self._clock = pace, clock
        self._timer: asyncio.TimerHandle | None = None

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
        began_s = self._clock()
        try:
            yield
        finally:
            self._end(key, self._clock() - began_s)

    def _end(self, key: K, used_s: float) -> None:
        self._turns.end(key, used_s)
        self._start()

    def _start(self) -> None:
        while len(self._turns) and self._timer is None:
            if self._pace is not None and (wait_s := self._pace.left_s(self._clock())) > 0:
                self._timer = asyncio.get_running_loop().call_later(wait_s, self._go_on)
                return
            if (turn := self._turns.next()) is None:
                return
            if not turn[1].done():
                turn[1].set_result(None)
                if self._pace is not None:
                    self._pace.wait_s(self._clock(), 0.0)

    def _go_on(self) -> None:
        self._timer = None
        self._start()
