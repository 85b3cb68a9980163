"""Records of a partition in whole batches: their order and their number."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.codec import lz4_decode, lz4_encode, zstd_encode
from aiokafka.errors import KafkaTimeoutError
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from runtime.kafkaclients import LZ4_LEVEL, ZSTD_LEVEL, compress_quickly
from schemas.topics import Headers
from streams.decider.owned import BATCH_BYTES, BatchWriter, all_written, new_batch

HEADER_BYTES = 61
"""Of a batch, before its records."""
SIZES = st.lists(st.sampled_from([0, 1, 100, 20_000, BATCH_BYTES - 50, BATCH_BYTES + 1, 512 * 1024]), max_size=8)


class Broker:
    """A partition that keeps what it is sent; its driver has no room at the first calls."""

    def __init__(self, times_full: int = 0) -> None:
        self.values: list[bytes] = []
        self.batches = 0
        self.times_full = times_full

    async def send_batch(self, batch: Any, topic: str, *, partition: int) -> "asyncio.Future[Any]":
        if self.times_full:
            self.times_full -= 1
            raise KafkaTimeoutError
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result(SimpleNamespace(offset=len(self.values)))
        self.batches += 1
        records = MemoryRecords(bytes(batch._build()))
        while (found := records.next_batch()) is not None:
            self.values += [record.value for record in found]
        return future


async def write_all(writer: BatchWriter, records: Iterable[tuple[bytes, bytes | None, Headers]]) -> None:
    for value, key, headers in records:
        await writer.add(value, key, headers)
    await writer.flush()
    await all_written([writer])


@given(SIZES)
async def test_records_of_any_size_arrive_in_order(sizes: list[int]) -> None:
    broker, values = Broker(), [b"%d" % number + b"x" * size for number, size in enumerate(sizes)]
    writer = BatchWriter(broker, "topic", 3)
    await write_all(writer, ((value, b"key", [("h", b"v")]) for value in values))
    assert broker.values == values
    assert writer.queued == len(values)


async def test_small_records_share_a_batch() -> None:
    broker = Broker()
    await write_all(BatchWriter(broker, "topic", 0), ((b"x" * 100, None, ()) for _ in range(500)))
    assert (broker.batches, len(broker.values)) == (1, 500)


async def test_batches_are_compressed_at_the_quick_level() -> None:
    compress_quickly()
    batch: Any = new_batch()
    for number in range(1_000):
        assert batch.append(timestamp=None, key=None, value=b'{"id":"%d","seq":%d}' % (number, number**3))
    batch.close()
    compressed = bytes(batch._build())[HEADER_BYTES:]
    plain = lz4_decode(compressed)
    assert compressed == lz4_encode(plain, level=LZ4_LEVEL) != lz4_encode(plain, level=9)
    assert zstd_encode(plain) == zstd_encode(plain, level=ZSTD_LEVEL) != zstd_encode(plain, level=9)


async def test_a_batch_waits_for_room_and_is_sent_once() -> None:
    broker = Broker(times_full=3)
    await write_all(BatchWriter(broker, "topic", 0), [(b"one", None, ())])
    assert broker.values == [b"one"]


async def test_an_error_of_the_broker_is_raised() -> None:
    class Failing(Broker):
        async def send_batch(self, batch: Any, topic: str, *, partition: int) -> "asyncio.Future[Any]":
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.set_exception(RuntimeError("refused"))
            return future

    with pytest.raises(RuntimeError, match="refused"):
        await write_all(BatchWriter(Failing(), "topic", 0), [(b"one", None, ())])
