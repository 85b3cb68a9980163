"""How the decider ends, its self-fence, and what it reads beside Faust's consumer: published decisions, ends of topics.

It is crash-only: every unexpected error ends the process, and a restart recovers. A process that was suspended too long
must not write, as another may own its partitions by then. The decisions after the recovered state are read as the fold
reaches them.
"""

import asyncio
import enum
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from hashlib import sha256
from typing import NamedTuple, NoReturn

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from runtime.driver import stop_soon
from runtime.kafkaclients import OffsetBounds, bounds_of, new_consumer, read_backwards, read_range
from runtime.log import clean_lines
from schemas.connection import KafkaSettings
from schemas.decisions import REMEMBERED, Links, links_of, log_offset_of
from schemas.topics import DECISIONS, LOG
from streams.state.partitionrow import PartitionRow

log = logging.getLogger("fleethpa.decider")


class Exit(enum.IntEnum):
    """Exit codes; those of sysexits.h where it defines one for the case."""

    SOFTWARE = 70
    """An unexpected error, or a decision that came out different: a bug."""

    FENCED = 71
    """The process was suspended until another worker may have taken its partitions."""

    STALLED = 75
    """A watchdog fired (nothing comes, recovery does not end), or no broker answers. A restart usually helps."""

    DENIED = 77
    """Kafka refused a permission."""

    NEEDS_OPERATOR = 78
    """Topics, state or settings are such that a restart alone does not help; the text says what to run."""


def die(code: Exit, reason: str, *, error: BaseException | None = None) -> NoReturn:
    """End the process at once, without the clean-up that a broken process could get wrong."""
    log.critical(reason, exc_info=error)
    print(clean_lines(f"fleethpa decider: {reason}"), file=sys.stderr, flush=True)
    logging.shutdown()
    os._exit(code)


def leave() -> NoReturn:
    """End the process in order, after everything is written, without the second that tearing down a full heap takes."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(os.EX_OK)


BEAT_S = 0.2


class Fence:
    """Notices that the event loop stood still: a paused process, a swapped-out host, a call that blocks.

    Args:
        limit_s: how long is too long; below the group's session time-out.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._beat = time.monotonic()
        self._task: asyncio.Task[None] | None = None

    @property
    def silent_s(self) -> float:
        """How long ago the loop last ran the beat."""
        return time.monotonic() - self._beat

    def start(self) -> None:
        """Begin to watch, unless it does; called before anything is owned, and never waits for a lock."""
        if self._task is None:
            self._beat = time.monotonic()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="fence")

    def check(self) -> None:
        """End the process if the loop stood still for too long; called before everything that writes."""
        if self._task is not None and self.silent_s > self._limit_s:
            die(
                Exit.FENCED, f"stood still for {self.silent_s:.1f} s (limit {self._limit_s:.1f} s): no longer the owner"
            )

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            self.check()
            self._beat = time.monotonic()


class BrokenChainError(Exception):
    """The decisions topic does not continue the recovered state; the text names the fault and its place."""


class LostDecisionsError(BrokenChainError):
    """The topic lacks decisions: some between others, or the one that the recovered state follows from."""


Fetch = Callable[[], Awaitable[Sequence[ConsumerRecord]]]
"""The next records of the decisions partition, in order; waits for them."""
Earlier = Callable[[range], Awaitable[Sequence[ConsumerRecord]]]
"""Records with these numbers before the first one that was fetched, in the order of their numbers, as far as there are
any.
"""


async def nothing_earlier(numbers: range) -> Sequence[ConsumerRecord]:
    """Where a partition is read from its first record."""
    return ()


class TailHead(NamedTuple):
    """The newest decision of the chain: its number and the SHA-256 (hex) of its value."""

    seq: int
    digest: str


