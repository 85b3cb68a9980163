"""The Faust app: one agent over the log, one table of state rows, ticks and health. No arithmetic, no decisions.

The rows are raw bytes in memory, recovered from the changelog. Once a second the owner of a log partition appends a
record without entries, so that time passes.
"""

import asyncio
import logging
import os
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import faust
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError
from faust import streams as faust_streams
from faust.auth import OAuthCredentials
from faust.stores import memory
from faust.types import TP
from faust.types.auth import CredentialsT

from runtime import ending
from runtime.hubs import HubTakenError, signature, watch_hub
from runtime.kafkaclients import compress_quickly, ssl_context
from runtime.log import look_for_cycles_seldom, wall_clock_ms
from runtime.process import PortTakenError, health_server
from runtime.tokens import token_provider
from schemas.codec import encode
from schemas.connection import KafkaSettings
from schemas.entries import VERSION, LogRecord
from schemas.limits import MOST_SYNC_PERIODS
from schemas.topics import DECIDER_APP_ID, LOG, STATE_TABLE
from streams.decider.assignment import RECOVER_HINT, Assignment, DeciderConfig, end_of_chain
from streams.decider.batches import Batches
from streams.decider.metrics import Metrics, exposition
from streams.decider.owned import OwnedPartition, RecordTooLargeError
from streams.decider.pace import next_pace
from streams.decider.rebuild import rebuild
from streams.decider.strict import StartError, StrictTransport, Watchdog, check, check_patiently, watch_loop
from streams.decider.tail import BrokenChainError, Exit, Fence, die, leave
from streams.history.kafkapast import KafkaPast
from streams.state.ledger import CoreError, StateError, UnknownEngineError
from streams.state.rowcodec import WholeCheckpoints, row_partition

CLOCK_BEHIND_MS = 60_000
"""Log time stands still while a broker's clock is behind it, and a step that far ahead of it is doubted for a while."""


def problems(assignment: Assignment, *, recovering: bool) -> list[str]:
    """Why this worker is not ready; empty when it is."""
    if recovering:
        return ["recovering state rows or waiting for an assignment"]
    reasons = []
    for number, owned in sorted(assignment.owned.items()):
        behind_ms = owned.behind_clamp_ms
        if abs(behind_ms) > CLOCK_BEHIND_MS:
            way = "behind" if behind_ms > 0 else "ahead of"
            off = f"the broker's clock is {abs(behind_ms) // 1000} s {way} log time"
            reasons.append(f"log partition {number}: {off}. Next: fleethpa admin topics log-time")
    return reasons


class RowStore(memory.Store):  # type: ignore[misc]
    """Faust's memory store, into which whole checkpoints are put."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.checkpoints = WholeCheckpoints(self.data)

    def apply_changelog_batch(self, batch: Iterable[Any], to_key: Any, to_value: Any) -> None:
        """Do nothing: the consumer has merged the rows when it fetched them."""

    def merge(self, key: bytes, value: bytes | None) -> None:
        """Merge a recovered row or its deletion; another record ends the process, since the state would be wrong."""
        try:
            self.checkpoints.add(key, value)
        except StateError as error:
            die(Exit.NEEDS_OPERATOR, f"{error}. {RECOVER_HINT}")
        except (TypeError, ValueError) as error:
            die(Exit.SOFTWARE, f"a changelog record is not a state row: {error!r}", error=error)

    async def on_recovery_completed(self, active_tps: set[TP], standby_tps: set[TP]) -> None:
        """Drop rows of partitions that are no longer owned; not on revoke: kept partitions are not read again."""
        self.checkpoints.end()
        own = {tp.partition for tp in active_tps}
        for key in [key for key in self.data if row_partition(key) not in own]:
            del self.data[key]


class StateTable(faust.Table):  # type: ignore[misc]
    """The decider's one table. Checkpoints write its changelog and `data` themselves, in their own order."""

    def _new_store(self) -> RowStore:
        return RowStore("memory://", self.app, self, table_name=self.name, key_type=bytes, value_type=bytes)


TICKS = [encode(LogRecord(v=VERSION, entries=[], every=every)) for every in range(1, MOST_SYNC_PERIODS + 1)]
TICK_S = 1.0
MOST_UNAPPLIED = 3_600
"""Ticks that are remembered: an hour of lag."""


