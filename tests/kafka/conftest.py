"""Apache Kafka for the tests marked `kafka`; they are skipped, loudly, on a machine without Java and Maven."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runtime import topicadmin as admin
from runtime import topicneeds
from runtime.topicneeds import WantedTopic
from schemas import topics
from schemas.connection import KafkaSettings
from tests.kafka.broker import KafkaBroker, missing_tools
from tests.patience import PATIENCE_S

PARTITIONS = 4


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder, and say what is missing."""
    missing = missing_tools()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.kafka)
            item.add_marker(pytest.mark.timeout(1_200))
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"APACHE KAFKA NOT TESTED: {missing}"))


def playback_topics(partitions: int = PARTITIONS) -> list[WantedTopic]:
    """Topics whose log takes the producers' times, and in which neither log nor decisions expire for being from another
    year.
    """
    own = {topics.LOG: {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}}
    own[topics.DECISIONS] = {"retention.ms": "-1"}
    return [replace(one, config={**one.config, **own.get(one.name, {})}) for one in topicneeds.wanted(partitions, 1)]


async def make_topics(settings: KafkaSettings, want: list[WantedTopic]) -> None:
    """Create the topics, and wait until the broker knows them."""
    async with admin.TopicAdmin(settings) as client:
        await client.create(want)
    deadline = time.monotonic() + PATIENCE_S
    while await differing(settings, want):
        assert time.monotonic() < deadline, "the topics did not come up"
        await asyncio.sleep(0.2)


async def differing(settings: KafkaSettings, want: list[WantedTopic]) -> list[topicneeds.TopicDifference]:
    """How the topics of these brokers differ from those wanted."""
    async with admin.TopicAdmin(settings) as client:
        found = await client.existing([one.name for one in want])
    return [difference for one in want for difference in topicneeds.differences(one, found.get(one.name))]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path / "kafka") as broker:
        yield broker


@pytest.fixture
def settings(kafka: KafkaBroker) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=kafka.bootstrap)
