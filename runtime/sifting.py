"""Reading those records of a partition that hold something, at a tenth of the price of reading them all.

The driver makes an object of each record. Here the unpacked bytes of a batch are looked at first, and records are made
only of batches that may hold what is looked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CorruptRecordException, KafkaError, LeaderNotAvailableError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords, _MemoryRecordsPy

from runtime.driver import driver_of
from runtime.kafkaclients import FETCH_MAX_WAIT_MS, read_batches
from schemas.topics import Sieve

READ_UNCOMMITTED: Final = 0


async def read_sifted(
    consumer: AIOKafkaConsumer,
    partition: TopicPartition,
    first: int,
    end: int,
    sieve: Sieve,
    *,
    in_turn: asyncio.Lock,
    fetch_bytes: int,
) -> AsyncGenerator[list[Any], None]:
    """Give the records of [first, end) of an assigned partition that pass, and of each fetch the last one.

    Where the leader does not answer as expected, the rest is read in the usual way, which waits, asks for the new
    leader, or raises as `kafkaclients.read_batches` does.

    Args:
        in_turn: of the consumer. A partition may be read from several offsets at once, in the usual way from one.
        fetch_bytes: what is asked for at once, as it is compressed; a whole batch at least is.
    """
    position, before = first, -1
    while before < position < end:
        before = position
        try:
            data = await _fetched(consumer, partition, position, fetch_bytes)
            for found, after in _sifted(data, position, end, sieve):
                position = after
                if found:
                    yield found
        except (KafkaError, UnicodeDecodeError):
            break
    if position >= end:
        return
    async with in_turn, aclosing(read_batches(consumer, partition, position, end)) as batches:
        async for batch in batches:
            yield batch


async def _fetched(consumer: AIOKafkaConsumer, partition: TopicPartition, first: int, most_bytes: int) -> bytes:
    """The batches that the leader has from an offset on, the last one perhaps cut off."""
    client = driver_of(consumer)
    wanted = [(partition.topic, [(partition.partition, first, most_bytes)])]
    request = FetchRequest(FETCH_MAX_WAIT_MS, 1, most_bytes, READ_UNCOMMITTED, wanted, rack_id="")
    leader = client.cluster.leader_for_partition(partition)
    if leader is None or leader < 0:
        raise LeaderNotAvailableError
    response = await client.send(leader, request)
    for _, partitions in response.topics:
        for _, code, *_, data in partitions:
            if code:
                raise for_code(code)()
            return data or b""
    return b""


class _Batches(_MemoryRecordsPy):  # type: ignore[misc]
    """Whole batches among the bytes that were fetched."""

    def next_piece(self) -> memoryview | None:
        piece: memoryview | None = self._next_slice
        if piece is not None:
            self._cache_next()
        return piece


def _sifted(data: bytes, position: int, end: int, sieve: Sieve) -> Iterator[tuple[list[Any], int]]:
    """The records of each batch that are needed, and the offset after what was looked at.

    Raises CorruptRecordException: a batch is damaged, or of a format in which batches have no heads.
    """
    batches = _Batches(data)
    while (piece := batches.next_piece()) is not None and position < end:
        if piece[_MemoryRecordsPy.MAGIC_OFFSET] < 2:
            raise CorruptRecordException("a batch of an old format")
        batch = _DefaultRecordBatchPy(piece)
        if batch.next_offset <= position:
            continue
        is_last, found = not batches.has_next() or batch.next_offset >= end, list[Any]()
        if not batch.is_control_batch:
            batch._maybe_uncompress()
            is_hit = sieve.may_pass(batch._buffer, batch.next_offset)
            if is_hit or is_last:
                records = [each for each in _records(piece) if position <= each.offset < end]
                found = [each for each in records if sieve.passes(each.value or b"", each.offset)] if is_hit else []
                if is_last and records and found[-1:] != records[-1:]:
                    found.append(records[-1])
        position = batch.next_offset
        yield found, position


def _records(piece: memoryview) -> Any:
    batch = MemoryRecords(bytes(piece)).next_batch()
    if not batch.validate_crc():
        raise CorruptRecordException("a batch is damaged")
    return batch
