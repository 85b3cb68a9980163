"""aiokafka clients as this project uses them: strict producers, readers in no group, one SSL context."""

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Literal, NamedTuple, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition, codec
from aiokafka.conn import collect_hosts
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, UnknownTopicOrPartitionError

from runtime.driver import (
    EndingConsumer,
    ask_with_pauses,
    close_first_connections,
    driver_of,
    end_where_name_is_taken,
    read_any_header_names,
    read_partitions_in_turn,
    start_driver,
    stop_soon,
)
from runtime.ending import first_of
from runtime.tls import EncryptedKeyError, client_context, identify, is_pem_text
from runtime.tokens import token_provider
from schemas import connection
from schemas.connection import KafkaSettings

log = logging.getLogger(__name__)
T = TypeVar("T")
C = TypeVar("C", AIOKafkaConsumer, AIOKafkaProducer)

MAX_REQUEST_BYTES = 1_048_576
"""Largest record batch a producer of ours sends; topics allow the same."""
KNOWN_WITHIN_S = 60.0
KNOWN_PAUSE_S = 0.2
"""How long a client waits for a broker to be named, and between two questions."""
UNHURRIED_MS = 500
LZ4_LEVEL, ZSTD_LEVEL = 1, 1
"""Of compressed batches. The driver's own level of lz4, 9, takes six to twelve times as long for a sixth less of bytes;
zstd, which takes three to eight times as long as lz4 for a third less, is for what is written once and kept long.
"""
FETCH_MAX_WAIT_MS = 100
FETCH_MIN_BYTES = 524_288
"""A broker keeps a fetch for so long, unless it has so many bytes before. With less it would answer for each record: a
fetch and its answer cost both ends more than a record does.
"""
FETCHED_BYTES = 4 * 2**20
"""What a consumer fetches at once; the driver's 50 MB of what was written faster than it is read stay in the memory of
the process.
"""
LOOKED_UP_MS = 10_000
"""How soon a reader of whole topics sees that one of them has gone, or is there again."""
ANSWERED_MS = 10_000
AWAY_PAUSE_S, LOGGED_EVERY_S = 1.0, 30.0
"""While no broker accepts a connection at the start: between two attempts, and between two lines of the log."""


def ssl_context(settings: KafkaSettings) -> ssl.SSLContext | None:
    """The SSL context that the settings ask for; None without TLS.

    Raises connection.SettingsError: a certificate or key cannot be read, or the key is encrypted with another password.
    """
    if not settings.uses_tls:
        return None
    try:
        context = client_context(settings.cafile)
    except (OSError, ValueError) as error:
        raise _unusable("ssl.truststore.location", settings.cafile, error) from error
    context.check_hostname = settings.checks_hostname
    try:
        if settings.certfile:
            identify(context, settings.certfile, settings.keyfile, settings.key_password)
    except EncryptedKeyError as error:
        raise connection.SettingsError(f"{error}: set ssl.key.password (key_password)") from error
    except (OSError, ValueError) as error:
        raise _unusable("ssl.keystore.location", settings.certfile, error) from error
    return context


def _unusable(key: str, value: str, error: Exception) -> connection.SettingsError:
    """An error that names a certificate's file, and never a key's, as that may be the key itself."""
    where = "its PEM text" if is_pem_text(value) else f"file {value}"
    why = (error.strerror if isinstance(error, OSError) else "") or type(error).__name__
    beside = ", with its key (ssl.keystore.key)" if key.startswith("ssl.keystore") else ""
    return connection.SettingsError(
        f"cannot load the certificates of {key}, {where}{beside}: {why}; {connection.PEM_HINT}"
    )


def aiokafka_kwargs(settings: KafkaSettings) -> dict[str, Any]:
    """Keyword arguments of every aiokafka client, the SSL context and what gives tokens included; consumers read any
    header names.

    Raises connection.SettingsError: a certificate or key file cannot be read, or as `tokens.token_provider`.
    """
    read_any_header_names()
    ask_with_pauses()
    close_first_connections()
    read_partitions_in_turn()
    end_where_name_is_taken()
    kwargs = connection.aiokafka_kwargs(settings)
    if (context := ssl_context(settings)) is not None:
        kwargs["ssl_context"] = context
    if settings.uses_tokens:
        kwargs["sasl_oauth_token_provider"] = token_provider(settings)
    return kwargs


def compress_quickly() -> None:
    """Let every producer of this process compress with these levels: the driver has no setting for them."""
    codec.lz4_encode.__defaults__, codec.zstd_encode.__defaults__ = (LZ4_LEVEL,), (ZSTD_LEVEL,)


