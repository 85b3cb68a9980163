"""What the observer says, batched per topic and namespace, in order, within the size of a record."""

import asyncio
from typing import Protocol

from reconciler.apply.reconcilerconfig import Clock
from reconciler.apply.telemetry import ObserverMetrics
from reconciler.core.chunks import split
from runtime.publicrecords import Publisher
from schemas.entries import Body

LINGER_S = 0.02
WAITING_LIMIT = 20_000
"""Entries that may wait; above it the watches wait, too, until Kafka takes them again."""

Lane = tuple[str, str, str]


class ReportOutlet(Protocol):
    """Where the observer of a cluster leaves what it saw."""

    async def put(self, topic: str, cluster: str, namespace: str, bodies: list[Body]) -> None:
        """Hand bodies over; waits while too many wait already."""


class RecordPublisher:
    """Takes bodies and writes them soon after, those of one topic and namespace in order."""

    def __init__(self, publisher: Publisher, metrics: ObserverMetrics, clock: Clock) -> None:
        self._publisher, self._metrics, self._clock = publisher, metrics, clock
        self._lanes: dict[Lane, list[Body]] = {}
        self._waiting = 0
        self._said_ms = 0
        self._arrived = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()

    async def put(self, topic: str, cluster: str, namespace: str, bodies: list[Body]) -> None:
        """Hand bodies over; waits while too many wait already."""
        await self._drained.wait()
        self._lanes.setdefault((topic, cluster, namespace), []).extend(bodies)
        self._waiting += len(bodies)
        self._arrived.set()
        if self._waiting >= WAITING_LIMIT:
            self._drained.clear()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            await asyncio.sleep(LINGER_S)  # batching, not synchronisation: what arrives meanwhile shares a record
            await self.flush()

    async def flush(self) -> None:
        """Write all that waits."""
        lanes, self._lanes, self._waiting = self._lanes, {}, 0
        await asyncio.gather(*(self._write(lane, bodies) for lane, bodies in lanes.items()))
        if self._waiting < WAITING_LIMIT:
            self._drained.set()

    async def _write(self, lane: Lane, bodies: list[Body]) -> None:
        topic, cluster, namespace = lane
        for part in split(bodies):
            await self._publisher.send(topic, cluster, namespace, part, self._now_ms())
            self._metrics.records.labels(topic).inc()

    def _now_ms(self) -> int:
        """The clock, which never runs backwards here: readers take what is older for late."""
        self._said_ms = max(self._said_ms, self._clock())
        return self._said_ms
