"""The router against the embedded broker, and the whole way of a decision to an agent and back into the log."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from msgspec import structs

from fleethpa.simulator.broker import EmbeddedBroker
from reconciler.core.agentknowledge import KnowledgeFold
from reconciler.router.firstagent import run_router_for_agents
from reconciler.router.routerprocess import Router, RouterConfig
from runtime.kafkaclients import reader
from runtime.publicrecords import Publisher
from schemas.agents import ONLY_PARTITION, SNAPSHOT_TYPE, AgentKnowledge, AgentSet
from schemas.autoscalers import AutoscalerDeleted, AutoscalerSet
from schemas.codec import decode, encode
from schemas.connection import KafkaSettings
from schemas.decisions import Decision, InputPosition, ShortDecision
from schemas.keys import namespace_key, partition_for
from schemas.settings import ClusterSettings, SettingsSet
from schemas.topics import AUTOSCALERS, DECISIONS, PUBLIC_TOPICS, SETTINGS
from tests.pipeline.cluster_rig import hpa, running

EAST = AgentSet(cluster="east", incarnation=7)


class Hub:
    """The topics around a router."""

    def __init__(self, kafka: KafkaSettings, producer: AIOKafkaProducer) -> None:
        self.kafka, self._producer, self.publisher = kafka, producer, Publisher(producer)

    async def register(self, agent: AgentSet) -> None:
        await self.publisher.send(SETTINGS, "", "", [agent], 1)

    async def decide(self, seq: int, cluster: str = "east", **changes: Any) -> str:
        id_ = f"0-{seq}-web"
        decision = Decision(
            id=id_,
            seq=seq,
            prev="",
            cluster=cluster,
            namespace="shop",
            name="web",
            uid="u",
            time=f"2026-11-21T12:00:{seq:02}.000Z",
            input=InputPosition(partition=0, offset=seq, hash=""),
            mode="enforce",
            wants=5,
        )
        await self._write(structs.replace(decision, **changes), cluster, b"io.fleethpa.decision.v1")
        return id_

    async def repeat(self, seq: int, same_as: str, cluster: str = "east") -> str:
        id_ = f"0-{seq}-web"
        short = ShortDecision(
            id=id_, seq=seq, prev="", same_as=same_as, time="t", input=InputPosition(partition=0, offset=seq, hash="")
        )
        await self._write(short, cluster, b"io.fleethpa.decision.short.v1")
        return id_

    async def _write(self, record: Any, cluster: str, kind: bytes) -> None:
        key = namespace_key(cluster, "shop")
        headers = [("ce_type", kind), ("ce_source", f"/clusters/{cluster}".encode())]
        await self._producer.send_and_wait(
            DECISIONS, encode(record), key=key.encode(), partition=partition_for(key, 4), headers=headers
        )


class Copied:
    """What an agent's topic holds."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self.decisions: list[tuple[int, str]] = []
        """(partition of the log, id)."""
        self.knowledge = KnowledgeFold()
        self.snapshots = 0

    async def until(self, found: Any, what: str) -> None:
        try:
            async with asyncio.timeout(30):
                while not found():
                    for records in (await self._consumer.getmany(timeout_ms=20)).values():
                        for record in records:
                            self._take(record)
        except TimeoutError:
            raise AssertionError(f"{what}: {self.decisions} {self.knowledge.hpas}") from None

    def _take(self, record: Any) -> None:
        if dict(record.headers)["ce_type"] == SNAPSHOT_TYPE:
            knowledge = decode(record.value, AgentKnowledge)
            assert knowledge.cluster == "east"
            self.snapshots += bool(knowledge.snapshot)
            self.knowledge.take(knowledge)
        else:
            short = dict(record.headers)["ce_type"] == b"io.fleethpa.decision.short.v1"
            id_ = decode(record.value, ShortDecision).id if short else decode(record.value, Decision).id
            self.decisions.append((int(record.key), id_))

    @property
    def ids(self) -> list[str]:
        return [id_ for _, id_ in self.decisions]


@asynccontextmanager
async def hub() -> AsyncIterator[tuple[Hub, Copied]]:
    with EmbeddedBroker() as broker:
        broker.ensure_topics([*PUBLIC_TOPICS, DECISIONS, EAST.topics.orders, EAST.topics.reports])
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap)
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
        await producer.start()
        try:
            async with reader(kafka, [TopicPartition(EAST.topics.orders, ONLY_PARTITION)]) as consumer:
                yield Hub(kafka, producer), Copied(consumer)
        finally:
            await producer.stop()


@asynccontextmanager
async def router(made: Hub, **changes: Any) -> AsyncIterator[Router]:
    part = Router(RouterConfig(kafka=made.kafka, session_timeout_ms=2_000, **changes))
    async with running(part, asyncio.Event()):
        yield part


async def test_an_agent_gets_the_decisions_of_its_cluster_under_the_partition_of_their_numbers(tmp_path: Path) -> None:
    async with hub() as (made, copied):
        await made.register(EAST)
        async with router(made):
            shadow = await made.decide(1, mode="shadow", wants=None)
            repeat = await made.repeat(2, shadow)
            first = await made.decide(3)
            await made.decide(4, cluster="west")
            status = {"currentReplicas": 2}
            shown = await made.decide(5, wants=None, status=status)
            short = await made.repeat(6, shown)
            ended = await made.decide(7, kind="completion", completes=first, wants=None)
            await copied.until(lambda: ended in copied.ids, "the completion")
        number = partition_for("east/shop", 4)
        # One in shadow asks for nothing, and is copied as a sign of life at most.
        orders = [each for each in copied.decisions if each[1] not in (shadow, repeat)]
        assert orders == [(number, each) for each in (first, shown, short, ended)]


async def test_an_agent_learns_settings_and_central_hpas_whole_and_as_they_change(tmp_path: Path) -> None:
    async with hub() as (made, copied):
        manifest = hpa("web")
        body = AutoscalerSet(hpa=manifest, origin="central", author="ada", reason="go")
        await made.publisher.send(AUTOSCALERS, "east", "shop", [body], 1)
        await made.publisher.send(AUTOSCALERS, "west", "shop", [body], 1)
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
            await made.publisher.send(AUTOSCALERS, "east", "shop", [deleted], 2)
            thawed = SettingsSet(cluster="*", settings=ClusterSettings(max_step=3), unset=[])
            await made.publisher.send(SETTINGS, "", "", [thawed], 2)
            await copied.until(lambda: not copied.knowledge.hpas, "the deletion")
            await copied.until(lambda: copied.knowledge.settings[0].settings.max_step == 3, "the new default")
            before = copied.snapshots
            await copied.until(lambda: copied.snapshots > before, "the next snapshot")
            assert not copied.knowledge.hpas


async def test_an_agent_that_is_registered_while_the_router_runs_is_told_everything(tmp_path: Path) -> None:
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
        announced: list[int] = []
        stop = asyncio.Event()
        config = RouterConfig(kafka=made.kafka, session_timeout_ms=2_000)
        part = asyncio.create_task(run_router_for_agents(config, stop, announced.append))
        await made.register(EAST)
        await copied.until(lambda: copied.knowledge.is_complete, "a snapshot")
        assert not part.done()
        stop.set()
        await part
        assert len(announced) == 1


async def test_a_router_that_waits_for_agents_ends_where_there_are_none() -> None:
    async with hub() as (made, _):
        stop, announced = asyncio.Event(), list[int]()
        part = asyncio.create_task(run_router_for_agents(RouterConfig(kafka=made.kafka), stop, announced.append))
        stop.set()
        await part
        assert announced == []
