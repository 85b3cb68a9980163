"""Writes what the observer reports: batched per topic and namespace, in order, within the size limit of a record."""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Protocol

from msgspec import Raw

from reconciler.core.objectbodies import split
from reconciler.observer.clusterview import ObserverMetrics
from runtime.driver import FreeMemory
from runtime.log import Clock
from runtime.records import Publisher
from schemas.codec import encode
from schemas.entries import Body
from schemas.fitting import fitted

log = logging.getLogger(__name__)

LINGER_S = 0.02
AT_ONCE = 256
"""Records that the driver has at once: so many share a request while brokers are slow. Thousands, as at the start of a
large cluster, would only wait their turn there.
"""

WAITING_BYTES = 32 * 2**20
"""What may wait; beyond that the watches wait, too, until Kafka accepts records again."""

Destination = tuple[str, str, str]
"""Topic, cluster, namespace."""


def within_limits(bodies: Iterable[Body], namespace: str) -> list[Body]:
    """Cut what is reported on a namespace down to the limits of what fleethpa takes; log what was cut, once."""
    return [fitted(body, namespace, lambda error: _log_cut(str(error))) for body in bodies]


@lru_cache(maxsize=1_024)
def _log_cut(text: str) -> None:
    log.warning("more than fleethpa takes", extra={"error": text})


class ReportPublisher(Protocol):
    """Publishes what the observer of a cluster saw."""

    async def put(self, topic: str, cluster: str, namespace: str, bodies: list[Body]) -> None:
        """Take bodies to publish; waits while WAITING_BYTES are waiting already."""


class RecordPublisher:
    """Takes bodies and writes them soon after, those of one topic and namespace in order."""

    def __init__(
        self, publisher: Publisher, metrics: ObserverMetrics, clock: Clock, memory: FreeMemory | None = None
    ) -> None:
        """`memory`: gives back what lists and records have left free in the C heap; None: that of this process."""
        self._publisher, self._metrics, self._clock = publisher, metrics, clock
        self._memory = memory or FreeMemory()
        self._batches: dict[Destination, list[Raw]] = {}
        self._waiting_bytes = 0
        self._newest_ms = 0
        self._writing = asyncio.Lock()
        self._arrived = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()

    async def put(self, topic: str, cluster: str, namespace: str, bodies: list[Body]) -> None:
        """Take bodies to publish; waits while WAITING_BYTES are waiting already."""
        bodies = within_limits(bodies, namespace)
        encoded = [encode(body) for body in bodies]  # once, and a list of HPAs takes a quarter of the objects' memory
        await self._drained.wait()
        self._batches.setdefault((topic, cluster, namespace), []).extend(map(Raw, encoded))
        self._waiting_bytes += sum(map(len, encoded))
        self._arrived.set()
        if self._waiting_bytes >= WAITING_BYTES:
            self._drained.clear()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            await asyncio.sleep(LINGER_S)  # batching, not synchronisation: what arrives meanwhile shares a record
            await self.flush()
            self._memory.give_back()

    async def flush(self) -> None:
        """Write all that waits, after what is being written already."""
        async with self._writing:
            batches, self._batches, self._waiting_bytes = self._batches, {}, 0
            waiting = iter(batches.items())
            await asyncio.gather(*(self._write_each(waiting) for _ in range(min(AT_ONCE, len(batches)))))
            if self._waiting_bytes < WAITING_BYTES:
                self._drained.set()

    async def _write_each(self, waiting: Iterator[tuple[Destination, list[Raw]]]) -> None:
        """Write what waits for one destination after the other, until others of this kind have taken the rest."""
        for (topic, cluster, namespace), bodies in waiting:
            for part in split(bodies):
                await self._publisher.send(topic, cluster, namespace, part, self._now_ms())
                self._metrics.records.labels(topic).inc()

    def _now_ms(self) -> int:
        """The time, never earlier than before: readers would treat an older record as late."""
        self._newest_ms = max(self._newest_ms, self._clock())
        return self._newest_ms
