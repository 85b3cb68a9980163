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
that does not answer early (the embedded one). Here a fetch begins a tenth of a second after the one before.

And it takes 0.15 to 0.2 ms for each record, through two queues and four tasks, and starts eight tasks for each fetch
that wait for its end. Here the log records of a fetch are one message (`LogRecords`), whatever their partitions, which
goes to Faust's stream at once, and a fetch starts one task. Rows of the changelog are merged as
they are fetched, and Faust gets the last record of each fetch, from which it knows how far the recovery is.

And it draws a table of the offsets at each commit for a log level that is off: a twelfth of what a decider needs
without evaluations. Here it draws none.

The seek itself does not go to the committed offset but to where the state rows end: `Load` decides. Private names of
Faust are used, hence the exact pin of its version; `tests/pipeline/test_decider.py` and `make chaos` fail without this.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from aiokafka import ConsumerRecord
from faust.transport import consumer as consumer_module
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage

from runtime.kafkaclients import FETCH_MAX_WAIT_MS, FETCH_MIN_BYTES
from schemas.topics import CHANGELOG, LOG
from streams.decider.tail import Exit, die

MakeCurrent = Callable[[Iterable[int]], Awaitable[Mapping[int, int] | None]]
"""Make the state of these log partitions current; the offset from which each is to be read. None: superseded."""

MergeRow = Callable[[bytes, bytes | None], None]
"""Merge a record of the changelog into the recovered rows."""

FETCH_WAIT_S = 0.2
"""A seek waits at most this long for a fetch that is under way."""

MOST_RECORDS = 200
"""Log records in one message, all of whose decisions are in memory until the brokers have them. The next message is
passed on when the agent has this one, so that at most two wait to be folded, besides the rest of one fetch.
"""


consumer_module.terminal = SimpleNamespace(logtable=lambda *_, **__: "")


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
        consumer._client_rack = self.app.client_rack
        return consumer

    async def getmany(self, active_partitions: set[TP] | None, timeout: float) -> Any:
        """Fetch in this thread, without the queue in which Faust's calls wait."""
        consumer = self._ensure_consumer()
        records = consumer._max_poll_records
        fetch = self._fetch_records(consumer, active_partitions, timeout=timeout, max_records=records)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(fetch, self.thread_loop))


class LogRecords(ConsumerMessage):  # type: ignore[misc]
    """Log records of one fetch as one message of Faust; its own position is that of the last record.

    Attributes:
        records: as the driver gives them; those of one partition in order.
    """

    def __init__(self, records: Sequence[ConsumerRecord], generation_id: int) -> None:
        last = records[-1]
        super().__init__(
            last.topic,
            last.partition,
            last.offset,
            last.timestamp / 1000,
            last.timestamp_type,
            last.headers,
            last.key,
            last.value,
            last.checksum,
            generation_id=generation_id,
        )
        self.records = records


class StrictConsumer(driver.Consumer):  # type: ignore[misc]
    """Delivers each partition in order, from where the state ends, and nothing fetched before a seek."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._read_offset = NoReadOffset()
        self._fetch_lock = asyncio.Lock()
        self._seek_epoch = 0
        self._taken = asyncio.Event()
        """The agent has the log records that were passed on last."""
        self._taken.set()

    def _new_consumer_thread(self) -> driver.ConsumerThread:
        return PromptConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Any]]:
        """Fetch once and pass log records on, as long as no seek or rebalance comes between.

        Gives the last row of each partition of the changelog, which Faust passes on.
        """
        if not self.flow_active:
            await self.wait(self.can_resume_flow)
        async with self._fetch_lock:
            active = set(self._get_active_partitions())
            fetched_under = self._seek_epoch, self.app.consumer_generation_id
            wanted = active and self.flow_active
            records = await self._getmany(active_partitions=active, timeout=FETCH_WAIT_S) if wanted else None
        if not records:
            if not active:
                await self.sleep(0.02)
            return
        log: list[ConsumerRecord] = []
        for tp, fetched in records.items():
            if self._is_stale(fetched_under):
                return
            if tp not in active or not fetched:
                continue
            if tp.topic != CHANGELOG:
                log += fetched
                continue
            for record in fetched:
                self.transport.merge(record.key, record.value)
            yield tp, self._to_message(tp, fetched[-1])
        for at in range(0, len(log), MOST_RECORDS):
            await self._until_taken()
            if self._is_stale(fetched_under):
                return
            self._taken.clear()
            # Nothing waits in the agent's queue, so there is room at once.
            await self.callback(LogRecords(log[at : at + MOST_RECORDS], self.app.consumer_generation_id))

    async def sleep(self, n: Any) -> None:
        """Sleep for so many seconds, or until the end; at 0 s, as between two fetches, only let the event loop turn."""
        await (super().sleep(n) if n else asyncio.sleep(0))

    def _is_stale(self, fetched_under: tuple[int, int]) -> bool:
        """Whether what was fetched under this seek and generation is to be dropped."""
        now = self._seek_epoch, self.app.consumer_generation_id
        return now != fetched_under or self.should_stop or not self.flow_active

    async def _until_taken(self) -> None:
        if not self._taken.is_set():
            await self.wait_first(self._taken.wait(), self.suspend_flow.wait())

    def ack(self, message: Any) -> bool:
        """Count the records of a message as processed, and let the next message come."""
        if not isinstance(message, LogRecords):
            return bool(super().ack(message))
        if message.acked:
            return False
        message.acked = True
        self._unacked_messages.discard(message)
        for record in message.records:
            self._acked[TP(record.topic, record.partition)] = [record.offset + 1]
        self._n_acked += len(message.records)
        self._taken.set()
        return True

    def _new_offset(self, tp: TP) -> int | None:
        """The offset to commit: there is one agent, which has the records of a partition in order."""
        acked = self._acked[tp]
        return acked.pop() if acked else None

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
            self._taken.set()  # what was passed on before a seek is not taken any more

    async def _seek_to_state(self) -> None:
        committed = await self.seek_to_committed()
        log_partitions = {tp.partition: tp for tp in self.assignment() if tp.topic == LOG}
        positions = await self.transport.load(log_partitions)
        if positions is None:
            return
        await self._thread.seek_wait({log_partitions[number]: offset for number, offset in positions.items()})
        self.transport.loaded()
        for number, offset in positions.items():
            self._count_acks_from(log_partitions[number], offset, committed)

    def _count_acks_from(self, tp: TP, offset: int, committed: Mapping[TP, int]) -> None:
        # Offsets below the committed one are read again and not committed again.
        self._acked.pop(tp, None)
        self._acked_index.pop(tp, None)
        self._committed_offset[tp] = max(committed.get(tp) or 0, offset) or None


class StrictProducer(driver.Producer):  # type: ignore[misc]
    """Waits for all in-sync replicas and is idempotent, so that a retry neither doubles nor reorders."""

    def _settings_extra(self) -> Mapping[str, Any]:
        return {"acks": "all", "enable_idempotence": True}


class StrictTransport(driver.Transport):  # type: ignore[misc]
    """The transport of the decider's Faust app; carries what the consumer needs to find its position."""

    Consumer = StrictConsumer
    Producer = StrictProducer

    def __init__(self, *args: Any, merge: MergeRow, load: MakeCurrent, loaded: Callable[[], None]) -> None:
        super().__init__(*args)
        self.merge = merge
        self.load = load
        self.loaded = loaded
