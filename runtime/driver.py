"""The driver (aiokafka 0.14) mended: clients that leave connections open, wait without end, ask often, lose a
cancellation or read one partition to its end before the next, batches that unpack to any size, and header names that
are not UTF-8, at the first of which a consumer would stop.

Kafka's protocol says that a header's name is a text, but brokers take any bytes, and Java's consumer reads them with
replacement characters. So do consumers here, after `read_any_header_names`.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka import client as client_module
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.consumer import consumer as consumer_module
from aiokafka.consumer import fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import KafkaTimeoutError, NoError, UnknownMemberIdError
from aiokafka.protocol.group import HeartbeatRequest
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy

from runtime import ending
from runtime.batches import FetchedRecords, PassedOver
from runtime.errors import NextStepError

log = logging.getLogger(__name__)


# --- header names that are not UTF-8 ----------------------------------------------------------------------------------


def read_any_header_names() -> None:
    """Let every consumer of this process read header names that are not UTF-8; U+FFFD replaces the invalid bytes."""
    fetcher.MemoryRecords = FetchedRecords
    fetcher.PartitionRecords = ReadablePartition


class ReadablePartition(fetcher.PartitionRecords):  # type: ignore[misc]
    """Records of a partition; from the first name that is not UTF-8 on, slower code reads them, which replaces it."""

    _records: FetchedRecords

    def __init__(self, tp: TopicPartition, records: FetchedRecords, *more: Any) -> None:
        """Read as the driver does; what its consumer has as deserializer of values is a `BatchGate`, or None."""
        aborted, offset, of_keys, self._gate, *checks = more
        super().__init__(tp, records, aborted, offset, of_keys, None, *checks)
        self._guard()

    def __next__(self) -> Any:
        try:
            record = super().__next__()
        except UnicodeDecodeError:
            slower = _ReplacingRecords(self._records.data, self.next_fetch_offset)
            self._records = FetchedRecords(self._records.data, slower, slower.skipped, _ReplacingBatch)
            self._guard()
            self._records_iterator = self._unpack_records()
            record = super().__next__()
        if isinstance(record.value, PassedOver) and self._gate is None:  # else its owner reports it
            log.warning(
                "records were passed over",
                extra={"partition": f"{record.topic}-{record.partition}", "error": record.value.refusal.text},
            )
        return record

    def _guard(self) -> None:
        if self._gate is not None:
            self._records.guard(self._tp, self._gate)


class _ReplacingRecords(_MemoryRecordsPy):  # type: ignore[misc]
    """The batches from the one on that has an offset; `skipped`: how many are before it."""

    def __init__(self, data: bytes, offset: int) -> None:
        super().__init__(data)
        self.skipped = 0
        while (piece := self._next_slice) is not None and not (_has_headers(piece) and _next_offset(piece) > offset):
            self._cache_next()
            self.skipped += 1

    def next_batch(self) -> Any:
        piece = self._next_slice
        if piece is None or not _has_headers(piece):
            return super().next_batch()
        self._cache_next()
        return _ReplacingBatch(piece)


def _has_headers(batch: memoryview) -> bool:
    return bool(batch[_MemoryRecordsPy.MAGIC_OFFSET] >= 2)


def _next_offset(batch: memoryview) -> int:
    return int(_ReplacingBatch(batch).next_offset)


class _ReplacingBatch(_DefaultRecordBatchPy):  # type: ignore[misc]
    _buffer: bytearray

    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        self._buffer = _ReplacingBytes(self._buffer)


class _ReplacingBytes(bytearray):
    """Bytes whose slices decode with replacement characters."""

    def __getitem__(self, key: Any) -> Any:
        text = super().__getitem__(key)
        return _ReplacingBytes(text) if isinstance(key, slice) else text

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return super().decode(encoding, "replace")


# --- questions, connections, start and end of a client ----------------------------------------------------------------

STOP_WITHIN_S = 5.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
"""Between two questions for the metadata of topics that a client is denied, or that do not exist, or to brokers that do
not answer: the first pause, and what it grows to.
"""

_ask_for_metadata = AIOKafkaClient._metadata_update


def ask_with_pauses() -> None:
    """Let every client of this process pause between questions that are in vain.

    A consumer of the driver (aiokafka 0.14) that has no leader of a partition asks again at once, hundreds of times a
    second, and logs each answer.
    """
    AIOKafkaClient._metadata_update = _ask_with_pauses


async def _ask_with_pauses(client: Any, metadata: ClusterMetadata, topics: Collection[str]) -> bool:
    in_vain: int = vars(client).get("asked_in_vain", 0)
    if in_vain:
        await asyncio.sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(in_vain - 1, 10)))
    is_answered: bool = await _ask_for_metadata(client, metadata, topics)
    is_complete = is_answered and all(metadata.partitions_for_topic(topic) for topic in topics or ())
    client.asked_in_vain = 0 if is_complete else in_vain + 1
    return is_answered


_connect = client_module.create_conn


def close_first_connections() -> None:
    """Let every client of this process that is cancelled while it starts close the connection of its first question.

    The driver (aiokafka 0.14) keeps that connection in a local variable, and closes it only after an answer or error.
    """
    client_module.create_conn = _create_conn


async def _create_conn(*place: Any, **settings: Any) -> Any:
    connection = await _connect(*place, **settings)
    if "on_close" not in settings:  # all further ones are closed with their client
        connection.send = partial(_send_or_close, connection, connection.send)
    return connection


async def _send_or_close(connection: Any, send: Callable[..., Awaitable[Any]], *request: Any, **options: Any) -> Any:
    try:
        return await send(*request, **options)
    except asyncio.CancelledError:
        connection.close()
        raise


async def start_driver(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Start a client, in a task of its own: the driver may lose a cancellation (`EndingConsumer` says how)."""
    starting = asyncio.create_task(client.start())
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        raise


