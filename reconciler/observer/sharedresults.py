"""Results of queries that are asked for in one period by several namespaces or HPAs: each is asked for once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from reconciler.core.metricanswers import next_poll_ms
from runtime.log import Clock

R = TypeVar("R")


class SharedResults(Generic[R]):
    """Results of queries, each asked for at most once per period; other callers share it, errors too. Of namespaces
    with different periods each gets a result of its own present period: a longer one shares what a shorter one asks.

    Args:
        ask: asks for a query (its text), for the share of a namespace.
        period_ms: of a namespace, now.
    """

    def __init__(
        self, ask: Callable[[str, str], Coroutine[Any, Any, R]], clock: Clock, period_ms: Callable[[str], int]
    ) -> None:
        self._ask, self._clock, self._period_ms = ask, clock, period_ms
        self._kept: dict[str, tuple[int, int, asyncio.Task[R]]] = {}
        """Query → when it was asked for, the longest period of those who share it, and its result."""
        self._forget_ms = 0
        """When old results are forgotten next."""

    async def result(self, text: str, namespace: str) -> R:
        """The result of a query of a namespace in its present period. Raises what asking for it raises."""
        now_ms, period_ms = self._clock(), self._period_ms(namespace)
        since_ms = next_poll_ms(text, period_ms, now_ms) - period_ms
        asked_ms, longest_ms, task = self._kept.get(text, (0, 0, None))
        # One that was asked for later than now was so before the clock was set back.
        if task is None or not since_ms <= asked_ms <= now_ms:
            self._forget(now_ms, period_ms)
            task = asyncio.create_task(self._ask(text, namespace))
            asked_ms = now_ms
        self._kept[text] = asked_ms, max(longest_ms, period_ms), task
        # Shielded: one who gives up must not take the answer from the others.
        return await asyncio.shield(task)

    def _forget(self, now_ms: int, period_ms: int) -> None:
        """Forget what was not asked for within its period, once per period."""
        if not now_ms < self._forget_ms <= now_ms + period_ms:
            self._kept = {
                text: (asked_ms, longest_ms, task)
                for text, (asked_ms, longest_ms, task) in self._kept.items()
                if asked_ms > now_ms - longest_ms or not task.done()
            }
            self._forget_ms = now_ms + period_ms

    async def close(self) -> None:
        """End what is still being asked."""
        running = [task for _, _, task in self._kept.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._kept.clear()
