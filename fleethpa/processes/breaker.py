"""The breaker: guardrails over decisions as they come. A trip is a metric and a line of the log, and a pause of
scale-downs where the rule acts.

After a start it reads the decisions of the last hour, so that its windows are known, and what is in force now; it trips
only for what comes from then on. It warns of clusters in which a rule acts and nothing bounds removals until its pause
is in force. It stores nothing: after an error it connects and reads again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from fleethpa.frame.configuration import Config
from fleethpa.frame.sources import UNREADABLE, open_past
from fleethpa.show.words import listed
from runtime.ending import set_within, task_group
from runtime.log import Clock, wall_clock_ms
from runtime.process import PartConfig, PartHealth
from schemas.entries import Body, BreakerCommand, GuardrailResume
from schemas.inforce import InForce
from schemas.keys import EVERY_CLUSTER
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.settings import Guardrail
from schemas.topics import BREAKER, SETTINGS
from streams.analysis.guardrailruns import EventReader, GuardedEvent, GuardrailRun, Trip
from streams.archive.layout import DECISIONS, ArchivedRecord
from streams.history.past import Past
from streams.state.clustersettings import effective

log = logging.getLogger(__name__)
LOOK_BACK_MS: Final = 3_600_000
SHOWN_CLUSTERS: Final = 10
_LABELS: Final = ("rule", "cluster", "namespace")
"""`namespace` is empty where all of the cluster is meant."""
_AGAIN_S: Final = 5.0
_FOR_EVER_S: Final = float("inf")
Publish = Callable[[BreakerCommand], Awaitable[None]]
"""Publishes an entry of the breaker; returns when the brokers have it."""


@dataclass(frozen=True, kw_only=True)
class BreakerConfig(PartConfig):
    """Settings of a breaker. `clock`: Unix milliseconds."""

    config: Config
    rules: Sequence[Guardrail]
    clock: Clock = wall_clock_ms


class BreakerMetrics:
    """What a breaker measures."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        self.trips = Counter("fleethpa_breaker_trips_total", "Trips of a guardrail", _LABELS, registry=registry)
        self.tripped = gauge(
            "fleethpa_breaker_last_trip_timestamp_seconds", "Log time of the last trip of a guardrail", _LABELS
        )
        self.newest = gauge(
            "fleethpa_breaker_newest_decision_timestamp_seconds", "Log time of the newest change that was read"
        )
        self.paused_until = gauge(
            "fleethpa_breaker_paused_until_timestamp_seconds",
            "When the pause of a guardrail ends by itself (+Inf: a person must end it; 0: it was ended)",
            _LABELS,
        )
        self.unbounded = gauge(
            "fleethpa_breaker_clusters_without_budget",
            "Clusters in which a guardrail acts and no removal budget bounds what goes before its pause",
        )


