"""Recurring work per namespace, each on its own phase, or all of a cluster on one."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable

from reconciler.core.phase import next_poll_ms
from runtime.wallclock import Clock

LONGEST_WAIT_S = 5.0
"""So soon it is noticed that the clock was put back."""

Work = Callable[[str], Awaitable[None]]
Period = Callable[[], int]


class Timetable:
    """Runs each kind of work for each namespace once per period, until the namespace is taken off."""

    def __init__(self, cluster: str, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        self._kinds: dict[str, tuple[Work, Period]] = {}
        self._together: set[str] = set()
        self._due: list[tuple[int, str, str]] = []
        self._namespaces: set[str] = set()
        self._changed = asyncio.Event()

    def add_kind(self, kind: str, work: Work, period_ms: Period, *, together: bool = False) -> None:
        """Name a kind of work; before the first namespace.

        Args:
            together: for all namespaces of the cluster at once, so that what it publishes shares requests and records.
        """
        self._kinds[kind] = (work, period_ms)
        if together:
            self._together.add(kind)

    def add(self, namespace: str, *, at_once: tuple[str, ...] = ()) -> None:
        """Begin with a namespace (nothing, if it is on already); kinds in `at_once` also run now."""
        if namespace in self._namespaces:
            return
        self._namespaces.add(namespace)
        now = self._clock()
        for kind in self._kinds:
            heapq.heappush(self._due, (now if kind in at_once else self._next(kind, namespace, now), kind, namespace))
        self._changed.set()

    def __len__(self) -> int:
        """How many namespaces are on."""
        return len(self._namespaces)

    def has(self, namespace: str) -> bool:
        """Whether the namespace is on."""
        return namespace in self._namespaces

    def remove(self, namespace: str) -> None:
        """End with a namespace."""
        self._namespaces.discard(namespace)
        self._due = [entry for entry in self._due if entry[2] != namespace]
        heapq.heapify(self._due)

    async def run(self) -> None:
        """Run until cancelled. Work is awaited in turn: it hands over and returns soon."""
        before = self._clock()
        while True:
            self._changed.clear()
            now = self._clock()
            if now < before:
                self._plan_anew(now)
            before = now
            while self._due and self._due[0][0] <= now:
                _, kind, namespace = heapq.heappop(self._due)
                heapq.heappush(self._due, (self._next(kind, namespace, now), kind, namespace))
                await self._kinds[kind][0](namespace)
            await self._until_due()

    def _plan_anew(self, now_ms: int) -> None:
        """Plan again after the clock was set back, so that nothing waits until the clock has caught up."""
        self._due = [
            (min(due_ms, self._next(kind, namespace, now_ms)), kind, namespace) for due_ms, kind, namespace in self._due
        ]
        heapq.heapify(self._due)

    def _next(self, kind: str, namespace: str, now_ms: int) -> int:
        key = self._cluster if kind in self._together else f"{self._cluster}/{namespace}"
        return next_poll_ms(key, self._kinds[kind][1](), now_ms)

    async def _until_due(self) -> None:
        wait_s = min(LONGEST_WAIT_S, max(0.0, (self._due[0][0] - self._clock()) / 1000)) if self._due else None
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
        except TimeoutError:
            return
