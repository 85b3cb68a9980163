"""Play records of the public topics: through the pure core, or through broker, ingest and decider."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from aiokafka import TopicPartition

from fleethpa.lab.simulator.broker import EmbeddedBroker
from runtime.kafkaclients import reader, strict_producer
from schemas import topics
from schemas.connection import KafkaSettings
from schemas.keys import namespace_key
from schemas.limits import Refusal
from schemas.partitioning import partition_for
from schemas.topics import EMBEDDED_PARTITIONS as PARTITIONS
from streams.ingest.convert import convert
from streams.ingest.logwriter import Batch, Batcher, log_entries
from streams.ingest.mapping import Mapping, Resolver
from streams.ingest.pieces import RawRecord
from streams.partition import Partition
from tests.kit.decider_process import Decider
from tests.pipeline.ingesting import Process
from tests.pipeline.tape import CLUSTER, Observed

ALL_TOPICS = (*topics.PUBLIC_TOPICS, topics.LOG, topics.REJECTED, topics.DECISIONS, topics.CHANGELOG)


class Played(NamedTuple):
    """What came of it: decisions in order, records of the log, rejected records."""

    decisions: list[bytes]
    log_records: int
    rejected: int = 0


def partition_of(namespace: str) -> int:
    """Partition of the recorded namespace."""
    return partition_for(namespace_key(CLUSTER, namespace), PARTITIONS)


# --- the pure core ----------------------------------------------------------------------------------------------------


def fold(records: Sequence[Observed], number: int) -> Played:
    """Convert, put into log records and fold, all in this process."""
    log = log_of(records, number)
    partition = Partition.empty(number)
    decisions = [
        decision.value
        for offset, record in enumerate(log)
        for decision in partition.apply(offset, record.time_ms, record.value)
    ]
    return Played(decisions, len(log))


def log_of(records: Sequence[Observed], number: int) -> list[Batch]:
    """The records of a log partition as ingest makes them of public records."""
    resolver, batcher, offsets = Resolver(Mapping()), Batcher(PARTITIONS, by_time=True), Counter[str]()
    for record in records:
        raw = RawRecord(record.topic, number, offsets[record.topic], record.time_ms, record.value)
        offsets[record.topic] += 1
        found = convert(raw, resolver)
        assert not found.is_rejected, found.reason()
        for entry in log_entries(found.pieces, raw, found.time_ms, PARTITIONS):
            assert not isinstance(entry, Refusal), entry.text
            batcher.add(entry)
    return [batch for batch in batcher.batches() if batch.partition == number]


# --- the pipeline -----------------------------------------------------------------------------------------------------


async def play(records: Sequence[Observed], number: int, folder: Path, timeout_s: float) -> tuple[Played, Played]:
    """Write all records to the public topics of an embedded broker, then run ingest and decider over them.

    Args:
        records: in order of time.
        number: partition to write to.
        folder: for what the decider prints.
        timeout_s: limit of the whole.

    Returns:
        What came of it, and what the pure core makes of the same records; so many decisions are waited for.
    """
    with EmbeddedBroker() as broker:
        broker.ensure_topics(ALL_TOPICS)
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap)
        await _write(kafka, records, number)
        with (
            # Long time-outs: after a rebalance ingest reads again, and the log has duplicates.
            Process(kafka, "--timestamp", "source", "--session-timeout", "60") as ingest,
            Decider(broker.bootstrap, folder / "decider.txt", "--playback", session_timeout_s=60) as decider,
        ):
            await ingest.port()
            async with asyncio.timeout(timeout_s):
                folding = asyncio.create_task(asyncio.to_thread(fold, records, number))
                made = await _decisions(kafka, number, folding, decider, ingest)
            async with reader(kafka) as consumer:
                ends = await consumer.end_offsets([TopicPartition(topics.LOG, number), *_rejected()])
            log_records = ends.pop(TopicPartition(topics.LOG, number))
            return Played(made, log_records, sum(ends.values())), await folding


def _rejected() -> list[TopicPartition]:
    return [TopicPartition(topics.REJECTED, number) for number in range(PARTITIONS)]


async def _write(kafka: KafkaSettings, records: Sequence[Observed], number: int) -> None:
    """All of it before anybody reads: what is behind is merged by source time, so the log is always the same."""
    async with strict_producer(kafka) as producer:
        sent = [
            await producer.send(record.topic, record.value, partition=number, timestamp_ms=record.time_ms)
            for record in records
        ]
        await asyncio.gather(*sent)
    sources = [TopicPartition(topic, number) for topic in topics.PUBLIC_TOPICS]
    async with reader(kafka, sources) as consumer:
        begins = await consumer.beginning_offsets(sources)
    assert not any(begins.values()), f"more than the embedded broker holds: {begins}"


async def _decisions(
    kafka: KafkaSettings, number: int, folding: asyncio.Task[Played], decider: Decider, ingest: Process
) -> list[bytes]:
    """Read along: the broker keeps only the newest 5 MB."""
    source = TopicPartition(topics.DECISIONS, number)
    made: list[bytes] = []
    async with reader(kafka, [source]) as consumer:
        while not folding.done() or len(made) < len(folding.result().decisions):
            assert not decider.ended, decider.tail()
            assert ingest.popen.poll() is None, await ingest.ended()
            got = await consumer.getmany(source, timeout_ms=200)
            made += [record.value for record in got.get(source, ())]
    return made