class Breaker:
    """Follows the decisions. `health.became_ready` is set once the last hour has been read."""

    def __init__(self, config: BreakerConfig) -> None:
        self._config = config
        self._rules = {rule.name: rule for rule in config.rules}
        self.health = PartHealth("read")
        self._metrics = BreakerMetrics(self.health.registry)
        self._begin()

    def _begin(self) -> None:
        self._run = GuardrailRun(self._config.rules, Guardrail.acts_at)
        self._in_force = InForce()
        self._early: list[tuple[int, BreakerCommand | GuardrailResume]] | None = []
        """Commands that came before the last hour of decisions was read, with their times; None: it has been."""
        self._unbounded: set[str] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Follow until `stop` is set. Brokers that are away are waited for."""
        from runtime.groups import keep_signing

        async with self.health.served(self._config), task_group() as group:
            group.create_task(keep_signing(self._config.config.kafka(), "breaker", self._config.clock, stop))
            while not stop.is_set():
                await self._while_connected(stop)
                await set_within(stop, _AGAIN_S)

    async def _while_connected(self, stop: asyncio.Event) -> None:
        from aiokafka.errors import KafkaError

        from runtime.records import follow_topics

        self._begin()
        kafka = self._config.config.kafka()
        try:
            async with (
                open_past("kafka", self._config.config) as past,
                self._publisher() as publish,
                task_group() as group,
            ):
                # Also where all rules only report: they may have paused before the file was changed.
                takes = {BREAKER: self.take_breaker, SETTINGS: self.take}
                tasks = await follow_topics(group, kafka, takes, stop)
                tasks.append(group.create_task(self.follow(past, publish)))
                await stop.wait()
                for task in tasks:
                    task.cancel()
        except (*UNREADABLE, KafkaError) as error:
            self.health.note("brokers", str(error) or type(error).__name__)
            log.warning("the decisions cannot be followed now: %s", error)

    @asynccontextmanager
    async def _publisher(self) -> AsyncIterator[Publish]:
        from runtime import kafkaclients
        from runtime.records import Publisher

        async with AsyncExitStack() as stack:
            publisher: Publisher | None = None

            async def publish(body: BreakerCommand) -> None:
                nonlocal publisher
                if publisher is None:
                    producer = kafkaclients.strict_producer(self._config.config.kafka(), linger_ms=0)
                    await stack.enter_async_context(kafkaclients.started(producer))
                    publisher = Publisher(producer)
                await publisher.send(BREAKER, "", "", [body], self._config.clock())

            yield publish

    def take(self, body: Body, time_ms: int, cluster: str = "", namespace: str = "") -> None:
        """Take an entry of `fleethpa.settings` in: a person ended pauses, or the settings of a cluster were changed."""
        change = self._in_force.take(body, time_ms, cluster, namespace)
        if isinstance(body, GuardrailResume) and change is not None:
            self._took(body, time_ms)
        elif change is not None and change.of == "settings" and self._early is None:
            self._look_for_budgets()

    def take_breaker(self, body: Body, time_ms: int, cluster: str = "", namespace: str = "") -> None:
        """Take an entry of `fleethpa.breaker` in: this breaker or another one paused or resumed a cluster."""
        self._in_force.take_breaker(body, time_ms, cluster, namespace)
        if isinstance(body, BreakerCommand) and not namespace:
            self._took(body, time_ms)

    def _took(self, body: BreakerCommand | GuardrailResume, time_ms: int) -> None:
        if self._early is not None:
            self._early.append((time_ms, body))
        else:
            self._take_command(body, time_ms)
            self._show_pauses()

    def _look_for_budgets(self) -> None:
        """Warn once of each cluster in which a rule acts without a removal budget beside it."""
        now_ms = self._config.clock()
        acting = sorted(rule.name for rule in self._config.rules if rule.acts_at(now_ms))
        clusters = self._run.clusters() if acting else []
        found = {name for name in clusters if not effective(self._in_force.settings, name).budgets.bounds_removals}
        for name in sorted(found - self._unbounded):
            log.warning(
                "guardrail %s acts in cluster %s, which has no removal budget: more than half of a wave may be gone "
                "before its pause is in force; to bound that: fleethpa settings %s removal-budget=30%%/10m",
                ", ".join(acting),
                name,
                name,
            )
        self._unbounded = found
        self._metrics.unbounded.set(len(found))
        self.health.note("removal budgets", f"none in {listed(sorted(found), SHOWN_CLUSTERS)}" if found else None)

    def _take_command(self, body: BreakerCommand | GuardrailResume, time_ms: int) -> None:
        if isinstance(body, BreakerCommand) and body.command == "pause":
            self._run.began(body, time_ms)
            return
        for cluster in self._run.clusters() if body.cluster == EVERY_CLUSTER else [body.cluster]:
            self._run.resumed(cluster, time_ms, body.namespace)

    def _show_pauses(self) -> None:
        in_force = self._in_force.guardrail_pauses(self._config.clock())
        standing = {(each.guardrail, each.cluster, each.namespace): each for each in in_force}
        known = {tuple(sample.labels.values()) for sample in next(iter(self._metrics.paused_until.collect())).samples}
        for labels in known | standing.keys():
            pause = standing.get((labels[0], labels[1], labels[2]))
            until_s = 0.0 if pause is None else pause.until_ms / 1000 or _FOR_EVER_S
            self._metrics.paused_until.labels(*labels).set(until_s)

    async def follow(self, past: Past, publish: Publish | None = None) -> None:
        """Read the last hour, then look at what comes, without end (of an archive: until its end).

        `publish`: None: trips are only reported.
        """
        readers = dict[int, EventReader]()
        events: list[GuardedEvent] = []
        positions: dict[int, int] = {}
        for number in range(await past.partitions()):
            readers[number] = EventReader()
            first = await past.offset_at(DECISIONS, number, self._config.clock() - LOOK_BACK_MS)
            positions[number] = first
            async with aclosing(past.records(DECISIONS, number, first)) as records:
                async for record in records:
                    positions[number] = record.offset + 1
                    events += _events(readers[number], number, record)
        self._catch_up(events)
        self._look_for_budgets()
        await self._end_what_no_rule_pauses(publish)
        self.health.ready("read")
        self.health.note("brokers", None)
        async with aclosing(past.arriving(positions)) as arriving:
            async for number, record in arriving:
                for event in _events(readers[number], number, record):
                    await self._take(event, publish)

    async def _take(self, event: GuardedEvent, publish: Publish | None) -> None:
        self._metrics.newest.set(event.time_ms / 1000)
        known = self._run.knows(event.cluster)
        trips = self._run.take(event)
        if not known:
            self._look_for_budgets()
        for trip in trips:
            await self._tripped(trip, publish)

    def _catch_up(self, events: list[GuardedEvent]) -> None:
        """Bring the run to the present by what happened in the last hour, in order of time."""
        since_ms = self._config.clock() - LOOK_BACK_MS
        commands = [(time_ms, body) for time_ms, body in self._early or () if time_ms >= since_ms]
        self._early = None
        changes = [(event.time_ms, event) for event in sorted(events)]
        # Of one moment, commands come first: the sort keeps the order of what has the same time.
        for time_ms, each in sorted([*commands, *changes], key=lambda one: one[0]):
            if isinstance(each, GuardedEvent):
                self._run.watch(each)
            else:
                self._take_command(each, time_ms)
        self._show_pauses()

    async def _end_what_no_rule_pauses(self, publish: Publish | None) -> None:
        """End the pauses of rules that are gone or no longer act. One that waits for a person stays."""
        now_ms = self._config.clock()
        for pause in self._in_force.guardrail_pauses(now_ms):
            rule = self._rules.get(pause.guardrail)
            if publish is None or not pause.until_ms or (rule is not None and rule.acts_at(now_ms)):
                continue
            where = f"namespace {pause.namespace} of " * bool(pause.namespace) + f"cluster {pause.cluster}"
            log.warning("guardrail %s no longer acts: its pause of %s is ended", pause.guardrail, where)
            ended = BreakerCommand(
                command="resume", cluster=pause.cluster, namespace=pause.namespace, guardrail=pause.guardrail
            )
            await publish(ended)

    async def _tripped(self, trip: Trip, publish: Publish | None) -> None:
        rule, labels = self._rules[trip.rule], (trip.rule, trip.cluster, trip.namespace)
        self._metrics.trips.labels(*labels).inc()
        self._metrics.tripped.labels(*labels).set(trip.time / 1000)
        what = f"guardrail {trip.rule}: {trip.removed} of {trip.replicas} replicas of cluster {trip.cluster} removed"
        what += f" by namespace {trip.namespace} alone" if trip.namespace else ""
        scope = f"-C {trip.cluster}" + (f" -n {trip.namespace}" if trip.namespace else "")
        by_hand = f"fleethpa pause {scope} --scale-in --for {rule.pause} --reason 'guardrail {trip.rule}'"
        if publish is None or not rule.acts_at(trip.time):
            log.warning("%s; to hold scale-downs there: %s", what, by_hand)
        else:
            await publish(trip.pause(rule.window_ms))
            until = "until a person resumes" if trip.until is None else f"until {rfc3339_seconds(trip.until)}"
            log.warning("%s; scale-downs there are paused %s", what, until)


def _events(reader: EventReader, number: int, record: ArchivedRecord) -> Sequence[GuardedEvent]:
    """What a decision changes. One that cannot be read is passed over: it must not keep the others from being seen."""
    try:
        return reader.take(record.value)
    except ValueError as error:
        log.error("not a decision record", extra={"position": f"{number}@{record.offset}", "error": str(error)})
        return ()
