"""The ingest worker: a plain consumer group over the public topics, one ordered log out. It keeps no state.

At least once: records are committed when the log has them. What a crash makes it read twice, the fold drops by source
position. Anything unexpected ends the process; a restart is the recovery.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

from schemas.agentregistry import AgentRegistry
from schemas.codec import encode
from schemas.entries import VERSION, WHOLE_PARTITION_KEY, LogRecord
from schemas.topics import OUTCOMES
from streams.ingest.agentrules import refuse_agents
from streams.ingest.batch import Batch, Batcher
from streams.ingest.convertrecord import convert
from streams.ingest.ingestconfig import IngestConfig
from streams.ingest.ingestmetrics import IngestMetrics
from streams.ingest.logwriter import LogWriter
from streams.ingest.mapping import Resolver
from streams.ingest.merge import Merge
from streams.ingest.pieces import Conversion, RawRecord
from streams.ingest.progress import PartitionProgress, commits, made_again, starting_places
from streams.ingest.recorder import Recorder, raw_record

log = logging.getLogger("fleethpa.ingest")

MAX_TAKEN = 2_000
"""Records written in one go; bounds memory while behind."""

MAX_READ = 500
"""Records read and converted in one go. Nothing else of the process runs meanwhile: with lists of HPAs it takes more
than a second, and a member of the group that sends no heartbeat for ten is expelled and reads all of it again.
"""

MAX_HELD_BYTES = 48 * 1024 * 1024
"""What may wait here of all source partitions together; converted it takes some seven times as much memory."""

LEAST_HELD_BYTES = 256 * 1024
MOST_HELD_BYTES = 4 * 1024 * 1024
"""What one source partition may hold, however many or few there are, before its reading pauses."""

BEAT_S = 5.0
"""After this time without a record for a partition of the log, ingest appends an empty one: nobody else can, so it
shows that ingest works, also where nothing is published.
"""
BEAT = encode(LogRecord(v=VERSION, entries=[], by="ingest"))

IDLE_S = 0.2
STALLED_S = 30.0

LOST_ASSIGNMENT = (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
"""Commits that fail because the partitions are somebody else's now: what was written is read again, and dropped."""

T = TypeVar("T")


class Item(NamedTuple):
    """A record that waits to be written."""

    raw: RawRecord
    found: Conversion


