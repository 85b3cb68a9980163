"""aiokafka clients as this project uses them: strict producers, readers of a partition's tail, one SSL context."""

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

from schemas import connection
from schemas.connection import KafkaSettings

MAX_REQUEST_BYTES = 1_048_576
"""Largest record batch a producer of ours sends; topics allow the same."""


def ssl_context(settings: KafkaSettings) -> ssl.SSLContext | None:
    """The SSL context that the settings ask for; None without TLS.

    Raises:
        connection.SettingsError: a certificate or key file cannot be read.
    """
    if not settings.uses_tls:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.cafile or None)
        if settings.certfile:
            context.load_cert_chain(settings.certfile, settings.keyfile or None)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (settings.cafile, settings.certfile, settings.keyfile)))
        raise connection.SettingsError(f"cannot load the certificates {files}: {error}") from error
    return context


def aiokafka_kwargs(settings: KafkaSettings) -> dict[str, Any]:
    """Keyword arguments of every aiokafka client, the SSL context included."""
    kwargs = connection.aiokafka_kwargs(settings)
    if (context := ssl_context(settings)) is not None:
        kwargs["ssl_context"] = context
    return kwargs


def strict_producer(settings: KafkaSettings, **overrides: Any) -> AIOKafkaProducer:
    """A producer that is not yet started: acks from all in-sync replicas, idempotent, so retries keep order.

    Callers of it name the partition of every record themselves (`schemas.keys.partition_for`).
    """
    kwargs: dict[str, Any] = {
        "acks": "all",
        "enable_idempotence": True,
        "linger_ms": 5,
        "max_batch_size": 131_072,
        "max_request_size": MAX_REQUEST_BYTES,
    }
    return AIOKafkaProducer(**(kwargs | aiokafka_kwargs(settings) | overrides))


@asynccontextmanager
async def reader(settings: KafkaSettings, partitions: Iterable[TopicPartition] = ()) -> AsyncIterator[AIOKafkaConsumer]:
    """A started consumer in no group: it commits nothing and disturbs nobody.

    Without `partitions` the caller assigns them, once: a change of topics makes the driver ask for metadata again, and
    one that meets an answer under way waits for the next, minutes later.
    """
    consumer = AIOKafkaConsumer(
        **aiokafka_kwargs(settings),
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        # A fetch at one partition's end holds up those of other partitions at the same broker.
        fetch_max_wait_ms=100,
    )
    try:
        await consumer.start()
        if wanted := list(partitions):
            consumer.assign(wanted)
        yield consumer
    finally:
        await consumer.stop()


async def read_range(
    consumer: AIOKafkaConsumer, partition: TopicPartition, first: int, end: int
) -> AsyncGenerator[ConsumerRecord, None]:
    """Records of an assigned partition from offset `first` up to, not including, `end` (its end offset, read before).

    Raises:
        LookupError: the partition no longer holds `first`.
    """
    if first >= end:
        return
    consumer.seek(partition, first)
    position = first
    while position < end:
        batches = await consumer.getmany(partition, timeout_ms=1_000)
        for record in batches.get(partition, ()):
            if record.offset >= end:
                return
            yield record
        position = await consumer.position(partition)
