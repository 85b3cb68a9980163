"""What agents must know beside decisions, and agents whose topics do not take records: what waits for them is copied
once their topics work again.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, TopicAuthorizationFailedError

from reconciler.agents.router.copies import ANSWER_WITHIN_S, Copies, RouterMetrics, is_gone
from reconciler.core.inbox import OffsetProgress
from reconciler.core.knowledge import FleetKnowledge
from runtime import kafkaclients
from runtime.process import PartHealth
from schemas.agentknowledge import SNAPSHOT_TYPE, AgentKnowledge, CentralHpa
from schemas.agents import AgentSet
from schemas.codec import encode
from schemas.connection import KafkaSettings
from schemas.inforce import InForceChange
from schemas.keys import EVERY_CLUSTER, HpaId
from schemas.kubernetes.shape import Json
from schemas.topics import DECISIONS


@dataclass(frozen=True)
class FleetChanges:
    """What has changed: HPAs by cluster, and where settings or pauses did."""

    hpas: dict[str, dict[tuple[str, str], CentralHpa]] = field(default_factory=dict)
    others: set[InForceChange] = field(default_factory=set)

    def changes_settings(self, cluster: str) -> bool:
        return any(each.of == "settings" and each.cluster in (EVERY_CLUSTER, cluster) for each in self.others)

    def concerns(self, cluster: str) -> bool:
        """Whether a cluster's agent must be sent something."""
        return cluster in self.hpas or any(each.cluster in (EVERY_CLUSTER, cluster) for each in self.others)


class PendingFleetUpdates(FleetKnowledge):
    """Collects changes beside what is known. `waiting` is set while some are not taken."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = asyncio.Event()
        self._changes = FleetChanges()

    def changed(self, change: InForceChange | None) -> None:
        """What an entry changed of what is in force; which clusters have agents is no concern of an agent."""
        if change is not None and change.of != "agents":
            self._changes.others.add(change)
            self.waiting.set()

    def hpa_changed(self, hpa: HpaId, body: Json | None) -> None:
        """A central HPA; None: it is deleted."""
        self._changes.hpas.setdefault(hpa.cluster, {})[hpa.namespace, hpa.name] = self.set_hpa(hpa, body)
        self.waiting.set()

    def new_updates(self) -> FleetChanges:
        """Return what has changed since it was taken last."""
        taken, self._changes = self._changes, FleetChanges()
        return taken

    def changed_records(self, cluster: str, changes: FleetChanges, now_ms: int) -> Iterable[AgentKnowledge]:
        """The records that bring these changes to a cluster's agent."""
        hpas, with_settings = changes.hpas.get(cluster, {}).values(), changes.changes_settings(cluster)
        return self.changes(cluster, hpas, now_ms, with_settings=with_settings)


log = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
"""Between two tries for one agent; doubled after each that fails."""
AT_ONCE = 4
"""How many agents are tried at the same time, each with a reader and a producer of its own."""
RECORDS_AT_ONCE = 500


class RouterSide(Protocol):
    """What a router knows and late agents need."""

    progress: dict[int, OffsetProgress]

    def is_wanted(self, agent: AgentSet, record: ConsumerRecord) -> bool:
        """Whether a decision record of the agent's cluster is for the agent."""

    def knowledge_for(self, agent: AgentSet) -> Iterable[AgentKnowledge]:
        """Everything that the agent must know beside decisions; nothing where another router reports it."""

    def gone(self, agent: AgentSet) -> None:
        """The topic of the agent does not exist."""

    def caught_up(self, agent: AgentSet) -> None:
        """The agent has everything; from now on the router itself copies for it."""


@dataclass
class _Late:
    agent: AgentSet
    first: dict[int, int] = field(default_factory=dict)
    """Partition of the decisions -> the first offset that is not copied; none: nothing of it waits."""
    failed: bool = False
    """Whether a copy failed, so that the producer cannot be used again."""
    task: "asyncio.Task[None] | None" = None


