"""What is left of fleethpa.settings once a broker has compacted it says what all of it said."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from aiokafka import AIOKafkaConsumer

from runtime import kafkaclients, topicneeds
from runtime.records import Publisher, hand_over
from schemas import topics
from schemas.agentknowledge import KnownPause
from schemas.connection import KafkaSettings
from schemas.inforce import InForce
from schemas.observed import Command
from schemas.settings import ClusterSettings
from tests.kafka.broker import KafkaBroker
from tests.kafka.conftest import make_topics
from tests.kit.settingschanges import NOW_MS, random_change
from tests.patience import PATIENCE_S
from tests.pipeline.ingesting import producer

CHANGES = 300
AT_ONCE = {
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "1",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "100",
}
"""Settings of the topic with which a broker compacts within seconds and not after a month."""


async def _left(consumer: AIOKafkaConsumer) -> tuple[InForce, list[bytes]]:
    """What the records that are left state, and their keys."""
    found, keys = InForce(), []
    await consumer.seek_to_beginning()
    async with aclosing(kafkaclients.read_to(consumer, await kafkaclients.ends_of(consumer))) as records:
        async for record in records:
            hand_over(record.value, 1, found.apply)
            keys.append(record.key)
    return found, keys


def _stated(found: InForce) -> tuple[Sequence[KnownPause], dict[str, ClusterSettings]]:
    return sorted([*found.pauses("east", NOW_MS), *found.pauses("west", NOW_MS)], key=str), found.settings


async def test_what_a_broker_has_left_says_what_all_of_it_said(tmp_path: Path) -> None:
    numbers, whole = random.Random(7), InForce()
    with KafkaBroker(tmp_path / "kafka", extra="log.cleaner.backoff.ms=200") as broker:
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap)
        wanted = [each for each in topicneeds.wanted(1, 1) if each.name == topics.SETTINGS]
        await make_topics(kafka, [replace(each, config={**each.config, **AT_ONCE}) for each in wanted])
        async with (
            producer(kafka) as out,
            kafkaclients.topic_reader(kafka, topics.SETTINGS) as reading,
            asyncio.timeout(PATIENCE_S),
        ):
            publisher = Publisher(out)
            for _ in range(CHANGES):
                cluster, namespace, body = random_change(numbers)
                whole.apply(body, 1, cluster, namespace)
                await publisher.send(topics.SETTINGS, cluster, namespace, [body], NOW_MS)
                assert _stated((await _left(reading))[0]) == _stated(whole)
            # A record closes the segment before it, which is then compacted; this one says nothing about the others.
            filler = Command(command="pause", name="filler", until=NOW_MS - 1)
            found, keys = await _left(reading)
            while len(keys) > len(set(keys)) + 2:
                await publisher.send(topics.SETTINGS, "north", "none", [filler], NOW_MS)
                found, keys = await _left(reading)
            assert len(keys) < CHANGES / 2
            assert _stated(found) == _stated(whole)
