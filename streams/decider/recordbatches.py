"""Records of one partition in whole batches of the driver: one wait per batch costs a fraction of one per record.

A batch is queued once the batch before it has left the driver's queue, so the records of a partition keep their order.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatch

from runtime.kafkaclients import patiently
from schemas.topics import Headers

BATCH_BYTES = 131_072
"""Size of a batch before compression; a larger record is a batch of its own."""


class OpenBatch(Protocol):
    """A batch that is being filled."""

    def append(
        self, *, timestamp: int | None, key: bytes | None, value: bytes | None, headers: Sequence[Any] = ()
    ) -> object | None:
        """Add a record; None if the batch has no room for it."""

    def close(self) -> None:
        """Take no further record, so that the driver need not wait for one."""


class BatchSender(Protocol):
    """The part of aiokafka's producer that is used: `send_batch` queues a batch, its future is the broker's."""

    async def send_batch(self, batch: Any, topic: str, *, partition: int) -> "asyncio.Future[Any]": ...


def new_batch() -> OpenBatch:
    """An empty batch, compressed with lz4 when it is sent."""
    batch: OpenBatch = BatchBuilder(BATCH_BYTES, DefaultRecordBatch.CODEC_LZ4, is_transactional=False)
    return batch


class BatchWriter:
    """Writes records to one partition, in order."""

    def __init__(self, producer: BatchSender, topic: str, partition: int) -> None:
        self._producer, self._topic, self._partition = producer, topic, partition
        self._batch = new_batch()
        self._held = 0
        self._sent: list[tuple[int, asyncio.Future[Any]]] = []
        self.queued = 0
        """Records that were handed to the driver."""

    async def add(self, value: bytes, key: bytes | None, headers: Headers = ()) -> None:
        """Add a record; queues the batch before it if that has no room left."""
        if self._append(value, key, headers):
            return
        await self.flush()
        if not self._append(value, key, headers):
            raise ValueError(f"a record of {len(value)} bytes fits into no batch of {self._topic}")

    def _append(self, value: bytes, key: bytes | None, headers: Headers) -> bool:
        is_in = self._batch.append(timestamp=None, key=key, value=value, headers=list(headers)) is not None
        self._held += is_in
        return is_in

    async def flush(self) -> None:
        """Queue what was added; waits while the driver's queue has no room."""
        if not self._held:
            return
        batch, held = self._batch, self._held
        self._batch, self._held = new_batch(), 0
        batch.close()
        future = await patiently(
            lambda: self._producer.send_batch(batch, self._topic, partition=self._partition),
            f"room for a batch of {self._topic}",
        )
        self._sent.append((held, future))
        self.queued += held

    async def written(self) -> int | None:
        """Wait until the brokers have all that was queued; give the offset of the last record, None without one.

        Raises:
            KafkaError: something was not written.
        """
        placed = await asyncio.gather(*(future for _, future in self._sent))
        return placed[-1].offset + self._sent[-1][0] - 1 if placed else None


async def write_all(writer: BatchWriter, records: Iterable[tuple[bytes, bytes | None, Headers]]) -> int | None:
    """Write records (value, key, headers) and wait for the brokers; give the offset of the last one."""
    for value, key, headers in records:
        await writer.add(value, key, headers)
    await writer.flush()
    return await writer.written()
