"""aiokafka clients of the reconciler and the observer."""

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

from schemas import connection
from schemas.connection import KafkaSettings, SettingsError

MAX_REQUEST_BYTES = 1_048_576
SESSION_TIMEOUT_MS = 11_000
"""Longer than the time to live of a wanted write (10 s): a member that lost its partitions has nothing left to write.
Shorter than the wait for its outcome (15 s), by some seconds: after kill -9 between a write and its outcome another
member gets the partition and finds the write applied before the decider takes it for failed.
"""


def _kwargs(settings: KafkaSettings) -> dict[str, Any]:
    kwargs = connection.aiokafka_kwargs(settings)
    if settings.uses_tls:
        kwargs["ssl_context"] = _ssl_context(settings)
    return kwargs


def _ssl_context(settings: KafkaSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.cafile or None)
        if settings.certfile:
            context.load_cert_chain(settings.certfile, settings.keyfile or None)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"cannot load the certificates for Kafka: {error}") from error
    return context


@asynccontextmanager
async def producer(settings: KafkaSettings) -> AsyncIterator[AIOKafkaProducer]:
    """A producer: all in-sync replicas acknowledge, retries keep order."""
    client = AIOKafkaProducer(
        acks="all",
        enable_idempotence=True,
        linger_ms=5,
        max_batch_size=131_072,
        max_request_size=MAX_REQUEST_BYTES,
        **_kwargs(settings),
    )
    async with _started(client):
        yield client


def group_consumer(settings: KafkaSettings, group: str) -> AIOKafkaConsumer:
    """A member of a group, not started, subscribed to nothing; it commits only when told to."""
    return AIOKafkaConsumer(
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="latest",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=3_000,
        **_kwargs(settings),
    )


@asynccontextmanager
async def reader(
    settings: KafkaSettings, *topics: str, begin: Literal["earliest", "latest"] = "earliest"
) -> AsyncIterator[AIOKafkaConsumer]:
    """A reader of topics from their beginning or from now on, in no group."""
    client = AIOKafkaConsumer(
        *topics, group_id=None, enable_auto_commit=False, auto_offset_reset=begin, **_kwargs(settings)
    )
    async with _started(client):
        yield client


@asynccontextmanager
async def marks(
    settings: KafkaSettings, group: str, partitions: Collection[TopicPartition]
) -> AsyncIterator[AIOKafkaConsumer]:
    """The committed offsets of a group that nobody is a member of: it only keeps where a reader is to begin."""
    client = AIOKafkaConsumer(group_id=group, enable_auto_commit=False, **_kwargs(settings))
    async with _started(client):
        client.assign(list(partitions))
        yield client


async def look_back(
    settings: KafkaSettings, ends: Mapping[TopicPartition, int], since_ms: int, most: int
) -> AsyncGenerator[tuple[TopicPartition, ConsumerRecord], None]:
    """Records of these partitions below `ends`, in order per partition, in no group.

    Args:
        since_ms: from this time on, where the broker finds one (Unix milliseconds).
        most: else so many records before the end.
    """
    client = AIOKafkaConsumer(
        group_id=None, enable_auto_commit=False, auto_offset_reset="earliest", **_kwargs(settings)
    )
    async with _started(client):
        client.assign(list(ends))
        begins = await client.beginning_offsets(list(ends))
        times = await client.offsets_for_times(dict.fromkeys(ends, max(0, since_ms)))
        left = dict(ends)
        for partition, end in ends.items():
            found = times.get(partition)
            client.seek(partition, max(begins[partition], found.offset if found is not None else end - most))
        while left := await _unread(client, left):
            for partition, records in (await client.getmany(*left, timeout_ms=200)).items():
                for record in records:
                    if record.offset < left[partition]:
                        yield partition, record


async def _unread(client: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Those partitions of which records below these ends are still to be read; the others are no longer fetched."""
    left = {partition: end for partition, end in ends.items() if await client.position(partition) < end}
    client.pause(*(partition for partition in ends if partition not in left))
    return left


async def has_reached(consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]) -> bool:
    """Whether everything below these ends has been read."""
    for partition, end in ends.items():
        if await consumer.position(partition) < end:
            return False
    return True


@asynccontextmanager
async def _started(client: AIOKafkaConsumer | AIOKafkaProducer) -> AsyncIterator[None]:
    """Stop it also where it cannot start: the driver's own context leaves it open then, and complains of it later."""
    try:
        await client.start()
        yield
    finally:
        await client.stop()
