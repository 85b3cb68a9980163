"""A broker that stops answering for longer than a request may take: processes wait, and nothing is lost."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from fleethpa.frame.configuration import Config
from fleethpa.frame.writer import open_writer
from runtime import kafkaclients
from runtime.kafkaclients import bounds_of, ends_of, know_topics, reader, running_producer, topic_reader
from runtime.records import Publisher
from schemas import connection
from schemas.codec import decode
from schemas.connection import KafkaSettings
from schemas.entries import PublicRecord
from schemas.observed import Command, Heartbeat
from schemas.topics import AUTOSCALERS, LOG, PODS, REJECTED, SCALES, SETTINGS, SPECS
from schemas.topics import EMBEDDED_PARTITIONS as PARTITIONS
from streams.ingest.logwriter import Batch, LogWriter
from tests.patience import PATIENCE_S

TIMEOUT_MS, BATCH_BYTES, RECORDS = 300, 2_048, 64
KNOWN = (SCALES, LOG, PODS, REJECTED, AUTOSCALERS, SETTINGS, SPECS)
WAITING = "the brokers are too slow, waiting"


class StallingBroker:
    """A broker process that can be made to stand still."""

    def __init__(self, pid: int, kafka: KafkaSettings, logged: Callable[[], list[str]]) -> None:
        self._pid, self.kafka, self._logged = pid, kafka, logged

    @contextmanager
    def stalled(self) -> Iterator[None]:
        os.kill(self._pid, signal.SIGSTOP)
        try:
            _, status = os.waitpid(self._pid, os.WUNTRACED)  # a signal that is sent has not stopped it yet
            assert os.WIFSTOPPED(status), status
            yield
        finally:
            os.kill(self._pid, signal.SIGCONT)

    async def stall_until_noticed(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Begin the work while the broker is stopped; let it continue once somebody has waited too long for it."""
        with self.stalled():
            working = asyncio.ensure_future(work())
            async with asyncio.timeout(PATIENCE_S):
                while WAITING not in self._logged():
                    assert not working.done(), working
                    await asyncio.sleep(0.02)
        async with asyncio.timeout(PATIENCE_S):
            return await working


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[int, KafkaSettings]]:
    """A broker's process, one for all tests: each has a topic of its own."""
    command = [sys.executable, "-m", "tests.kit.simulated", "broker", "--topics", ",".join(KNOWN)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            yield process.pid, KafkaSettings(bootstrap_servers=json.loads(line)["bootstrap"])
        finally:
            process.kill()


@pytest.fixture
def broker(started: tuple[int, KafkaSettings], caplog: pytest.LogCaptureFixture) -> Iterator[StallingBroker]:
    with caplog.at_level(logging.WARNING, "runtime.kafkaclients"):
        yield StallingBroker(*started, lambda: caplog.messages)


@asynccontextmanager
async def hasty_producer(kafka: KafkaSettings) -> AsyncIterator[AIOKafkaProducer]:
    """A producer whose records soon find no room."""
    async with running_producer(kafka, max_batch_size=BATCH_BYTES) as producer:
        producer._request_timeout_ms = TIMEOUT_MS  # for room in the queue only: requests may take longer
        yield producer


async def values(kafka: KafkaSettings, topic: str, wanted: int) -> list[bytes]:
    """The values of all records of the topic, once there are so many."""
    found: list[bytes] = []
    async with (
        asyncio.timeout(PATIENCE_S),
        reader(kafka, [TopicPartition(topic, number) for number in range(PARTITIONS)]) as consumer,
    ):
        while len(found) < wanted:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                found += [each.value for each in records]
    return found


async def test_what_is_written_while_a_broker_hangs_arrives(broker: StallingBroker) -> None:
    async with hasty_producer(broker.kafka) as producer:
        publisher = Publisher(producer, waits_for_room=True)
        names = {f"session-{number}".ljust(300, "x") for number in range(RECORDS)}
        await publisher.send(SCALES, "east", "shop", [Heartbeat(session="first")], 1)
        await broker.stall_until_noticed(
            lambda: asyncio.gather(
                *(publisher.send(SCALES, "east", "shop", [Heartbeat(session=name)], 1) for name in names)
            )
        )
    records = [decode(value, PublicRecord) for value in await values(broker.kafka, SCALES, RECORDS + 1)]
    sessions = [body.session for record in records for body in record.entries if isinstance(body, Heartbeat)]
    assert sorted(sessions) == sorted(names | {"first"})


async def test_the_log_waits_for_a_broker_that_hangs_and_keeps_its_order(broker: StallingBroker) -> None:
    async with hasty_producer(broker.kafka) as producer:
        writer = LogWriter(producer, None)
        await writer.write([Batch(0, "*", 1, b"first", 0)], [])
        wanted = [b"%064d" % number + b"x" * 300 for number in range(RECORDS)]
        await broker.stall_until_noticed(lambda: writer.write([Batch(0, "*", 1, value, 0) for value in wanted], []))
    assert await values(broker.kafka, LOG, RECORDS + 1) == [b"first", *wanted]


async def test_a_command_ends_although_a_broker_hangs_that_was_to_take_its_record(broker: StallingBroker) -> None:
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        writer = await stack.enter_async_context(open_writer(Config(brokers=broker.kafka.bootstrap_servers)))
        body = Command(command="resume", name="web")
        await writer.send("resumed", "east", "shop", [body])
        with broker.stalled():
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(writer.send("resumed", "east", "shop", [body]), 0.2)
            await stack.aclose()


async def test_ends_are_asked_for_until_a_broker_answers(broker: StallingBroker) -> None:
    part = TopicPartition(PODS, 0)
    async with running_producer(broker.kafka) as producer, reader(broker.kafka, [part]) as consumer:
        await producer.send_and_wait(PODS, b"one", partition=0)
        assert isinstance(consumer, AIOKafkaConsumer)
        consumer._request_timeout_ms = TIMEOUT_MS
        assert await broker.stall_until_noticed(lambda: ends_of(consumer)) == {part: 1}
        assert await bounds_of(consumer, [part]) == {part: (0, 1)}


async def test_a_reader_of_topics_starts_once_a_broker_answers(
    broker: StallingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty = connection.aiokafka_kwargs
    monkeypatch.setattr(connection, "aiokafka_kwargs", lambda given: hasty(given) | {"request_timeout_ms": TIMEOUT_MS})

    async def read() -> set[TopicPartition]:
        async with topic_reader(broker.kafka, SCALES, patient=True) as consumer:
            return set(consumer.assignment())

    found = await broker.stall_until_noticed(read)
    assert found == {TopicPartition(SCALES, number) for number in range(PARTITIONS)}


async def test_a_producer_knows_topics_once_a_broker_answers(
    broker: StallingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafkaclients, "ANSWERED_MS", 0)  # what was answered before the broker stood still is old
    async with running_producer(broker.kafka, request_timeout_ms=TIMEOUT_MS) as producer:
        await broker.stall_until_noticed(lambda: know_topics(producer, SCALES, LOG))
        assert await producer.partitions_for(LOG) == set(range(PARTITIONS))
