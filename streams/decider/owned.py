"""One log partition that this worker owns: its state machine, its positions on the topics, and its state rows.

Rows are written in the core's order into one changelog partition, the partition's own row last: without it the others
do not count. Records are written in whole batches of the driver, as one wait per batch costs a fraction of one per
record. A batch is queued once the batch before it has left the driver's queue, so the records of a partition keep their
order.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatch

from runtime.kafkaclients import patiently
from schemas.topics import Headers
from streams.decider.pace import EvaluationPace
from streams.decider.tail import Exit, RecordedTail, die
from streams.partition import Partition
from streams.state.ledger import DecisionRecord
from streams.state.partitionstate import Message

BATCH_BYTES = 131_072
"""Size of a batch before compression; a larger record is a batch of its own."""


class RecordTooLargeError(Exception):
    """A topic does not take a record, however often it is sent. The text names the record, its size and what helps."""


_Sized = tuple[int, bytes | None, Headers]
_NONE: _Sized = (0, None, ())


def new_batch() -> BatchBuilder:
    """An empty batch, compressed with lz4 when it is sent."""
    return BatchBuilder(BATCH_BYTES, DefaultRecordBatch.CODEC_LZ4, is_transactional=False)


class BatchWriter:
    """Writes records to one partition, in order."""

    def __init__(self, producer: AIOKafkaProducer, topic: str, partition: int) -> None:
        self._producer, self._topic, self._partition = producer, topic, partition
        self._batch = new_batch()
        self._held = 0
        self._largest = _NONE
        """Bytes, key and headers of the largest record of the open batch."""
        self._sent: list[tuple[_Sized, asyncio.Future[Any]]] = []
        self.queued = 0
        """Records that were handed to the driver."""

    async def add(self, value: bytes | None, key: bytes | None, headers: Headers = ()) -> None:
        """Add a record (value None: a tombstone); queues the batch before it if that has no room left."""
        size = len(value or b"")
        if not self._append(value, key, headers):
            await self.flush()
            if not self._append(value, key, headers):
                raise ValueError(f"a record of {size} bytes fits into no batch of {self._topic}")
        if size > self._largest[0]:
            self._largest = size, key, headers

    def _append(self, value: bytes | None, key: bytes | None, headers: Headers) -> bool:
        is_in = self._batch.append(timestamp=None, key=key, value=value, headers=list(headers)) is not None
        self._held += is_in
        return is_in

    async def flush(self) -> None:
        """Queue what was added; waits while the driver's queue has no room."""
        if not self._held:
            return
        batch, held, largest = self._batch, self._held, self._largest
        self._batch, self._held, self._largest = new_batch(), 0, _NONE
        batch.close()
        future = await patiently(
            lambda: self._producer.send_batch(batch, self._topic, partition=self._partition),
            f"room for a batch of {self._topic}",
        )
        self._sent.append((largest, future))
        self.queued += held


async def all_written(writers: Iterable[BatchWriter]) -> None:
    """Wait until the brokers have all that these writers have queued.

    Raises KafkaError: something was not written. Raises RecordTooLargeError: the topic takes no record of such a size.
    """
    sent = [(writer, *each) for writer in writers for each in writer._sent]
    try:
        await asyncio.gather(*(future for *_, future in sent))
    except MessageSizeTooLargeError as error:
        ended = ((writer, largest) for writer, largest, future in sent if future.done() and future.exception() is error)
        writer, (size, key, headers) = next(ended)
        raise RecordTooLargeError(
            f"{writer._topic} partition {writer._partition} does not take the record of {_name(key, headers)}: "
            f"{size:,} bytes. A restart does not help: raise max.message.bytes of {writer._topic}, see "
            "docs/operations.md"
        ) from error


def _name(key: bytes | None, headers: Headers) -> str:
    """Name a record: by the HPA that it is of, else by its key."""
    subject = next((value for name, value in headers if name == "ce_subject"), None)
    return (subject or key or b"no key").decode(errors="replace")


class OwnedPartition:
    """A partition between its recovery and its revocation; dropped as a whole, never passed on.

    Args:
        log_end: end offset of its log when it was assigned.
    """

    def __init__(self, partition: Partition, published: RecordedTail, log_end: int = 0) -> None:
        self.partition = partition
        self.published = published
        self._log_end = log_end
        self.log_time_ms = 0
        """Timestamp of the newest record that was applied here."""
        self.applied_at = time.monotonic()
        self.reread = 0
        """Records folded again, for which the topic had decisions beyond the recovered state."""
        self.suppressed = 0
        """Re-derived decisions that were published already."""
        self.pace = EvaluationPace(partition.every)
        self._messages: list[Message] = []
        self._reported = (0, 0)

    @property
    def number(self) -> int:
        return self.partition.number

    @property
    def has_caught_up(self) -> bool:
        """Whether it has applied all that the log held when it was assigned."""
        return self.partition.applied_offset + 1 >= self._log_end

    @property
    def behind_clamp_ms(self) -> int:
        """How far the newest record is behind log time, which stands still for so long; below 0: ahead of it."""
        return self.partition.clock_ms - self.log_time_ms if self.log_time_ms else 0

    async def fold(self, record: ConsumerRecord) -> list[DecisionRecord]:
        """Apply one record of the log; return the decisions that are not published yet.

        A record already applied is skipped. A record that is not the next one means that input was lost or reordered on
        the way here, which nothing downstream could notice: the process ends.
        """
        expected = self.partition.applied_offset + 1
        if record.offset < expected:
            return []
        if record.offset > expected:
            die(Exit.SOFTWARE, f"log partition {self.number}: offset {record.offset} came, {expected} is next")
        self.reread += not self.published.finished
        published = await self.published.at(record.offset)
        decisions = self.partition.apply(record.offset, self._time(record), record.value, published)
        self._messages += self.partition.pop_messages()
        self.suppressed += len(published)
        self.applied_at = time.monotonic()
        return decisions

    def pop_messages(self) -> list[Message]:
        """Return what the records since the last call say to other partitions, in order, and forget it."""
        messages, self._messages = self._messages, []
        return messages

    def drain_counts(self) -> tuple[int, int]:
        """`reread` and `suppressed` since the last call."""
        (reread, suppressed), self._reported = self._reported, (self.reread, self.suppressed)
        return self.reread - reread, self.suppressed - suppressed

    def _time(self, record: ConsumerRecord) -> int:
        self.log_time_ms = record.timestamp
        return self.log_time_ms


async def queue_checkpoint(owned: OwnedPartition, writer: BatchWriter, still_ours: Callable[[], bool]) -> int:
    """Queue the dirty rows of a partition, give the number of their bytes. Stops if no longer owner."""
    rows = owned.partition.checkpoint()
    for key, value in rows:
        if not still_ours():
            break
        await writer.add(value or None, key)
    if still_ours():
        await writer.flush()
    return sum(len(value) for _, value in rows[: writer.queued])
