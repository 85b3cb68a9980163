"""Batches of log records: each is folded, its decisions are published, the brokers are waited for, then what is due is
checkpointed.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

from aiokafka import AIOKafkaProducer, ConsumerRecord

from runtime.process import FreeMemory
from runtime.records import Publisher
from schemas.topics import CHANGELOG, DECISIONS, REPORTS
from streams.decider.assignment import Assignment, DeciderConfig
from streams.decider.metrics import Metrics
from streams.decider.owned import BatchWriter, OwnedPartition, all_written, queue_checkpoint
from streams.decider.tail import Fence
from streams.state.ledger import DecisionRecord

YIELD_S = 0.05
"""A long batch yields to the event loop after this time, for the fence, health answers and heartbeats."""
MOST_PENDING = 1_000
"""From so many decisions on they are published before more are made: a full one takes 10 kB, and what a backlog takes
once stays with the process.
"""
MOST_QUEUED_BYTES = 4 * 2**20
"""Rows of checkpoints that may wait for the brokers: those of all HPAs at once would take much memory."""


class Batches:
    """Processes the batches of one worker. Everything that it raises ends the process.

    Args:
        producer: gives the aiokafka producer inside Faust's, which costs a quarter of going through Faust's topics.
        generation: the consumer group's generation now; what was fetched under an older one is dropped.
    """

    def __init__(
        self,
        config: DeciderConfig,
        assignment: Assignment,
        fence: Fence,
        metrics: Metrics,
        *,
        producer: Callable[[], AIOKafkaProducer],
        generation: Callable[[], int],
    ) -> None:
        self._config = config
        self._assignment = assignment
        self._fence = fence
        self._metrics = metrics
        self._producer = producer
        self._free_memory = FreeMemory()
        self._generation = generation

    async def process(self, records: Sequence[ConsumerRecord], generation: int) -> None:
        """Process one batch of log records that were fetched under this generation."""
        async with self._assignment.lock:
            epoch = self._assignment.epoch
            if generation != self._generation():
                return
            async with contextlib.aclosing(self._folded(records)) as parts:
                async for pending in parts:
                    if epoch != self._assignment.epoch:
                        return
                    await self._publish(pending)
            # Of a partition without a record there is nothing new to send, to count or to write.
            folded = [self._assignment.owned.get(number) for number in sorted({each.partition for each in records})]
            owned = [each for each in folded if each is not None]
            await self._send_messages(owned)
            self._metrics.refolded(owned)
            due = [each for each in owned if each.partition.due_checkpoint]
            await self.checkpoint(due)
            if due:
                self._free_memory.give_back()
            await self._assignment.after_batch()

    async def checkpoint(self, partitions: Iterable[OwnedPartition]) -> None:
        """Write the dirty rows of these partitions; the caller holds the lock.

        The brokers are waited for once, however many partitions are due.
        """
        epoch, started = self._assignment.epoch, time.monotonic()
        writers: list[BatchWriter] = []
        row_bytes = waited_bytes = 0
        for owned in partitions:
            if owned.partition.applied_offset < 0:
                continue
            self._fence.check()
            writers.append(BatchWriter(self._producer(), CHANGELOG, owned.number))
            row_bytes += await queue_checkpoint(owned, writers[-1], lambda: epoch == self._assignment.epoch)
            if row_bytes - waited_bytes > MOST_QUEUED_BYTES:
                await all_written(writers)
                waited_bytes = row_bytes
        if writers:
            await all_written(writers)
            self._metrics.checkpointed(time.monotonic() - started, row_bytes)

    async def _folded(
        self, records: Sequence[ConsumerRecord]
    ) -> AsyncGenerator[list[tuple[OwnedPartition, DecisionRecord]], None]:
        """Fold records; return the decisions, in parts."""
        pending: list[tuple[OwnedPartition, DecisionRecord]] = []
        yielded = time.monotonic()
        for record in records:
            owned = self._assignment.owned.get(record.partition)
            if owned is None:
                continue
            pending.extend((owned, decision) for decision in await owned.fold(record))
            if time.monotonic() - yielded > YIELD_S:
                await asyncio.sleep(0)
                yielded = time.monotonic()
            if len(pending) >= MOST_PENDING:
                yield pending
                pending = []
        self._metrics.took(len(records))
        self._assignment.check_partitions()
        yield pending

    async def _publish(self, pending: Sequence[tuple[OwnedPartition, DecisionRecord]]) -> None:
        if not pending:
            return
        self._fence.check()
        writers: dict[int, BatchWriter] = {}
        for owned, decision in pending:
            writer = writers.get(owned.number)
            if writer is None:
                writer = writers[owned.number] = BatchWriter(self._producer(), DECISIONS, owned.number)
            await writer.add(decision.value, decision.key.encode(), decision.headers)
        for writer in writers.values():
            await writer.flush()
        await all_written(writers.values())
        self._metrics.decided([decision for _, decision in pending])

    async def _send_messages(self, folded: Iterable[OwnedPartition]) -> None:
        """Send what the folded records say to other partitions: before a checkpoint, so that no crash loses it."""
        messages = [each for owned in folded for each in owned.pop_messages()]
        if not messages:
            return
        self._fence.check()
        publisher = Publisher(self._producer())
        sent = [publisher.send(REPORTS, each.cluster, each.namespace, [each.body], each.time_ms) for each in messages]
        await asyncio.gather(*sent)