class Ticker:
    """Appends ticks; none to a partition whose last tick the broker has not acknowledged.

    Those of a partition in which the decider is behind and does not catch up ask for fewer evaluations
    (`streams.decider.pace.next_pace`).
    """

    def __init__(
        self, assignment: Assignment, fence: Fence, producer: Callable[[], AIOKafkaProducer], hub: str = ""
    ) -> None:
        self._headers = signature(hub)
        self._assignment = assignment
        self._fence = fence
        self._producer = producer
        self._under_way: dict[int, asyncio.Future[Any]] = {}
        self._unapplied: dict[int, deque[tuple[int, int]]] = {}
        """Partition → ticks that it may not have applied yet: log offset, and when it was known (this machine's ms)."""

    async def run(self) -> None:
        """Tick for ever. A failed send is raised at the next tick."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + TICK_S, loop.time())
            await asyncio.sleep(due - loop.time())
            await self.tick()

    async def tick(self) -> None:
        """Append one tick to every assigned partition that waits for none."""
        self._fence.check()
        owned, waiting = self._assignment.owned, self._assignment.waiting
        for number in sorted({*owned, *waiting}):
            before, own = self._under_way.get(number), owned.get(number)
            if before is not None:
                if not before.done():
                    continue
                if own is not None:
                    _check_lag(own, *self._lag(own, before.result()))
            every = waiting[number].row.every if own is None else own.pace.every
            self._under_way[number] = await self._producer().send(
                LOG, TICKS[every - 1], key=None, partition=number, headers=self._headers
            )

    def _lag(self, owned: OwnedPartition, tick: Any) -> tuple[int, int]:
        """The time of the newest tick of a partition (ms), and how far the record applied last is behind it (ms).

        Both by the broker's clock. The embedded broker has none, and the times of other producers may be those of other
        clocks: there, both are by this machine's, and the lag is the age of the oldest tick that is not applied.
        """
        partition = owned.partition
        if tick.timestamp >= partition.clock_ms:
            return tick.timestamp, max(0, tick.timestamp - (owned.log_time_ms or partition.clock_ms or tick.timestamp))
        now_ms, unapplied = wall_clock_ms(), self._unapplied.setdefault(owned.number, deque(maxlen=MOST_UNAPPLIED))
        unapplied.append((tick.offset, now_ms))
        while unapplied and unapplied[0][0] <= partition.applied_offset:
            unapplied.popleft()
        return now_ms, max(0, now_ms - unapplied[0][1]) if unapplied else 0


log = logging.getLogger("fleethpa.decider")


def _check_lag(owned: OwnedPartition, now_ms: int, lag_ms: int) -> None:
    """Change the pace of a partition by its lag. `now_ms`: time of the newest tick."""
    before, partition = owned.pace, owned.partition
    owned.pace = next_pace(before, partition.every, now_ms, lag_ms)
    every = owned.pace.every
    if every > before.every:
        text = "log partition %d is %.1f s behind: from now on, an HPA is evaluated once in %d sync periods"
        log.warning(text, owned.number, lag_ms / 1000, every)
    elif every < before.every:
        how = f"once in {every} sync periods" if every > 1 else "in every sync period"
        log.info("log partition %d is not behind any more: from now on, an HPA is evaluated %s", owned.number, how)


HUNG_LOOP_S = 60.0
_NO_CHECKPOINT = "it was to end, and Kafka takes no checkpoint: the next start begins with the last one that it has"
NOISY_LOGGERS = ("faust", "mode", "aiokafka", "streams.decider.strict", "streams.decider.app")


class DeciderApp(faust.App):  # type: ignore[misc]
    """Faust's app, which can run something from its start on; a Faust task waits for the end of the first recovery."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.from_start: list[Callable[[], Awaitable[None]]] = []
        self.client_rack: str | None = None
        """Rack whose replicas the log is fetched from; None: from leaders."""

    async def on_first_start(self) -> None:
        """Start the tasks that must run from the beginning, before anything that can block."""
        await super().on_first_start()
        for begin in self.from_start:
            self.add_future(begin())

    async def on_shutdown(self) -> None:
        """End the process: all is written, the group is left, and Faust would wait two seconds for tasks that idle."""
        await super().on_shutdown()
        if not self.crashed:
            leave()


class DeciderWorker(faust.Worker):  # type: ignore[misc]
    """Faust's worker, whose end takes no longer than that of any other process (`runtime.ending`)."""

    def _schedule_shutdown(self, signal: Any) -> None:
        ending.begin("a signal asked for it", self.loop)
        self.loop.call_later(ending.CANCELLED_S, die, Exit.STALLED, _NO_CHECKPOINT)
        super()._schedule_shutdown(signal)


