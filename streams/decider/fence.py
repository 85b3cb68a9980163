"""The self-fence: a process that was suspended too long must not write, as another may own its partitions by then."""

import asyncio
import time

from streams.decider.exits import Exit, die

BEAT_S = 0.2


class Fence:
    """Notices that the event loop stood still: a paused process, a swapped-out host, a call that blocks.

    Args:
        limit_s: how long is too long; below the group's session time-out.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._beat = time.monotonic()
        self._task: asyncio.Task[None] | None = None

    @property
    def silent_s(self) -> float:
        """How long ago the loop last ran the beat."""
        return time.monotonic() - self._beat

    def start(self) -> None:
        """Begin to watch, unless it does; called before anything is owned, and never waits for a lock."""
        if self._task is None:
            self._beat = time.monotonic()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="fence")

    def check(self) -> None:
        """End the process if the loop stood still for too long; called before everything that writes."""
        if self._task is not None and self.silent_s > self._limit_s:
            die(
                Exit.FENCED, f"stood still for {self.silent_s:.1f} s (limit {self._limit_s:.1f} s): no longer the owner"
            )

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            self.check()
            self._beat = time.monotonic()