class Worker(ConsumerRebalanceListener):  # type: ignore[misc]
    """Reads, converts, merges, writes, commits. One cycle after the other; `_lock` keeps a rebalance out of a cycle."""

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
        self._config = config
        self._registry = registry or AgentRegistry()
        self._recorder = Recorder(config.mapping, metrics, partitions)
        self._consumer = consumer
        self._writer = writer
        self._metrics = metrics
        self._partitions = partitions
        self._resolver = Resolver(config.mapping)
        self._lock = asyncio.Lock()
        self._merge: Merge[TopicPartition, Item] = Merge()
        self._held_bytes: dict[TopicPartition, int] = {}
        self._may_hold_bytes = MOST_HELD_BYTES
        self._paused: set[TopicPartition] = set()
        self._read_to: dict[TopicPartition, int] = {}
        self._places: dict[TopicPartition, PartitionProgress] | None = None
        self._is_rebalancing = True
        self._waiting_since: float | None = None
        self._lags: dict[TopicPartition, int] = {}
        """The lag of each source partition as /metrics has it."""
        self._appended_at: dict[int, float] = {}
        """Partition of the log -> when a record for it was last appended."""
        self._committed_at = time.monotonic()
        self._cycled_at = time.monotonic()

    # --- rebalance ----------------------------------------------------------------------------------------------------

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Let the running cycle end, commit what is written, forget the rest: the next owner reads it.

        No cycle runs until the new assignment is known, so a cycle never works on a mixture of two assignments.
        """
        async with self._lock:
            self._is_rebalancing = True
            await self._commit()
            self._forget()

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """Let the next cycle find out where to start. Records may be in hand already, so nothing is forgotten here."""
        self._is_rebalancing = False
        share = MAX_HELD_BYTES // max(1, len(assigned))
        self._may_hold_bytes = min(max(share, LEAST_HELD_BYTES), MOST_HELD_BYTES)
        log.info("partitions assigned", extra={"count": len(assigned)})

    def _forget(self) -> None:
        self._merge.clear()
        self._held_bytes.clear()
        self._paused.clear()
        self._read_to.clear()
        self._appended_at.clear()
        self._places = None
        self._waiting_since = None
        self._lags.clear()
        self._metrics.lag.clear()

    # --- the loop -----------------------------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """What keeps this worker from working, for `/readyz`."""
        found = [] if self._places is not None else ["no partitions are assigned yet"]
        idle_s = time.monotonic() - self._cycled_at
        return [*found, f"nothing was done for {idle_s:.0f} s"] if idle_s > STALLED_S else found

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; then write what is in hand and commit.

        Raises:
            IngestError: a topic was deleted and created again.
            KafkaError: a denial, or a write that failed.
        """
        while not stop.is_set():
            if not await self._collect(stop):
                break
            async with self._lock:
                await self._cycle()
        async with self._lock:
            await self._commit()

    async def _cycle(self) -> None:
        if self._is_rebalancing:
            return
        if self._places is None:
            self._places = await starting_places(self._consumer, self._consumer.assignment())
        if self._places is not None:
            await self._write(self._places)
            if time.monotonic() - self._committed_at >= self._config.commit_ms / 1000:
                await self._commit()
        self._cycled_at = time.monotonic()

    async def _collect(self, stop: asyncio.Event) -> bool:
        """Read for as long as one log record is collected; False when asked to stop."""
        deadline: float | None = None
        while True:
            now = time.monotonic()
            wait_s = IDLE_S if deadline is None else deadline - now
            if wait_s <= 0:
                return True
            if not await unless(stop, self._read(int(wait_s * 1000))):
                return False
            if not len(self._merge):
                return True
            deadline = deadline or time.monotonic() + self._config.batch_ms / 1000

    async def _read(self, timeout_ms: int) -> bool:
        """Read and queue in one step, so that a rebalance in between cannot leave records of lost partitions."""
        self._hold(await self._consumer.getmany(timeout_ms=timeout_ms, max_records=MAX_READ))
        return True

    def _hold(self, got: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        for tp, records in got.items():
            self._check_order(tp, records)
            for record in records:
                raw = raw_record(record)
                found = convert(raw, self._resolver)
                refuse_agents(found, self._registry)
                self._merge.add(tp, found.time_ms, Item(raw, found))
                self._held_bytes[tp] = self._held_bytes.get(tp, 0) + len(raw.value or b"")
            if self._places and tp in self._places:
                self._places[tp].is_given_up = False
            if self._held_bytes.get(tp, 0) > self._may_hold_bytes:
                self._consumer.pause(tp)
                self._paused.add(tp)

    def _check_order(self, tp: TopicPartition, records: list[ConsumerRecord]) -> None:
        """Check that offsets rise: when a topic is created again, the consumer silently continues at 0."""
        if not records:
            return
        if records[0].offset < (read := self._read_to.get(tp, 0)):
            raise made_again(tp, records[0].offset, read)
        self._read_to[tp] = records[-1].offset + 1

    # --- writing ------------------------------------------------------------------------------------------------------

    async def _write(self, places: dict[TopicPartition, PartitionProgress]) -> None:
        await self._look(places)
        taken = self._take(places)
        batcher = Batcher(self._partitions, by_time=self._config.is_playback)
        rejects = [reject for _, item in taken if (reject := self._recorder.put(item.raw, item.found, batcher))]
        batches = batcher.take()
        now = time.monotonic()
        self._appended_at |= {batch.partition: now for batch in batches}
        beats = [] if self._config.is_playback else list(self._beats(places, now))
        if batches or beats or rejects:
            await self._writer.write([*batches, *beats], rejects)
        for tp, item in taken:
            self._written(tp, item, places[tp])
        self._metrics.log_records.inc(len(batches))
        self._metrics.log_entries.inc(sum(batch.entries for batch in batches))
        self._metrics.log_bytes.inc(sum(len(batch.value) for batch in batches))
        self._metrics.held.set(len(self._merge))

    def _beats(self, places: Iterable[TopicPartition], now: float) -> Iterator[Batch]:
        """Give an empty record for each owned partition of the log that has got none for a while."""
        for number in sorted({tp.partition for tp in places if tp.topic == OUTCOMES}):
            if now - self._appended_at.setdefault(number, now) >= BEAT_S:
                self._appended_at[number] = now
                yield Batch(number, WHOLE_PARTITION_KEY, int(time.time() * 1000), BEAT, 0)

    async def _look(self, places: dict[TopicPartition, PartitionProgress]) -> None:
        """Bring up to date how far each partition is read and where it ends."""
        for tp, place in places.items():
            end = self._consumer.highwater(tp)
            # Once something came from the broker, there is a position; it stays where it is while there is no more.
            if end is not None and (end > place.end or place.next < place.end):
                place.end = max(place.end, end)
                # The reader's position, not the last record's offset: markers of transactions count as read.
                place.next = await self._consumer.position(tp)
            lag = max(place.end - place.written, 0)
            if self._lags.get(tp) != lag:
                self._lags[tp] = lag
                self._metrics.lag.labels(tp.topic, tp.partition).set(lag)

    def _take(self, places: dict[TopicPartition, PartitionProgress]) -> list[tuple[TopicPartition, Item]]:
        behind = {tp: place.is_behind for tp, place in places.items()}
        missing = self._merge.missing(behind) if len(self._merge) else []
        if not missing:
            self._waiting_since = None
            return list(islice(self._merge.take(behind), MAX_TAKEN))
        now = time.monotonic()
        self._waiting_since = self._waiting_since or now
        if self._config.is_playback or now - self._waiting_since < self._config.hold_ms / 1000:
            return []
        self._give_up(missing, places)
        return list(islice(self._merge.take(behind, force=True), MAX_TAKEN))

    def _give_up(self, missing: list[TopicPartition], places: dict[TopicPartition, PartitionProgress]) -> None:
        for tp in missing:
            places[tp].is_given_up = True
        self._waiting_since = None
        self._metrics.forced.inc()
        log.warning(
            "going on without partitions that deliver nothing", extra={"partitions": [str(tp) for tp in missing]}
        )

    def _written(self, tp: TopicPartition, item: Item, place: PartitionProgress) -> None:
        place.written = item.raw.offset + 1
        self._held_bytes[tp] -= len(item.raw.value or b"")
        if tp in self._paused and self._held_bytes[tp] <= self._may_hold_bytes // 2:
            self._consumer.resume(tp)
            self._paused.discard(tp)
        self._metrics.delay.observe(max(0.0, time.time() - item.raw.timestamp_ms / 1000))

    async def _commit(self) -> None:
        self._committed_at = time.monotonic()
        offsets = commits(self._places or {})
        if not offsets:
            return
        try:
            await self._consumer.commit(offsets)
        except LOST_ASSIGNMENT as error:
            log.info("not committed, the partitions moved", extra={"reason": type(error).__name__})
            return
        for tp, offset in offsets.items():
            (self._places or {})[tp].committed = offset


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`, or None when `stop` is set first: a rebalance may keep a read waiting for long."""
    task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, stopped):
            each.cancel()
            with suppress(asyncio.CancelledError, KafkaError):
                await each
