"""The last heartbeat of each process, read from its own records, so that a hung process is noticed.

Observers and reconcilers write to the topic of scales, whether or not ingest carries it into the log; ingest commits
how far it has read.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from runtime import kafkaclients
from schemas.codec import WireError, decode
from schemas.connection import KafkaSettings
from schemas.entries import Body, PublicRecord
from schemas.observed import ClusterReport, Heartbeat, ScaleSet, Serving
from schemas.topics import DECISIONS, INGEST_GROUP, PUBLIC_TOPICS, ROUTER_GROUP, SCALES
from streams.state.partitionrow import ReportRow, ServedRow

RECENT_MS: Final = 60_000
"""How far back is read: several times the 10 s in which observers and reconcilers repeat themselves."""
_FIRST_STRETCH: Final = 500
_OLDEST_S: Final = 5.0
"""How long the oldest record that waits for ingest is waited for."""


@dataclass
class ReceivedReports:
    """The newest reports. Times are the writers' own (Unix milliseconds)."""

    observers: dict[str, int] = field(default_factory=dict)
    """Cluster → when its observer wrote last."""
    reports: dict[tuple[str, str], ReportRow] = field(default_factory=dict)
    """(cluster, instance) → its newest report."""
    served: dict[str, ServedRow] = field(default_factory=dict)
    """Cluster → its reconciler's newest report."""


@dataclass(frozen=True)
class Unread:
    """Records that ingest has not carried into the log, or decisions that no router has looked at.

    `oldest_ms`: of the oldest; 0: none.
    """

    records: int = 0
    oldest_ms: int = 0


async def reported_lately(settings: KafkaSettings, now_ms: int) -> ReceivedReports:
    """Read the end of the topic of scales. Raises KafkaError: it cannot be read."""
    received = ReceivedReports()
    async with kafkaclients.reader(settings) as consumer:
        partitions = await _partitions(consumer, SCALES)
        consumer.assign(partitions)
        begins, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
        for partition in partitions:
            await _read_back(consumer, partition, begins[partition], ends[partition], now_ms - RECENT_MS, received)
    return received


async def unread(settings: KafkaSettings) -> Unread:
    """Compare how far ingest has read with where the public topics end. Raises KafkaError: that cannot be asked."""
    async with kafkaclients.reader(settings, group_id=INGEST_GROUP) as consumer:
        partitions = await _partitions(consumer, *PUBLIC_TOPICS)
        consumer.assign(partitions)
        return await _behind(consumer, {part: await consumer.committed(part) or 0 for part in partitions})


async def uncopied(settings: KafkaSettings) -> Unread | None:
    """Compare how far routers have read with where the decisions end; None: no router has ever read any.

    Raises KafkaError: that cannot be asked.
    """
    async with kafkaclients.reader(settings, group_id=ROUTER_GROUP) as consumer:
        partitions = await _partitions(consumer, DECISIONS)
        consumer.assign(partitions)
        read = {partition: await consumer.committed(partition) for partition in partitions}
        if all(offset is None for offset in read.values()):
            return None
        return await _behind(consumer, {part: offset for part, offset in read.items() if offset is not None})


async def _behind(consumer: AIOKafkaConsumer, read: dict[TopicPartition, int]) -> Unread:
    """What the assigned partitions hold from these offsets on."""
    begins, ends = await consumer.beginning_offsets(list(read)), await consumer.end_offsets(list(read))
    firsts = {partition: max(offset, begins[partition]) for partition, offset in read.items()}
    waiting = {partition: first for partition, first in firsts.items() if first < ends[partition]}
    records = sum(ends[partition] - first for partition, first in waiting.items())
    return Unread(records, await _oldest_ms(consumer, waiting, set(consumer.assignment())))


async def _oldest_ms(
    consumer: AIOKafkaConsumer, waiting: dict[TopicPartition, int], assigned: set[TopicPartition]
) -> int:
    """Return the timestamp of the oldest of the records at these offsets; 0 if none of them exists (any more)."""
    consumer.pause(*(assigned - set(waiting)))
    for partition, first in waiting.items():
        consumer.seek(partition, first)
    times: dict[TopicPartition, int] = {}
    try:
        async with asyncio.timeout(_OLDEST_S):
            while left := waiting.keys() - times.keys():
                for partition, found in (await consumer.getmany(*left, timeout_ms=200)).items():
                    if found:
                        times[partition] = found[0].timestamp
    except TimeoutError:
        pass  # what expired meanwhile, or markers of transactions: the others are enough to tell by
    return min(times.values(), default=0)


async def _partitions(consumer: AIOKafkaConsumer, *topics: str) -> list[TopicPartition]:
    counts = await kafkaclients.partition_counts(consumer)
    return [TopicPartition(topic, number) for topic in topics for number in range(counts.get(topic, 0))]


async def _read_back(
    consumer: AIOKafkaConsumer,
    partition: TopicPartition,
    begin: int,
    end: int,
    since_ms: int,
    received: ReceivedReports,
) -> None:
    """Read stretches from the end backwards until one begins before a time."""
    lists = kafkaclients.read_backwards(consumer, partition, begin, end, _FIRST_STRETCH)
    async with aclosing(lists):
        async for _, records in lists:
            for record in records:
                _note(received, record.value)
            if records and records[0].timestamp < since_ms:
                return


def _note(received: ReceivedReports, value: bytes) -> None:
    try:
        record = decode(value, PublicRecord)
    except WireError:
        return  # ingest rejects it, with the reason
    for body in record.entries:
        _take(received, body, record)


def _take(received: ReceivedReports, body: Body, record: PublicRecord) -> None:
    match body:
        case ClusterReport():
            known = received.reports.get((body.cluster, body.instance))
            if known is None or known.reported_ms <= record.time:
                row = ReportRow(
                    body.cluster, body.instance, body.session, record.time, body.started, body.troubles, body.stopped
                )
                received.reports[body.cluster, body.instance] = row
            _newer(received.observers, body.cluster, record.time)
        case Heartbeat() if not (body.watches or body.problems):
            pass  # a farewell
        case Heartbeat() | ScaleSet():
            _newer(received.observers, record.cluster, record.time)
        case Serving():
            for cluster in body.clusters:
                if received.served.get(cluster, ServedRow()).reported_ms <= record.time:
                    received.served[cluster] = ServedRow(record.time, body.problems.get(cluster, ""), body.session)
        case _:
            pass


def _newer(times: dict[str, int], cluster: str, time_ms: int) -> None:
    times[cluster] = max(times.get(cluster, 0), time_ms)
