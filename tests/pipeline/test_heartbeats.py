"""What doctor reads beside the log: heartbeats, and what waits for ingest and for routers."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError

from fleethpa.fleet.backlogs import Unread, unread, unread_reports
from fleethpa.lab.simulator.broker import EmbeddedBroker
from runtime.groups import keep_signing, last_signs
from schemas.agents import ONLY_PARTITION, AgentTopics
from schemas.connection import KafkaSettings
from schemas.topics import AGENT_INGEST_GROUP, DECISIONS, INGEST_GROUP, PUBLIC_TOPICS, ROUTER_GROUP, SCALES
from streams.history.archiving import ArchiveConfig, ArchiverHealth, sign_once_durable
from streams.history.kafkapast import KafkaPast
from tests.patience import PATIENCE_S

NOW_MS = 1_795_269_600_000
PART = TopicPartition(SCALES, 0)
AGENTS = [AgentTopics("north", 7), AgentTopics("south", 7), AgentTopics("west", 7)]


@pytest_asyncio.fixture
async def kafka() -> AsyncIterator[KafkaSettings]:
    with EmbeddedBroker() as broker:
        broker.ensure_topics([*PUBLIC_TOPICS, DECISIONS, *(agent.reports for agent in AGENTS)])
        yield KafkaSettings(bootstrap_servers=broker.bootstrap)


async def test_a_process_without_news_gives_signs_of_life_until_it_is_stopped(kafka: KafkaSettings) -> None:
    assert await last_signs(kafka) == {}
    stop, times = asyncio.Event(), itertools.count(NOW_MS)
    signing = asyncio.create_task(keep_signing(kafka, "router", lambda: next(times), stop))
    async with asyncio.timeout(PATIENCE_S):
        while not (signs := await last_signs(kafka)):
            await asyncio.sleep(0.05)
    assert signs == {"router": NOW_MS}
    stop.set()
    await signing
    assert await last_signs(kafka) == {}


async def test_a_process_that_was_killed_leaves_its_last_sign(kafka: KafkaSettings) -> None:
    signing = asyncio.create_task(keep_signing(kafka, "scheduler", lambda: NOW_MS, asyncio.Event()))
    async with asyncio.timeout(PATIENCE_S):
        while not await last_signs(kafka):
            await asyncio.sleep(0.05)
    signing.cancel()
    await asyncio.gather(signing, return_exceptions=True)
    assert await last_signs(kafka) == {"scheduler": NOW_MS}


async def test_an_archiver_gives_signs_of_life_only_once_it_has_made_records_durable(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    config = ArchiveConfig(kafka=kafka, root=tmp_path, clock=lambda: NOW_MS)
    health, stop = ArchiverHealth(), asyncio.Event()
    signing = asyncio.create_task(sign_once_durable(config, health, stop))
    await asyncio.sleep(0)
    stop.set()
    await signing
    assert await last_signs(kafka) == {}, "a full disk has ended it"
    stop.clear()
    signing = asyncio.create_task(sign_once_durable(config, health, stop))
    health.durable.set()
    async with asyncio.timeout(PATIENCE_S):
        while not await last_signs(kafka):
            await asyncio.sleep(0.05)
    stop.set()
    await signing


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
    assert remark.startswith("whether router, scheduler and archiver run is not known: ")


async def test_what_waits_for_ingest_is_counted_and_dated(kafka: KafkaSettings) -> None:
    assert await unread(kafka, "ingest") == Unread(0, 0)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(5):
            await producer.send_and_wait(SCALES, b"{}", partition=0, timestamp_ms=NOW_MS + number)
    assert await unread(kafka, "ingest") == Unread(5, NOW_MS)
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, group_id=INGEST_GROUP, enable_auto_commit=False
    ) as consumer:
        consumer.assign([PART])
        await consumer.commit({PART: 3})
    assert await unread(kafka, "ingest") == Unread(2, NOW_MS + 3)


async def test_reports_of_agents_that_ingest_has_not_read_are_counted_by_cluster(kafka: KafkaSettings) -> None:
    agents = [*AGENTS, AgentTopics("gone", 1)]
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for agent in agents[:2]:
            for _ in range(5):
                await producer.send_and_wait(agent.reports, b"{}", partition=ONLY_PARTITION)
    assert await unread_reports(kafka, agents) == {"north": 5, "south": 5}
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, group_id=AGENT_INGEST_GROUP, enable_auto_commit=False
    ) as consumer:
        parts = [TopicPartition(agent.reports, ONLY_PARTITION) for agent in agents[:2]]
        consumer.assign(parts)
        await consumer.commit(dict(zip(parts, (3, 5), strict=True)))
    assert await unread_reports(kafka, agents) == {"north": 2}


async def test_decisions_that_no_router_has_read_are_counted_from_where_one_began(kafka: KafkaSettings) -> None:
    part = TopicPartition(DECISIONS, 1)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(5):
            await producer.send_and_wait(DECISIONS, b"{}", partition=1, timestamp_ms=NOW_MS + number)
    assert await unread(kafka, "router") is None
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, group_id=ROUTER_GROUP, enable_auto_commit=False
    ) as consumer:
        consumer.assign([part])
        await consumer.commit({part: 3})
        assert await unread(kafka, "router") == Unread(2, NOW_MS + 3)
        await consumer.commit({part: 5})
    assert await unread(kafka, "router") == Unread(0, 0)
