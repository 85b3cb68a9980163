"""The router: decisions, settings and central HPAs in, one topic per agent out.

It keeps no state besides committed offsets, and holds no credentials of any cluster. Copies are made at least once; an
agent drops what it has seen. An agent whose topic cannot be written delays no other (`lateagents.py`). Any number of
routers share the partitions of the decisions; what an agent must know beside decisions is written by the one that owns
the partition of the cluster's name.

Before a cluster has an agent there is nothing to copy (`has_agents`).
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition

from reconciler.agents.router import copies as agenttopics
from reconciler.agents.router.copies import ANSWER_WITHIN_S, Copies, RouterMetrics, WantedRecords
from reconciler.agents.router.lateagents import LateAgents, PendingFleetUpdates
from reconciler.core.inbox import OffsetProgress
from reconciler.observer.observertopics import central_hpa
from runtime import ending, kafkaclients
from runtime.driver import stop_soon
from runtime.ending import first_of
from runtime.groups import GroupMember, Signs, begin_of, group_consumer, keep_signing
from runtime.log import Clock, wall_clock_ms
from runtime.process import PartConfig, PartHealth
from runtime.records import follow_topic, follow_topics
from schemas.agentknowledge import SNAPSHOT_TYPE, AgentKnowledge
from schemas.agents import AgentSet
from schemas.codec import encode
from schemas.connection import KafkaSettings
from schemas.decisions import cluster_of
from schemas.entries import Body
from schemas.inforce import InForce
from schemas.keys import HpaId
from schemas.partitioning import partition_for
from schemas.topics import DECISIONS, ROUTER_GROUP, SETTINGS, SPECS

log = logging.getLogger(__name__)

SNAPSHOT_EVERY_S = 300.0
"""Twice in the time that an agent reads back when it begins to lead."""
TOPIC_TIMEOUT_S = 10.0
"""How long a router that starts waits for the topics of registered agents."""
SETTLED_WITHIN_S = 2.0
"""How long a router that ends waits for the copies that it has begun."""
SOON_S = 0.05
"""Changes that come together are one record."""
_KNOWN = {SETTINGS: "settings", SPECS: "centralHpas"}
"""The topics that are read to their ends before the first decision is copied, as the health names them."""


@dataclass(frozen=True, kw_only=True)
class RouterConfig(PartConfig):
    """Settings of a router."""

    kafka: KafkaSettings
    snapshot_every_s: float = SNAPSHOT_EVERY_S
    session_timeout_ms: int = 10_000
    clock: Clock = wall_clock_ms


class Router:
    """Copies to agents. `health.became_ready` is set once it reads decisions."""

    def __init__(self, config: RouterConfig) -> None:
        self._config = config
        self.health = PartHealth(*_KNOWN.values(), "decisions")
        self._metrics = RouterMetrics(self.health.registry)
        self._wanted = WantedRecords(config.clock)
        self._ready: dict[str, AgentSet] = {}
        """Cluster -> its agent, once its topic was found."""
        self.progress: dict[int, OffsetProgress] = {}
        """Partition of the decisions -> what of it is read, and copied to the agents that are not late."""
        self._owned: set[int] = set()
        self._revocations = 0
        self._partitions = 0
        self._snapshot_due_s: dict[str, float] = {}
        self._news = PendingFleetUpdates()
        self._in_force = self._news.in_force
        self._registry = self._in_force.agents
        self._agents_changed = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Copy until `stop` is set. An unexpected error ends it by exception; a restart is the recovery."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.health.served(self._config))
            timeout_ms = int(ANSWER_WITHIN_S * 1000)
            producing = kafkaclients.running_producer(self._config.kafka, request_timeout_ms=timeout_ms)
            self._producer: AIOKafkaProducer = await stack.enter_async_context(producing)
            self._copies = Copies(self._producer, self._metrics)
            self._late = LateAgents(self._config.kafka, self._producer, self._copies, self, self.health, self._metrics)
            stack.push_async_callback(self._late.close)
            # A group member that may not read its topic would wait for ever, and say nothing.
            self._partitions = len(await self._producer.partitions_for(DECISIONS))
            timeout_ms = self._config.session_timeout_ms
            self._consumer = group_consumer(
                self._config.kafka, ROUTER_GROUP, begin="latest", session_timeout_ms=timeout_ms, fetch_max_wait_ms=100
            )
            stack.push_async_callback(stop_soon, self._consumer)
            await self._work(stop)

    async def _work(self, stop: asyncio.Event) -> None:
        member = GroupMember(self._consumer, done=self._done, revoked=self._revoked, assigned=self._assigned)
        async with asyncio.TaskGroup() as group:
            kafka = self._config.kafka
            signs = Signs()
            self.health.check("kafka", lambda: signs.problem)
            group.create_task(keep_signing(kafka, "router", self._config.clock, stop, signs))
            tasks = [group.create_task(each) for each in (self._find_topics(), self._report(), self._late.watch())]
            takes = {SETTINGS: self._apply_entry, SPECS: self._apply_spec}
            tasks += await follow_topics(group, kafka, takes, stop, lambda topic: self.health.ready(_KNOWN[topic]))
            await self._topics_found()
            await kafkaclients.start(self._consumer)
            self._consumer.subscribe([DECISIONS], listener=member)
            while not stop.is_set():
                await self._copy()
                await member.commit(only_if_due=True)
            await first_of(self._copies.settled(), asyncio.sleep(ending.left_s(SETTLED_WITHIN_S)))
            await member.commit()
            for task in tasks:
                task.cancel()

    # --- agents -------------------------------------------------------------------------------------------------------

    def _apply_entry(self, body: Body, time_ms: int, cluster: str, namespace: str) -> None:
        change = self._in_force.apply(body, time_ms, cluster, namespace)
        self._news.changed(change)
        if change is not None and change.of == "agents":
            self._agents_changed.set()
            self._news.waiting.set()

    def _apply_spec(self, body: Body, time_ms: int, cluster: str, namespace: str) -> None:
        if (central := central_hpa(body, namespace)) is not None:
            name, hpa = central
            self._news.hpa_changed(HpaId(cluster, namespace, name), hpa)

    async def _find_topics(self) -> None:
        """Keep `_ready` up to date: agents whose topic exists."""
        while True:
            agents = {agent.cluster: agent for agent in self._registry.agents()}
            self._metrics.agents.set(len(agents))
            for agent in [agent for cluster, agent in self._ready.items() if agents.get(cluster) != agent]:
                self._late.drop(agent)
                self.gone(agent)
                self._snapshot_due_s.pop(agent.cluster, None)
            missing = [agent for cluster, agent in agents.items() if cluster not in self._ready]
            self._agents_changed.clear()
            for agent in missing:
                if await agenttopics.exists(self._producer, agent.topics.commands):
                    self._ready[agent.cluster] = agent
                    self._snapshot_due_s[agent.cluster] = 0.0
                    self.health.record(agent.topics.commands, None)
                    self._news.waiting.set()
                else:
                    self.health.record(agent.topics.commands, "the topic does not exist")
            try:
                async with asyncio.timeout(5.0 if any(a.cluster not in self._ready for a in missing) else None):
                    await self._agents_changed.wait()
            except TimeoutError:
                continue

    def gone(self, agent: AgentSet) -> None:
        """An agent has no topic any more, or is not registered: nothing is copied to it."""
        self._copies.forget(agent)
        if self._ready.get(agent.cluster) == agent:
            del self._ready[agent.cluster]
            self._agents_changed.set()

    async def _topics_found(self) -> None:
        """Wait for the topics of the agents that are registered, so that none of their decisions is passed over."""
        ends_s = time.monotonic() + TOPIC_TIMEOUT_S
        while any(agent.cluster not in self._ready for agent in self._registry.agents()):
            if time.monotonic() >= ends_s:
                return
            await asyncio.sleep(SOON_S)

    def _is_mine(self, cluster: str) -> bool:
        """Whether this router reports to the cluster's agent what it must know beside decisions."""
        return partition_for(cluster, self._partitions) in self._owned

    # --- decisions ----------------------------------------------------------------------------------------------------

    async def _copy(self) -> None:
        batches = await self._consumer.getmany(timeout_ms=200, max_records=2_000)
        revocations = self._revocations
        if self._consumer.assignment():
            self.health.ready("decisions")
        for partition, records in batches.items():
            progress = self.progress.setdefault(partition.partition, OffsetProgress())
            for record in records:
                if revocations != self._revocations:
                    # The rest is read again, from where the group has committed, by the present owner of the partition.
                    return
                progress.begin(record.offset)
                agent = self._ready.get(cluster_of(record.headers))
                if agent is not None and agent in self._late:
                    self._late.pass_over(agent, record.partition, record.offset)
                elif agent is not None and self.is_wanted(agent, record):
                    await self._copy_record(agent, record, progress)
                progress.done(record.offset)
        self._late.begin_stuck(self._ready.values())

    async def _copy_record(self, agent: AgentSet, record: ConsumerRecord, progress: OffsetProgress) -> None:
        progress.begin(record.offset)
        revocations = self._revocations

        def ended(error: BaseException | None) -> None:
            if error is not None and revocations == self._revocations and self._is_late(agent, error):
                self._late.pass_over(agent, record.partition, record.offset)
            progress.done(record.offset)

        await self._copies.send(agent, record.value, b"%d" % record.partition, list(record.headers), "decision", ended)

    def _is_late(self, agent: AgentSet, error: BaseException) -> bool:
        """Record that a copy failed; False: the agent is gone, so that nothing waits for it."""
        if self._ready.get(agent.cluster) != agent:
            return False
        self._late.begin(agent, error)
        return True

    def is_wanted(self, agent: AgentSet, record: ConsumerRecord) -> bool:
        """Whether a decision record is copied to an agent."""
        return cluster_of(record.headers) == agent.cluster and self._wanted.wants(record)

    def _done(self) -> dict[TopicPartition, int]:
        return {TopicPartition(DECISIONS, number): self._committable(number) for number in self._owned}

    def _committable(self, number: int) -> int:
        """The first offset of a partition that some agent may not have; -1: nothing was read."""
        ends = [self.progress[number].committable] if number in self.progress else []
        late = self._late.bound(number)
        return min(ends if late is None else [*ends, late], default=-1)

    # --- what agents must know beside decisions -----------------------------------------------------------------------

    async def _report(self) -> None:
        """Send agents what is new, soon after, and everything every few minutes."""
        while True:
            try:
                async with asyncio.timeout(self._idle_s()):
                    await self._news.waiting.wait()
                    await asyncio.sleep(SOON_S)
            except TimeoutError:
                pass
            self._news.waiting.clear()
            await self._report_all()

    def _idle_s(self) -> float:
        """How long nothing is to be sent unless something changed. An agent whose topic is gone gets nothing."""
        now_s = time.monotonic()
        due_s = min((self._snapshot_due_s.get(cluster, now_s) for cluster in self._ready), default=now_s + 3_600)
        return max(0.0, due_s - now_s)

    async def _report_all(self) -> None:
        changes = self._news.new_updates()
        for cluster, agent in list(self._ready.items()):
            if not self._is_mine(cluster) or self.health.waiting_for.keys() - {"decisions"}:
                self._snapshot_due_s[cluster] = time.monotonic() + 1.0
                continue
            if time.monotonic() >= self._snapshot_due_s.get(cluster, 0.0):
                self._snapshot_due_s[cluster] = time.monotonic() + self._config.snapshot_every_s
                await self._report_agent(agent, self.knowledge_for(agent))
            elif changes.concerns(cluster):
                changed = self._news.changed_records(cluster, changes, self._config.clock())
                await self._report_agent(agent, changed)

    def knowledge_for(self, agent: AgentSet) -> Iterable[AgentKnowledge]:
        """Everything that an agent must know beside decisions; nothing where another router reports it."""
        if not self._is_mine(agent.cluster):
            return ()
        return self._news.snapshot(agent.cluster, uuid.uuid4().hex[:12], self._config.clock())

    async def _report_agent(self, agent: AgentSet, records: Iterable[AgentKnowledge]) -> None:
        def ended(error: BaseException | None) -> None:
            if error is not None:
                self._is_late(agent, error)

        for record in records:
            if agent not in self._late:  # it gets everything once its topic works
                head = [("ce_type", SNAPSHOT_TYPE)]
                await self._copies.send(agent, encode(record), b"snapshot", head, "knowledge", ended)

    def caught_up(self, agent: AgentSet) -> None:
        """An agent that was late has all decisions; it gets the other changes."""
        self._snapshot_due_s[agent.cluster] = 0.0
        self._news.waiting.set()

    # --- rebalancing --------------------------------------------------------------------------------------------------

    async def _assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin where the group has committed, or a little before the end."""
        for partition in partitions:
            self._owned.add(partition.partition)
            await begin_of(self._consumer, partition)
        for cluster in self._ready:
            self._snapshot_due_s[cluster] = 0.0
        self._news.waiting.set()

    def _revoked(self, _: Iterable[TopicPartition]) -> None:
        """Give everything up: the next owner copies again what is not committed."""
        self._revocations += 1
        self._late.drop_all()
        self._owned.clear()
        self.progress.clear()


async def has_agents(settings: KafkaSettings, stop: asyncio.Event) -> bool:
    """Wait until a cluster has an agent; False: `stop` came first. Until then nothing is read but settings."""
    in_force, caught_up, is_found = InForce(), asyncio.Event(), asyncio.Event()

    def look() -> None:
        if caught_up.is_set() and in_force.agents.agents():
            is_found.set()

    def take(body: Body, time_ms: int, cluster: str, namespace: str) -> None:
        in_force.apply(body, time_ms, cluster, namespace)
        look()

    def all_read() -> None:
        caught_up.set()
        look()

    following = asyncio.ensure_future(follow_topic(settings, SETTINGS, take, all_read))
    await first_of(following, is_found.wait(), stop.wait())
    if following.done() and not following.cancelled():
        following.result()  # it ends by an exception only
    return is_found.is_set() and not stop.is_set()