def create_app(config: DeciderConfig, partitions: int) -> DeciderApp:
    """The app for a log of so many partitions."""
    if faust_streams._CStreamIterator is None:  # the Python twin drops records after a rebalance
        raise StartError(Exit.NEEDS_OPERATOR, "Faust's compiled stream iterator is missing: unset NO_CYTHON, reinstall")
    compress_quickly()
    app = DeciderApp(DECIDER_APP_ID, **_settings(config, partitions), Table=StateTable)
    app.client_rack = config.kafka.client_rack or None
    log_topic = app.topic(LOG, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
    table = app.Table(STATE_TABLE, key_type=bytes, value_type=bytes, partitions=partitions)
    Decider(app, config, partitions, table).attach(log_topic)
    return app


def _settings(config: DeciderConfig, partitions: int) -> dict[str, Any]:
    return {
        "broker": ";".join(f"kafka://{server}" for server in config.kafka.servers),
        "broker_credentials": _credentials(config.kafka),
        "broker_client_id": config.kafka.client_id,
        # Committed offsets only show others how far the log is read: the position is in the state rows.
        "broker_commit_interval": 5.0,
        "broker_max_poll_records": 2000,
        "broker_max_poll_interval": 120.0,
        "broker_session_timeout": config.session_timeout_s,
        "broker_heartbeat_interval": min(3.0, config.session_timeout_s / 3),
        "broker_rebalance_timeout": 30.0,
        "consumer_auto_offset_reset": "earliest",
        "consumer_group_instance_id": config.instance_id,
        # The assignor compares this between restarts of a static member.
        "canonical_url": f"http://{config.instance_id or f'decider-{os.getpid()}'}",
        "datadir": os.path.join(tempfile.gettempdir(), DECIDER_APP_ID),
        "processing_guarantee": "at_least_once",
        "producer_acks": -1,
        "producer_linger": 0.005,
        "producer_max_batch_size": 131_072,
        "producer_request_timeout": 30.0,
        "store": "memory://",
        "stream_buffer_maxsize": 512,
        "stream_recovery_delay": 0.0,
        "stream_wait_empty": True,
        "table_standby_replicas": 0,
        "topic_allow_declare": False,
        "topic_disable_leader": True,
        "topic_partitions": partitions,
        "web_enabled": False,
        "worker_redirect_stdouts": False,
    }


def _credentials(kafka: KafkaSettings) -> CredentialsT | None:
    context = ssl_context(kafka)
    if kafka.uses_tokens:
        return OAuthCredentials(oauth_cb=token_provider(kafka), ssl_context=context)
    if kafka.uses_sasl:
        return faust.SASLCredentials(
            username=kafka.username, password=kafka.password, mechanism=kafka.sasl_mechanism, ssl_context=context
        )
    return faust.SSLCredentials(context=context) if context is not None else None


class Decider:
    """The parts of one worker and how they are attached to the Faust app."""

    def __init__(self, app: DeciderApp, config: DeciderConfig, partitions: int, table: StateTable) -> None:
        self.app = app
        self.config, self.partitions = config, partitions
        self.table = table
        self.metrics = Metrics()
        self.fence = Fence(config.fence_s)
        self.assignment = Assignment(config, partitions, self.fence, checkpoints=lambda: table.data.checkpoints)
        self.batches = Batches(
            config,
            self.assignment,
            self.fence,
            self.metrics,
            producer=self.producer,
            generation=lambda: int(app.consumer_generation_id),
        )

    def attach(self, log_topic: Any) -> None:
        """Attach the parts to the app: transport, agent, hooks, tasks."""
        app = self.app
        app.transport = StrictTransport(
            app.conf.broker_consumer,
            app,
            merge=self.table.data.merge,
            load=self.assignment.load,
            loaded=self.assignment.own_loaded,
            waiting=lambda: self.assignment.waiting,
            load_newest=self.load_newest,
        )
        app.agent(log_topic, name="decide")(self.decide)
        app.on_partitions_revoked.connect(self.leave, weak=False)
        app.on_before_shutdown.connect(self.leave_for_good, weak=False)
        app.from_start.append(self.watch)
        app.from_start.append(self.watch_hub)
        if self.config.web_port is not None:
            app.from_start.append(self.serve)
        if self.config.ticks:
            app.task(self.tick)

    async def load_newest(self, number: int) -> int:
        """Load the rows of the newest checkpoint of a log partition; return the offset of the changelog from which on
        there is more to read, 0 where all of it has to be read.

        The changelog keeps all rows of an hour at least, a hundred times as many as a checkpoint has.
        """
        with ending_on_error():
            try:
                checkpoint = await KafkaPast(self.config.kafka).checkpoint_to_continue(number)
            except StateError:  # a row that cannot be read: recovery comes upon it, and says what to do
                return 0
        if checkpoint is None:
            return 0
        rows, end_record = checkpoint
        self.table.data.checkpoints.replace(number, rows)
        return end_record + 1

    def producer(self) -> Any:
        """The aiokafka producer inside Faust's, which costs a quarter of what going through Faust's topics does."""
        return self.app.producer._producer

    def recovering(self) -> bool:
        """Whether state is being recovered, or no assignment has come yet."""
        return not self.app.tables.recovery.completed.is_set() or self.app.in_recovery or self.app.rebalancing

    async def decide(self, stream: Any) -> None:
        """Process every batch of the log, one after another: the log records of one fetch."""
        with ending_on_error():
            async for event in stream.noack().events():
                # At once: the position is in the state rows, the committed offset means nothing. And a rebalance, which
                # waits for what is not acknowledged, would look for reference cycles meanwhile.
                await stream.ack(event)
                await self.batches.process(event.message.records, event.message.generation_id)

    async def leave(self, *_: Any, **__: Any) -> None:
        """Before a rebalance: finish the current batch, checkpoint, and give up all partitions."""
        with ending_on_error():
            await self.assignment.leave(self.batches.checkpoint)

    async def leave_for_good(self, *_: Any, **__: Any) -> None:
        """Do the same before the end, when the rows are needed no longer."""
        with ending_on_error():
            await self.assignment.leave(self.batches.checkpoint, for_good=True)

    async def watch(self) -> None:
        with ending_on_error():
            self.fence.start()
            watch_loop(self.fence, min(HUNG_LOOP_S, self.config.stall_s))
            await Watchdog(self.config, self.assignment, self.metrics, self.recovering).watch()

    async def watch_hub(self) -> None:
        with ending_on_error():
            await watch_hub(self.config.kafka, self.config.hub, self.partitions)

    async def tick(self) -> None:
        with ending_on_error():
            await Ticker(self.assignment, self.fence, self.producer, self.config.hub).run()

    async def serve(self) -> None:
        with ending_on_error():
            host, port = self.config.web_host, self.config.web_port or 0
            server = health_server(self.metrics.registry, self.problems, further=self.hpa_metrics, host=host, port=port)
            async with server as served:
                print(f"fleethpa decider: http://{host}:{served}", flush=True)
                await asyncio.Event().wait()

    def hpa_metrics(self) -> str:
        """The metrics of the HPAs of all owned partitions, as text."""
        return exposition([owned.partition for owned in list(self.assignment.owned.values())])

    def problems(self) -> list[str]:
        """Why this worker is not ready; empty when it is."""
        return problems(self.assignment, recovering=self.recovering())


@contextmanager
def ending_on_error() -> Iterator[None]:
    """End the process on any error: Faust would log it, count the records as processed and continue."""
    try:
        yield
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        end(error)


def end(error: BaseException) -> None:
    """End the process with the exit code and the text that fit the error."""
    match error:
        case UnknownEngineError():
            die(Exit.NEEDS_OPERATOR, str(error))
        case BrokenChainError():
            end_of_chain(error)
        case CoreError():
            die(Exit.SOFTWARE, str(error))
        case RecordTooLargeError() | PortTakenError() | HubTakenError():
            die(Exit.NEEDS_OPERATOR, str(error))
        case TopicAuthorizationFailedError():
            die(Exit.DENIED, f"Kafka denies a write: {error}; see `fleethpa admin topics acls`")
        case KafkaError():
            die(Exit.STALLED, f"Kafka: {error!r}", error=error)
        case _:
            die(Exit.SOFTWARE, f"unexpected: {error!r}", error=error)


def run_rebuild(config: DeciderConfig, archive: Path | None = None) -> None:
    """Rebuild lost state from an archive, or without one from what the log still holds, and return."""

    async def run() -> None:
        # Somebody does this by hand, while the deciders of the hub stand still; nothing needs its name.
        await rebuild(config, await check(replace(config, hub="")), archive)

    try:
        asyncio.run(run())
    except StartError as error:
        die(error.code, str(error))
    except (CoreError, KafkaError) as error:
        end(error)


def run_decider(config: DeciderConfig) -> None:
    """Run until a signal ends it; exits the process with a code of `Exit` if it cannot continue."""
    try:
        partitions = asyncio.run(check_patiently(config))
        app = create_app(config, partitions)
    except StartError as error:
        die(error.code, str(error))
    log.info("log %s of %d partitions on %s", LOG, partitions, config.kafka.bootstrap_servers)
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    look_for_cycles_seldom()
    devnull = open(os.devnull, "w")  # noqa: SIM115 - Faust's progress spinner; lives as long as the process
    DeciderWorker(
        app, redirect_stdouts=False, override_logging=False, quiet=True, stdout=devnull
    ).execute_from_commandline()
