"""What a process does while brokers are slow, or have only just begun."""

import asyncio
import logging
import socket
import time
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, UnknownTopicOrPartitionError

from runtime import kafkaclients
from runtime.process import PartHealth
from runtime.records import Publisher, read_in_force
from schemas.codec import decode
from schemas.connection import KafkaSettings
from schemas.entries import PublicRecord
from schemas.observed import Heartbeat
from schemas.topics import SCALES


class FullQueue:
    """A driver whose queue of the partition is full at the first calls."""

    def __init__(self, times_full: int) -> None:
        self.times_full, self.calls = times_full, 0
        self.queued: list[bytes] = []

    async def partitions_for(self, topic: str) -> set[int]:
        return {0, 1}

    async def send(self, topic: str, value: bytes, key: bytes, partition: int) -> "asyncio.Future[str]":
        self.calls += 1
        if self.calls <= self.times_full:
            raise KafkaTimeoutError
        self.queued.append(value)
        written: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        written.set_result("written")
        return written


async def test_a_record_waits_for_room_and_is_written_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver: Any = FullQueue(times_full=3)
    with caplog.at_level(logging.WARNING):
        done: Any = await Publisher(driver, waits_for_room=True).send(SCALES, "c", "ns", [Heartbeat(session="s")], 1)
    assert (done, driver.calls, len(driver.queued)) == ("written", 4, 1)
    assert decode(driver.queued[0], PublicRecord).entries == [Heartbeat(session="s")]
    assert [record.message for record in caplog.records] == ["the brokers are too slow, waiting"] * 3


async def test_a_command_does_not_wait_for_room() -> None:
    driver: Any = FullQueue(times_full=1)
    with pytest.raises(KafkaTimeoutError):
        await Publisher(driver).send(SCALES, "c", "ns", [Heartbeat(session="s")], 1)
    assert driver.queued == []


class Silent(FullQueue):
    """A driver whose brokers acknowledge nothing until they are told to."""

    def __init__(self) -> None:
        super().__init__(times_full=0)
        self.waiting: list[asyncio.Future[str]] = []

    async def send(self, topic: str, value: bytes, key: bytes, partition: int) -> "asyncio.Future[str]":
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]


async def test_brokers_that_take_no_record_are_a_reason_not_to_be_ready_until_they_take_one() -> None:
    driver: Any = Silent()
    now_s = 100.0
    publisher, health = Publisher(driver, waits_for_room=True, clock=lambda: now_s), PartHealth()
    health.check("kafka", publisher.problem)

    async def beat() -> None:
        await publisher.send(SCALES, "c", "ns", [Heartbeat(session="s")], 1)

    async with asyncio.TaskGroup() as group:
        beats = [group.create_task(beat()), group.create_task(beat())]
        await asyncio.sleep(0)
        now_s += 14
        assert health.problems() == []
        now_s += 62
        assert health.problems() == ["[-] kafka: the brokers have taken no record for 76 s"]
        driver.waiting[0].set_result("written")
        await beats[0]
        assert health.problems() == [], "the other has waited since now"
        now_s += 20
        assert health.problems() == ["[-] kafka: the brokers have taken no record for 20 s"]
        driver.waiting[1].set_result("written")
    now_s += 1_000
    assert health.problems() == [], "nobody has a record to write"


async def test_a_record_that_fails_has_been_taken_by_nobody() -> None:
    driver: Any = Silent()
    now_s = 0.0
    publisher = Publisher(driver, waits_for_room=True, clock=lambda: now_s)
    for _ in range(3):
        sending = asyncio.ensure_future(publisher.send(SCALES, "c", "ns", [Heartbeat(session="s")], 1))
        await asyncio.sleep(0)
        now_s += 40
        driver.waiting[-1].set_exception(KafkaTimeoutError())
        with pytest.raises(KafkaTimeoutError):
            await sending
    assert publisher.problem() == "the brokers have taken no record for 120 s"


class Beginning:
    """A consumer whose broker names no broker in its first answers."""

    def __init__(self, nameless: int) -> None:
        self._client = self.cluster = self
        self.hosts = [("localhost", 9092, 0)]
        self.nameless, self.is_started, self.asked = nameless, False, 0

    async def start(self) -> None:
        self.is_started = True

    def brokers(self) -> list[int]:
        return [] if self.asked < self.nameless else [1]

    async def force_metadata_update(self) -> bool:
        self.asked += 1
        return True


@pytest.mark.parametrize("nameless", [pytest.param(0, id="at once"), pytest.param(3, id="at the fourth answer")])
async def test_a_client_has_started_once_a_broker_is_named(nameless: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafkaclients, "KNOWN_PAUSE_S", 0.0)
    consumer: Any = Beginning(nameless)
    await kafkaclients.start(consumer)
    assert (consumer.is_started, consumer.asked) == (True, nameless)


async def test_brokers_that_never_name_one_end_the_start_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafkaclients, "KNOWN_PAUSE_S", 0.0)
    monkeypatch.setattr(kafkaclients, "KNOWN_WITHIN_S", 0.05)
    consumer: Any = Beginning(10**9)
    with pytest.raises(KafkaConnectionError, match="name no broker"):
        await kafkaclients.start(consumer)


class Nameless:
    """A driver to which no broker names the topic."""

    def __init__(self, answered_s_ago: float) -> None:
        self._client = self.cluster = self
        self._last_successful_refresh_ms = (time.time() - answered_s_ago) * 1000
        self.asked, self.is_stopped = 0, False

    async def partitions_for(self, topic: str) -> set[int]:
        self.asked += 1
        if self.asked > 3:
            return {0}
        raise UnknownTopicOrPartitionError

    async def start(self) -> None:
        await self.partitions_for("")

    async def stop(self) -> None:
        self.is_stopped = True

    def brokers(self) -> list[int]:
        return [1]


async def test_a_topic_is_missing_only_if_a_broker_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafkaclients, "KNOWN_PAUSE_S", 0.0)
    silent: Any = Nameless(answered_s_ago=3_600)
    await kafkaclients.know_topics(silent, SCALES)
    assert silent.asked == 4
    answering: Any = Nameless(answered_s_ago=0)
    with pytest.raises(UnknownTopicOrPartitionError):
        await kafkaclients.know_topics(answering, SCALES)
    with pytest.raises(UnknownTopicOrPartitionError):
        async with kafkaclients.started_patiently(lambda: answering):
            raise AssertionError("the topic does not exist")
    assert answering.is_stopped
    again: Any = Nameless(answered_s_ago=3_600)
    async with kafkaclients.started_patiently(lambda: again) as started:
        assert started is again


async def test_a_command_learns_at_once_that_no_broker_can_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(KafkaConnectionError):
        await read_in_force(KafkaSettings(bootstrap_servers=f"127.0.0.1:{port}"))
