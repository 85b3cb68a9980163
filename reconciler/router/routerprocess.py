"""The router: decisions, settings and central HPAs in, one topic per agent out.

It keeps no state besides committed offsets, and holds no credentials of any cluster. Copies are made at least once; an
agent drops what it has seen. An agent whose topic cannot be written delays no other. Any number of routers share the
partitions of the decisions; what an agent must know beside decisions is written by the one that owns the partition of
the cluster's name.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from msgspec import structs

from reconciler.core.inbox import OffsetProgress
from reconciler.core.routing import ShortFilter, Signs, is_order
from reconciler.observer.centralhpas import CentralHpas, follow_central
from reconciler.router.copies import Copies, RouterMetrics
from reconciler.router.fleetnews import FleetNews
from runtime import groupoffsets, kafkaclients
from runtime.healthserver import PartHealth
from runtime.publicrecords import Publisher
from runtime.settingsfollower import follow_entries
from runtime.waiting import first_of
from runtime.wallclock import Clock, wall_clock_ms
from schemas.agentregistry import AgentRegistry
from schemas.agents import SNAPSHOT_TYPE, AgentKnowledge, AgentSet
from schemas.autoscalers import AutoscalerSet, Command
from schemas.codec import WireError, decode, encode
from schemas.connection import KafkaSettings
from schemas.decisionheaders import cluster_of, is_short
from schemas.decisions import Decision, ShortDecision
from schemas.guardrailpauses import BreakerCommand, GuardrailResume
from schemas.keys import HpaId, partition_for
from schemas.settings import SettingsSet
from schemas.topics import AUTOSCALERS, DECISIONS, OBSERVER_GROUPS, ROUTER_GROUP, SETTINGS

log = logging.getLogger(__name__)

SNAPSHOT_EVERY_S = 300.0
"""Twice in the time that an agent reads back when it begins to lead."""
RENEW_AFTER_MS = 30 * 86_400_000
"""A registration this old is repeated: records of settings expire after a year."""
TOPIC_TIMEOUT_S = 10.0
"""How long a router that starts waits for the topics of registered agents."""
REQUEST_TIMEOUT_MS = 20_000
COMMIT_EVERY_S = 1.0
"""What was copied since is copied again after a crash, and passed over by the agents."""
SOON_S = 0.05
"""Changes that come together are one record."""
CENTRAL_GROUP = f"{OBSERVER_GROUPS}router"
_KNOWN = ("registry", "settings", "pauses", "guardrailPauses", "guardrailResumes", "centralHpas")
"""What is read to its end before the first decision is copied."""


@dataclass(frozen=True, kw_only=True)
class RouterConfig:
    """Settings of a router. `web_port`: None serves nothing, 0 takes a free port."""

    kafka: KafkaSettings
    snapshot_every_s: float = SNAPSHOT_EVERY_S
    session_timeout_ms: int = 10_000
    web_port: int | None = None
    web_host: str = "127.0.0.1"
    clock: Clock = wall_clock_ms
    author: str = "router"


class Router:
    """Copies to agents. `health.became_ready` is set once it reads decisions."""

    def __init__(self, config: RouterConfig) -> None:
        self._config = config
        self.health = PartHealth(*_KNOWN, "decisions")
        self._metrics = RouterMetrics(self.health.registry)
        self._registry, self._shorts = AgentRegistry(), ShortFilter()
        self._signs = Signs()
        self._registered_ms: dict[str, int] = {}
        """Cluster -> when its registration was written last."""
        self._ready: dict[str, AgentSet] = {}
        """Cluster -> its agent, once its topic was found."""
        self._progress: dict[int, OffsetProgress] = {}
        self._committed: dict[int, int] = {}
        self._committed_s = time.monotonic()
        self._owned: set[int] = set()
        self._revocations = 0
        self._partitions = 0
        self._snapshot_due_s: dict[str, float] = {}
        self._news = FleetNews()
        self._agents_changed = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Copy until `stop` is set. An unexpected error ends it by exception; a restart is the recovery."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.health.served(self._config.web_host, self._config.web_port))
            producing = kafkaclients.running_producer(self._config.kafka, request_timeout_ms=REQUEST_TIMEOUT_MS)
            self._producer: AIOKafkaProducer = await stack.enter_async_context(producing)
            self._copies = Copies(self._producer, self._metrics)
            # A group member that may not read its topic would wait for ever, and say nothing.
            self._partitions = len(await self._producer.partitions_for(DECISIONS))
            self._consumer = AIOKafkaConsumer(
                **kafkaclients.aiokafka_kwargs(self._config.kafka),
                group_id=ROUTER_GROUP,
                enable_auto_commit=False,
                auto_offset_reset="latest",
                session_timeout_ms=self._config.session_timeout_ms,
                heartbeat_interval_ms=max(self._config.session_timeout_ms // 4, 100),
                fetch_max_wait_ms=100,
            )
            stack.push_async_callback(self._consumer.stop)
            await self._work(stop)

    async def _work(self, stop: asyncio.Event) -> None:
        known = {name: asyncio.Event() for name in _KNOWN}

        def caught_up(name: str) -> Callable[[], None]:
            def tell() -> None:
                self.health.ready(name)
                known[name].set()

            return tell

        async with asyncio.TaskGroup() as group:
            kafka = self._config.kafka
            work: list[Any] = [
                follow_entries(kafka, AgentSet, self._registered, caught_up("registry")),
                follow_entries(kafka, SettingsSet, self._news.settings_changed, caught_up("settings")),
                follow_entries(kafka, Command, self._news.commanded_everywhere, caught_up("pauses")),
                follow_entries(kafka, BreakerCommand, self._news.guardrail_paused, caught_up("guardrailPauses")),
                follow_entries(kafka, GuardrailResume, self._news.guardrails_resumed, caught_up("guardrailResumes")),
                self._follow_central(caught_up("centralHpas")),
                self._find_topics(),
                self._tell(),
                self._renew(),
            ]
            tasks = [group.create_task(each) for each in work]
            ending = group.create_task(stop.wait())
            for event in known.values():
                await first_of(event.wait(), stop.wait())
            await self._topics_found()
            await kafkaclients.start(self._consumer)
            self._consumer.subscribe([DECISIONS], listener=_Rebalance(self))
            while not stop.is_set():
                await self._copy()
            await self._producer.flush()
            await self._check_copies()
            await self._commit()
            for task in (*tasks, ending):
                task.cancel()

    # --- agents -------------------------------------------------------------------------------------------------------

    def _registered(self, entry: AgentSet, time_ms: int) -> None:
        if self._registry.newest(entry.cluster) in (None, structs.replace(entry, renewed=False)):
            self._registered_ms[entry.cluster] = time_ms
        if self._registry.apply(structs.replace(entry, renewed=False)):
            self._registered_ms[entry.cluster] = time_ms
            self._agents_changed.set()
            self._news.waiting.set()

    async def _find_topics(self) -> None:
        """Keep `_ready` up to date: agents whose topic exists."""
        while True:
            agents = {agent.cluster: agent for agent in self._registry.agents()}
            self._metrics.agents.set(len(agents))
            for cluster in [cluster for cluster, agent in self._ready.items() if agents.get(cluster) != agent]:
                del self._ready[cluster]
                self._snapshot_due_s.pop(cluster, None)
            self._shorts.forget(agents.keys())
            missing = [agent for cluster, agent in agents.items() if cluster not in self._ready]
            self._agents_changed.clear()
            for agent in missing:
                if await self._exists(agent.topics.orders):
                    self._ready[agent.cluster] = agent
                    self._snapshot_due_s[agent.cluster] = 0.0
                    self.health.note(agent.topics.orders, None)
                    self._news.waiting.set()
                else:
                    self.health.note(agent.topics.orders, "the topic does not exist")
            try:
                async with asyncio.timeout(5.0 if any(a.cluster not in self._ready for a in missing) else None):
                    await self._agents_changed.wait()
            except TimeoutError:
                continue

    async def _exists(self, topic: str) -> bool:
        try:
            async with asyncio.timeout(TOPIC_TIMEOUT_S):
                return bool(await self._producer.partitions_for(topic))
        except (KafkaError, TimeoutError) as error:
            log.warning("an agent's topic was not found", extra={"topic": topic, "error": repr(error)})
            return False

    async def _is_gone(self, topic: str) -> bool:
        """Whether the brokers say so. Where they do not answer, a record that failed must be copied later."""
        client = self._producer.client
        try:
            async with asyncio.timeout(TOPIC_TIMEOUT_S):
                return await client.force_metadata_update() and topic not in client.cluster.topics()
        except TimeoutError:
            return False

    async def _topics_found(self) -> None:
        """Wait for the topics of the agents that are registered, so that none of their decisions is passed over."""
        ends_s = time.monotonic() + TOPIC_TIMEOUT_S
        while any(agent.cluster not in self._ready for agent in self._registry.agents()):
            if time.monotonic() >= ends_s:
                return
            await asyncio.sleep(SOON_S)

    async def _renew(self) -> None:
        publisher = Publisher(self._producer, waits_for_room=True)
        while True:
            await asyncio.sleep(60)
            for agent in self._registry.agents():
                old_ms = self._config.clock() - self._registered_ms.get(agent.cluster, self._config.clock())
                if old_ms >= RENEW_AFTER_MS and self._is_mine(agent.cluster):
                    log.info("registration repeated", extra={"cluster": agent.cluster})
                    body = structs.replace(agent, renewed=True)
                    await publisher.send(SETTINGS, "", "", [body], self._config.clock())

    def _is_mine(self, cluster: str) -> bool:
        """Whether it is for this router to tell the cluster's agent what it must know beside decisions."""
        return partition_for(cluster, self._partitions) in self._owned

    # --- decisions ----------------------------------------------------------------------------------------------------

    async def _copy(self) -> None:
        batches = await self._consumer.getmany(timeout_ms=200, max_records=2_000)
        revocations = self._revocations
        if self._consumer.assignment():
            self.health.ready("decisions")
        for partition, records in batches.items():
            progress = self._progress.setdefault(partition.partition, OffsetProgress())
            for record in records:
                if revocations != self._revocations:
                    # The rest is read again, from where the group has committed, by whoever has the partition now.
                    return
                progress.begin(record.offset)
                agent = self._ready.get(cluster_of(record.headers))
                if agent is not None and (self._is_order(record) or self._is_sign(agent, record)):
                    self._signs.copied(agent.cluster, partition.partition, self._config.clock())
                    await self._copy_record(agent, record, progress)
                progress.done(record.offset)
        await self._check_copies()
        if time.monotonic() - self._committed_s >= COMMIT_EVERY_S:
            await self._commit()

    async def _copy_record(self, agent: AgentSet, record: ConsumerRecord, progress: OffsetProgress) -> None:
        progress.begin(record.offset)
        headers, ended = list(record.headers), partial(progress.done, record.offset)
        await self._copies.send(agent, record.value, b"%d" % record.partition, headers, "decision", ended)

    def _is_sign(self, agent: AgentSet, record: ConsumerRecord) -> bool:
        return self._signs.is_due(agent.cluster, record.partition, self._config.clock())

    def _is_order(self, record: ConsumerRecord) -> bool:
        try:
            if is_short(record.headers):
                return self._shorts.is_order(decode(record.value, ShortDecision))
            decision = decode(record.value, Decision)
        except WireError as error:
            log.error("not a decision record", extra={"offset": record.offset, "error": str(error)})
            return False
        self._shorts.take(decision)
        return is_order(decision)

    async def _check_copies(self) -> None:
        for agent in await self._copies.check(self._is_gone):
            if self._ready.get(agent.cluster) == agent:
                del self._ready[agent.cluster]
                self._agents_changed.set()

    async def _commit(self) -> None:
        self._committed_s = time.monotonic()
        offsets = {
            TopicPartition(DECISIONS, number): progress.committable
            for number, progress in self._progress.items()
            if number in self._owned and progress.committable > self._committed.get(number, -1)
        }
        if offsets and await groupoffsets.commit(self._consumer, offsets):
            self._committed |= {partition.partition: offset for partition, offset in offsets.items()}

    # --- what agents must know beside decisions -----------------------------------------------------------------------

    async def _follow_central(self, caught_up: Callable[[], None]) -> None:
        async def told(cluster: str, namespace: str, name: str, hpa: dict[str, Any] | None) -> None:
            self._news.hpa_changed(HpaId(cluster, namespace, name), hpa)

        async def say(hpa: HpaId, body: AutoscalerSet) -> None:
            if self._registry.present(hpa.cluster) and self._is_mine(hpa.cluster):
                await publisher.send(AUTOSCALERS, hpa.cluster, hpa.namespace, [body], self._config.clock())

        publisher = Publisher(self._producer, waits_for_room=True)
        known = CentralHpas(lambda cluster: True)  # any cluster may get an agent at any time
        await follow_central(
            self._config.kafka,
            CENTRAL_GROUP,
            told,
            known,
            say,
            self._config.clock,
            caught_up=caught_up,
            commanded=self._news.commanded,
        )

    async def _tell(self) -> None:
        """Tell agents what is new, soon after, and everything every few minutes."""
        while True:
            try:
                async with asyncio.timeout(self._idle_s()):
                    await self._news.waiting.wait()
                    await asyncio.sleep(SOON_S)
            except TimeoutError:
                pass
            self._news.waiting.clear()
            await self._tell_all()

    def _idle_s(self) -> float:
        """How long nothing is to be told unless there is news. An agent whose topic is gone is told nothing."""
        now_s = time.monotonic()
        due_s = min((self._snapshot_due_s.get(cluster, now_s) for cluster in self._ready), default=now_s + 3_600)
        return max(0.0, due_s - now_s)

    async def _tell_all(self) -> None:
        changes = self._news.take()
        for cluster, agent in list(self._ready.items()):
            if not self._is_mine(cluster) or self.health.waiting_for.keys() - {"decisions"}:
                self._snapshot_due_s[cluster] = time.monotonic() + 1.0
                continue
            now_ms = self._config.clock()
            if time.monotonic() >= self._snapshot_due_s.get(cluster, 0.0):
                self._snapshot_due_s[cluster] = time.monotonic() + self._config.snapshot_every_s
                await self._tell_agent(agent, self._news.all_records(cluster, uuid.uuid4().hex[:12], now_ms))
            elif changes.concerns(cluster):
                await self._tell_agent(agent, self._news.changed_records(cluster, changes, now_ms))

    async def _tell_agent(self, agent: AgentSet, records: Iterable[AgentKnowledge]) -> None:
        for record in records:
            await self._copies.send(agent, encode(record), b"snapshot", [("ce_type", SNAPSHOT_TYPE)], "knowledge")

    # --- rebalancing --------------------------------------------------------------------------------------------------

    async def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin where the group has committed, or a little before the end."""
        for partition in partitions:
            self._owned.add(partition.partition)
            await groupoffsets.begin_of(self._consumer, partition)
        for cluster in self._ready:
            self._snapshot_due_s[cluster] = 0.0
        self._news.waiting.set()

    async def revoked(self) -> None:
        """Commit what is copied; the rest is copied again by whoever comes next."""
        self._revocations += 1
        await self._commit()
        self._owned.clear()
        self._progress.clear()
        self._committed.clear()


class _Rebalance(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, router: Router) -> None:
        self._router = router

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._router.revoked()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        await self._router.assigned(assigned)


async def run_router(config: RouterConfig, stop: asyncio.Event, announce: Callable[[int], None] | None = None) -> None:
    """Run a router until `stop` is set; `announce` is told the port of its health once it reads (0: none)."""
    part = Router(config)
    await part.health.accompany(part.run(stop), announce)
