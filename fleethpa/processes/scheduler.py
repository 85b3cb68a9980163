"""The scheduler: changes the specs of central HPAs at the times of their schedules.

It keeps nothing: each look reads the state from the log, compares every HPA that carries a schedule with what the
schedule says for now, and publishes those that differ. Two of them at a time do no harm, and after an outage the next
look makes up for what was missed.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from fleethpa.changes.overtaken import overtaken
from fleethpa.changes.schedules import due, scheduled
from fleethpa.fleet.state import read_state
from fleethpa.frame.configuration import Config
from fleethpa.frame.errors import CommandError
from fleethpa.frame.sources import READING_S, open_past, unread_text, waited_out
from fleethpa.frame.writer import Writer, open_writer
from fleethpa.rollouts.marks import under_way
from runtime.ending import set_within, task_group
from runtime.log import Clock, wall_clock_ms
from runtime.process import PartConfig, PartHealth
from streams.history.past import Past

log = logging.getLogger(__name__)
EVERY_S: Final = 15.0
LOGGED_S: Final = 5.0
"""How long a record may take to be in the log before the state is read again."""


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig(PartConfig):
    """Settings of a scheduler. `clock`: Unix milliseconds."""

    config: Config
    every_s: float = EVERY_S
    clock: Clock = wall_clock_ms


class SchedulerMetrics:
    """What a scheduler measures."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.changed = Counter("fleethpa_scheduler_changes_total", "Specs changed by a schedule", registry=registry)
        self.failed = Counter(
            "fleethpa_scheduler_failures_total", "Looks at the schedules that failed", registry=registry
        )
        self.schedules = Gauge("fleethpa_scheduler_schedules", "Central HPAs that have a schedule", registry=registry)
        self.unusable = Gauge(
            "fleethpa_scheduler_unusable_schedules",
            "Schedules that cannot be followed; the process's log says why",
            registry=registry,
        )


class Scheduler:
    """Looks every `every_s`. `health.became_ready` is set after the first look."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self.health = PartHealth("looked")
        self._reported: set[str] = set()
        self._metrics = SchedulerMetrics(self.health.registry)

    async def run(self, stop: asyncio.Event) -> None:
        """Check until `stop` is set. Brokers that are away are waited for."""
        from runtime.groups import keep_signing

        async with self.health.served(self._config), task_group() as group:
            group.create_task(keep_signing(self._config.config.kafka(), "scheduler", self._config.clock, stop))
            while not stop.is_set():
                await self._while_connected(stop)
                await set_within(stop, self._config.every_s)

    async def _while_connected(self, stop: asyncio.Event) -> None:
        """Check again and again over one connection, until something fails."""
        try:
            async with open_past("kafka", self._config.config) as past, open_writer(self._config.config) as writer:
                while not stop.is_set():
                    await self.publish_due(past, writer)
                    self.health.ready("looked")
                    self.health.record("brokers", None)
                    await set_within(stop, self._config.every_s)
        except waited_out() as error:
            self._metrics.failed.inc()
            text = unread_text(error)
            self.health.record("brokers", text)
            log.warning("the schedules cannot be read or applied now: %s", text)

    async def publish_due(self, past: Past, writer: Writer) -> int:
        """Publish what is due; return how many HPAs were changed."""
        async with asyncio.timeout(READING_S):
            state = await read_state(past)
        now_ms = self._config.clock()
        writes, problems = due(state, now_ms, under_way(state, now_ms))
        self._metrics.schedules.set(len(scheduled(state.hpas.values())))
        self._metrics.unusable.set(len(problems))
        self._report(problems)
        sent = [await writer.send(each.subject, each.cluster, each.namespace, each.bodies) for each in writes]
        for fate in await writer.fates(sent, LOGGED_S):
            log.info("%s", fate.pending.subject)
            if fate.state == "rejected":
                log.warning("%s: rejected: %s", fate.pending.subject, fate.reason)
            else:
                self._metrics.changed.inc()
        async with asyncio.timeout(READING_S):
            refused = await overtaken(writes, writer, lambda: nullcontext(past), LOGGED_S)
        for problem in refused:  # the next look is at what is there by now
            log.warning("%s: %s", problem.what, problem.cause)
        return len(writes)

    def _report(self, problems: list[CommandError]) -> None:
        """Each problem once, until it is gone."""
        texts = {f"{problem.what}: {problem.cause}" for problem in problems}
        for text in sorted(texts - self._reported):
            log.warning("%s", text)
        self._reported = texts
        self.health.record("schedules", f"{len(texts)} cannot be followed" if texts else None)
