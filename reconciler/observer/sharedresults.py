"""Results of queries that are asked for in one sync period by several namespaces or HPAs: each is asked for once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from reconciler.core.metricanswers import next_poll_ms
from runtime.log import Clock

R = TypeVar("R")


class SharedResults(Generic[R]):
    """Results of queries, each asked for at most once per period; other callers share it, errors too.

    Args:
        ask: asks for a query (its text), for the share of a namespace.
    """

    def __init__(
        self, ask: Callable[[str, str], Coroutine[Any, Any, R]], clock: Clock, period_ms: Callable[[], int]
    ) -> None:
        self._ask, self._clock, self._period_ms = ask, clock, period_ms
        self._kept: dict[str, tuple[int, asyncio.Task[R]]] = {}
        """Query → when its period ends, and its result."""
        self._forget_ms = 0
        """When old results are forgotten next."""

    async def result(self, text: str, namespace: str) -> R:
        """The result of a query of a namespace in its present period. Raises what asking for it raises."""
        now_ms, period_ms = self._clock(), self._period_ms()
        until_ms, task = self._kept.get(text, (0, None))
        if task is None or _is_over(until_ms, now_ms, period_ms):
            self._forget(now_ms, period_ms)
            task = asyncio.create_task(self._ask(text, namespace))
            self._kept[text] = next_poll_ms(text, period_ms, now_ms), task
        # Shielded: one who gives up must not take the answer from the others.
        return await asyncio.shield(task)

    def _forget(self, now_ms: int, period_ms: int) -> None:
        """Forget what is no longer asked for, once per period."""
        if _is_over(self._forget_ms, now_ms, period_ms):
            self._kept = {key: kept for key, kept in self._kept.items() if kept[0] > now_ms or not kept[1].done()}
            self._forget_ms = now_ms + period_ms

    async def close(self) -> None:
        """End what is still being asked."""
        running = [task for _, task in self._kept.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._kept.clear()


def _is_over(until_ms: int, now_ms: int, period_ms: int) -> bool:
    """Whether a period has ended. One that would end later than a period from now has, too: the clock was set back, or
    periods have become shorter.
    """
    return until_ms <= now_ms or until_ms > now_ms + period_ms
