"""The breaker in report-only mode: guardrails over decisions as they come; a trip is a metric and a line of the log.

It changes nothing. After a start it reads the decisions of the last hour, so that its windows and the trips within
that hour are known, and reports only what trips from then on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from fleethpa.cli.common.configuration import Config
from fleethpa.cli.common.failures import CommandError
from fleethpa.cli.common.sources import open_past
from runtime.healthserver import PartHealth
from schemas.codec import WireError
from schemas.guardrails import Guardrail
from streams.analysis.guardrailruns import EventReader, GuardedEvent, GuardrailRun, Trip
from streams.archive.layout import DECISIONS
from streams.archive.segments import ArchiveError
from streams.history.past import Past

log = logging.getLogger(__name__)
LOOK_BACK_MS: Final = 3_600_000
_AGAIN_S: Final = 5.0
_UNREADABLE: Final = (CommandError, ArchiveError, WireError, OSError, TimeoutError)


@dataclass(frozen=True, kw_only=True)
class BreakerConfig:
    """Settings of a breaker. `web_port`: None serves nothing, 0 takes a free port. `clock`: Unix milliseconds."""

    config: Config
    rules: Sequence[Guardrail]
    web_port: int | None = None
    web_host: str = "127.0.0.1"
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000


class BreakerMetrics:
    """What a breaker measures."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.trips = Counter(
            "fleethpa_breaker_trips_total", "Trips of a guardrail", ["rule", "cluster"], registry=registry
        )
        self.tripped = Gauge(
            "fleethpa_breaker_last_trip_timestamp_seconds",
            "Log time of the last trip of a guardrail",
            ["rule", "cluster"],
            registry=registry,
        )
        self.newest = Gauge(
            "fleethpa_breaker_newest_decision_timestamp_seconds",
            "Log time of the newest change that was read",
            registry=registry,
        )


class Breaker:
    """Follows the decisions. `health.became_ready` is set once the last hour has been read."""

    def __init__(self, config: BreakerConfig) -> None:
        self._config = config
        self.health = PartHealth("read")
        self._metrics = BreakerMetrics(self.health.registry)

    async def run(self, stop: asyncio.Event) -> None:
        """Follow until `stop` is set. Brokers that are away are waited for."""
        async with self.health.served(self._config.web_host, self._config.web_port):
            while not stop.is_set():
                await self._while_connected(stop)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), _AGAIN_S)

    async def _while_connected(self, stop: asyncio.Event) -> None:
        following: asyncio.Task[None] | None = None
        stopping = asyncio.create_task(stop.wait())
        try:
            async with open_past("kafka", self._config.config) as past:
                following = asyncio.create_task(self.follow(past))
                await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    following.result()
        except _UNREADABLE as error:
            self.health.note("brokers", str(error))
            log.warning("the decisions cannot be read now: %s", error)
        finally:
            for task in (following, stopping):
                if task is not None:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)

    async def follow(self, past: Past) -> None:
        """Read the last hour, then report the trips of what comes, without end (of an archive: until its end)."""
        run, readers = GuardrailRun(self._config.rules), dict[int, EventReader]()
        events: list[GuardedEvent] = []
        positions: dict[int, int] = {}
        for number in range(await past.partitions()):
            readers[number] = EventReader()
            first = await past.offset_at(DECISIONS, number, self._config.clock() - LOOK_BACK_MS)
            positions[number] = first
            async with aclosing(past.records(DECISIONS, number, first)) as records:
                async for record in records:
                    positions[number] = record.offset + 1
                    if (event := readers[number].take(record.value)) is not None:
                        events.append(event)
        for event in sorted(events):
            run.take(event)
        self.health.ready("read")
        self.health.note("brokers", None)
        async with aclosing(past.arriving(positions)) as arriving:
            async for number, record in arriving:
                if (event := readers[number].take(record.value)) is not None:
                    self._metrics.newest.set(event.time_ms / 1000)
                    for trip in run.take(event):
                        self._report(trip)

    def _report(self, trip: Trip) -> None:
        self._metrics.trips.labels(trip.rule, trip.cluster).inc()
        self._metrics.tripped.labels(trip.rule, trip.cluster).set(trip.time / 1000)
        log.warning(
            "guardrail %s: %d of %d replicas of cluster %s removed; to hold scale-downs there: "
            "fleethpa pause -C %s --scale-in --for 15m --reason 'guardrail %s'",
            *(trip.rule, trip.removed, trip.replicas, trip.cluster, trip.cluster, trip.rule),
        )


async def run_breaker(
    config: BreakerConfig, stop: asyncio.Event, announce: Callable[[int], None] | None = None
) -> None:
    """Run a breaker until `stop` is set; `announce` is told the port of its health once it has read (0: none)."""
    part = Breaker(config)
    await part.health.accompany(part.run(stop), announce)