async def stop_soon(client: AIOKafkaConsumer | AIOKafkaProducer) -> bool:
    """Stop a client within STOP_WITHIN_S, or what the end of the process leaves of it; whether it ended in order.

    The driver's own stop waits for a topic that takes no records, however long, and for a broker that does not answer.
    """
    try:
        async with asyncio.timeout(ending.left_s(STOP_WITHIN_S)):
            await client.stop()
    except TimeoutError:
        await _abandon(client)
        if isinstance(client, AIOKafkaProducer):
            log.warning("records were given up at the end of a producer, as the brokers did not take them")
        else:
            log.warning("a consumer ended without leaving its group, as the brokers did not answer")
        return False
    return True


async def _abandon(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """End the tasks of a client and close its connections, without a request to a broker."""
    driver = driver_of(client)
    is_producer = isinstance(client, AIOKafkaProducer)
    inner = (client._sender, client._message_accumulator) if is_producer else (client._coordinator, client._fetcher)
    tasks = [task for task in asyncio.all_tasks() if _works_for(task) in (driver, *inner)]
    for task in tasks:
        task.cancel()
    for connection in list(driver._conns.values()):
        if connection._writer is not None:
            connection._writer.transport.abort()  # closing would wait for a peer that reads nothing
    await driver.close()
    await asyncio.gather(*tasks, return_exceptions=True)
    if is_producer:
        client._message_accumulator.fail_all(KafkaTimeoutError("the producer has ended"))


def _works_for(task: "asyncio.Task[Any]") -> object:
    """The object of the driver whose method a task runs; the driver keeps some of its tasks in local variables only."""
    frame = getattr(task.get_coro(), "cr_frame", None)
    return frame.f_locals.get("self", task) if frame is not None else task


def driver_of(client: AIOKafkaConsumer | AIOKafkaProducer) -> Any:
    """Return what of a client holds its connections."""
    return client.client if isinstance(client, AIOKafkaProducer) else client._client


class EndingConsumer(AIOKafkaConsumer):  # type: ignore[misc]  # the driver has no types
    """A consumer whose reader ends when it is cancelled: in Python 3.11 `asyncio.wait_for`, by which the driver waits
    for brokers, loses a cancellation that comes together with the answer, and a loop over `getmany` would go on for
    ever.
    """

    async def getmany(self, *partitions: Any, **options: Any) -> Any:
        """Do what the driver's does. Raises CancelledError: this task was cancelled before."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return await super().getmany(*partitions, **options)

    def ends_seen(self) -> dict[TopicPartition, int]:
        """The end of each assigned partition, as far as answers of the brokers have shown it."""
        ends = {tp: self.highwater(tp) for tp in self.assignment()}
        return {tp: end for tp, end in ends.items() if end is not None}


# --- two of one name --------------------------------------------------------------------------------------------------


class NameTakenError(NextStepError):
    """Another process has joined a group under the name of this one, while this one was a member."""


def end_where_name_is_taken() -> None:
    """Let every static member of a group in this process end with NameTakenError where another one took its name."""
    consumer_module.GroupCoordinator = NamedMember


class NamedMember(GroupCoordinator):  # type: ignore[misc]
    """A member that knows when another one has its name: brokers then no longer know its id, although they confirmed it
    less than a session ago. The driver (aiokafka 0.14) would join anew, and so both in turns, for ever.
    """

    _confirmed_s = float("-inf")

    async def _send_req(self, request: Any) -> Any:
        answer = await super()._send_req(request)
        if self._group_instance_id is None or not isinstance(request, HeartbeatRequest):
            return answer
        now_s = time.monotonic()
        is_unknown = answer.error_code == UnknownMemberIdError.errno
        if is_unknown and now_s - self._confirmed_s < self._session_timeout_ms / 1000:
            raise NameTakenError(
                f"another process of the name {self._group_instance_id!r} has taken this one's place in the group "
                f"{self.group_id}: two hubs on one Kafka, or an old process on a host that was given up. "
                "This one ends",
                next_step="find the other one and stop it",
            )
        # While a group rebalances, whoever joins too late is unknown afterwards, too.
        self._confirmed_s = now_s if answer.error_code == NoError.errno else float("-inf")
        return answer


# --- turns of partitions ----------------------------------------------------------------------------------------------


def read_partitions_in_turn() -> None:
    """Let every consumer of this process read its partitions in turn."""
    consumer_module.Fetcher = FairFetcher


class FairFetcher(fetcher.Fetcher):  # type: ignore[misc]
    """Gives the records of partitions in turn; the driver reads the first one to its end before it reads the next."""

    async def fetched_records(self, *arguments: Any, **options: Any) -> Any:
        """Do what the driver's does; whose records were read now is behind the others the next time."""
        records = await super().fetched_records(*arguments, **options)
        for tp in records:
            if (left := self._records.pop(tp, None)) is not None:
                self._records[tp] = left
        return records
