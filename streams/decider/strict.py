"""Faust's consumer and producer with their three faults mended; everything else in the decider relies on this module.

Stock faust-streaming 0.15.3 loses and reorders input at the end of most recoveries and rebalances with a backlog:

* The consumer thread gets the live set of active partitions. Recovery empties it when it pauses the changelog, aiokafka
  reads an empty set as "all", fetches the paused log partitions, moves their positions, and the records are dropped.
  Here a fetch gets a snapshot, and none happens with an empty one.
* Recovery resumes the log partitions before it seeks, so records from the wrong position come first. Here a fetch and a
  seek exclude each other, and what was fetched before a seek is dropped.
* The gap bookkeeping takes the seek for a hole in the log and counts the records in it as processed. Here there is no
  gap bookkeeping: the log is not compacted and holds no transaction markers, so a hole is an error, found in the fold.

And it lets a fetch wait 1.5 s for records, which every recovery then takes at its end, and every record on a broker
that does not answer early (the embedded one). Here it is a tenth of a second, for as much as comes in that time.

And it takes 0.2 ms for each record of the changelog, through two queues and three tasks. Here rows are merged as they
are fetched, and Faust gets the last record of each fetch, from which it knows how far the recovery is.

The seek itself does not go to the committed offset but to where the state rows end: `Load` decides. Private names of
Faust are used, hence the exact pin of its version; `tests/pipeline/test_decider.py` and `make chaos` fail without this.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any

from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from runtime.kafkaclients import FETCH_MAX_WAIT_MS, FETCH_MIN_BYTES
from streams.decider.exits import Exit, die

MakeCurrent = Callable[[Iterable[int]], Awaitable[Mapping[int, int] | None]]
"""Make the state of these log partitions current; the offset from which each is to be read. None: superseded."""

MergeRow = Callable[[bytes, bytes], None]
"""Merge a record of the changelog into the recovered rows."""

FETCH_WAIT_S = 0.2
"""A seek waits at most this long for a fetch that is under way."""


class NoReadOffset(dict[TP, Any]):
    """Remembers nothing: with no last offset known, Faust sees no gaps."""

    def __getitem__(self, key: TP) -> None:
        return None

    def __setitem__(self, key: TP, value: Any) -> None:
        return None

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Forget what is given."""


class PromptConsumerThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    """Faust's thread around aiokafka's consumer, whose fetches come back soon."""

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # Read when the consumer starts.
        consumer._fetch_max_wait_ms, consumer._fetch_min_bytes = FETCH_MAX_WAIT_MS, FETCH_MIN_BYTES
        return consumer


class StrictConsumer(driver.Consumer):  # type: ignore[misc]
    """Delivers each partition in order, from where the state ends, and nothing fetched before a seek."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._read_offset = NoReadOffset()
        self._fetch_lock = asyncio.Lock()
        self._seek_epoch = 0

    def _new_consumer_thread(self) -> driver.ConsumerThread:
        return PromptConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Any]]:
        """Fetch once and deliver, as long as no seek or rebalance comes between."""
        if not self.flow_active:
            await self.wait(self.can_resume_flow)
        async with self._fetch_lock:
            active = set(self._get_active_partitions())
            epoch, generation = self._seek_epoch, self.app.consumer_generation_id
            wanted = active and self.flow_active
            records = await self._getmany(active_partitions=active, timeout=FETCH_WAIT_S) if wanted else None
        if not records:
            if not active:
                await self.sleep(0.02)
            return
        last = {tp: fetched[-1] for tp, fetched in records.items() if fetched}
        for tp, record in self.scheduler.iterate(records):
            stale = epoch != self._seek_epoch or generation != self.app.consumer_generation_id
            if stale or self.should_stop or not self.flow_active:
                return
            is_row = tp.topic == self.transport.changelog_topic
            if tp in active and is_row:
                self.transport.merge(record.key, record.value)
            if tp in active and (not is_row or record is last[tp]):
                yield tp, self._to_message(tp, record)

    async def perform_seek(self) -> None:
        """Load the state of the assigned log partitions and read each from where its state ends."""
        self._seek_epoch += 1
        async with self._fetch_lock:
            try:
                await self._seek_to_state()
            except asyncio.CancelledError:  # another rebalance has begun
                raise
            except BaseException as error:  # Faust would log it and idle for ever
                die(Exit.SOFTWARE, f"loading the state failed: {error!r}", error=error)
            self._seek_epoch += 1

    async def _seek_to_state(self) -> None:
        committed = await self.seek_to_committed()
        log_partitions = {tp.partition: tp for tp in self.assignment() if tp.topic == self.transport.log_topic}
        positions = await self.transport.load(log_partitions)
        if positions is None:
            return
        await self._thread.seek_wait({log_partitions[number]: offset for number, offset in positions.items()})
        self.transport.loaded()
        for number, offset in positions.items():
            self._count_acks_from(log_partitions[number], offset, committed)

    def _count_acks_from(self, tp: TP, offset: int, committed: Mapping[TP, int]) -> None:
        # Offsets below the committed one are read again and their acks are not counted. Left at a committed offset
        # below the position, the partition would never commit again.
        self._acked.pop(tp, None)
        self._acked_index.pop(tp, None)
        self._committed_offset[tp] = max(committed.get(tp) or 0, offset) or None

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        self.transport.before_commit()
        return bool(await super()._commit(offsets))


class StrictProducer(driver.Producer):  # type: ignore[misc]
    """Waits for all in-sync replicas and is idempotent, so that a retry neither doubles nor reorders."""

    def _settings_extra(self) -> Mapping[str, Any]:
        return {"acks": "all", "enable_idempotence": True}


class StrictTransport(driver.Transport):  # type: ignore[misc]
    """The transport of the decider's Faust app; carries what the consumer needs to find its position."""

    Consumer = StrictConsumer
    Producer = StrictProducer

    def __init__(
        self,
        *args: Any,
        log_topic: str,
        changelog_topic: str,
        merge: MergeRow,
        load: MakeCurrent,
        loaded: Callable[[], None],
        before_commit: Callable[[], None],
    ) -> None:
        super().__init__(*args)
        self.log_topic = log_topic
        self.changelog_topic = changelog_topic
        self.merge = merge
        self.load = load
        self.loaded = loaded
        self.before_commit = before_commit
