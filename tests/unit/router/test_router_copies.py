"""Copies to agents: what a topic did not take waits, and other clusters continue."""

import asyncio
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError
from prometheus_client import CollectorRegistry

from reconciler.agents.router.copies import Copies, RouterMetrics
from reconciler.agents.router.lateagents import LateAgents
from reconciler.agents.router.process import SNAPSHOT_EVERY_S, Router, RouterConfig
from reconciler.core.inbox import OffsetProgress
from runtime.groups import GroupMember
from runtime.process import PartHealth
from schemas.agents import AgentSet
from schemas.codec import encode
from schemas.connection import KafkaSettings
from schemas.decisions import Decision, InputPosition
from schemas.topics import DECISIONS

EAST, WEST = AgentSet(cluster="east", incarnation=1), AgentSet(cluster="west", incarnation=1)


class Producer:
    """As a test wants: a topic takes records, its records fail, or it has no room (`never`: without an error)."""

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.full: set[str] = set()
        self.never: set[str] = set()
        self.waiting: list[asyncio.Future[Any]] = []
        self.is_slow = False

    async def send(self, topic: str, value: bytes, **_: Any) -> asyncio.Future[Any]:
        if topic in self.never:
            await asyncio.Event().wait()
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


async def copy(made: Copies, agent: AgentSet, progress: OffsetProgress, offset: int, errors: list[str]) -> None:
    def ended(error: BaseException | None) -> None:
        if error is None:
            progress.done(offset)
        else:
            errors.append(repr(error))

    progress.begin(offset)
    await made.send(agent, b"{}", b"0", [], "decision", ended)
    await asyncio.sleep(0)  # futures call back in the next turn of the loop


@pytest.mark.parametrize("how", ["failing", "full"])
async def test_what_a_topic_did_not_take_is_reported_to_whoever_sent_it_and_is_not_committed(how: str) -> None:
    producer, progress, errors = Producer(), OffsetProgress(), list[str]()
    getattr(producer, how).add(EAST.topics.commands)
    made = copies(producer)
    for offset, agent in ((7, WEST), (8, EAST), (9, WEST)):
        await copy(made, agent, progress, offset, errors)
    assert progress.committable == 8
    assert [each.partition("(")[0] for each in errors] == ["KafkaTimeoutError"]


async def test_a_topic_without_room_keeps_other_clusters_waiting_for_a_moment_only() -> None:
    producer, errors = Producer(), list[str]()
    producer.never.add(EAST.topics.commands)
    made = copies(producer)
    await made.send(EAST, b"{}", b"0", [], "decision", lambda error: errors.append(repr(error)), patience_s=0.0)
    assert "no room for another record" in errors[0]


async def test_a_topic_that_acknowledges_nothing_is_found_also_without_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = Producer()
    producer.is_slow = True
    made = copies(producer)
    await copy(made, EAST, OffsetProgress(), 7, [])
    assert made.stuck() == []
    monkeypatch.setattr("reconciler.agents.router.copies.ANSWER_WITHIN_S", 0.0)
    assert made.stuck() == [EAST]
    producer.waiting[0].set_result(None)
    await made.all_ended(EAST)
    assert made.stuck() == []


class Late:
    """Late agents that are remembered, and never tried."""

    def __init__(self) -> None:
        self.first: dict[AgentSet, dict[int, int]] = {}

    def begin(self, agent: AgentSet, error: BaseException | None) -> None:
        self.first.setdefault(agent, {})

    def pass_over(self, agent: AgentSet, partition: int, offset: int) -> None:
        self.first[agent].setdefault(partition, offset)

    def bound(self, partition: int) -> int | None:
        return min((each[partition] for each in self.first.values() if partition in each), default=None)

    def begin_stuck(self, agents: Any) -> None:
        pass

    def drop_all(self) -> None:
        self.first.clear()

    def __contains__(self, agent: AgentSet) -> bool:
        return agent in self.first


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

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(4))

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        self.committed |= {partition.partition: offset for partition, offset in offsets.items()}


