"""The ingest worker: a consumer group over the public topics, one ordered log out. It keeps no state.

At least once: offsets are committed when the log has the records. What a crash makes it read twice, the fold drops by
source position. Records of several source partitions that observers and operators write are merged by source time while
one of them is behind; those of agents and of other producers, who could state any time, have their turn by topic.
A topic of an agent or of another producer that Kafka denies stops nobody else. Anything unexpected ends the process;
a restart is the recovery.
"""

import asyncio
import heapq
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from runtime.groups import GroupMember, Partitions
from runtime.kafkaclients import bounds_of
from runtime.process import FreeMemory
from schemas.agentregistry import AgentRegistry
from schemas.codec import encode
from schemas.entries import VERSION, WHOLE_PARTITION_KEY, LogRecord
from schemas.limits import CYCLE_BYTES, CYCLE_RECORDS
from schemas.shares import Turns
from schemas.topics import OUTCOMES
from streams.ingest.convert import convert
from streams.ingest.denials import Denials, denied_topics, hidden_topics
from streams.ingest.logwriter import Batch, IngestMetrics, Item, LogWriter, Recorder, raw_record
from streams.ingest.mapping import Resolver
from streams.ingest.own import refuse_agents, refuse_future
from streams.ingest.preflight import IngestConfig, IngestError
from streams.ingest.sourcerates import cost_of, is_trusted

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class WaitingRecord(NamedTuple, Generic[T]):
    """A record that waits for its turn."""

    time_ms: int
    item: T


class Merge(Generic[K, T]):
    """Queues of records, one per source partition, taken in order of their source times.

    Records of one partition stay in order, also if their times are not: the fold drops duplicates by offset. Of
    the heads of all partitions, the one with the smallest time goes first. A partition that is behind and holds
    nothing here could still bring the smallest: then nothing is taken, unless `force`d.
    """

    def __init__(self) -> None:
        self._queues: dict[K, deque[WaitingRecord[T]]] = {}

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def waiting(self, key: K) -> int:
        """Records of one partition that wait here."""
        return len(self._queues.get(key, ()))

    def add(self, key: K, time_ms: int, item: T) -> None:
        """Put a record behind the others of its partition."""
        self._queues.setdefault(key, deque()).append(WaitingRecord(time_ms, item))

    def clear(self) -> None:
        """Forget everything held: the partitions go to somebody else."""
        self._queues.clear()

    def missing(self, behind: Mapping[K, bool]) -> list[K]:
        """The partitions that hold the others up: behind, and nothing of them is here."""
        return [key for key, is_behind in behind.items() if is_behind and not self._queues.get(key)]

    def ready(self, behind: Mapping[K, bool], *, force: bool = False) -> Iterator[tuple[K, T]]:
        """Records in their order, until a partition that is behind runs empty or nothing is left.

        Args:
            behind: per assigned partition, whether the broker holds more of it than was fetched.
            force: do not wait for partitions that are behind.
        """
        if not force and self.missing(behind):
            return
        heads = [(queue[0].time_ms, number, key) for number, (key, queue) in enumerate(self._queues.items()) if queue]
        heapq.heapify(heads)
        while heads:
            _, number, key = heads[0]
            queue = self._queues[key]
            yield key, queue.popleft().item
            if queue:
                heapq.heapreplace(heads, (queue[0].time_ms, number, key))
                continue
            heapq.heappop(heads)
            if behind.get(key) and not force:
                return


log = logging.getLogger("fleethpa.ingest")


class SourceRecord(NamedTuple):
    """A record that waits for the turn of its topic, as it was read."""

    tp: TopicPartition
    record: ConsumerRecord


@dataclass(slots=True)
class PartitionProgress:
    """One source partition: where reading began, the next offset to read, the end that was seen, what is written."""

    begin: int
    next: int
    end: int
    written: int
    is_given_up: bool = False
    """Whether others no longer wait for it, until it delivers again."""
    lag: int | None = None
    """The lag as /metrics has it; None: it has none yet."""

    @property
    def is_behind(self) -> bool:
        """Whether the broker holds more of it than was read."""
        return self.next < self.end and not self.is_given_up


