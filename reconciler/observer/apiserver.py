"""Whether the API server of a cluster answers at all, as opposed to a watch or a metrics API that fails."""

import asyncio
import time

from reconciler.clusters.client import ClusterClient
from reconciler.clusters.clustererrors import ClusterError
from reconciler.observer.observermetrics import ObserverMetrics
from reconciler.observer.troubles import API_SERVER, ReadProblem, Troubles, problem_of

ASK_EVERY_S = 5.0
"""It is asked for its version where it has answered nothing else for this long."""
AWAY_PAUSE_S = 2.0
FAILURES = 2
"""Requests that must fail in a row before an API server counts as unreachable."""


class ApiServer:
    """The API server of one cluster: `answered` is called at each answer that it gives to anybody."""

    def __init__(self, client: ClusterClient, troubles: Troubles, metrics: ObserverMetrics) -> None:
        self._client, self._troubles = client, troubles
        self._up = metrics.up.labels(client.name)
        self._last_sync = metrics.last_sync.labels(client.name)
        self._answered_at = time.monotonic()
        self._failures = 0
        self._asking = asyncio.Lock()
        self._asked_at = self._answered_at

    def answered(self) -> None:
        """It has answered just now."""
        self._answered_at = time.monotonic()
        self._up.set(1)
        self._last_sync.set_to_current_time()
        if self._failures >= FAILURES:
            self._troubles.note(API_SERVER, "", None)
        self._failures = 0

    async def watch(self) -> None:
        """Send it a request whenever no other request was answered for a while, until cancelled."""
        while True:
            await asyncio.sleep(AWAY_PAUSE_S if self._failures else ASK_EVERY_S)
            if time.monotonic() - self._answered_at >= ASK_EVERY_S:
                await self._ask()

    async def answers(self) -> bool:
        """Whether it answers now. Who asks meanwhile shares the requests; where it answers none of them, it is away."""
        since = time.monotonic()
        async with self._asking:
            if self._asked_at < since:
                for _ in range(FAILURES):
                    if self._answered_at < since:
                        await self._ask()
                self._asked_at = time.monotonic()
            return self._answered_at >= since

    async def _ask(self) -> None:
        since = time.monotonic()
        try:
            await self._client.get("/version")
        except ClusterError as error:
            if self._answered_at < since:  # a refusal is an answer
                self._failed(problem_of(error))

    def _failed(self, problem: ReadProblem) -> None:
        self._failures += 1
        if self._failures >= FAILURES:
            self._up.set(0)
            self._troubles.note(API_SERVER, "", problem)
