"""A router whose topic for one agent does not take records: the other clusters continue, and nothing is lost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaTimeoutError

from reconciler.agents.router import copies, lateagents
from reconciler.agents.router.process import Router
from runtime.groups import marks
from runtime.kafkaclients import aiokafka_kwargs, reader, running_producer
from runtime.topicadmin import TopicAdmin
from runtime.topicneeds import ACLS, Acl, WantedTopic, wanted
from schemas.agents import ONLY_PARTITION, AgentSet
from schemas.connection import KafkaSettings
from schemas.partitioning import partition_for
from schemas.topics import DECISIONS, ROUTER_GROUP
from tests.kafka.broker import KafkaBroker
from tests.kafka.conftest import PARTITIONS, make_topics
from tests.kafka.secured import secured_broker
from tests.patience import PATIENCE_S
from tests.pipeline.router_kit import Copied, Hub, router

EAST, WEST = AgentSet(cluster="east", incarnation=1), AgentSet(cluster="west", incarnation=1)
LONG = "x" * 2_000
"""With it, a few hundred decisions do not fit into what a producer keeps for a topic."""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "ANSWER_WITHIN_S", 2.0)
    monkeypatch.setattr(lateagents, "LONGEST_PAUSE_S", 1.0)


@asynccontextmanager
async def hub(settings: KafkaSettings) -> AsyncIterator[tuple[Hub, Copied, Copied]]:
    orders = [agent.topics.commands for agent in (EAST, WEST)]
    await make_topics(settings, [WantedTopic(name, 1, 1, {}) for name in orders])
    async with running_producer(settings) as producer, _copied(settings, EAST) as east, _copied(settings, WEST) as west:
        made = Hub(settings, producer)
        for agent in (EAST, WEST):
            await made.register(agent)
        yield made, east, west


@asynccontextmanager
async def _copied(settings: KafkaSettings, agent: AgentSet) -> AsyncIterator[Copied]:
    async with reader(settings, [TopicPartition(agent.topics.commands, ONLY_PARTITION)]) as consumer:
        yield Copied(consumer, agent.cluster)


async def refuse(settings: KafkaSettings, *, refused: bool) -> None:
    """Let the topic of EAST take no record, or records as before."""
    admin = AIOKafkaAdminClient(**aiokafka_kwargs(settings))
    await admin.start()
    try:
        config = {"max.message.bytes": "10" if refused else "1048576"}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, EAST.topics.commands, config)])
    finally:
        await admin.close()


async def committed(settings: KafkaSettings) -> int | None:
    """Up to where the routers' group has done with the decisions of EAST."""
    partition = TopicPartition(DECISIONS, partition_for("east/shop", PARTITIONS))
    async with marks(settings, ROUTER_GROUP, [partition]) as consumer:
        offset: int | None = await consumer.committed(partition)
        return offset


async def until(found: Callable[[], bool], what: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not found():
            await asyncio.sleep(0.05)
    assert found(), what


async def test_an_agents_topic_that_takes_no_record_delays_no_other_and_gets_everything_in_order_later(
    settings: KafkaSettings,
) -> None:
    await make_topics(settings, wanted(PARTITIONS, 1))
    async with hub(settings) as (made, east, west):
        async with router(made) as part:
            ids = [await made.decide(1)]
            await east.until(lambda: ids[0] in east.ids and east.snapshots > 0, "the first")
            snapshots = east.snapshots
            await refuse(settings, refused=True)
            for seq in range(2, 402):
                ids.append(await made.decide(seq, reason=LONG))
                if seq % 100 == 0:
                    mine = await made.decide(1_000 + seq, cluster="west")
                    await west.until(lambda mine=mine: mine in west.ids, "a decision of the other cluster")
            await until(lambda: bool(part.health.notes()), "a note")
            assert [EAST.topics.commands in each for each in part.health.notes()] == [True]
            assert part.health.problems() == []
            assert await committed(settings) in (None, 0, 1), "what was not copied is not committed"
            await refuse(settings, refused=False)
            await east.until(lambda: ids[-1] in east.ids, "the last")
            assert list(dict.fromkeys(east.ids)) == ids
            await east.until(lambda: east.snapshots > snapshots, "what it must know beside decisions")
            await until(lambda: part.health.notes() == [], "the end of the note")
            ids.append(await made.decide(500))
            await east.until(lambda: ids[-1] in east.ids, "a decision after that")
        assert (await committed(settings) or 0) >= len(ids)


async def test_an_agents_topic_that_the_router_may_not_write_waits_for_the_permission(tmp_path: Path) -> None:
    async with secured_broker(tmp_path / "kafka", ["router"]) as broker, hub(broker.admin) as (made, east, west):
        user = "User:router"
        rights = [each for each in ACLS["router"] if each.operations != ("WRITE",)]
        async with TopicAdmin(broker.admin) as admin:
            assert await admin.allow([*rights, Acl("topic", WEST.topics.commands, ("WRITE",))], user)
        login = replace(broker.admin, username="router", password="router-secret")
        own = Hub(login, made._producer)
        ids: list[str] = []
        async with router(own) as part:
            await _others_go_on(made, west, ids, part)
        async with router(own) as part:
            await _others_go_on(made, west, ids, part)
            async with TopicAdmin(broker.admin) as admin:
                assert await admin.allow(ACLS["router"], user)
            await east.until(lambda: ids[-1] in east.ids, "the last")
            assert list(dict.fromkeys(east.ids)) == ids
            await until(lambda: part.health.notes() == [], "the end of the note")


async def _others_go_on(made: Hub, west: Copied, ids: list[str], part: Router) -> None:
    """Two decisions of EAST, which only wait; one of WEST, which arrives."""
    mine = await made.decide(100 + len(ids), cluster="west")
    for _ in range(2):
        ids.append(await made.decide(1 + len(ids)))
    await west.until(lambda: mine in west.ids, "a decision of the other cluster")
    await until(lambda: "topics acls router" in "".join(part.health.notes()), "a note")


async def test_a_producer_whose_records_nobody_takes_ends_and_says_so(
    kafka: KafkaBroker, settings: KafkaSettings
) -> None:
    topic = EAST.topics.commands
    await make_topics(settings, [WantedTopic(topic, 1, 1, {})])
    try:
        async with running_producer(settings, request_timeout_ms=2_000) as producer:
            await producer.send_and_wait(topic, b"{}", partition=ONLY_PARTITION)
            kafka.pause()
            sent = await producer.send(topic, b"{}", partition=ONLY_PARTITION)
    finally:
        kafka.resume()
    assert isinstance(sent.exception(), KafkaTimeoutError)