class RecordedTail:
    """Decisions of one partition after `recovered`, by the log offset that caused them.

    Nothing is read before it is needed, so a long replay holds few decisions in memory.

    Args:
        partition: number of the decisions partition.
        recovered: the last decision that the recovered state knows; seq 0 for none.
        first: where to begin to read; `end` where the partition holds nothing.
        end: offset after the last record that there was when the partition was taken over.
    """

    def __init__(
        self,
        partition: int,
        recovered: TailHead,
        first: int,
        end: int,
        fetch: Fetch,
        earlier: Earlier = nothing_earlier,
    ) -> None:
        self._partition = partition
        self._recovered = recovered
        self._position = first
        self._end = end
        # A partition in which nothing is decided for as long as decisions are kept: each number had a record at least.
        self._has_expired = first == end >= recovered.seq
        self._fetch, self._earlier = fetch, earlier
        self._head: TailHead | None = None
        self._digests: dict[int, str] = {}
        self._newest_log_offset = -1
        self._by_offset: dict[int, dict[str, bytes]] = {}
        self.duplicates = 0

    @property
    def exhausted(self) -> bool:
        """Whether everything up to the end has been read."""
        return self._position >= self._end

    @property
    def finished(self) -> bool:
        """Whether all published decisions have been given."""
        return self.exhausted and not self._by_offset

    async def at(self, log_offset: int) -> Mapping[str, bytes]:
        """Decision id → value of the decisions that this log offset caused and that are published; each is given once.
        Where two of them have the same id, the number follows that of the second one.

        Raises:
            BrokenChainError: a hole, a break, two versions of one decision, or an end before the recovered state.
        """
        while not self.exhausted and self._newest_log_offset <= log_offset:
            for record in await self._fetch():
                for before in await self._earlier(missing) if (missing := self._missing(record)) else ():
                    self._read(before)
                self._read(record)
        if self.exhausted:
            self._check_end()
        return self._by_offset.pop(log_offset, {})

    def _before(self) -> TailHead:
        """Return what the next new decision follows. What the state knows may be missing: it is needed no more."""
        head = self._head
        return self._recovered if head is None or head.seq < self._recovered.seq else head

    def _missing(self, record: ConsumerRecord) -> range:
        """The numbers that are missing between this decision and the one before it.

        Where two deciders of one name have written in turns, the copies of one are between the decisions of the other,
        and a missing number may be before the offset at which reading began.
        """
        if record.offset >= self._end:
            return range(0)
        return range(self._before().seq + 1, links_of(record.value).seq)

    def _read(self, record: ConsumerRecord) -> None:
        if record.offset >= self._end:
            self._position = record.offset
            return
        links = links_of(record.value)
        digest = sha256(record.value).hexdigest()
        if self._is_new(links, digest, record.offset):
            self._keep(links, record.value)
        self._position = record.offset + 1

    def _is_new(self, links: Links, digest: str, offset: int) -> bool:
        head = self._head
        if head is not None and links.seq <= head.seq:
            if self._digests.get(links.seq, digest) != digest:
                raise BrokenChainError(f"{self._where(offset)}: a second version of decision number {links.seq}")
            self.duplicates += 1
            return False
        before = self._before()
        if links.seq > before.seq + 1:
            what = f"number {links.seq} follows number {before.seq}: decisions were lost"
            raise LostDecisionsError(f"{self._where(offset)}: {what}")
        if links.seq == before.seq + 1 and links.prev != before.digest:
            raise BrokenChainError(f"{self._where(offset)}: number {links.seq} does not name the record before it")
        if links.seq == self._recovered.seq and digest != self._recovered.digest:
            raise BrokenChainError(
                f"{self._where(offset)}: number {links.seq} is not the one that the state follows from"
            )
        if head is not None and links.seq == head.seq + 1 and links.prev != head.digest:
            raise BrokenChainError(f"{self._where(offset)}: number {links.seq} does not name the record before it")
        self._head = TailHead(links.seq, digest)
        self._digests[links.seq] = digest
        self._digests.pop(links.seq - REMEMBERED, None)
        return links.seq > self._recovered.seq

    def _keep(self, links: Links, value: bytes) -> None:
        log_offset = log_offset_of(links.id)
        self._newest_log_offset = max(self._newest_log_offset, log_offset)
        kept = self._by_offset.setdefault(log_offset, {})
        # Clusters that were restored from one backup have HPAs of the same uid, whose decisions may have the same id.
        kept[f"{links.id} {links.seq}" if links.id in kept else links.id] = value

    def _check_end(self) -> None:
        newest = self._head.seq if self._head else 0
        if newest < self._recovered.seq and not self._has_expired:
            raise LostDecisionsError(
                f"{self._where(self._end)}: the newest decision is number {newest}, but the recovered state follows"
                f" from number {self._recovered.seq}: decisions were lost"
            )

    def _where(self, offset: int) -> str:
        return f"decisions partition {self._partition} offset {offset}"


FETCH_MS = 1_000
BACKWARDS = 1_000
"""Records that are read at first where one is looked for before the begin; twice as many each time after that."""


class LastRecord(NamedTuple):
    """A record of the log: its timestamp as the broker gives it, and the SHA-256 of its value."""

    timestamp_ms: int
    digest: bytes


def begin_of(seq: int, bounds: OffsetBounds) -> int:
    """Return the offset from which to look for decision number `seq` (0: for the first one).

    Each number has a record at least, so number n is at offset n - 1 or later, unless the topic has lost records.
    """
    return max(bounds.first, min(seq, bounds.end) - 1)


