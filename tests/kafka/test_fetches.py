"""A broker answers a fetch as soon as there is a record, though the reader fetches seldom and names only changes."""

import asyncio

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from runtime.driver import PacedFetcher
from runtime.kafkaclients import aiokafka_kwargs, reader, running_producer
from schemas.connection import KafkaSettings

PARTITION = TopicPartition("orders", 0)
PAUSE_MS, SOON_S = 60_000, 20


async def test_a_record_comes_long_before_the_next_fetch(settings: KafkaSettings) -> None:
    await make_topic(settings, PARTITION.topic, 1)
    seldom = {"fetch_max_wait_ms": PAUSE_MS, "fetch_min_bytes": 524_288, "request_timeout_ms": 2 * PAUSE_MS}
    async with reader(settings, [PARTITION], **seldom) as consumer, running_producer(settings) as producer:
        assert isinstance(consumer._fetcher, PacedFetcher)
        assert await consumer.position(PARTITION) == 0  # from here on it fetches
        await producer.send_and_wait(PARTITION.topic, b"first", partition=0)
        async with asyncio.timeout(SOON_S):
            found = await consumer.getmany(PARTITION, timeout_ms=PAUSE_MS)
        assert [record.value for record in found[PARTITION]] == [b"first"]


async def make_topic(settings: KafkaSettings, name: str, partitions: int) -> None:
    admin = AIOKafkaAdminClient(**aiokafka_kwargs(settings))
    await admin.start()
    await admin.create_topics([NewTopic(name, partitions, 1)])
    await admin.close()


async def test_one_session_brings_what_comes_to_any_partition_and_again_after_a_seek(settings: KafkaSettings) -> None:
    await make_topic(settings, "sessions", 3)
    places = [TopicPartition("sessions", number) for number in range(3)]
    paced = {"fetch_max_wait_ms": 10, "fetch_min_bytes": 524_288}
    async with reader(settings, places, **paced) as consumer, running_producer(settings) as producer:

        async def brought(place: TopicPartition) -> list[bytes]:
            async with asyncio.timeout(SOON_S):
                while not (found := await consumer.getmany(timeout_ms=100)):
                    pass
            assert list(found) == [place]
            return [record.value for record in found[place]]

        def sessions() -> set[int]:
            return {session._id for session in consumer._fetcher._client._sessions.values()}

        found = []
        for place in places[1:]:
            await producer.send_and_wait("sessions", b"first", partition=place.partition)
            assert await brought(place) == [b"first"]
            found.append(sessions())
        consumer.seek(places[1], 0)
        assert await brought(places[1]) == [b"first"]
        assert found == [sessions()] * 2
        assert 0 not in sessions()
        assert [consumer.highwater(place) for place in places] == [0, 1, 1]