WentBack = Callable[[TopicPartition, int, int], None]
"""Takes a partition whose topic was deleted and created again: it is at this offset, and this many were read of it."""


async def starting_places(
    consumer: AIOKafkaConsumer, tps: Iterable[TopicPartition], went_back: WentBack
) -> dict[TopicPartition, PartitionProgress]:
    """Where reading starts in freshly assigned partitions; `went_back`: a committed offset lies beyond the end."""
    tps = sorted(tps)
    bounds = await bounds_of(consumer, tps) if tps else {}
    places: dict[TopicPartition, PartitionProgress] = {}
    for tp, (first, end) in bounds.items():
        committed = await consumer.committed(tp)
        if committed is not None and committed > end:
            went_back(tp, end, committed)
        _report_expired(tp, committed, first)
        start = max(committed or 0, first)
        places[tp] = PartitionProgress(start, start, end, start)
    return places


def _report_expired(tp: TopicPartition, committed: int | None, begin: int) -> None:
    if committed is not None and committed < begin:
        # They are lost. Observers report their state again within minutes; pushed samples do not come again.
        log.warning(
            "records expired before they were read",
            extra={"partition": f"{tp.topic}-{tp.partition}", "count": begin - committed},
        )


MAX_TAKEN = 2_000
"""Records written in one go; bounds memory while behind."""

MAX_READ = 500
"""Records read and converted in one go. Nothing else of the process runs meanwhile: with lists of HPAs it takes more
than a second, and a member of the group that sends no heartbeat for ten is expelled and reads all of it again.
"""

MAX_HELD_BYTES = 24 * 1024 * 1024
"""What may wait here of all source partitions together; encoded it takes a little more memory, which the process
keeps: what stays is scattered among what goes.
"""

LEAST_HELD_BYTES = 128 * 1024
MOST_HELD_BYTES = 4 * 1024 * 1024
"""What one source partition may hold, however many or few there are, before its reading pauses."""

BEAT_S = 5.0
"""After this time without a record for a partition of the log, ingest appends an empty one: nobody else can, so it
shows that ingest works, also where nothing is published.
"""
BEAT = encode(LogRecord(v=VERSION, entries=[], by="ingest"))

IDLE_MS = 1_000
LOOK_EVERY_S = 1.0
"""How often a worker looks for topics that it may not read any more."""
STALLED_S = 30.0


