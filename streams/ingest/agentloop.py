"""Read the topics of agents: a consumer group of its own, one partition per topic, whichever agents are registered.

Each topic is in the order of its agent, and no two have anything to do with each other: nothing is merged by time, and
none waits for another. What is wrong with one topic stops that topic only.
"""

import asyncio
import logging
import time
from contextlib import suppress
from itertools import islice

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError

from runtime.ending import first_of
from runtime.groups import Partitions, group_consumer
from runtime.kafkaclients import started
from schemas.agents import ONLY_PARTITION, AgentRegistry, AgentTopics, agent_of_reports
from schemas.topics import AGENT_INGEST_GROUP
from streams.ingest.agentrules import ReceivedAt, admit
from streams.ingest.convert import convert
from streams.ingest.logwriter import IngestMetrics, LogWriter, Recorder, raw_record
from streams.ingest.loop import MAX_TAKEN, Item, PartitionProgress, SourceWorker, unless
from streams.ingest.pieces import AgentRates, Conversion, Rates
from streams.ingest.preflight import IngestConfig

log = logging.getLogger("fleethpa.ingest")

METADATA_MAX_AGE_MS = 10_000
"""How soon a topic is found that was created after its agent was registered."""
CHANGES_S = 0.2
_APPEND_TIME = 1
"""`timestampType` of a record that the broker has stamped."""


class AgentWorker(SourceWorker):
    """The worker of the topics of the agents that are registered at a time."""

    def __init__(self, agents: "Agents", consumer: AIOKafkaConsumer) -> None:
        super().__init__(agents.config, consumer, agents.recorder)
        self._agents = agents

    async def _assigned(self, assigned: Partitions) -> None:
        self._agents.stopped.clear()
        await super()._assigned(assigned)

    def converted(self, record: ConsumerRecord) -> Item | None:
        """Convert a record, as far as its topic's agent may say what is in it."""
        if record.topic in self._agents.stopped or record.partition != ONLY_PARTITION:
            return None
        raw, now_s = raw_record(record), time.monotonic()
        found = convert(raw, self._resolver)
        self._agents.admit(found, record, now_s)
        return Item(raw, found)

    def went_back(self, tp: TopicPartition, offset: int, read: int) -> None:
        """Stop reading this topic, and only this one."""
        cluster = whose.cluster if (whose := agent_of_reports(tp.topic)) else tp.topic
        text = (
            f"{tp.topic} is at offset {offset}, but {read} records of it were read: the topic was created again; "
            f"no more is read of it. Next: fleethpa clusters remove {cluster}, then fleethpa clusters add {cluster}"
        )
        log.error(text)
        self._agents.stopped[tp.topic] = text
        with suppress(ValueError):
            self._consumer.pause(tp)

    async def take(self, places: dict[TopicPartition, PartitionProgress]) -> list[tuple[TopicPartition, Item]]:
        """Everything that was read: no topic waits for another."""
        held = islice(self._merge.take({}), MAX_TAKEN)
        return [(tp, item) for tp, item in held if tp.topic not in self._agents.stopped]

    def done(self) -> dict[TopicPartition, int]:
        """Up to where each topic that is read is in the log."""
        return {tp: offset for tp, offset in super().done().items() if tp.topic not in self._agents.stopped}

    async def commit(self, *, only_if_due: bool = False) -> None:
        """Commit what is in the log. A failure is only logged: what is read twice after a restart, the fold drops."""
        try:
            await super().commit(only_if_due=only_if_due)
        except KafkaError as error:
            log.warning("offsets of agents' topics not committed", extra={"error": repr(error)})


class Agents:
    """Reads the topics of agents, whichever are registered; `stopped`: topic -> why nothing is read of it."""

    def __init__(
        self,
        config: IngestConfig,
        registry: AgentRegistry,
        changed: asyncio.Event,
        writer: LogWriter,
        metrics: IngestMetrics,
        partitions: int,
    ) -> None:
        """`changed` is set whenever the registry says something new."""
        self.config, self._registry, self._changed = config, registry, changed
        self.recorder = Recorder(config.mapping, metrics, partitions, writer, by_time=config.is_playback)
        self.stopped: dict[str, str] = {}
        self._rates: dict[AgentTopics, AgentRates] = {}
        self._counted_to: dict[str, int] = {}
        """Topic -> offset of the next record to count."""

    def notes(self) -> list[str]:
        """What is wrong with single topics, for `/readyz`."""
        return [f"[!] {text}" for _, text in sorted(self.stopped.items())]

    def admit(self, found: Conversion, record: ConsumerRecord, now_s: float) -> None:
        """Refuse what the agent of the record's topic may not report, and what comes too often."""
        if (whose := agent_of_reports(record.topic)) is None:
            return
        limits = self._rates.setdefault(whose, AgentRates())
        if record.offset > self._counted_to.get(record.topic, -1):
            limits.rates = Rates()  # another worker has read what came before
        self._counted_to[record.topic] = record.offset + 1
        appended = record.timestamp / 1000 if record.timestamp_type == _APPEND_TIME else now_s
        admit(found, self._registry.agent_of(whose), whose, limits, ReceivedAt(now_s, appended))

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; without agents no group is joined.

        Raises KafkaError: a denial, or a write that failed.
        """
        while not stop.is_set():
            if self._registry.agents():
                await self._serve(stop)
                await asyncio.sleep(CHANGES_S)  # batching, not synchronisation: changes that come together
            else:
                await unless(stop, self._changed.wait())
                self._changed.clear()

    async def _serve(self, stop: asyncio.Event) -> None:
        """Read the topics of the agents that there are now, until others are registered.

        A new set of topics is read by a new consumer: where the driver's consumer is subscribed anew while it fetches,
        its fetching may end for good, with no more than a line in the log (aiokafka 0.14).
        """
        self._changed.clear()
        topics = {agent.topics for agent in self._registry.agents()}
        self._rates = {agent: limits for agent, limits in self._rates.items() if agent in topics}
        consumer = group_consumer(
            self.config.kafka,
            AGENT_INGEST_GROUP,
            begin="earliest",
            session_timeout_ms=self.config.session_timeout_ms,
            group_instance_id=self.config.member or None,
            partition_assignment_strategy=(RoundRobinPartitionAssignor,),
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
            fetch_max_wait_ms=100,
        )
        worker, ended = AgentWorker(self, consumer), asyncio.Event()
        consumer.subscribe(sorted(each.reports for each in topics), listener=worker.member)
        waiting = asyncio.create_task(first_of(stop.wait(), self._changed.wait()))
        waiting.add_done_callback(lambda _: ended.set())
        try:
            async with started(consumer):
                await worker.run(ended)
        finally:
            waiting.cancel()
