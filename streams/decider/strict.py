"""What is wrong with Faust: three faults, mended here, on which the decider relies, and what ends its process instead.

Stock faust-streaming 0.15.3 loses and reorders input at the end of most recoveries and rebalances with a backlog:

* The consumer thread gets the live set of active partitions. Recovery empties it when it pauses the changelog, aiokafka
  reads an empty set as "all", fetches the paused log partitions, moves their positions, and the records are dropped.
  Here a fetch gets a snapshot, and none happens with an empty one.
* Recovery resumes the log partitions before it seeks, so records from the wrong position come first. Here a fetch and a
  seek exclude each other, and what was fetched before a seek is dropped.
* The gap bookkeeping takes the seek for a hole in the log and counts the records in it as processed. Here there is no
  gap bookkeeping: the log is not compacted and holds no transaction markers, so a hole is an error, found in the fold.

And it lets a fetch wait 1.5 s for records, which every recovery then takes at its end, and a broker answers each record
by itself. Here a fetch waits a tenth of a second, for many records.

And it takes 0.15 to 0.2 ms for each record, through two queues and four tasks, and starts eight tasks for each fetch
that wait for its end. Here the log records of a fetch are one message (`LogRecords`), whatever their partitions, which
goes to Faust's stream at once, and a fetch starts one task. Rows of the changelog are merged as
they are fetched, and Faust gets the last record of each fetch, from which it knows how far the recovery is.

And it draws a table of the offsets at each commit for a log level that is off: a twelfth of what a decider needs
without evaluations. Here it draws none.

The seek itself does not go to the committed offset but to where the state rows end: `Load` decides. Private names of
Faust are used, hence the exact pin of its version; `tests/pipeline/test_decider.py` and `make chaos` fail without this.

Topics or permissions that are missing end the process before Faust starts (it would idle), and so do stalls that Faust
does not report; a restart recovers from all of them. Known: recovery that waits for ever after a timeout inside it, a
fetch that is never sent after a rebalance, an event loop that hangs. The last is watched from a thread, the others from
the loop.
"""

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from faust.transport import consumer as consumer_module
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage

from runtime.driver import NameTakenError
from runtime.errors import NextStepError
from runtime.hubs import HubTakenError, check_hub
from runtime.kafkaclients import FETCH_MAX_WAIT_MS, FETCH_MIN_BYTES, await_brokers, reader
from runtime.topicadmin import TopicAdmin
from runtime.topicneeds import stamp_problem
from schemas.topics import CHANGELOG, DECIDER_APP_ID, DECISIONS, LOG
from streams.decider.assignment import Assignment, DeciderConfig
from streams.decider.metrics import Metrics
from streams.decider.tail import Exit, Fence, die, leave

# --- what ends a decider ----------------------------------------------------------------------------------------------

_TOPICS = (LOG, DECISIONS, CHANGELOG)


class StartError(NextStepError):
    """The decider cannot start."""

    def __init__(self, code: Exit, what: str, *, next_step: str = "") -> None:
        super().__init__(what, next_step=next_step)
        self.code = code


async def check(config: DeciderConfig) -> int:
    """Check what the decider needs; return the partition count of the log.

    Raises StartError: no broker answers, a topic is missing or unlike the others, a permission is denied.
    """
    try:
        partitions = await _check_topics(config)
        async with reader(config.kafka, group_id=DECIDER_APP_ID) as consumer:
            # What is not readable shows here, not as silence later.
            await consumer.end_offsets([TopicPartition(name, 0) for name in _TOPICS])
            await consumer.committed(TopicPartition(LOG, 0))
        await check_hub(config.kafka, config.hub, partitions)
        return partitions
    except HubTakenError as error:
        raise StartError(Exit.NEEDS_OPERATOR, error.what, next_step=error.next_step) from error
    except GroupAuthorizationFailedError as error:
        raise _denied("group", DECIDER_APP_ID, "READ") from error
    except TopicAuthorizationFailedError as error:
        raise _denied("topic", ", ".join(map(str, error.args)), "READ") from error
    except KafkaConnectionError as error:
        # A broker that is away and a wrong password look the same from here; the first goes by with time.
        raise StartError(Exit.STALLED, _unreachable(config, error)) from error
    except KafkaError as error:
        raise StartError(Exit.NEEDS_OPERATOR, _unreachable(config, error)) from error


