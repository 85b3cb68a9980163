"""One log partition that this worker owns: its state machine, its positions on the topics, and its state rows.

Rows are written in the core's order into one changelog partition, the partition's own row last: without it the others
do not count.
"""

import time
from collections.abc import Callable

from aiokafka import ConsumerRecord

from streams.decider.recordbatches import BatchWriter
from streams.decider.tail import Exit, RecordedTail, die
from streams.state.fleet import Message
from streams.state.ledger import DecisionRecord
from streams.state.partition import Partition


class OwnedPartition:
    """A partition between its assignment and its revocation; dropped as a whole, never passed on."""

    def __init__(self, partition: Partition, standing: RecordedTail) -> None:
        self.partition = partition
        self.standing = standing
        self.log_time_ms = 0
        self.newest_log_time_ms = 0
        self.applied_at = time.monotonic()
        self.reread = 0
        """Records folded again, for which the topic had decisions beyond the recovered state."""
        self.suppressed = 0
        """Re-derived decisions that were published already."""
        self._messages: list[Message] = []
        self._reported = (0, 0)

    @property
    def number(self) -> int:
        return self.partition.number

    @property
    def behind_clamp_ms(self) -> int:
        """How far the broker's clock is behind the newest log time: log time never runs backwards."""
        return self.newest_log_time_ms - self.log_time_ms

    async def fold(self, record: ConsumerRecord) -> list[DecisionRecord]:
        """Apply one record of the log; give the decisions that are not published yet.

        A record already applied is skipped. A record that is not the next one means that input was lost or reordered on
        the way here, which nothing downstream could notice: the process ends.
        """
        expected = self.partition.applied_offset + 1
        if record.offset < expected:
            return []
        if record.offset > expected:
            die(Exit.SOFTWARE, f"log partition {self.number}: offset {record.offset} came, {expected} is next")
        self.reread += not self.standing.finished
        standing = await self.standing.at(record.offset)
        decisions = self.partition.apply(record.offset, self._time(record), record.value, standing)
        self._messages += self.partition.take_messages()
        self.suppressed += len(standing)
        self.applied_at = time.monotonic()
        return decisions

    def take_messages(self) -> list[Message]:
        """Give what the records since the last call say to other partitions, in order, and forget it."""
        made, self._messages = self._messages, []
        return made

    def drain_counts(self) -> tuple[int, int]:
        """`reread` and `suppressed` since the last call."""
        (reread, suppressed), self._reported = self._reported, (self.reread, self.suppressed)
        return self.reread - reread, self.suppressed - suppressed

    def _time(self, record: ConsumerRecord) -> int:
        self.log_time_ms = record.timestamp
        self.newest_log_time_ms = max(self.newest_log_time_ms, self.log_time_ms)
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
