"""Ingest on Apache Kafka: what the embedded broker cannot show, such as several workers and who stamps the log."""

import asyncio
import signal
from dataclasses import replace

import pytest
from aiokafka import TopicPartition

from runtime import topicneeds
from schemas import topics
from schemas.connection import KafkaSettings
from schemas.settings import WatermarkReset
from streams.ingest.preflight import IngestConfig, IngestError, reset_source
from streams.ingest.worker import run_ingest
from tests.kafka.conftest import make_topics, playback_topics
from tests.patience import PATIENCE_S
from tests.pipeline.ingesting import PARTITIONS, Process, commit, producer, reading, running, sample, without_duplicates

WANTED = topicneeds.wanted(PARTITIONS, 1)


async def test_two_workers_share_the_partitions_and_nothing_is_lost(settings: KafkaSettings) -> None:
    await make_topics(settings, WANTED)
    total = 1_000
    async with producer(settings) as out, reading(settings, topics.LOG) as log, running(IngestConfig(kafka=settings)):
        for number in range(total // 2):
            await out.send(topics.SAMPLES, sample(number))
        await log.until(lambda log: len(log.values()) > 100)
        async with running(IngestConfig(kafka=settings)):
            for number in range(total // 2, total):
                await out.send(topics.SAMPLES, sample(number))
                await asyncio.sleep(0.002)  # over the rebalance
            await log.until(lambda log: len(log.values()) == total)
    points = [p.milli // 1000 for entries in without_duplicates(log).values() for e in entries for p in e.body.points]  # type: ignore[union-attr]
    assert sorted(points) == list(range(total))


async def test_workers_that_are_killed_in_turn_lose_nothing(settings: KafkaSettings) -> None:
    await make_topics(settings, WANTED)
    total = 4_000
    async with producer(settings) as out, reading(settings, topics.LOG) as log:

        async def send() -> None:
            for number in range(total):
                await out.send(topics.SAMPLES, sample(number))
                await asyncio.sleep(0.002)  # over the kills
            await out.flush()

        sending = asyncio.create_task(send())
        with Process(settings) as survivor:
            await survivor.port()
            for kill in range(3):
                with Process(settings) as victim:
                    await victim.port()
                    await log.until(lambda log, least=kill * 800 + 200: len(log.values()) > least)
                    victim.popen.send_signal(signal.SIGKILL)
                    assert (await victim.ended())[0] == -signal.SIGKILL
            await sending
            await log.until(lambda log: len(log.values()) == total)
            survivor.popen.send_signal(signal.SIGTERM)
            assert (await survivor.ended())[0] == 0
    points = [p.milli // 1000 for entries in without_duplicates(log).values() for e in entries for p in e.body.points]  # type: ignore[union-attr]
    assert sorted(points) == list(range(total))


async def test_a_topic_made_again_is_read_from_its_start_after_a_reset(settings: KafkaSettings) -> None:
    await make_topics(settings, WANTED)
    await commit(settings, TopicPartition(topics.PODS, 1), 500)
    with pytest.raises(IngestError, match=r"fleethpa admin ingest reset fleethpa\.pods 1"):
        await asyncio.wait_for(run_ingest(IngestConfig(kafka=settings), asyncio.Event()), PATIENCE_S)
    assert await reset_source(settings, topics.PODS, 1, author="ada", reason="made again") == 0
    value = b'{"v":1,"cluster":"east","namespace":"shop","entries":[{"kind":"podDeleted","name":"p"}]}'
    async with producer(settings) as out, reading(settings, topics.LOG) as log:
        await out.send_and_wait(topics.PODS, value, partition=1)
        async with running(IngestConfig(kafka=settings)):
            await log.until(lambda log: len(log.entries()) == PARTITIONS + 1)
            with pytest.raises(IngestError, match="a worker runs"):
                await reset_source(settings, topics.PODS, 1, author="ada", reason="too early")
    resets = [entry.body for _, entry in log.entries() if isinstance(entry.body, WatermarkReset)]
    assert (
        resets
        == [WatermarkReset(topic=topics.PODS, source_partition=1, author="ada", reason="made again")] * PARTITIONS
    )


async def test_playback_refuses_a_log_that_the_broker_stamps(settings: KafkaSettings) -> None:
    await make_topics(settings, WANTED)
    with pytest.raises(IngestError, match="LogAppendTime, which overwrites"):
        await asyncio.wait_for(
            run_ingest(IngestConfig(kafka=settings, timestamp="source"), asyncio.Event()), PATIENCE_S
        )


async def test_live_refuses_a_log_that_the_broker_does_not_stamp(settings: KafkaSettings) -> None:
    await make_topics(settings, playback_topics())
    with pytest.raises(IngestError, match="CreateTime"):
        await asyncio.wait_for(run_ingest(IngestConfig(kafka=settings), asyncio.Event()), PATIENCE_S)


async def test_missing_topics_and_partition_counts_that_differ_are_named(settings: KafkaSettings) -> None:
    await make_topics(settings, [one for one in WANTED if one.name != topics.PODS])
    with pytest.raises(IngestError, match=r"missing topics: fleethpa\.pods"):
        await asyncio.wait_for(run_ingest(IngestConfig(kafka=settings), asyncio.Event()), PATIENCE_S)
    pods = next(one for one in WANTED if one.name == topics.PODS)
    await make_topics(settings, [replace(pods, partitions=2)])
    with pytest.raises(IngestError, match=r"differ from the 4 of fleethpa\.log: fleethpa\.pods \(2\)"):
        await asyncio.wait_for(run_ingest(IngestConfig(kafka=settings), asyncio.Event()), PATIENCE_S)
