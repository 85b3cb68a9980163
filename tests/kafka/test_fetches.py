"""A broker answers a fetch as soon as there is a record, though the reader fetches seldom."""

import asyncio

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from runtime.driver import PacedFetcher
from runtime.kafkaclients import aiokafka_kwargs, reader, running_producer
from schemas.connection import KafkaSettings

PARTITION = TopicPartition("orders", 0)
PAUSE_MS, SOON_S = 60_000, 20


async def test_a_record_comes_long_before_the_next_fetch(settings: KafkaSettings) -> None:
    admin = AIOKafkaAdminClient(**aiokafka_kwargs(settings))
    await admin.start()
    await admin.create_topics([NewTopic(PARTITION.topic, 1, 1)])
    await admin.close()
    seldom = {"fetch_max_wait_ms": PAUSE_MS, "fetch_min_bytes": 524_288, "request_timeout_ms": 2 * PAUSE_MS}
    async with reader(settings, [PARTITION], **seldom) as consumer, running_producer(settings) as producer:
        assert isinstance(consumer._fetcher, PacedFetcher)
        assert await consumer.position(PARTITION) == 0  # from here on it fetches
        await producer.send_and_wait(PARTITION.topic, b"first", partition=0)
        async with asyncio.timeout(SOON_S):
            found = await consumer.getmany(PARTITION, timeout_ms=PAUSE_MS)
        assert [record.value for record in found[PARTITION]] == [b"first"]
