"""One ingest worker from start to stop: what is checked first, its clients, its health server."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

from runtime.ending import first_of, task_group
from runtime.groups import group_consumer
from runtime.kafkaclients import FETCH_MAX_WAIT_MS, FETCH_MIN_BYTES, know_topics, started, strict_producer
from runtime.process import health_server
from runtime.records import follow_topic
from schemas.agents import AgentRegistry, AgentSet
from schemas.entries import Body
from schemas.topics import INGEST_GROUP, LOG, REJECTED, SETTINGS
from streams.ingest.agentloop import Agents
from streams.ingest.logwriter import IngestMetrics, LogWriter
from streams.ingest.loop import Worker
from streams.ingest.preflight import IngestConfig, check_topics, explained, last_times


async def run_ingest(
    config: IngestConfig, stop: asyncio.Event, announce: Callable[[int], None] = lambda port: None
) -> None:
    """Turn public topics into the log until `stop` is set.

    Args:
        announce: called with the port of the health server once the worker runs (0: no server).

    Raises:
        IngestError: Kafka cannot be reached or denies something, a topic is missing, or was deleted and created again.
    """
    try:
        await _run(config, stop, announce)
    except KafkaError as error:
        raise explained(error, config.kafka) from error


async def _run(config: IngestConfig, stop: asyncio.Event, announce: Callable[[int], None]) -> None:
    partitions = await check_topics(config)
    times = await last_times(config, range(partitions)) if config.is_playback else None
    async with AsyncExitStack() as stack:
        producer = strict_producer(config.kafka, compression_type="zstd")
        await stack.enter_async_context(started(producer))
        await know_topics(producer, LOG, REJECTED)
        consumer = _consumer(config)
        metrics = IngestMetrics()
        registry, changed = AgentRegistry(), asyncio.Event()
        writer = LogWriter(producer, times)
        worker = Worker(config, consumer, writer, metrics, partitions, registry)
        agents = Agents(config, registry, changed, writer, metrics, partitions)
        consumer.subscribe(list(config.topics), listener=worker.member)
        await stack.enter_async_context(started(consumer))
        server = health_server(
            metrics.registry, worker.problems, notes=agents.notes, host=config.web_host, port=config.web_port
        )
        announce(await stack.enter_async_context(server))
        await _run_together(config, stop, worker, agents, registry, changed)


async def _run_together(
    config: IngestConfig,
    stop: asyncio.Event,
    worker: Worker,
    agents: Agents,
    registry: AgentRegistry,
    changed: asyncio.Event,
) -> None:
    """Read the public topics and those of agents, once it is known which clusters have agents."""

    def take(entry: Body, _: int, __: str, namespace: str) -> None:
        if isinstance(entry, AgentSet) and not namespace and registry.apply(entry):
            changed.set()

    known = asyncio.Event()
    async with task_group() as group:
        following = group.create_task(follow_topic(config.kafka, SETTINGS, take, known.set))
        await first_of(known.wait(), stop.wait())
        work = [group.create_task(worker.run(stop))]
        # Playback takes its time from the sources: an agent, which could name any time, has no say in that.
        work += [] if config.is_playback else [group.create_task(agents.run(stop))]
        await asyncio.wait(work)
        following.cancel()


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
    )