def strict_producer(settings: KafkaSettings, **overrides: Any) -> AIOKafkaProducer:
    """A producer that is not yet started: acks from all in-sync replicas, idempotent, so retries keep order.

    Callers of it name the partition of every record themselves (`schemas.keys.partition_for`).
    """
    kwargs: dict[str, Any] = {
        "acks": "all",
        "enable_idempotence": True,
        "compression_type": "lz4",
        "linger_ms": 5,
        "max_batch_size": 131_072,
        "max_request_size": MAX_REQUEST_BYTES,
    }
    compress_quickly()
    return AIOKafkaProducer(**(kwargs | aiokafka_kwargs(settings) | overrides))


async def start(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Start a client, and wait until it knows a broker.

    A broker that has just begun answers without naming any, itself included. The driver takes that for a start, and a
    member of a group then ends by an AssertionError.

    Raises KafkaConnectionError: no broker was named for KNOWN_WITHIN_S.
    """
    driver = driver_of(client)
    await start_driver(client)
    until_s = time.monotonic() + KNOWN_WITHIN_S
    while not driver.cluster.brokers():
        if time.monotonic() >= until_s:
            raise KafkaConnectionError(f"the brokers at {driver.hosts} name no broker of the Kafka cluster")
        await asyncio.sleep(KNOWN_PAUSE_S)
        await driver.force_metadata_update()


async def await_brokers(settings: KafkaSettings, stop: asyncio.Event) -> None:
    """Wait until one of the brokers accepts a connection, or `stop` is set.

    For long-running processes at their start: ending would only add the pause of a supervisor, minutes in Kubernetes,
    to the absence of the brokers. A broker that is there and refuses a password or a certificate is no reason to wait.
    """
    last_logged_s = float("-inf")
    while not stop.is_set() and (error := await _unreachable(settings)) is not None:
        if time.monotonic() - last_logged_s >= LOGGED_EVERY_S:
            last_logged_s = time.monotonic()
            log.warning(
                "no broker accepts a connection, waiting. Next: check that Kafka runs, and the addresses",
                extra={"brokers": settings.bootstrap_servers, "error": str(error)},
            )
        await first_of(stop.wait(), asyncio.sleep(AWAY_PAUSE_S))


async def _unreachable(settings: KafkaSettings) -> OSError | None:
    """Why none of the brokers accepts a connection; None: one does."""
    last_error: OSError | None = None
    for host, port, _ in collect_hosts(settings.bootstrap_servers):
        try:
            async with asyncio.timeout(ANSWERED_MS / 1000):
                _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return None
        except OSError as error:  # TimeoutError is one of them
            last_error = error
    return last_error


@asynccontextmanager
async def started_patiently(make: Callable[[], AIOKafkaConsumer]) -> AsyncIterator[AIOKafkaConsumer]:
    """Make a consumer and start it, again and again while brokers that were reached before do not answer.

    Raises UnknownTopicOrPartitionError: a broker answers, and a topic of the consumer does not exist.
    """
    consumer = await _start_patiently(make)
    try:
        yield consumer
    finally:
        await stop_soon(consumer)


async def _start_patiently(make: Callable[[], AIOKafkaConsumer]) -> AIOKafkaConsumer:
    while True:
        consumer = make()
        try:
            await start(consumer)
        except (KafkaConnectionError, UnknownTopicOrPartitionError) as error:
            await stop_soon(consumer)
            if isinstance(error, UnknownTopicOrPartitionError) and _was_answered(consumer):
                raise
            _log_waiting("a connection", error)
            await asyncio.sleep(KNOWN_PAUSE_S)
        except BaseException:  # raised again; a cancellation leaves no connection behind, either
            await stop_soon(consumer)
            raise
        else:
            return consumer


async def patiently(ask: Callable[[], Awaitable[T]], what: str) -> T:
    """Ask the brokers until they answer, however long they are busy or stand still.

    For long-running processes, which would only repeat the question after a restart. Offsets may be asked for in this
    way, and records queued: the driver's `send` raises KafkaTimeoutError only for a record that is not in its queue, so
    that trying again can neither lose the record nor write it twice.

    Args:
        what: is waited for, for the log.
    """
    while True:
        try:
            return await ask()
        except KafkaTimeoutError as error:
            _log_waiting(what, error)


async def queue(producer: AIOKafkaProducer, topic: str, value: bytes, **further: Any) -> "asyncio.Future[Any]":
    """Queue a record as `AIOKafkaProducer.send` does, and wait while the driver's queue has no room for it."""
    queued: asyncio.Future[Any]
    queued = await patiently(lambda: producer.send(topic, value=value, **further), f"room for a record of {topic}")
    return queued


def _log_waiting(what: str, error: Exception) -> None:
    log.warning("the brokers are too slow, waiting", extra={"for": what, "error": repr(error)})


async def know_topics(producer: AIOKafkaProducer, *topics: str) -> None:
    """Wait until a producer knows the partitions of topics, however long the brokers are busy or stand still.

    The driver takes a broker that does not answer for one that has no such topic.

    Raises UnknownTopicOrPartitionError: a broker answers, and the topic does not exist.
    """
    for topic in topics:
        while True:
            try:
                await producer.partitions_for(topic)
                break
            except UnknownTopicOrPartitionError as error:
                if _was_answered(producer):
                    raise
                _log_waiting(f"the partitions of {topic}", error)


async def check_topic(consumer: AIOKafkaConsumer, topic: str) -> None:
    """Check that a consumer may read a topic, and that it exists.

    Raises TopicAuthorizationFailedError: Kafka denies it. Raises UnknownTopicOrPartitionError: there is no such topic.
    """
    await driver_of(consumer)._wait_on_metadata(topic)


def _was_answered(client: AIOKafkaConsumer | AIOKafkaProducer) -> bool:
    """Whether a broker named topics lately; the driver asks several times a second while one is missing."""
    newest_ms: float = driver_of(client).cluster._last_successful_refresh_ms
    return time.time() * 1000 - newest_ms < ANSWERED_MS


@asynccontextmanager
async def started(client: C) -> AsyncIterator[C]:
    """Start a client, and stop it also where it cannot start: the driver's own context would leave it open.

    It ends within `runtime.driver.STOP_WITHIN_S`, also where brokers do not answer or do not take what it was sent.
    """
    try:
        await start(client)
        yield client
    finally:
        await stop_soon(client)


@asynccontextmanager
async def running_producer(settings: KafkaSettings, **overrides: Any) -> AsyncIterator[AIOKafkaProducer]:
    """A started `strict_producer`."""
    async with started(strict_producer(settings, **overrides)) as producer:
        yield producer


def new_consumer(settings: KafkaSettings, *topics: str, **own: Any) -> AIOKafkaConsumer:
    """A consumer that is not started yet and commits nothing by itself; in no group without a `group_id`."""
    kwargs: dict[str, Any] = {"group_id": None, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    kwargs["fetch_max_bytes"] = FETCHED_BYTES
    kwargs["client_rack"] = settings.client_rack or None
    return EndingConsumer(*topics, **(kwargs | aiokafka_kwargs(settings) | own))


@asynccontextmanager
async def reader(
    settings: KafkaSettings, partitions: Iterable[TopicPartition] = (), **own: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    """A started consumer of partitions that are named: it commits nothing and joins no group.

    Without `partitions` the caller assigns them, once: a change of topics makes the driver ask for metadata again, and
    one that meets an answer under way waits for the next, minutes later. With a `group_id` it may ask for the offsets
    of a group, or move them; it never joins the group.
    """
    # A fetch at one partition's end holds up those of other partitions at the same broker.
    consumer = new_consumer(settings, **({"fetch_max_wait_ms": FETCH_MAX_WAIT_MS} | own))
    async with started(consumer):
        if wanted := list(partitions):
            consumer.assign(wanted)
        yield consumer


@asynccontextmanager
async def topic_reader(
    settings: KafkaSettings,
    *topics: str,
    begin: Literal["earliest", "latest"] = "earliest",
    patient: bool = False,
    unhurried: bool = False,
) -> AsyncIterator[AIOKafkaConsumer]:
    """A started consumer of whole topics, from their beginning or from now on, in no group.

    Args:
        patient: wait for brokers that do not answer, for processes that have reached them before.
        unhurried: whether a record may come half a second late.
    """

    def make() -> AIOKafkaConsumer:
        return new_consumer(
            settings,
            *topics,
            auto_offset_reset=begin,
            fetch_max_wait_ms=UNHURRIED_MS,
            fetch_min_bytes=FETCH_MIN_BYTES if unhurried else 1,
            metadata_max_age_ms=LOOKED_UP_MS,
        )

    async with started_patiently(make) if patient else started(make()) as consumer:
        yield consumer


async def partition_counts(consumer: AIOKafkaConsumer) -> dict[str, int]:
    """How many partitions each topic of these brokers has; others do not exist, or this user may not see them."""
    # Private, but the only request that lists topics without creating them; the driver's version is pinned.
    cluster = await driver_of(consumer).fetch_all_metadata()
    return {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in cluster.topics()}


async def read_range(
    consumer: AIOKafkaConsumer, partition: TopicPartition, first: int, end: int
) -> AsyncGenerator[ConsumerRecord, None]:
    """Records of an assigned partition from offset `first` up to, not including, `end` (its end offset, read before).

    Raises LookupError: the partition no longer holds `first`.
    """
    async with aclosing(read_batches(consumer, partition, first, end)) as batches:
        async for batch in batches:
            for record in batch:
                yield record


async def read_batches(
    consumer: AIOKafkaConsumer, partition: TopicPartition, first: int, end: int, most: int | None = None
) -> AsyncGenerator[list[ConsumerRecord], None]:
    """The records of `read_range` as they come from the broker, many at a time; raises as it does.

    The partition is fetched for as long as it is read, and paused afterwards. `most`: records that are decoded at a
    time, for readers that may end after a few; None: all that came.
    """
    if first >= end:
        return
    consumer.seek(partition, first)
    consumer.resume(partition)
    try:
        position = first
        while position < end:
            batch = (await consumer.getmany(partition, timeout_ms=1_000, max_records=most)).get(partition, [])
            if batch and batch[-1].offset >= end:
                batch = [record for record in batch if record.offset < end]
                position = end
            if batch:
                yield batch
            position = max(position, await consumer.position(partition))
    finally:
        consumer.pause(partition)


async def read_backwards(
    consumer: AIOKafkaConsumer, partition: TopicPartition, first: int, end: int, size: int
) -> AsyncGenerator[tuple[int, list[ConsumerRecord]], None]:
    """The records of [first, end) of an assigned partition, the newest first: those of `size` offsets, then of twice as
    many, and so on. Gives the first of these offsets, and the records in order.
    """
    while end > first:
        begin = max(first, end - size)
        async with aclosing(read_range(consumer, partition, begin, end)) as records:
            yield begin, [record async for record in records]
        end, size = begin, size * 2


async def seek_back(consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int], since_ms: int, most: int) -> None:
    """Let a consumer read assigned partitions that end here from a time on, or `most` records before the ends, as
    `read_back` does.
    """
    begins = await consumer.beginning_offsets(list(ends))
    times = await consumer.offsets_for_times(dict.fromkeys(ends, max(0, since_ms)))
    for partition, end in ends.items():
        at_time = times.get(partition)
        consumer.seek(partition, max(begins[partition], at_time.offset if at_time is not None else end - most))


async def read_back(
    settings: KafkaSettings, ends: Mapping[TopicPartition, int], since_ms: int, most: int
) -> AsyncGenerator[tuple[TopicPartition, ConsumerRecord], None]:
    """Records of these partitions below `ends`, in order per partition, in no group.

    Args:
        since_ms: from this time on, where the broker finds one (Unix milliseconds).
        most: else this many records before the end.
    """
    async with reader(settings, ends) as consumer:
        await seek_back(consumer, ends, since_ms, most)
        async with aclosing(read_to(consumer, ends)) as records:
            async for record in records:
                partition = TopicPartition(record.topic, record.partition)
                if record.offset < ends[partition]:
                    yield partition, record


async def read_to(
    consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]
) -> AsyncGenerator[ConsumerRecord, None]:
    """Records of assigned partitions, from where they are read on, until all below these ends has been given.

    Newer records may be among them. A partition that has been read is not fetched until all have been: its fetches
    would hold up those of the others.
    """
    left = dict(ends)
    while left := {partition: end for partition, end in left.items() if await consumer.position(partition) < end}:
        consumer.pause(*(ends.keys() - left.keys()))
        for records in (await consumer.getmany(*left, timeout_ms=200)).values():
            for record in records:
                yield record
    consumer.resume(*ends)


class OffsetBounds(NamedTuple):
    """First offset that a partition still holds, and the one after its last."""

    first: int
    end: int


async def bounds_of(
    consumer: AIOKafkaConsumer, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, OffsetBounds]:
    """Where these partitions begin and end; waits for slow brokers."""
    parts = list(partitions)
    firsts = await patiently(lambda: consumer.beginning_offsets(parts), "the first offsets of partitions")
    ends = await patiently(lambda: consumer.end_offsets(parts), "the ends of partitions")
    return {part: OffsetBounds(firsts[part], ends[part]) for part in parts}


async def ends_of(
    consumer: AIOKafkaConsumer, partitions: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, int]:
    """Where these partitions end (None: those that are assigned); waits for slow brokers."""
    parts = list(consumer.assignment() if partitions is None else partitions)
    ends: dict[TopicPartition, int]
    ends = await patiently(lambda: consumer.end_offsets(parts), "the ends of partitions")
    return ends


async def has_reached(consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]) -> bool:
    """Whether everything below these ends has been read."""
    for partition, end in ends.items():
        if await consumer.position(partition) < end:
            return False
    return True