def member(part: Router) -> GroupMember:
    return GroupMember(part._consumer, done=part._done, revoked=part._revoked, assigned=part._assigned)


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
    part._late = Late()  # type: ignore[assignment]
    part._ready = {"east": EAST}
    part._owned = {0, 1}
    producer.is_slow = True

    async def rebalance() -> None:
        producer.waiting[0].set_result(None)  # offset 5 of partition 0 is there, 6 is not
        await asyncio.sleep(0)
        producer.waiting[1].set_exception(KafkaTimeoutError("not taken"))
        await asyncio.sleep(0)
        await member(part).on_partitions_revoked(batch.keys())

    send = producer.send

    async def send_and_rebalance(topic: str, value: bytes, **more: Any) -> asyncio.Future[Any]:
        if len(producer.waiting) == 2:  # in the middle of the batch: the first record of partition 1
            await rebalance()
        return await send(topic, value, **more)

    producer.send = send_and_rebalance  # type: ignore[method-assign]
    await part._copy()
    assert consumer.committed == {0: 6, 1: 5}
    assert len(producer.waiting) == 3, "the second record of partition 1 is for whoever has it now"
    assert not part.progress


def test_an_agent_whose_topic_is_gone_does_not_keep_the_router_busy() -> None:
    part = Router(RouterConfig(kafka=KafkaSettings()))
    part._snapshot_due_s = {"west": 0.0}
    assert part._idle_s() > SNAPSHOT_EVERY_S
    part._ready = {"east": EAST}
    assert part._idle_s() == 0.0


async def test_decisions_of_a_late_agent_are_passed_over_and_hold_back_what_is_committed() -> None:
    batch = {TopicPartition(DECISIONS, 0): [decision(0, offset) for offset in (5, 6, 7)]}
    producer, consumer = Producer(), Consumer(batch)
    producer.failing.add(EAST.topics.commands)
    part = Router(RouterConfig(kafka=KafkaSettings()))
    late = Late()
    part._consumer, part._producer, part._copies = consumer, producer, copies(producer)
    part._late = late  # type: ignore[assignment]
    part._ready = {"east": EAST}
    part._owned = {0}
    await part._copy()
    await asyncio.sleep(0)
    assert late.first == {EAST: {0: 5}}
    assert part.progress[0].committable == 8
    await member(part).commit()
    assert consumer.committed == {0: 5}


class Source:
    """What late agents ask a router for."""

    def __init__(self) -> None:
        self.progress: dict[int, OffsetProgress] = {}
        self.reported: asyncio.Queue[tuple[str, AgentSet]] = asyncio.Queue()

    def is_wanted(self, agent: AgentSet, record: Any) -> bool:
        return True

    def knowledge_for(self, agent: AgentSet) -> list[Any]:
        return []

    def gone(self, agent: AgentSet) -> None:
        self.reported.put_nowait(("gone", agent))

    def caught_up(self, agent: AgentSet) -> None:
        self.reported.put_nowait(("caught up", agent))


@pytest.mark.parametrize(
    ("is_gone", "failed", "reported"),
    [
        pytest.param(True, True, "gone", id="what waits for a topic that is gone is given up with its agent"),
        pytest.param(False, False, "caught up", id="nothing failed and nothing was passed over"),
    ],
)
async def test_an_agent_is_late_until(
    is_gone: bool, failed: bool, reported: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(*_: Any) -> bool:
        return is_gone

    monkeypatch.setattr("reconciler.agents.router.lateagents.is_gone", answer)
    source, health = Source(), PartHealth()
    metrics = RouterMetrics(CollectorRegistry())
    late = LateAgents(KafkaSettings(), None, Copies(Producer(), metrics), source, health, metrics)
    for _ in range(2):
        late.begin(EAST, TopicAuthorizationFailedError(EAST.topics.commands) if failed else None)
    if failed:
        late.pass_over(EAST, 0, 6)
        late.pass_over(EAST, 0, 5)
    assert EAST in late
    assert late.bound(0) == (5 if failed else None)
    assert len(health.notes()) == 1
    assert [each.levelname for each in caplog.records] == ["ERROR"], "it is logged once"
    assert await source.reported.get() == (reported, EAST)
    assert EAST not in late
    assert (late.bound(0), health.notes()) == (None, [])
