"""One log partition that this worker owns: its state machine, its positions on the topics, and its state rows.

Rows are written in the core's order into one changelog partition, the partition's own row last: without it the others
do not count. Besides the core's rows is one of the adapter, `b"<partition>|d"`: the offset of the last own decision at
the time. One that is missing or old only makes the next owner read a little more.
"""

import time
from collections.abc import Callable, Iterator, Mapping

from aiokafka import AIOKafkaProducer, ConsumerRecord

from streams.decider.recordbatches import BatchWriter
from streams.decider.tail import Exit, RecordedTail, die
from streams.state.ledger import DecisionRecord
from streams.state.partition import Partition
from streams.state.rowcodec import APPLIED_BYTES, applied_prefix


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
        self.suppressed += len(standing)
        self.applied_at = time.monotonic()
        return decisions

    def drain_counts(self) -> tuple[int, int]:
        """`reread` and `suppressed` since the last call."""
        (reread, suppressed), self._reported = self._reported, (self.reread, self.suppressed)
        return self.reread - reread, self.suppressed - suppressed

    def _time(self, record: ConsumerRecord) -> int:
        self.log_time_ms = record.timestamp
        self.newest_log_time_ms = max(self.newest_log_time_ms, self.log_time_ms)
        return self.log_time_ms


OWN_ROW = b"d"


def split_rows(rows: Mapping[bytes, bytes]) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """The core's rows, and the adapter's own."""
    core: dict[bytes, bytes] = {}
    own: dict[bytes, bytes] = {}
    for key, value in rows.items():
        (own if key.partition(b"|")[2] == OWN_ROW else core)[key] = value
    return core, own


def decisions_offset_of(own_rows: Mapping[bytes, bytes]) -> int:
    """The offset at which to begin to read the decisions topic; 0 without such a row."""
    return max((int(value[APPLIED_BYTES:]) for value in own_rows.values()), default=0)


def own_row(number: int, applied_offset: int, decisions_offset: int) -> tuple[bytes, bytes]:
    """The adapter's row of a partition that has applied the log up to an offset."""
    return b"%d|%s" % (number, OWN_ROW), applied_prefix(applied_offset) + b"%d" % decisions_offset


def written_rows(owned: OwnedPartition) -> Iterator[tuple[bytes, bytes]]:
    """The rows of a partition as the checkpoints until now wrote them; right after one, while nothing has changed."""
    if owned.partition.applied_offset >= 0:
        yield from owned.partition.rows()
        yield own_row(owned.number, owned.partition.applied_offset, owned.decisions_offset)


async def write_checkpoint(
    owned: OwnedPartition, *, producer: AIOKafkaProducer, topic: str, still_ours: Callable[[], bool]
) -> int:
    """Write the dirty rows of a partition, wait for the broker, give the number of bytes. Stops if no longer owner."""
    rows = owned.partition.checkpoint()
    rows.insert(0, own_row(owned.number, owned.partition.applied_offset, owned.decisions_offset))
    writer = BatchWriter(producer, topic, owned.number)
    for key, value in rows:
        if not still_ours():
            break
        await writer.add(value or None, key)
    if still_ours():
        await writer.flush()
    await writer.written()
    return sum(len(value) for _, value in rows[: writer.queued])