class PartitionTail:
    """Reads one decisions partition: forwards from a number on, and backwards for what was before that.

    Args:
        seq: of the decision to begin with, or with one before it, if there is one from offset `least` on.
    """

    def __init__(self, consumer: AIOKafkaConsumer, tp: TopicPartition, seq: int, least: int) -> None:
        self._consumer, self._tp, self._seq, self._least = consumer, tp, seq, least
        self._begin: int | None = None

    async def fetch(self) -> Sequence[ConsumerRecord]:
        """The next records; waits for them."""
        records = list((await self._consumer.getmany(self._tp, timeout_ms=FETCH_MS)).get(self._tp, ()))
        if records and self._begin is None:
            first = records[0]
            ahead = links_of(first.value).seq - self._seq
            if ahead > 0 and first.offset > self._least:
                # The topic has lost records, so that decisions are at lower offsets than their numbers say.
                self._consumer.seek(self._tp, max(self._least, first.offset - ahead))
                return ()
            self._begin = first.offset
        return records

    async def earlier(self, numbers: range) -> Sequence[ConsumerRecord]:
        """Records with these numbers before the first one that was fetched, in the order of their numbers."""
        by_seq: dict[int, ConsumerRecord] = {}
        if self._begin is None or self._begin <= self._least:
            return ()
        position = await self._consumer.position(self._tp)
        backwards = read_backwards(self._consumer, self._tp, self._least, self._begin, BACKWARDS)
        async with aclosing(backwards) as windows:
            async for _, records in windows:
                by_seq |= {seq: record for record in records if (seq := links_of(record.value).seq) in numbers}
                if len(by_seq) == len(numbers):
                    break
        self._consumer.resume(self._tp)
        self._consumer.seek(self._tp, position)
        return [by_seq[seq] for seq in sorted(by_seq)]


class TailReader:
    """One consumer in no group, shared by the partitions of an assignment; closed when nothing is left to read."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._consumer = new_consumer(settings, auto_offset_reset="none")
        self.log: dict[int, OffsetBounds] = {}
        """What the log partitions hold."""
        self._decisions: dict[int, OffsetBounds] = {}
        self._published: list[RecordedTail] = []
        self.applied: dict[int, LastRecord] = {}
        """The record of the log up to which the state of a partition goes, where the log still has it."""

    async def start(self, rows: Iterable[PartitionRow]) -> None:
        """Connect, read the records of the log up to which the states go, where the log still has them, and begin to
        read the decisions that the states follow from.
        """
        await self._consumer.start()
        states = {row.number: (row.offset, row.seq) for row in rows}
        self.log = await self._bounds(LOG, states)
        for number, (offset, _) in states.items():
            if self.log[number].first <= offset < self.log[number].end:
                self.applied[number] = await self._read_log(number, offset)
        self._decisions = await self._bounds(DECISIONS, states)
        # Only what has something to read, all at once: an idle partition would hold up each fetch of the others.
        unread = {
            TopicPartition(DECISIONS, number): begin_of(states[number][1], bounds)
            for number, bounds in self._decisions.items()
            if bounds.first < bounds.end
        }
        self._consumer.assign(list(unread))
        for tp, begin in unread.items():
            self._consumer.seek(tp, begin)

    async def stop(self) -> None:
        await stop_soon(self._consumer)

    async def stop_when_exhausted(self) -> bool:
        """Close the connection if every partition has been read to its end; whether it is closed."""
        if any(not published.exhausted for published in self._published):
            return False
        await self.stop()
        return True

    async def _read_log(self, number: int, offset: int) -> LastRecord:
        tp = TopicPartition(LOG, number)
        self._consumer.assign([tp])
        async with aclosing(read_range(self._consumer, tp, offset, offset + 1)) as records:
            async for record in records:
                return LastRecord(record.timestamp, sha256(record.value or b"").digest())
        return LastRecord(0, b"")

    def published(self, number: int, recovered: TailHead) -> RecordedTail:
        """The published decisions after `recovered`."""
        bounds = self._decisions[number]
        reading = PartitionTail(self._consumer, TopicPartition(DECISIONS, number), recovered.seq, bounds.first)
        begin = begin_of(recovered.seq, bounds)
        published = RecordedTail(number, recovered, begin, bounds.end, reading.fetch, reading.earlier)
        self._published.append(published)
        return published

    async def _bounds(self, topic: str, numbers: Iterable[int]) -> dict[int, OffsetBounds]:
        tps = [TopicPartition(topic, number) for number in numbers]
        if not tps:
            return {}
        return {tp.partition: bounds for tp, bounds in (await bounds_of(self._consumer, tps)).items()}