async def check_patiently(config: DeciderConfig) -> int:
    """Do what `check` does, once a broker accepts a connection; a signal that comes before that ends the process."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await await_brokers(config.kafka, stop)
    if stop.is_set():
        leave()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
    return await check(config)


async def _check_topics(config: DeciderConfig) -> int:
    async with TopicAdmin(config.kafka) as admin:
        counts = await admin.partitions(_TOPICS)
        stated = await admin.config(LOG)
    if missing := [name for name in _TOPICS if name not in counts]:
        raise StartError(
            Exit.NEEDS_OPERATOR, f"topics are missing: {', '.join(missing)}; run `fleethpa admin topics init`"
        )
    if len(set(counts.values())) != 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise StartError(Exit.NEEDS_OPERATOR, f"topics must have one partition count, for life; they have {listed}")
    if problem := stamp_problem(stated, is_playback=config.playback, option="--playback"):
        raise StartError(Exit.NEEDS_OPERATOR, problem.what, next_step=problem.next_step)
    return counts[LOG]


def _denied(kind: str, name: str, operation: str) -> StartError:
    return StartError(Exit.DENIED, f"Kafka denies {operation} on {kind} {name}; see `fleethpa admin topics acls`")


def _unreachable(config: DeciderConfig, error: KafkaError) -> str:
    return (
        f"cannot use the brokers {config.kafka.bootstrap_servers} with {config.kafka.security_protocol}: {error}; "
        "check the address, the security settings and that the broker runs"
    )


LOOK_S = 1.0
ENDS_S = 5.0
"""How often the ends of the log are asked for; also how old positions and lag in /metrics may be."""


class Watchdog:
    """Watches one worker.

    Args:
        recovering: whether state is being recovered, or no assignment has come yet.
    """

    def __init__(
        self, config: DeciderConfig, assignment: Assignment, metrics: Metrics, recovering: Callable[[], bool]
    ) -> None:
        self._config = config
        self._assignment = assignment
        self._metrics = metrics
        self._recovering = recovering
        self._recovering_since: float | None = time.monotonic()
        self.ends: Mapping[int, int] = {}
        """End offsets of the log, by partition."""

    async def watch(self) -> None:
        """Check once a second, for ever."""
        asked_at, shown = 0.0, None
        async with reader(self._config.kafka) as consumer:
            while True:
                await asyncio.sleep(LOOK_S)
                owned = self._assignment.owned
                if owned.keys() != shown or time.monotonic() - asked_at >= ENDS_S:
                    self.ends = await self._ask_ends(consumer)
                    asked_at, shown = time.monotonic(), set(owned)
                    self._metrics.positions(owned, self.ends)
                if reason := self.stall(time.monotonic()):
                    die(Exit.STALLED, reason)

    def stall(self, now: float) -> str:
        """Return what has stalled at this monotonic time, or an empty text."""
        return self._recovery_stall(now) or self._input_stall(now)

    def _recovery_stall(self, now: float) -> str:
        if not self._recovering():
            if self._recovering_since is not None:
                self._metrics.recovery_seconds.set(now - self._recovering_since)
            self._recovering_since = None
            return ""
        if self._recovering_since is None:
            self._recovering_since = now
        elapsed = now - self._recovering_since
        return f"recovery has not ended after {elapsed:.0f} s" if elapsed > self._config.recovery_s else ""

    def _input_stall(self, now: float) -> str:
        for number, owned in self._assignment.owned.items():
            idle = now - owned.applied_at
            behind = self.ends.get(number, 0) - 1 - owned.partition.applied_offset
            if idle <= self._config.stall_s:
                continue
            if behind > 0:
                return f"log partition {number}: nothing was applied for {idle:.0f} s, but {behind} records wait"
            if self._config.ticks:
                return f"log partition {number}: no tick came for {idle:.0f} s"
        return ""

    async def _ask_ends(self, consumer: AIOKafkaConsumer) -> Mapping[int, int]:
        tps = [TopicPartition(LOG, number) for number in self._assignment.owned]
        if not tps:
            return {}
        try:
            ends = await consumer.end_offsets(tps)
        except KafkaError:  # the broker is away: the last known ends still hold, and a tick that is missing shows, too
            return self.ends
        return {tp.partition: end for tp, end in ends.items()}


def watch_loop(fence: Fence, limit_s: float) -> threading.Thread:
    """Watch from a thread that the event loop turns; a hung loop cannot watch itself."""

    def run() -> None:
        while True:
            time.sleep(LOOK_S)  # a thread of its own: the pause between two looks, not a wait for anything
            if fence.silent_s > limit_s:
                die(Exit.STALLED, f"the event loop has not turned for {fence.silent_s:.0f} s")

    thread = threading.Thread(target=run, name="loop-watchdog", daemon=True)
    thread.start()
    return thread


# --- what is mended ---------------------------------------------------------------------------------------------------

MakeCurrent = Callable[[Iterable[int]], Awaitable[Mapping[int, int] | None]]
"""Make the state of these log partitions current; the offset from which each is to be read. None: superseded."""

MergeRow = Callable[[bytes, bytes | None], None]
"""Merge a record of the changelog into the recovered rows."""

FETCH_WAIT_S = 0.2
"""A seek waits at most this long for a fetch that is under way."""

MOST_RECORDS = 500
"""Log records in one fetch and message. The next message is passed on when the agent has this one, so that at most two
wait to be folded: partitions at the end of their log wait no longer for one that catches up.
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
        recovers = any(tp.topic == CHANGELOG for tp in active_partitions or ())
        records = consumer._max_poll_records if recovers else MOST_RECORDS
        fetch = self._fetch_records(consumer, active_partitions, timeout=timeout, max_records=records)
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(fetch, self.thread_loop))
        except NameTakenError as error:
            die(Exit.FENCED, str(error), error=error)


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
            active = self._without_waiting(set(self._get_active_partitions()))
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
        if log:
            await self._until_taken()
            if self._is_stale(fetched_under):
                return
            self._taken.clear()
            # Nothing waits in the agent's queue, so there is room at once.
            await self.callback(LogRecords(log, self.app.consumer_generation_id))

    def _without_waiting(self, active: set[TP]) -> set[TP]:
        """Leave out log partitions whose turn to be recovered has not come."""
        waiting = self.transport.waiting()
        return {tp for tp in active if tp.topic != LOG or tp.partition not in waiting} if waiting else active

    async def earliest_offsets(self, *tps: TP) -> Mapping[TP, int]:
        """From which offset Faust has to read each partition of the changelog: behind the newest checkpoint, whose rows
        are taken here.
        """
        begins = dict(await super().earliest_offsets(*tps))
        newest = await asyncio.gather(*(self.transport.load_newest(tp.partition) for tp in tps))
        for tp, offset in zip(tps, newest, strict=True):
            # What has been written since Faust asked for the end would be an offset beyond it.
            begins[tp] = max(begins[tp], min(offset, self.app.tables.recovery.active_highwaters[tp] + 1))
        return begins

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

    def __init__(
        self,
        *args: Any,
        merge: MergeRow,
        load: MakeCurrent,
        loaded: Callable[[], None],
        waiting: Callable[[], Collection[int]],
        load_newest: Callable[[int], Awaitable[int]],
    ) -> None:
        super().__init__(*args)
        self.merge = merge
        self.load = load
        self.loaded = loaded
        self.waiting = waiting
        self.load_newest = load_newest