class LateAgents:
    """Agents whose topics do not take records.

    The router continues with all others, and notes the offset from which it passed over an agent's decisions: nothing
    beyond is committed. Once the topic takes records, they are read again and copied in their order, and the router
    continues with this agent as before.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        producer: AIOKafkaProducer,
        copies: Copies,
        source: RouterSide,
        health: PartHealth,
        metrics: RouterMetrics,
    ) -> None:
        self._kafka, self._producer, self._copies, self._source = kafka, producer, copies, source
        self._health, self._metrics = health, metrics
        self._late: dict[AgentSet, _Late] = {}
        self._own: dict[AgentSet, AsyncExitStack] = {}
        """How the producers end that are used for one agent only."""
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._closed = False
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __contains__(self, agent: AgentSet) -> bool:
        return agent in self._late

    def begin(self, agent: AgentSet, error: BaseException | None) -> None:
        """An agent's topic did not take a record (`error`), or acknowledges nothing (None)."""
        if self._closed:
            return
        late = self._late.get(agent)
        if late is None:
            late = self._late[agent] = _Late(agent)
            why = why_late(error)
            log.error(
                "an agent's topic takes no records: what is for it waits, other clusters are copied to as before",
                extra={"cluster": agent.cluster, "topic": agent.topics.commands, "error": _error(error), "next": why},
            )
            self._health.record(agent.topics.commands, f"takes no records, so that copies to this agent wait: {why}")
            self._metrics.late_agents.set(len(self._late))
            late.task = asyncio.create_task(self._follow(late))
            late.task.add_done_callback(self._ended)
        late.failed |= error is not None

    def begin_stuck(self, agents: Collection[AgentSet]) -> None:
        """Find those of these agents whose topics acknowledge nothing."""
        for agent in self._copies.stuck():
            if agent in agents:
                self.begin(agent, None)

    def pass_over(self, agent: AgentSet, partition: int, offset: int) -> None:
        """A decision record was not copied to a late agent."""
        if (late := self._late.get(agent)) is not None:
            late.first[partition] = min(late.first.get(partition, offset), offset)

    def bound(self, partition: int) -> int | None:
        """The first offset of a partition that some late agent does not have; None: there is none."""
        return min((late.first[partition] for late in self._late.values() if partition in late.first), default=None)

    def drop(self, agent: AgentSet) -> None:
        """Give up what waits for an agent, which is gone."""
        if (late := self._late.pop(agent, None)) is not None:
            if late.task is not None and late.task is not asyncio.current_task():
                late.task.cancel()
            self._health.record(agent.topics.commands, None)
            self._metrics.late_agents.set(len(self._late))

    def drop_all(self) -> None:
        """Another router reads these partitions now, and finds out by itself."""
        for agent in list(self._late):
            self.drop(agent)

    async def watch(self) -> None:
        """Never end, but for an error that concerns more than one agent, which is raised."""
        await asyncio.shield(self._broken)

    async def close(self) -> None:
        """Stop trying, and end the producers of single agents."""
        self._closed = True
        tasks = [late.task for late in self._late.values() if late.task is not None]
        self.drop_all()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(stack.aclose() for stack in self._own.values()))

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self._broken.done():
            self._broken.set_exception(error)

    # --- one agent ----------------------------------------------------------------------------------------------------

    async def _follow(self, late: _Late) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            # What is under way either arrives once the topic works again, or fails.
            await self._copies.all_ended(late.agent)
            if not late.first and not late.failed:
                self._join(late)
                return
            if await is_gone(self._producer, late.agent.topics.commands):
                self.drop(late.agent)
                self._source.gone(late.agent)
                return
            try:
                async with self._at_once:
                    await self._try(late)
            except (KafkaError, TimeoutError) as error:
                log.info(
                    "an agent's topic still takes no records",
                    extra={"cluster": late.agent.cluster, "error": repr(error)},
                )
            else:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _join(self, late: _Late) -> None:
        self.drop(late.agent)
        log.info("an agent's topic takes records again", extra={"cluster": late.agent.cluster})
        self._source.caught_up(late.agent)

    async def _try(self, late: _Late) -> None:
        """Copy all that waits, and give the agent back to the router.

        Raises KafkaError: the topic still does not take records.
        """
        await self._renew_producer(late.agent)
        late.failed = False
        tried = _Tried()
        for record in self._source.knowledge_for(late.agent):
            await self._send(late.agent, encode(record), b"snapshot", [("ce_type", SNAPSHOT_TYPE)], "knowledge", tried)
        await self._taken(late, tried)
        while not self._is_level(late):
            await self._copy_range(late, tried)
        self._join(late)

    async def _renew_producer(self, agent: AgentSet) -> None:
        stack = AsyncExitStack()
        making = kafkaclients.running_producer(self._kafka, request_timeout_ms=int(ANSWER_WITHIN_S * 1000))
        producer = await stack.enter_async_context(making)
        before, self._own[agent] = self._own.get(agent), stack
        self._copies.use(agent, producer)
        if before is not None:
            await before.aclose()

    def _is_level(self, late: _Late) -> bool:
        """Whether the agent has all that the router has read so far."""
        progress = self._source.progress
        return all(number not in progress or offset >= progress[number].next for number, offset in late.first.items())

    async def _copy_range(self, late: _Late, tried: "_Tried") -> None:
        """Copy until the agent is level, or other partitions wait, too."""
        partitions = {TopicPartition(DECISIONS, number): offset for number, offset in late.first.items()}
        async with kafkaclients.reader(self._kafka, partitions) as consumer:
            for partition, offset in partitions.items():
                consumer.seek(partition, offset)
            while not self._is_level(late) and late.first.keys() == {each.partition for each in partitions}:
                await self._copy_batch(late, consumer, tried)

    async def _copy_batch(self, late: _Late, consumer: AIOKafkaConsumer, tried: "_Tried") -> None:
        batches = await consumer.getmany(timeout_ms=200, max_records=RECORDS_AT_ONCE)
        for records in batches.values():
            for record in records:
                if self._source.is_wanted(late.agent, record):
                    key, headers = b"%d" % record.partition, list(record.headers)
                    await self._send(late.agent, record.value, key, headers, "decision", tried)
        await self._taken(late, tried)
        for partition, records in batches.items():
            late.first[partition.partition] = records[-1].offset + 1

    async def _send(
        self, agent: AgentSet, value: bytes, key: bytes, headers: list[tuple[str, bytes]], what: str, tried: "_Tried"
    ) -> None:
        if tried.error is None:
            await self._copies.send(agent, value, key, headers, what, tried.ended, patience_s=ANSWER_WITHIN_S)

    async def _taken(self, late: _Late, tried: "_Tried") -> None:
        await self._copies.all_ended(late.agent)
        if tried.error is not None:
            late.failed = True
            raise tried.error


@dataclass
class _Tried:
    """The first error of the copies of one try."""

    error: BaseException | None = None

    def ended(self, error: BaseException | None) -> None:
        self.error = self.error or error


def _error(error: BaseException | None) -> str:
    return "" if error is None else repr(error)


def why_late(error: BaseException | None) -> str:
    """Why an agent's topic takes no record, and what to do. `error`: of the record; None: nothing is acknowledged."""
    if isinstance(error, MessageSizeTooLargeError):
        return "a record is too large for it; `fleethpa admin topics check` shows what its max.message.bytes should be"
    if isinstance(error, TopicAuthorizationFailedError):
        return "the router may not write it; grant what `fleethpa admin topics acls router` prints"
    what = "it acknowledges nothing" if error is None else str(error)
    return f"{what}; if the brokers answer otherwise, look at its leader and in-sync replicas (kafka-topics --describe)"
