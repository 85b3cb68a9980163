"""What doctor reads beside the log: the parts' newest words on the topic of scales, and what waits for ingest."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError

from fleethpa.fleet.heartbeats import RECENT_MS, Unread, reported_lately, uncopied, unread
from fleethpa.simulator.broker import EmbeddedBroker
from runtime.records import Publisher
from runtime.signsoflife import keep_signing, last_signs
from schemas.connection import KafkaSettings
from schemas.observed import ClusterReport, Heartbeat, ObserverTrouble, Serving
from schemas.topics import DECISIONS, INGEST_GROUP, PUBLIC_TOPICS, ROUTER_GROUP, SCALES
from streams.history.kafkapast import KafkaPast

NOW_MS = 1_795_269_600_000
WATCHES = ["pods", "autoscalers", "scales"]
PART = TopicPartition(SCALES, 0)


@pytest_asyncio.fixture
async def kafka() -> AsyncIterator[KafkaSettings]:
    with EmbeddedBroker() as broker:
        broker.ensure_topics([*PUBLIC_TOPICS, DECISIONS])
        yield KafkaSettings(bootstrap_servers=broker.bootstrap)


async def test_the_newest_word_of_each_part_is_found_without_the_log(kafka: KafkaSettings) -> None:
    away = ObserverTrouble(part="apiServer", reason="unreachable", since=NOW_MS - 9_000)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        publisher = Publisher(producer)
        for number in range(600):  # more than is read at once
            time_ms = NOW_MS - RECENT_MS + number * 100
            await publisher.send(SCALES, "east", "shop", [Heartbeat(session="s", watches=WATCHES)], time_ms)
        await publisher.send(SCALES, "west", "shop", [Heartbeat(session="t", watches=WATCHES)], NOW_MS - 50_000)
        await publisher.send(SCALES, "west", "shop", [Heartbeat(session="t")], NOW_MS - 1_000)  # its farewell
        for session, at_ms in (("old", NOW_MS - 20_000), ("new", NOW_MS - 5_000)):
            await publisher.send(SCALES, "", "", [Serving(session=session, clusters=["east", "west"])], at_ms)
        report = ClusterReport(cluster="north", session="u", instance="o", troubles=[away])
        await publisher.send(SCALES, "", "", [report], NOW_MS - 3_000)
        await producer.send_and_wait(SCALES, b"what ingest rejects", partition=0)
    received = await reported_lately(kafka, NOW_MS)
    assert received.observers == {"east": NOW_MS - 100, "west": NOW_MS - 50_000, "north": NOW_MS - 3_000}
    assert {name: (each.session, each.reported_ms) for name, each in received.served.items()} == dict.fromkeys(
        ("east", "west"), ("new", NOW_MS - 5_000)
    )
    assert received.reports["north", "o"].troubles == [away]


async def test_a_process_without_news_gives_signs_of_life_until_it_is_stopped(kafka: KafkaSettings) -> None:
    assert await last_signs(kafka) == {}
    stop, times = asyncio.Event(), itertools.count(NOW_MS)
    signing = asyncio.create_task(keep_signing(kafka, "breaker", lambda: next(times), stop))
    async with asyncio.timeout(30):
        while not (signs := await last_signs(kafka)):
            await asyncio.sleep(0.05)
    assert signs == {"breaker": NOW_MS}
    stop.set()
    await signing
    assert await last_signs(kafka) == {}


async def test_a_process_that_was_killed_leaves_its_last_sign(kafka: KafkaSettings) -> None:
    signing = asyncio.create_task(keep_signing(kafka, "scheduler", lambda: NOW_MS, asyncio.Event()))
    async with asyncio.timeout(30):
        while not await last_signs(kafka):
            await asyncio.sleep(0.05)
    signing.cancel()
    await asyncio.gather(signing, return_exceptions=True)
    assert await last_signs(kafka) == {"scheduler": NOW_MS}


async def test_an_answer_about_the_fleet_does_not_fail_because_signs_of_life_cannot_be_read(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(settings: KafkaSettings) -> None:
        raise GroupAuthorizationFailedError("not you")

    monkeypatch.setattr("streams.history.kafkapast.last_signs", refused)
    past, remarks = KafkaPast(kafka), list[str]()
    past.remark = remarks.append
    assert await past.signs_of_life() == await past.signs_of_life() == {}
    (remark,) = remarks
    assert remark.startswith("whether router, breaker and scheduler run is not known: ")


async def test_what_waits_for_ingest_is_counted_and_dated(kafka: KafkaSettings) -> None:
    assert await unread(kafka) == Unread(0, 0)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(5):
            await producer.send_and_wait(SCALES, b"{}", partition=0, timestamp_ms=NOW_MS + number)
    assert await unread(kafka) == Unread(5, NOW_MS)
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, group_id=INGEST_GROUP, enable_auto_commit=False
    ) as consumer:
        consumer.assign([PART])
        await consumer.commit({PART: 3})
    assert await unread(kafka) == Unread(2, NOW_MS + 3)


async def test_decisions_that_no_router_has_read_are_counted_from_where_one_began(kafka: KafkaSettings) -> None:
    part = TopicPartition(DECISIONS, 1)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(5):
            await producer.send_and_wait(DECISIONS, b"{}", partition=1, timestamp_ms=NOW_MS + number)
    assert await uncopied(kafka) is None
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, group_id=ROUTER_GROUP, enable_auto_commit=False
    ) as consumer:
        consumer.assign([part])
        await consumer.commit({part: 3})
        assert await uncopied(kafka) == Unread(2, NOW_MS + 3)
        await consumer.commit({part: 5})
    assert await uncopied(kafka) == Unread(0, 0)
