"""The router against the embedded broker, and the whole way of a decision to an agent and back into the log."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError
from msgspec import structs

from fleethpa.lab.simulator.broker import EmbeddedBroker
from reconciler.agents.router.process import Router, RouterConfig, has_agents
from runtime import groups, records
from runtime.kafkaclients import reader
from schemas.agents import ONLY_PARTITION, AgentSet
from schemas.connection import KafkaSettings
from schemas.observed import AutoscalerDeleted, AutoscalerSet
from schemas.partitioning import partition_for
from schemas.settings import ClusterSettings, SettingsSet
from schemas.topics import DECISIONS, PUBLIC_TOPICS, SETTINGS, SPECS
from tests.patience import PATIENCE_S
from tests.pipeline.cluster_rig import hpa
from tests.pipeline.router_kit import Copied, Hub, router

EAST = AgentSet(cluster="east", incarnation=7)


@asynccontextmanager
async def hub() -> AsyncIterator[tuple[Hub, Copied]]:
    with EmbeddedBroker() as broker:
        broker.ensure_topics([*PUBLIC_TOPICS, DECISIONS, EAST.topics.commands, EAST.topics.reports])
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap)
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
        await producer.start()
        try:
            async with reader(kafka, [TopicPartition(EAST.topics.commands, ONLY_PARTITION)]) as consumer:
                yield Hub(kafka, producer), Copied(consumer)
        finally:
            await producer.stop()


async def test_an_agent_gets_the_decisions_of_its_cluster_under_the_partition_of_their_numbers(tmp_path: Path) -> None:
    async with hub() as (made, copied):
        await made.register(EAST)
        async with router(made):
            shadow = await made.decide(1, mode="shadow", wants=None)
            repeat = await made.decide(2, mode="shadow", wants=None)
            first = await made.decide(3)
            await made.decide(4, cluster="west")
            status = {"currentReplicas": 2}
            shown = await made.decide(5, wants=None, status=status)
            again = await made.decide(6, wants=None, status=status)
            ended = await made.decide(7, kind="completion", completes=first, wants=None)
            await copied.until(lambda: ended in copied.ids, "the completion")
        number = partition_for("east/shop", 4)
        # One in shadow asks for nothing, and is copied as a heartbeat at most.
        orders = [each for each in copied.decisions if each[1] not in (shadow, repeat)]
        assert orders == [(number, each) for each in (first, shown, again, ended)]


async def test_a_router_whose_heartbeats_the_brokers_do_not_take_is_not_ready_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers, commit = asyncio.Event(), groups._commit

    async def committed(consumer: Any, text: str) -> None:
        if not answers.is_set():
            raise GroupAuthorizationFailedError
        await commit(consumer, text)

    monkeypatch.setattr(groups, "_commit", committed)
    monkeypatch.setattr(groups, "SIGN_EVERY_S", 0.05)
    monkeypatch.setattr(records, "LONG_UNACKNOWLEDGED_S", 0.5)
    async with hub() as (made, _), router(made) as part, asyncio.timeout(PATIENCE_S):
        problem = "[-] kafka: the brokers have taken no record for 1 s: [Error 30] GroupAuthorizationFailedError"
        while problem not in part.health.problems():
            await asyncio.sleep(0.02)
        answers.set()
        while part.health.problems():
            await asyncio.sleep(0.02)


async def test_an_agent_learns_settings_and_central_hpas_whole_and_as_they_change(tmp_path: Path) -> None:
    async with hub() as (made, copied):
        manifest = hpa("web")
        body = AutoscalerSet(hpa=manifest, origin="central", author="ada", reason="go")
        await made.publisher.send(SPECS, "east", "shop", [body], 1)
        await made.publisher.send(SPECS, "west", "shop", [body], 1)
        frozen = SettingsSet(cluster="east", settings=ClusterSettings(frozen=True))
        await made.publisher.send(SETTINGS, "", "", [frozen], 1)
        await made.register(EAST)
        async with router(made, snapshot_every_s=1.0):
            await copied.until(lambda: copied.knowledge.is_complete, "a snapshot")
            assert list(copied.knowledge.hpas) == [("shop", "web")]
            assert [(each.cluster, each.settings.frozen) for each in copied.knowledge.settings] == [
                ("*", None),
                ("east", True),
            ]
            deleted = AutoscalerDeleted(name="web", origin="central", author="ada", reason="gone")
            await made.publisher.send(SPECS, "east", "shop", [deleted], 2)
            thawed = SettingsSet(cluster="*", settings=ClusterSettings(max_step=3), unset=[])
            await made.publisher.send(SETTINGS, "", "", [thawed], 2)
            await copied.until(lambda: not copied.knowledge.hpas, "the deletion")
            await copied.until(lambda: copied.knowledge.settings[0].settings.max_step == 3, "the new default")
            before = copied.snapshots
            await copied.until(lambda: copied.snapshots > before, "the next snapshot")
            assert not copied.knowledge.hpas


async def test_an_agent_that_is_registered_while_the_router_runs_gets_everything(tmp_path: Path) -> None:
    async with hub() as (made, copied), router(made):
        await made.decide(1)
        await made.register(EAST)
        await copied.until(lambda: copied.knowledge.is_complete, "a snapshot")
        second = await made.decide(2)
        await copied.until(lambda: second in copied.ids, "a decision")
        await made.register(structs.replace(EAST, left=True))
        await made.register(structs.replace(EAST, cluster="west", incarnation=8))


async def test_what_a_router_left_uncopied_the_next_one_copies(tmp_path: Path) -> None:
    async with hub() as (made, copied):
        await made.register(EAST)
        async with router(made):
            first = await made.decide(1)
            await copied.until(lambda: first in copied.ids, "the first")
        ids = [await made.decide(seq) for seq in range(2, 12)]
        async with router(made):
            await copied.until(lambda: ids[-1] in copied.ids, "the last")
        assert [each for each in dict.fromkeys(copied.ids)] == [first, *ids]


async def test_a_router_that_waits_for_agents_begins_with_the_first_that_is_still_registered(tmp_path: Path) -> None:
    async with hub() as (made, copied):
        await made.register(AgentSet(cluster="west", incarnation=3))
        await made.register(AgentSet(cluster="west", incarnation=3, left=True))
        stop = asyncio.Event()
        waiting = asyncio.create_task(has_agents(made.kafka, stop))
        await made.register(EAST)
        assert await waiting
        part = Router(RouterConfig(kafka=made.kafka, session_timeout_ms=2_000))
        running = asyncio.create_task(part.run(stop))
        await copied.until(lambda: copied.knowledge.is_complete, "a snapshot")
        assert not running.done()
        stop.set()
        await running
        assert part.health.became_ready.is_set()


async def test_a_router_that_waits_for_agents_ends_where_there_are_none() -> None:
    async with hub() as (made, _):
        stop = asyncio.Event()
        waiting = asyncio.create_task(has_agents(made.kafka, stop))
        stop.set()
        assert not await waiting
