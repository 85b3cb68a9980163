"""One log partition that this worker owns: its state machine and its positions on the topics."""

import time
from typing import Protocol

from streams.decider.exits import Exit, die
from streams.decider.recordedtail import RecordedTail
from streams.state.ledger import DecisionRecord
from streams.state.partition import Partition


class LogRecordLike(Protocol):
    """What is used of a record of the log; the timestamp is in Unix milliseconds."""

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def value(self) -> bytes: ...

    @property
    def timestamp(self) -> int: ...


class OwnedPartition:
    """A partition between its assignment and its revocation; dropped as a whole, never passed on."""

    def __init__(self, partition: Partition, standing: RecordedTail, decisions_offset: int) -> None:
        self.partition = partition
        self.standing = standing
        self.decisions_offset = decisions_offset
        """Offset of the last own decision known to be on the decisions topic: reading resumes from here."""
        self.log_time_ms = 0
        self.newest_log_time_ms = 0
        self.applied_at = time.monotonic()
        self.reread = 0
        """Records folded again, as far as decisions stood beyond the recovered state."""
        self.suppressed = 0
        """Re-derived decisions that were published already."""
        self._reported = (0, 0)

    @property
    def number(self) -> int:
        """Number of the partition."""
        return self.partition.number

    @property
    def behind_clamp_ms(self) -> int:
        """How far the broker's clock is behind the newest log time: log time never runs backwards."""
        return self.newest_log_time_ms - self.log_time_ms

    async def fold(self, record: LogRecordLike) -> list[DecisionRecord]:
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
        self.suppressed += len(standing)
        self.applied_at = time.monotonic()
        return decisions

    def drain_counts(self) -> tuple[int, int]:
        """`reread` and `suppressed` since the last call."""
        (reread, suppressed), self._reported = self._reported, (self.reread, self.suppressed)
        return self.reread - reread, self.suppressed - suppressed

    def _time(self, record: LogRecordLike) -> int:
        self.log_time_ms = record.timestamp
        self.newest_log_time_ms = max(self.newest_log_time_ms, self.log_time_ms)
        return self.log_time_ms
