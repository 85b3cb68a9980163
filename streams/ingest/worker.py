"""One ingest worker from start to stop: what is checked first, its clients, its health server, the topics of agents.

The topics of agents are read by a consumer group of its own, one partition per topic, whichever agents are registered.
Each topic is in the order of its agent, and no two have anything to do with each other: nothing is merged by time, and
none waits for another. What is wrong with one topic stops that topic only.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError

from runtime.brokerclock import append_time_ms
from runtime.driver import NameTakenError
from runtime.ending import first_of, task_group
from runtime.groups import Partitions, group_consumer
from runtime.hubs import HubTakenError, check_hub, signature, watch_hub
from runtime.kafkaclients import (
    FETCH_MAX_WAIT_MS,
    FETCH_MIN_BYTES,
    await_brokers,
    know_topics,
    started,
    strict_producer,
)
from runtime.process import health_server
from runtime.records import follow_topic
from schemas.agentregistry import AgentRegistry
from schemas.agents import ONLY_PARTITION, AgentSet, AgentTopics, agent_of_reports
from schemas.entries import Body
from schemas.topics import AGENT_INGEST_GROUP, INGEST_GROUP, LOG, REJECTED, SETTINGS
from streams.ingest.appendtimes import AppendTimes
from streams.ingest.convert import convert
from streams.ingest.denials import METADATA_MAX_AGE_MS, Denials
from streams.ingest.logwriter import IngestMetrics, Item, LogWriter, Recorder, raw_record
from streams.ingest.loop import PartitionProgress, SourceWorker, Worker
from streams.ingest.own import ReceivedAt, admit, refuse_future
from streams.ingest.pieces import AgentRates, Conversion, Rates
from streams.ingest.preflight import IngestConfig, IngestError, check_topics, explained, last_times
from streams.ingest.sourcerates import SourceGate

log = logging.getLogger("fleethpa.ingest")

CHANGES_S = 0.2


class AgentWorker(SourceWorker):
    """The worker of the topics of the agents that are registered at a time."""

    def __init__(self, agents: "Agents", consumer: AIOKafkaConsumer) -> None:
        super().__init__(agents.config, consumer, agents.recorder, agents.denials)
        self._agents = agents

    async def _assigned(self, assigned: Partitions) -> None:
        self._agents.stopped.clear()
        await super()._assigned(assigned)

    def goes_on_without(self, topic: str) -> bool:
        """Any of them: each is one cluster's."""
        return agent_of_reports(topic) is not None

    def converted(self, record: ConsumerRecord) -> Item | None:
        """Convert a record, as far as its topic's agent may say what is in it."""
        if record.topic in self._agents.stopped or record.partition != ONLY_PARTITION:
            return None
        raw, now_s = raw_record(record), time.monotonic()
        conversion = convert(raw, self._resolver)
        refuse_future(conversion, int(time.time() * 1000))
        self._agents.admit(conversion, record, now_s)
        return self._recorder.encoded(raw, conversion)

    def went_back(self, tp: TopicPartition, offset: int, read: int) -> None:
        """Stop reading this topic, and only this one."""
        cluster = whose.cluster if (whose := agent_of_reports(tp.topic)) else tp.topic
        text = (
            f"{tp.topic} is at offset {offset}, but {read} records of it were read: the topic was created again; "
            f"no more is read of it. Next: fleethpa admin clusters remove {cluster}, then fleethpa admin clusters add "
            f"{cluster}"
        )
        log.error(text)
        self._agents.stopped[tp.topic] = text
        with suppress(ValueError):
            self._consumer.pause(tp)

    async def ready(self, places: dict[TopicPartition, PartitionProgress]) -> list[tuple[TopicPartition, Item]]:
        """Return what was read, each topic in its turn: none waits for another."""
        return self.in_turn()

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
        self.denials = Denials()
        self._rates: dict[AgentTopics, AgentRates] = {}
        self._gate = SourceGate(time.time)
        self._counted_to: dict[str, int] = {}
        """Topic -> offset of the next record to count."""

    def notes(self) -> list[str]:
        """Return what is wrong with single topics, for `/readyz`."""
        return [*(f"[!] {text}" for _, text in sorted(self.stopped.items())), *self.denials.notes()]

    def admit(self, conversion: Conversion, record: ConsumerRecord, now_s: float) -> None:
        """Refuse what the agent of the record's topic may not report, and what comes too often."""
        if (whose := agent_of_reports(record.topic)) is None:
            return
        limits = self._rates.setdefault(whose, AgentRates())
        if record.offset > self._counted_to.get(record.topic, -1):
            limits.rates = Rates()  # another worker has read what came before
        self._counted_to[record.topic] = record.offset + 1
        append_ms = append_time_ms(record)
        appended = now_s if append_ms is None else append_ms / 1000
        admit(conversion, self._registry.agent_of(whose), whose, limits, ReceivedAt(now_s, appended))

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; without agents no group is joined.

        Raises KafkaError: a denial, or a write that failed.
        """
        while not stop.is_set():
            if self._registry.agents():
                await self._serve(stop)
                await asyncio.sleep(CHANGES_S)  # batching, not synchronisation: changes that come together
            else:
                await first_of(stop.wait(), self._changed.wait())
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
            value_deserializer=self._gate,
        )
        names = sorted(each.reports for each in topics)
        self.denials.keep(names)
        worker, ended = AgentWorker(self, consumer), asyncio.Event()
        waiting = asyncio.create_task(first_of(stop.wait(), self._changed.wait()))
        waiting.add_done_callback(lambda _: ended.set())
        try:
            async with started(consumer):
                # Not before: the start of the driver's consumer fails where one of its topics is denied or missing.
                consumer.subscribe(names, listener=worker.member)
                await worker.run(ended)
        finally:
            waiting.cancel()


async def run_ingest(
    config: IngestConfig, stop: asyncio.Event, announce: Callable[[int], None] = lambda port: None
) -> None:
    """Turn public topics into the log until `stop` is set. Brokers that are away at the start are waited for.

    Args:
        announce: called with the port of the health server once the worker runs (0: no server).

    Raises:
        IngestError: Kafka cannot be used or denies something, a topic is missing, or was deleted and created again.
    """
    try:
        await _run(config, stop, announce)
    except KafkaError as error:
        raise explained(error, config.kafka) from error
    except (NameTakenError, HubTakenError) as error:
        raise IngestError(error.what, next_step=error.next_step) from error


async def _run(config: IngestConfig, stop: asyncio.Event, announce: Callable[[int], None]) -> None:
    await await_brokers(config.kafka, stop)
    if stop.is_set():
        return
    partitions = await check_topics(config)
    await check_hub(config.kafka, config.hub, partitions)
    times = await last_times(config, range(partitions)) if config.is_playback else None
    async with AsyncExitStack() as stack:
        producer = strict_producer(config.kafka, compression_type="zstd")
        await stack.enter_async_context(started(producer))
        await know_topics(producer, LOG, REJECTED)
        consumer = _consumer(config)
        metrics = IngestMetrics()
        registry, changed = AgentRegistry(), asyncio.Event()
        append_times = AppendTimes(metrics.registry)
        writer = LogWriter(producer, times, append_times, signature(config.hub))
        worker = Worker(config, consumer, writer, metrics, partitions, registry)
        agents = Agents(config, registry, changed, writer, metrics, partitions)
        consumer.subscribe(list(config.topics), listener=worker.member)
        await stack.enter_async_context(started(consumer))
        server = health_server(
            metrics.registry,
            worker.problems,
            notes=lambda: [*append_times.notes(), *worker.denials.notes(), *agents.notes()],
            host=config.web_host,
            port=config.web_port,
        )
        announce(await stack.enter_async_context(server))
        await _run_together(config, stop, worker, agents, registry, changed, partitions)


async def _run_together(
    config: IngestConfig,
    stop: asyncio.Event,
    worker: Worker,
    agents: Agents,
    registry: AgentRegistry,
    changed: asyncio.Event,
    partitions: int,
) -> None:
    """Read the public topics and those of agents, once it is known which clusters have agents."""

    def take(entry: Body, _: int, __: str, namespace: str) -> None:
        if isinstance(entry, AgentSet) and not namespace and registry.apply(entry):
            changed.set()

    known = asyncio.Event()
    async with task_group() as group:
        following = group.create_task(follow_topic(config.kafka, SETTINGS, take, known.set))
        watching = group.create_task(watch_hub(config.kafka, config.hub, partitions))
        await first_of(known.wait(), stop.wait())
        work = [group.create_task(worker.run(stop))]
        # Playback takes its time from the sources: an agent, which could name any time, has no say in that.
        work += [] if config.is_playback else [group.create_task(agents.run(stop))]
        await asyncio.wait(work)
        following.cancel()
        watching.cancel()


def _consumer(config: IngestConfig) -> AIOKafkaConsumer:
    return group_consumer(
        config.kafka,
        INGEST_GROUP,
        begin="earliest",
        session_timeout_ms=config.session_timeout_ms,
        group_instance_id=config.member or None,
        # One worker owns the same partition number in all topics, so that it sees all of a namespace.
        partition_assignment_strategy=(RangePartitionAssignor,),
        fetch_max_wait_ms=FETCH_MAX_WAIT_MS,
        fetch_min_bytes=FETCH_MIN_BYTES,
        metadata_max_age_ms=METADATA_MAX_AGE_MS,
        value_deserializer=None if config.is_playback else SourceGate(time.time),
    )
