"""Copies to agents: what a topic did not take is copied again, unless the topic is gone."""

import asyncio
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaTimeoutError
from prometheus_client import CollectorRegistry

from reconciler.core.inbox import OffsetProgress
from reconciler.router.copies import Copies, RouterMetrics
from reconciler.router.routerprocess import SNAPSHOT_EVERY_S, Router, RouterConfig
from schemas.agents import AgentSet
from schemas.codec import encode
from schemas.connection import KafkaSettings
from schemas.decisions import Decision, InputPosition
from schemas.topics import DECISIONS

EAST, WEST = AgentSet(cluster="east", incarnation=1), AgentSet(cluster="west", incarnation=1)


class Producer:
    """Answers as it is told: a topic takes records, its records fail, or it has no room for them."""

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.full: set[str] = set()
        self.waiting: list[asyncio.Future[Any]] = []
        self.is_slow = False

    async def send(self, topic: str, value: bytes, **_: Any) -> asyncio.Future[Any]:
        if topic in self.full:
            raise KafkaTimeoutError("no room")
        sent: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.is_slow:
            self.waiting.append(sent)
        elif topic in self.failing:
            sent.set_exception(KafkaTimeoutError("not taken"))
        else:
            sent.set_result(None)
        return sent


def copies(producer: Producer) -> Copies:
    return Copies(producer, RouterMetrics(CollectorRegistry()))


async def copy(made: Copies, agent: AgentSet, progress: OffsetProgress, offset: int) -> None:
    progress.begin(offset)
    await made.send(agent, b"{}", b"0", [], "decision", lambda: progress.done(offset))
    await asyncio.sleep(0)  # futures call back in the next turn of the loop


@pytest.mark.parametrize("how", ["failing", "full"])
async def test_what_a_topic_did_not_take_is_not_committed_and_ends_the_router(how: str) -> None:
    producer, progress = Producer(), OffsetProgress()
    getattr(producer, how).add(EAST.topics.orders)
    made = copies(producer)
    for offset, agent in ((7, WEST), (8, EAST), (9, WEST)):
        await copy(made, agent, progress, offset)
    assert progress.committable == 8

    async def is_gone(topic: str) -> bool:
        return False

    with pytest.raises(KafkaTimeoutError):
        await made.check(is_gone)
    assert progress.committable == 8


async def test_what_failed_for_a_topic_that_is_gone_is_given_up_with_its_agent() -> None:
    producer, progress = Producer(), OffsetProgress()
    producer.failing.add(EAST.topics.orders)
    made = copies(producer)
    for offset, agent in ((7, EAST), (8, WEST), (9, EAST)):
        await copy(made, agent, progress, offset)
    asked: list[str] = []

    async def is_gone(topic: str) -> bool:
        asked.append(topic)
        return True

    assert await made.check(is_gone) == [EAST]
    assert (progress.committable, asked) == (10, [EAST.topics.orders])
    assert await made.check(is_gone) == []


class Consumer:
    """One batch, and what was committed."""

    def __init__(self, batch: dict[TopicPartition, list[Any]]) -> None:
        self.batch = batch
        self.committed: dict[int, int] = {}

    async def getmany(self, **_: Any) -> dict[TopicPartition, list[Any]]:
        batch, self.batch = self.batch, {}
        return batch

    def assignment(self) -> set[TopicPartition]:
        return set()

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        self.committed |= {partition.partition: offset for partition, offset in offsets.items()}


def decision(partition: int, offset: int) -> ConsumerRecord[bytes, bytes]:
    body = Decision(
        id=f"{partition}-{offset}-web",
        seq=offset,
        prev="",
        cluster="east",
        namespace="shop",
        name="web",
        uid="u",
        time="2026-11-21T12:00:00.000Z",
        input=InputPosition(partition=partition, offset=offset, hash=""),
        mode="enforce",
        wants=5,
    )
    headers = [("ce_type", b"io.fleethpa.decision.v1"), ("ce_source", b"/clusters/east")]
    return ConsumerRecord(DECISIONS, partition, offset, 0, 0, b"", encode(body), None, 0, 0, tuple(headers))


async def test_a_rebalance_commits_what_is_acknowledged_only_and_ends_the_batch_under_way() -> None:
    batch = {TopicPartition(DECISIONS, each): [decision(each, offset) for offset in (5, 6)] for each in (0, 1)}
    producer, consumer = Producer(), Consumer(batch)
    part = Router(RouterConfig(kafka=KafkaSettings()))
    part._consumer, part._producer, part._copies = consumer, producer, copies(producer)
    part._ready = {"east": EAST}
    part._owned = {0, 1}
    producer.is_slow = True

    async def rebalance() -> None:
        producer.waiting[0].set_result(None)  # offset 5 of partition 0 is there, 6 is not
        await asyncio.sleep(0)
        producer.waiting[1].set_exception(KafkaTimeoutError("not taken"))
        await asyncio.sleep(0)
        await part.revoked()

    send = producer.send

    async def send_and_rebalance(topic: str, value: bytes, **more: Any) -> asyncio.Future[Any]:
        if len(producer.waiting) == 2:  # in the middle of the batch: the first record of partition 1
            await rebalance()
        return await send(topic, value, **more)

    producer.send = send_and_rebalance  # type: ignore[method-assign]
    part._committed_s = float("inf")  # only the rebalance commits

    async def is_gone(topic: str) -> bool:
        return True

    part._is_gone = is_gone  # type: ignore[method-assign]
    await part._copy()
    assert consumer.committed == {0: 6, 1: 5}
    assert len(producer.waiting) == 3, "the second record of partition 1 is for whoever has it now"
    assert not part._progress


def test_an_agent_whose_topic_is_gone_does_not_keep_the_router_busy() -> None:
    part = Router(RouterConfig(kafka=KafkaSettings()))
    part._snapshot_due_s = {"west": 0.0}
    assert part._idle_s() > SNAPSHOT_EVERY_S
    part._ready = {"east": EAST}
    assert part._idle_s() == 0.0
