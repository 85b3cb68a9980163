"""Ways to lose state on purpose: the changelog whole or in part, the beginning of the log."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from runtime import topicadmin as admin
from runtime import topicneeds
from runtime.kafkaclients import aiokafka_kwargs, reader
from schemas import topics
from schemas.connection import KafkaSettings
from tests.kafka.conftest import PARTITIONS, differing, make_topics
from tests.patience import PATIENCE_S

CHANGELOG = [one for one in topicneeds.wanted(PARTITIONS, 1) if one.name == topics.CHANGELOG]


async def lose_changelog(settings: KafkaSettings) -> None:
    """Every row: the topic is deleted and created again."""
    client = AIOKafkaAdminClient(**aiokafka_kwargs(settings))
    await client.start()
    try:
        await client.delete_topics([topics.CHANGELOG])
        await asyncio.sleep(1)  # a name is free again only some time after the answer, and nothing shows when
    finally:
        await client.close()
    await make_topics(settings, CHANGELOG)


async def truncate_changelog(settings: KafkaSettings, share: float) -> None:
    """The older rows, this share of them: what a wrong clean-up policy does, until it is set right."""
    (compacted,) = CHANGELOG
    wrong = replace(compacted, config={**compacted.config, "cleanup.policy": "delete"})
    await _configure(settings, wrong)
    ends = await _ends(settings, topics.CHANGELOG)
    await cut(settings, topics.CHANGELOG, {number: round(end * share) for number, end in ends.items()})
    await _configure(settings, compacted)


async def cut(settings: KafkaSettings, topic: str, firsts: Mapping[int, int]) -> None:
    """Let each partition of a topic begin at this offset."""
    client = AIOKafkaAdminClient(**aiokafka_kwargs(settings))
    await client.start()
    try:
        to_delete = {
            TopicPartition(topic, number): RecordsToDelete(before_offset=first) for number, first in firsts.items()
        }
        await client.delete_records(to_delete)
    finally:
        await client.close()


async def _configure(settings: KafkaSettings, want: topicneeds.WantedTopic) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while await differing(settings, [want]):
        assert time.monotonic() < deadline, f"{want.name} does not take its settings"
        await admin.fix(settings, [want])
        await asyncio.sleep(0.2)


async def _ends(settings: KafkaSettings, topic: str) -> dict[int, int]:
    tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    async with reader(settings) as consumer:
        return {tp.partition: end for tp, end in (await consumer.end_offsets(tps)).items()}
