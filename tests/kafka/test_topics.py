"""Topics on Apache Kafka: created, compared and put right."""

import asyncio

from runtime import topicadmin, topicneeds
from runtime.topicadmin import TopicAdmin
from runtime.topicneeds import WantedTopic
from schemas import topics as names
from schemas.connection import KafkaSettings
from tests.kafka.conftest import make_topics
from tests.patience import PATIENCE_S


async def test_what_was_changed_by_hand_is_found_and_put_right_and_foreign_settings_stay(
    settings: KafkaSettings,
) -> None:
    want = topicneeds.wanted(4, 1)
    assert {one.what for one in (await topicadmin.check_topics(settings, 4, 1))[1]} == {"topic"}
    await make_topics(settings, want)
    by_hand = {"message.timestamp.type": "CreateTime", "segment.bytes": "2000000"}
    async with TopicAdmin(settings) as admin:
        found = await admin.existing([names.LOG])
        await admin.configure(WantedTopic(names.LOG, 4, 1, by_hand), found[names.LOG])
    await _until(settings, [f"{names.LOG}: message.timestamp.type is CreateTime, wanted LogAppendTime"])
    assert await topicadmin.fix(settings, want) == []
    await _until(settings, [])
    async with TopicAdmin(settings) as admin:
        assert (await admin.existing([names.LOG]))[names.LOG].own["segment.bytes"] == "2000000"


async def test_a_partition_count_cannot_be_put_right(settings: KafkaSettings) -> None:
    await make_topics(settings, topicneeds.wanted(2, 1))
    left = await topicadmin.fix(settings, topicneeds.wanted(4, 1))
    assert {(one.what, one.fixable) for one in left} == {("partition count", False)}


async def _until(settings: KafkaSettings, texts: list[str]) -> None:
    """What DescribeConfigs answers is up to a second old."""
    async with asyncio.timeout(PATIENCE_S):
        while [str(one) for one in (await topicadmin.check_topics(settings))[1]] != texts:
            await asyncio.sleep(0.2)
