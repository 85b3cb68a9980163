"""What waits for ingest and for routers: how far they have committed, compared with where their topics end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from aiokafka import AIOKafkaConsumer, TopicPartition

from runtime import kafkaclients
from schemas.agents import ONLY_PARTITION, AgentTopics
from schemas.connection import KafkaSettings
from schemas.topics import AGENT_INGEST_GROUP, DECISIONS, INGEST_GROUP, PUBLIC_TOPICS, ROUTER_GROUP

_READ: Final = {"ingest": (INGEST_GROUP, PUBLIC_TOPICS), "router": (ROUTER_GROUP, (DECISIONS,))}
"""Process → its consumer group and topics."""
_OLDEST_S: Final = 5.0
"""How long the oldest record that waits is waited for."""


@dataclass(frozen=True)
class Unread:
    """Records that a process has not read. `oldest_ms`: Unix milliseconds of the oldest; 0: none."""

    records: int = 0
    oldest_ms: int = 0


async def unread(settings: KafkaSettings, process: Literal["ingest", "router"]) -> Unread | None:
    """Compare how far a process has read with where its topics end; None: it has never committed.

    Raises KafkaError: that cannot be asked.
    """
    group, topics = _READ[process]
    async with kafkaclients.reader(settings, group_id=group) as consumer:
        counts = await kafkaclients.partition_counts(consumer)
        parts = [TopicPartition(topic, number) for topic in topics for number in range(counts.get(topic, 0))]
        consumer.assign(parts)
        committed = {part: offset for part in parts if (offset := await consumer.committed(part)) is not None}
        # Ingest reads a partition of which it has committed nothing from its beginning; a router begins at the end.
        read = dict.fromkeys(parts, 0) | committed if process == "ingest" else committed
        return await _behind(consumer, read) if read else None


async def unread_reports(settings: KafkaSettings, agents: Iterable[AgentTopics]) -> dict[str, int]:
    """Return how many records of each agent's topic ingest has not read: cluster → more than 0.

    Raises KafkaError: that cannot be asked.
    """
    async with kafkaclients.reader(settings, group_id=AGENT_INGEST_GROUP) as consumer:
        counts = await kafkaclients.partition_counts(consumer)
        clusters = {
            TopicPartition(agent.reports, ONLY_PARTITION): agent.cluster for agent in agents if agent.reports in counts
        }
        if not clusters:
            return {}
        consumer.assign(list(clusters))
        bounds = await kafkaclients.bounds_of(consumer, clusters)
        read = {part: await consumer.committed(part) or 0 for part in clusters}
    unread = {name: bounds[part].end - max(bounds[part].first, read[part]) for part, name in clusters.items()}
    return {name: count for name, count in unread.items() if count > 0}


async def _behind(consumer: AIOKafkaConsumer, read: dict[TopicPartition, int]) -> Unread:
    """Return what the assigned partitions hold from these offsets on."""
    begins, ends = await consumer.beginning_offsets(list(read)), await consumer.end_offsets(list(read))
    firsts = {partition: max(offset, begins[partition]) for partition, offset in read.items()}
    waiting = {partition: first for partition, first in firsts.items() if first < ends[partition]}
    records = sum(ends[partition] - first for partition, first in waiting.items())
    return Unread(records, await _oldest_ms(consumer, waiting))


async def _oldest_ms(consumer: AIOKafkaConsumer, waiting: dict[TopicPartition, int]) -> int:
    """Return the timestamp of the oldest of the records at these offsets; 0 if none of them exists (any more)."""
    consumer.pause(*(set(consumer.assignment()) - set(waiting)))
    for partition, first in waiting.items():
        consumer.seek(partition, first)
    times: dict[TopicPartition, int] = {}
    try:
        async with asyncio.timeout(_OLDEST_S):
            while left := waiting.keys() - times.keys():
                for partition, records in (await consumer.getmany(*left, timeout_ms=200)).items():
                    if records:
                        times[partition] = records[0].timestamp
    except TimeoutError:
        pass  # what expired meanwhile, or markers of transactions: the times of the others are enough
    return min(times.values(), default=0)
