"""Scales before statuses: what changes a workload is written before what only shows it."""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from runtime.workerpool import WorkerPool

STRETCH_S: Final = 5.0
"""Statuses wait no longer than this, however long scales keep coming or a cluster gives no answer."""


class ScalesFirst:
    """Lets statuses and Events wait while scales are to be written: they share one processor core.

    Args:
        writes: the queues of wanted writes, of all clusters.
    """

    def __init__(
        self, writes: Callable[[], Iterable[WorkerPool[Any, Any]]], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._writes, self._clock_s = writes, clock_s
        self._since_s = 0.0

    def begin(self) -> None:
        """Note that a scale is about to be queued."""
        if not any(len(pool) for pool in self._writes()):
            self._since_s = self._clock_s()

    async def wait(self) -> None:
        """Wait until no scale is to be written, or until scales have been written for `STRETCH_S`."""
        busy = [pool for pool in self._writes() if len(pool)]
        left_s = self._since_s + STRETCH_S - self._clock_s()
        if not busy or left_s <= 0:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                for pool in busy:
                    await pool.idle()
