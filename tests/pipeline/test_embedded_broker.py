"""The embedded broker as aiokafka sees it: what the development stack and the pipeline tests rely on."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from fleethpa.lab.simulator.broker import EmbeddedBroker, EmbeddedBrokerError
from schemas.topics import EMBEDDED_PARTITIONS as PARTITIONS
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
async def producer(broker: EmbeddedBroker) -> AsyncIterator[AIOKafkaProducer]:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, max_request_size=8 << 20) as started:
        yield started


async def read(consumer: AIOKafkaConsumer, count: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += [(record.partition, record.value) for record in records]
    return found


async def test_topics_have_four_partitions_and_take_explicit_ones(
    broker: EmbeddedBroker, producer: AIOKafkaProducer
) -> None:
    broker.ensure_topics(["explicit"])
    assert await producer.partitions_for("explicit") == set(range(PARTITIONS))
    for partition in range(PARTITIONS):
        await producer.send_and_wait("explicit", b"%d" % partition, key=b"same", partition=partition)
    async with AIOKafkaConsumer(
        "explicit", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        assert sorted(await read(consumer, 4)) == [(0, b"0"), (1, b"1"), (2, b"2"), (3, b"3")]


async def test_ensuring_a_topic_again_keeps_its_records(broker: EmbeddedBroker, producer: AIOKafkaProducer) -> None:
    await producer.send_and_wait("kept", b"first", partition=1)
    broker.ensure_topics(["kept"])
    partition = TopicPartition("kept", 1)
    async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap) as consumer:
        assert await consumer.end_offsets([partition]) == {partition: 1}


async def test_a_group_goes_on_after_its_commit_and_seeks_back(
    broker: EmbeddedBroker, producer: AIOKafkaProducer
) -> None:
    for value in (b"a", b"b", b"c"):
        await producer.send_and_wait("grouped", value, partition=0)
    settings = {"bootstrap_servers": broker.bootstrap, "group_id": "g", "auto_offset_reset": "earliest"}
    partition = TopicPartition("grouped", 0)
    async with AIOKafkaConsumer("grouped", enable_auto_commit=False, **settings) as consumer:
        assert [value for _, value in await read(consumer, 3)] == [b"a", b"b", b"c"]
        await consumer.commit({partition: 2})
        consumer.seek(partition, 1)
        assert [value for _, value in await read(consumer, 2)] == [b"b", b"c"]
    # A second join would wait for the first member's session; the committed offset is there at once.
    async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        assert await consumer.committed(partition) == 2
        assert [value for _, value in await read(consumer, 1)] == [b"c"]


async def test_large_messages_pass_and_only_about_five_megabytes_stay(
    broker: EmbeddedBroker, producer: AIOKafkaProducer
) -> None:
    large = b"x" * 900_000
    for _ in range(9):
        await producer.send_and_wait("large", large, partition=2)
    partition = TopicPartition("large", 2)
    async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, max_partition_fetch_bytes=8 << 20) as consumer:
        consumer.assign([partition])
        first, end = (await consumer.beginning_offsets([partition]))[partition], 9
        assert first > 0, "the mock broker has begun to keep more than it did"
        assert (end - first) * len(large) <= 5 * 1024 * 1024
        consumer.seek(partition, first)
        assert await read(consumer, end - first) == [(2, large)] * (end - first)


def test_a_broker_that_does_not_run_says_so() -> None:
    with pytest.raises(EmbeddedBrokerError, match=r"not running: call start\(\) first"):
        EmbeddedBroker().ensure_topics(["t"])
