"""What an agent reports: what is urgent first, the rest in order, nothing lost while the brokers are away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, MessageSizeTooLargeError
from aiokafka.structs import RecordMetadata, TopicPartition
from prometheus_client import CollectorRegistry

from reconciler.agents.agent import agenttopics as module
from reconciler.agents.agent.agenttopics import AgentPublisher
from reconciler.observer.clusterview import ObserverMetrics
from runtime.brokerclock import BrokerClock
from runtime.records import LONG_UNACKNOWLEDGED_S, Unacknowledged
from schemas.codec import decode
from schemas.connection import KafkaSettings
from schemas.entries import Body, Outcome, PublicRecord
from schemas.observed import Heartbeat, PodDeleted
from tests.patience import PATIENCE_S

TOPIC = "fleethpa.from.east.7"
DONE = Outcome(decision="0-1-u", name="web", uid="u", result="applied")


class Broker:
    """Takes records; `errors` are raised first, one for each record that is sent. `append_ms`: None: no append time."""

    def __init__(self, *errors: Exception, append_ms: int | None = None) -> None:
        self.errors, self.append_ms = list(errors), append_ms
        self.records: list[PublicRecord] = []
        self.started = 0

    async def start(self) -> None:
        self.started += 1

    async def stop(self) -> None:
        """It may be started again."""

    async def send(self, topic: str, value: bytes, key: bytes, partition: int) -> "asyncio.Future[RecordMetadata]":
        assert (topic, partition) == (TOPIC, 0)
        acked: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        if self.errors:
            acked.set_exception(self.errors.pop(0))
            return acked
        self.records.append(decode(value, PublicRecord))
        tp, kind = TopicPartition(topic, 0), 0 if self.append_ms is None else 1
        acked.set_result(RecordMetadata(topic, 0, tp, len(self.records), self.append_ms or 1, kind, 0))
        return acked

    @property
    def bodies(self) -> list[Body]:
        return [body for record in self.records for body in record.entries]


@asynccontextmanager
async def publishing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, waits: Unacknowledged | None = None
) -> AsyncIterator[AgentPublisher]:
    monkeypatch.setattr(module, "strict_producer", lambda *_, **__: broker)
    monkeypatch.setattr(module, "RECONNECT_S", 0.0)
    clock = BrokerClock(True, lambda: 1_000)
    made = AgentPublisher(KafkaSettings(), TOPIC, ObserverMetrics(CollectorRegistry()), clock, waits)
    made.clock = clock  # type: ignore[attr-defined]
    running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


class SmallBroker(Broker):
    """Refuses large records as the driver does: at once, and for ever."""

    async def send(self, topic: str, value: bytes, key: bytes, partition: int) -> "asyncio.Future[RecordMetadata]":
        if len(value) > 2_000:
            raise MessageSizeTooLargeError(f"{len(value)} bytes")
        return await super().send(topic, value, key, partition)


async def test_what_no_topic_takes_is_passed_over_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = SmallBroker()
    async with publishing(broker, monkeypatch) as publisher, asyncio.timeout(PATIENCE_S):
        await publisher.publish("east", "shop", Outcome(decision="x" * 3_000, name="web", uid="u", result="applied"))
        await publisher.put("pods", "east", "shop", [PodDeleted(name="x" * 3_000)])
        await publisher.put("pods", "east", "api", pods(1))
        await publisher.publish("east", "shop", DONE)
        await publisher.drained()
    assert sorted(map(str, broker.bodies)) == sorted(map(str, [DONE, *pods(1)]))
    assert caplog.text.count("too large to be reported") == 2


def pods(*numbers: int) -> list[Any]:
    return [PodDeleted(name=f"web-{number}") for number in numbers]


async def test_outcomes_and_heartbeats_overtake_observations_which_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker()
    async with publishing(broker, monkeypatch) as out:
        await out.put("fleethpa.pods", "east", "shop", pods(*range(40)))
        await out.put("fleethpa.scales", "east", "shop", [Heartbeat(session="s@1")])
        await out.publish("east", "shop", DONE)
        await out.drained()
    assert broker.bodies[:2] == [DONE, Heartbeat(session="s@1")]
    assert broker.bodies[2:] == pods(*range(40))
    assert {(record.cluster, record.namespace) for record in broker.records} == {("east", "shop")}


async def test_a_heartbeat_of_many_namespaces_is_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    async with publishing(broker, monkeypatch) as out:
        await out.beat("east", ["shop", "bank", "vault"], Heartbeat(session="s@1"))
        await out.drained()
    assert broker.bodies == [Heartbeat(session="s@1", namespaces=["bank", "vault"])]
    assert [(record.cluster, record.namespace) for record in broker.records] == [("east", "shop")]


async def test_the_farewell_is_written_behind_the_heartbeats_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    async with publishing(broker, monkeypatch) as out:
        for namespaces in (["shop"], ["bank"]):
            await out.beat("east", namespaces, Heartbeat(session="s@1", watches=["pods"]))
        await out.beat("east", ["shop", "bank"], Heartbeat(session="s@1"))
        await out.drained()
    assert broker.bodies == [Heartbeat(session="s@1", watches=["pods"]), Heartbeat(session="s@1", namespaces=["bank"])]


async def test_while_the_brokers_are_away_nothing_is_lost_and_of_signs_of_life_the_newest_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Noting(Broker):
        async def start(self) -> None:
            problems.append(out.problem)
            await super().start()

    problems: list[str] = []
    broker = Noting(KafkaTimeoutError(), KafkaConnectionError("away"), KafkaTimeoutError())
    async with publishing(broker, monkeypatch) as out:
        for number in range(3):
            await out.put("fleethpa.scales", "east", "shop", [Heartbeat(session=f"s@{number}")])
            await out.put("fleethpa.pods", "east", "shop", pods(number))
        await out.publish("east", "shop", DONE)
        await out.drained()
    assert broker.started == 4, "a producer that could not write is not used again"
    assert broker.bodies == [DONE, Heartbeat(session="s@2"), *pods(0, 1, 2)]
    assert problems[0] == out.problem == ""
    assert f"{TOPIC} cannot be written: KafkaTimeoutError" in problems[1]


async def test_brokers_that_take_nothing_for_long_are_a_problem_although_the_driver_gives_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Mute(Broker):
        """Answers once it is asked to."""

        async def send(self, *arguments: Any, **named: Any) -> "asyncio.Future[RecordMetadata]":
            came.set()
            await answers.wait()
            return await super().send(*arguments, **named)

    now, came, answers = [100.0], asyncio.Event(), asyncio.Event()
    async with publishing(Mute(), monkeypatch, Unacknowledged(lambda: now[0])) as out:
        await out.put("fleethpa.pods", "east", "shop", pods(1))
        await came.wait()
        now[0] += LONG_UNACKNOWLEDGED_S - 1
        assert out.problem == ""
        now[0] += 5
        assert out.problem == f"the brokers have taken no record for {LONG_UNACKNOWLEDGED_S + 4:.0f} s"
        answers.set()
        await out.drained()
        assert out.problem == ""


async def test_the_brokers_time_is_learnt_from_append_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for append_ms, known in ((None, False), (5_000_000, True)):
        broker = Broker(append_ms=append_ms)
        async with publishing(broker, monkeypatch) as out:
            await out.publish("east", "shop", DONE)
            clock = out.clock  # type: ignore[attr-defined]
            assert (not clock.problem) is known
            await out.publish("east", "shop", DONE)
        # What it states until then would be by a clock that may be wrong: ingest takes the time of the append instead.
        stated = [record.time for record in broker.records]
        assert (stated[0], stated[1] >= 5_000_000) == (0, known)


async def test_who_waits_for_an_outcome_to_be_written_is_let_go_when_the_term_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(*[KafkaTimeoutError()] * 10_000)
    async with publishing(broker, monkeypatch) as out:
        waiting = asyncio.create_task(out.publish("east", "shop", DONE))
        while len(broker.errors) == 10_000:
            await asyncio.sleep(0)
    await asyncio.wait({waiting}, timeout=PATIENCE_S)
    assert waiting.cancelled()
    with pytest.raises(asyncio.CancelledError):
        await out.publish("east", "shop", DONE)


async def test_more_observations_than_may_wait_hold_up_who_brings_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_LIMIT", 10)
    broker = Broker(*[KafkaTimeoutError()] * 5)
    async with publishing(broker, monkeypatch) as out:
        await out.put("fleethpa.pods", "east", "shop", pods(*range(10)))
        second = asyncio.create_task(out.put("fleethpa.pods", "east", "shop", pods(10)))
        await asyncio.sleep(0)
        assert not second.done()
        await second
        await out.drained()
    assert broker.bodies == pods(*range(11))