class SourceWorker(ABC):
    """Reads topics into the log, as a member of a consumer group: it reads, converts, writes and commits.

    One cycle comes after the other, and no rebalance within a cycle.
    """

    def __init__(
        self, config: IngestConfig, consumer: AIOKafkaConsumer, recorder: Recorder, denials: Denials | None = None
    ) -> None:
        """`denials`: those that the worker before this one found."""
        self.denials = denials or Denials()
        self.member = GroupMember(
            consumer, done=self.done, revoked=self._revoked, assigned=self._assigned, commit_s=config.commit_ms / 1000
        )
        self._config, self._consumer, self._recorder = config, consumer, recorder
        self._resolver = Resolver(config.mapping)
        self._merge: Merge[TopicPartition, Item] = Merge()
        self._turns: Turns[str, SourceRecord] = Turns(1)
        """Records of topics that others write, by topic."""
        self._held_bytes: dict[TopicPartition, int] = {}
        self._may_hold_bytes = MOST_HELD_BYTES
        self._paused: set[TopicPartition] = set()
        self._read_to: dict[TopicPartition, int] = {}
        self._ever_read: dict[TopicPartition, int] = {}
        """The same, also of partitions that went to others and came back."""
        self._places: dict[TopicPartition, PartitionProgress] | None = None
        self._is_rebalancing = True
        self._looked_at = float("-inf")
        self._cycled_at = time.monotonic()
        self._memory = FreeMemory()

    # --- what differs from worker to worker ---------------------------------------------------------------------------

    @abstractmethod
    def converted(self, record: ConsumerRecord) -> Item | None:
        """Convert and encode a record; None: it is passed over."""

    def is_ordered_by_time(self, topic: str) -> bool:
        """Whether the records of a topic are merged by the times that their sources state."""
        return False

    @abstractmethod
    def goes_on_without(self, topic: str) -> bool:
        """Whether the others are read while Kafka denies this topic."""

    @abstractmethod
    def went_back(self, tp: TopicPartition, offset: int, read: int) -> None:
        """Handle that a topic was deleted and created again: the consumer silently continues at its first offset."""

    @abstractmethod
    async def ready(self, places: dict[TopicPartition, PartitionProgress]) -> list[tuple[TopicPartition, Item]]:
        """The records to write now, in their order."""

    def beats(self, places: Iterable[TopicPartition], batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield what else the log gets beside these batches."""
        return iter(())

    def done(self) -> dict[TopicPartition, int]:
        """Up to where each partition is in the log."""
        return {
            tp: place.written
            for tp, place in (self._places or {}).items()
            if place.written > place.begin and tp.topic not in self.denials
        }

    async def commit(self, *, only_if_due: bool = False) -> None:
        await self.member.commit(only_if_due=only_if_due)

    # --- rebalance ----------------------------------------------------------------------------------------------------

    async def _assigned(self, assigned: Partitions) -> None:
        """Let the next cycle find out where to start. Records may be in hand already, so nothing is forgotten here."""
        self._is_rebalancing = False
        share = MAX_HELD_BYTES // max(1, len(assigned))
        self._may_hold_bytes = min(max(share, LEAST_HELD_BYTES), MOST_HELD_BYTES)
        log.info("partitions assigned", extra={"count": len(assigned)})

    def _revoked(self, _: Partitions) -> None:
        """Forget what is not written: the next owner reads it.

        No cycle runs until the new assignment is known, so a cycle never works on a mixture of two assignments.
        """
        self._is_rebalancing = True
        self._looked_at = float("-inf")
        self._merge.clear()
        self._turns = Turns(1)
        self._held_bytes.clear()
        self._paused.clear()
        self._ever_read |= self._read_to
        self._read_to.clear()
        self._places = None

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; then write what is in hand and commit.

        Raises IngestError: a topic was deleted and created again. Raises KafkaError: a denial, or a write that failed.
        """
        async with waiting(stop) as stopped:
            while not stopped.done():
                try:
                    if await unless(stopped, self._read()):
                        async with self.member.lock:
                            await self._cycle()
                except KafkaError as error:
                    await self._go_on(error)
        async with self.member.lock:
            await self.commit()

    async def _go_on(self, error: KafkaError) -> None:
        """Go on without the topics whose denial an error is. Raises KafkaError: it is another one."""
        topics = await denied_topics(self._consumer, error)
        if not topics or not all(map(self.goes_on_without, topics)):
            raise error
        for topic in topics:
            self.denials.add(self._consumer, topic)

    def _look_at_denials(self) -> None:
        """Look once a second, since that goes through all topics.

        Raises TopicAuthorizationFailedError: Kafka no longer describes a topic without which nothing goes on.
        """
        if time.monotonic() - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = time.monotonic()
        for topic in hidden_topics(self._consumer):
            if not self.goes_on_without(topic):
                raise TopicAuthorizationFailedError(topic)
            if topic not in self.denials:
                self.denials.add(self._consumer, topic)
        self.denials.look(self._consumer, self._paused)

    async def _cycle(self) -> None:
        if self._is_rebalancing:
            return
        self._look_at_denials()
        if self._places is None:
            places = await starting_places(self._consumer, self._consumer.assignment(), self.went_back)
            for tp, place in places.items():
                # Kafka forgets what a group has committed of a topic that is deleted.
                if place.end < (read := self._ever_read.get(tp, 0)):
                    self.went_back(tp, place.end, read)
            self._places = places
        await self._write(self._places)
        await self.commit(only_if_due=True)
        if not self._waiting_records():
            self._memory.give_back()
        self._cycled_at = time.monotonic()

    async def _read(self) -> bool:
        """Read and queue in one step, so that a rebalance in between cannot leave records of lost partitions."""
        wait_ms = 0 if len(self._turns) else IDLE_MS
        self._hold(await self._consumer.getmany(timeout_ms=wait_ms, max_records=MAX_READ))
        return True

    def _hold(self, got: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        for tp, records in got.items():
            if records and records[0].offset < (read := self._read_to.get(tp, 0)):
                self.went_back(tp, records[0].offset, read)
            for record in records:
                self._read_to[tp] = record.offset + 1
                self._queue(tp, record)
            if self._places and tp in self._places:
                self._places[tp].is_given_up = False
            if self._held_bytes.get(tp, 0) > self._may_hold_bytes:
                self._consumer.pause(tp)
                self._paused.add(tp)

    def _queue(self, tp: TopicPartition, record: ConsumerRecord) -> None:
        """Let a record wait: by the time that its source states where that is fleethpa's own, else for its turn."""
        cost = cost_of(len(record.value or b""))
        if not self.is_ordered_by_time(tp.topic):
            self._turns.add(tp.topic, SourceRecord(tp, record), cost)
        elif (item := self.converted(record)) is not None:
            self._merge.add(tp, item.time_ms, item)
        else:
            return
        self._held_bytes[tp] = self._held_bytes.get(tp, 0) + cost

    def in_turn(self) -> list[tuple[TopicPartition, Item]]:
        """The records of this cycle of topics that others write: of each topic in its turn, whatever times they state.

        Only now are they converted, which takes as long for one of a byte as for one of a kilobyte.
        """
        items: list[tuple[TopicPartition, Item]] = []
        size = count = 0
        while count < CYCLE_RECORDS.most and size < CYCLE_BYTES.most and (following := self._turns.next()) is not None:
            topic, (tp, record) = following
            self._turns.end(topic)
            cost = cost_of(len(record.value or b""))
            count, size = count + 1, size + cost
            if (item := self.converted(record)) is not None:
                items.append((tp, item))
            else:
                self._release(tp, cost)
        return items

    def _waiting_records(self) -> int:
        return len(self._merge) + len(self._turns)

    async def _write(self, places: dict[TopicPartition, PartitionProgress]) -> None:
        taken = await self.ready(places)
        await self._recorder.write([item for _, item in taken], partial(self.beats, places))
        for tp, item in taken:
            places[tp].written = item.offset + 1
            self._release(tp, cost_of(item.size))

    def _release(self, tp: TopicPartition, cost: int) -> None:
        """Count that a record no longer waits; its partition is read on when there is room again."""
        self._held_bytes[tp] -= cost
        if tp in self._paused and self._held_bytes[tp] <= self._may_hold_bytes // 2:
            self._consumer.resume(tp)
            self._paused.discard(tp)


class Worker(SourceWorker):
    """The worker of the public topics, which merges their partitions by source time."""

    def __init__(
        self,
        config: IngestConfig,
        consumer: AIOKafkaConsumer,
        writer: LogWriter,
        metrics: IngestMetrics,
        partitions: int,
        registry: AgentRegistry | None = None,
    ) -> None:
        """`registry`: which clusters have an agent, kept up to date by the caller."""
        recorder = Recorder(config.mapping, metrics, partitions, writer, by_time=config.is_playback)
        super().__init__(config, consumer, recorder)
        self._registry, self._metrics = registry or AgentRegistry(), metrics
        self._waiting_since: float | None = None
        self._appended_at: dict[int, float] = {}
        """Partition of the log -> when a record for it was last appended."""

    def problems(self) -> list[str]:
        """Return what keeps this worker from working, for `/readyz`."""
        reasons = [] if self._places is not None else ["no partitions are assigned yet"]
        idle_s = time.monotonic() - self._cycled_at
        return [*reasons, f"nothing was done for {idle_s:.0f} s"] if idle_s > STALLED_S else reasons

    def _revoked(self, revoked: Partitions) -> None:
        super()._revoked(revoked)
        self._appended_at.clear()
        self._waiting_since = None
        self._metrics.lag.clear()

    def is_ordered_by_time(self, topic: str) -> bool:
        """Those of observers and operators; playback has no other time than that of its sources."""
        return self._config.is_playback or is_trusted(topic)

    def goes_on_without(self, topic: str) -> bool:
        """Those of other producers, but in playback, where the times of all topics count."""
        return not (is_trusted(topic) or self._config.is_playback)

    def converted(self, record: ConsumerRecord) -> Item:
        """Convert a record; what it says of a cluster with an agent is refused."""
        raw = raw_record(record)
        conversion = convert(raw, self._resolver)
        if not self._config.is_playback:
            refuse_future(conversion, int(time.time() * 1000))
        refuse_agents(conversion, self._registry)
        return self._recorder.encoded(raw, conversion)

    def went_back(self, tp: TopicPartition, offset: int, read: int) -> None:
        """End ingest: the log would take the records of the new topic for duplicates. Raises IngestError: always."""
        raise IngestError(
            f"{tp.topic} partition {tp.partition} is at offset {offset}, but {read} records of it were read: the topic "
            "was created again, and the log would take its records for duplicates",
            next_step=f"fleethpa admin ingest reset {tp.topic} {tp.partition}",
        )

    def beats(self, places: Iterable[TopicPartition], batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield an empty record for each owned partition of the log that has got none for a while."""
        now = time.monotonic()
        self._appended_at |= {batch.partition: now for batch in batches}
        if self._config.is_playback:
            return
        for number in sorted({tp.partition for tp in places if tp.topic == OUTCOMES}):
            if now - self._appended_at.setdefault(number, now) >= BEAT_S:
                self._appended_at[number] = now
                yield Batch(number, WHOLE_PARTITION_KEY, int(time.time() * 1000), BEAT, 0)

    async def ready(self, places: dict[TopicPartition, PartitionProgress]) -> list[tuple[TopicPartition, Item]]:
        """Records of observers and operators by source time, as far as no partition of theirs that is behind could
        still bring an older one; those of others in turn.
        """
        await self._update_positions(places)
        taken = [*self._ready(places), *self.in_turn()]
        self._metrics.held.set(self._waiting_records())
        return taken

    async def _update_positions(self, places: dict[TopicPartition, PartitionProgress]) -> None:
        """Bring up to date how far each partition is read and where it ends."""
        ends = self._consumer.ends_seen()
        for tp, place in places.items():
            end = ends.get(tp)
            # Once something came from the broker, there is a position; it stays where it is while there is no more.
            if end is not None and (end > place.end or place.next < place.end):
                place.end = max(place.end, end)
                # The reader's position, not the last record's offset: markers of transactions count as read.
                place.next = await self._consumer.position(tp)
            lag = place.end - place.written
            if place.lag != lag:
                place.lag = lag
                self._metrics.lag.labels(tp.topic, tp.partition).set(max(lag, 0))

    def _ready(self, places: dict[TopicPartition, PartitionProgress]) -> list[tuple[TopicPartition, Item]]:
        behind = {tp: True for tp, place in places.items() if place.is_behind and self.is_ordered_by_time(tp.topic)}
        missing = self._merge.missing(behind) if len(self._merge) else []
        if not missing:
            self._waiting_since = None
            return list(islice(self._merge.ready(behind), MAX_TAKEN))
        now = time.monotonic()
        self._waiting_since = self._waiting_since or now
        if self._config.is_playback or now - self._waiting_since < self._config.hold_ms / 1000:
            return []
        self._give_up(missing, places)
        return list(islice(self._merge.ready(behind, force=True), MAX_TAKEN))

    def _give_up(self, missing: list[TopicPartition], places: dict[TopicPartition, PartitionProgress]) -> None:
        for tp in missing:
            places[tp].is_given_up = True
        self._waiting_since = None
        self._metrics.forced.inc()
        log.warning(
            "going on without partitions that deliver nothing", extra={"partitions": [str(tp) for tp in missing]}
        )


@asynccontextmanager
async def waiting(stop: asyncio.Event) -> AsyncIterator[asyncio.Task[Literal[True]]]:
    """A task that ends when `stop` is set, for `unless`."""
    task = asyncio.create_task(stop.wait())
    try:
        yield task
    finally:
        task.cancel()


async def unless(stopped: asyncio.Task[Any], work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`, or None when `stopped` ends first: a rebalance may keep a read waiting for long."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, KafkaError):
            await task
