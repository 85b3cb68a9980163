"""The topic of settings is deleted and created again while processes follow it."""

import asyncio

import pytest

from runtime import topicneeds
from runtime.kafkaclients import running_producer
from runtime.records import Publisher, follow_topic
from runtime.topicadmin import TopicAdmin
from schemas import topics
from schemas.connection import KafkaSettings
from schemas.entries import Body
from schemas.settings import ClusterSettings, SettingsSet
from tests.kafka.conftest import PARTITIONS, differing, make_topics
from tests.patience import PATIENCE_S
from tests.pipeline.ingesting import Process, reading

WANTED = [each for each in topicneeds.wanted(PARTITIONS, 1) if each.name == topics.SETTINGS]
GONE = "fleethpa.settings is not there any more: what it said before stays in force here"
SAID = "fleethpa.settings was created again, or its records were deleted"


async def state(kafka: KafkaSettings, cluster: str, count: int = 1) -> None:
    """Write settings of a cluster so many times."""
    async with running_producer(kafka) as out:
        for number in range(count):
            settings = ClusterSettings(sync_period_ms=10_000 + number)
            await Publisher(out).send(topics.SETTINGS, "", "", [SettingsSet(cluster=cluster, settings=settings)], 1)


async def delete(kafka: KafkaSettings) -> None:
    """Delete the topic, and wait until the broker no longer has it."""
    async with TopicAdmin(kafka) as admin:
        await admin.delete([topics.SETTINGS])
        async with asyncio.timeout(PATIENCE_S):
            while await admin.partitions([topics.SETTINGS]):
                await asyncio.sleep(0.1)


async def make_again(kafka: KafkaSettings) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await differing(kafka, WANTED):
            async with TopicAdmin(kafka) as admin:
                await admin.create(WANTED)
            await asyncio.sleep(0.1)


async def test_who_follows_a_topic_that_is_made_again_reads_it_and_says_what_is_old(
    settings: KafkaSettings, caplog: pytest.LogCaptureFixture
) -> None:
    await make_topics(settings, WANTED)
    await state(settings, "before", 5)
    seen: list[str] = []
    known = asyncio.Event()

    def take(body: Body, *_: object) -> None:
        assert isinstance(body, SettingsSet)
        seen.append(body.cluster)

    following = asyncio.create_task(follow_topic(settings, topics.SETTINGS, take, known.set))
    async with asyncio.timeout(PATIENCE_S):
        await known.wait()
        assert seen == ["before"] * 5
        await delete(settings)
        while GONE not in caplog.text:
            await asyncio.sleep(0.1)
        await make_again(settings)
        while SAID not in caplog.text:  # also while the new one is empty
            assert not following.done(), following.result()
            await asyncio.sleep(0.1)
        await state(settings, "after")
        while seen[-1] != "after":
            await asyncio.sleep(0.1)
        assert caplog.text.count(SAID) == caplog.text.count(GONE) == 1
    following.cancel()


async def test_ingest_ends_where_the_topic_of_settings_is_made_again(settings: KafkaSettings) -> None:
    await make_topics(settings, topicneeds.wanted(PARTITIONS, 1))
    await state(settings, "before", 5)
    async with reading(settings, topics.LOG) as log:
        with Process(settings) as ingest:
            await ingest.port()
            await log.until(lambda log: sum(bool(entry.source) for _, entry in log.entries()) >= 5 * PARTITIONS)
            await delete(settings)
            read = len(log.records)  # ingest goes on with the others: it writes an empty record every five seconds
            await log.until(lambda log: len(log.records) > read + 3 * PARTITIONS)
            await make_again(settings)
            await state(settings, "after")
            code, text = await ingest.ended()
    assert code == 3, text
    assert "fleethpa.settings partition" in text
    assert "the log would take its records for duplicates" in text
    assert "fleethpa admin ingest reset fleethpa.settings" in text
    assert "Traceback" not in text
