"""The reconciler: decisions in, `/scale` writes, HPA status and Events, outcomes out.

One loop reads the decisions topic and hands each wanted write to its cluster's pool. An offset is committed when all
that
its record asked for has ended and the outcomes are acknowledged, so a kill at any point repeats work and loses none; a
repeated write finds the scale as wanted and ends as applied.
"""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, aclosing

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError, TopicAuthorizationFailedError

from reconciler.apply.actuate import Actuator
from reconciler.apply.clusterworker import WorkerPool
from reconciler.apply.reconcilerconfig import ReconcilerConfig
from reconciler.apply.settingsfollower import follow_settings
from reconciler.apply.statuswriter import Shower, Showing
from reconciler.apply.telemetry import ReconcilerMetrics
from reconciler.clusters.client import ClusterClient
from reconciler.core.fullrecords import FullRecords
from reconciler.core.inbox import Inbox, OffsetProgress, Position, WantedWrite
from reconciler.core.objectbodies import time_ms
from reconciler.core.plan import End, outcome
from reconciler.core.statusplan import wants_events, wants_status
from reconciler.core.writelimits import GuardSettings
from runtime import kafkaclients
from runtime.healthserver import PartHealth
from runtime.publicrecords import Publisher
from schemas.codec import WireError, decode
from schemas.decisions import Decision, ShortDecision
from schemas.keys import namespace_key
from schemas.outcomes import Outcome
from schemas.scales import Serving
from schemas.topics import DECISIONS, OUTCOMES, SCALES

log = logging.getLogger(__name__)
SESSION_TIMEOUT_MS = 11_000
"""Longer than the time to live of a wanted write (10 s): a member that lost its partitions has nothing left to write.
Shorter than the wait for its outcome (15 s), by some seconds: after kill -9 between a write and its outcome another
member gets the partition and finds the write applied before the decider takes it for failed.
"""

LOOK_BACK = 500
"""Where a group has committed nothing yet, so many records of a partition are read again: older wishes are long
stale.
"""
LEARN_BACK_MS = 660_000
"""How far back the full records are read that short ones repeat: the decider writes one every 10 minutes per HPA."""
LEARN_BACK_RECORDS = 2_000
"""So many records are read back where the broker cannot find a time, as the embedded one cannot."""
_SHORT = b"io.fleethpa.decision.short.v1"
_SOURCE = "/clusters/"
_LAST_WORDS_S = 5.0


class _Lane:
    """All that works on one cluster."""

    def __init__(
        self,
        client: ClusterClient,
        wishes: "WorkerPool[str, WantedWrite]",
        shows: "WorkerPool[tuple[str, str], Showing]",
        actuator: Actuator,
        shower: Shower,
    ) -> None:
        self.client, self.wishes, self.shows = client, wishes, shows
        self.actuator, self.shower = actuator, shower


class Reconciler:
    """Reads decisions and carries them out. `health.became_ready` is set once it reads."""

    def __init__(self, config: ReconcilerConfig) -> None:
        self._config = config
        self.health = PartHealth("decisions", "settings")
        self._metrics = ReconcilerMetrics(self.health.registry)
        self._inbox = Inbox()
        self._full = FullRecords()
        self._settings = GuardSettings()
        self._settings_known = asyncio.Event()
        self._ended = asyncio.Event()
        self._reading = asyncio.Event()
        """Set whenever the topic of decisions was looked at; a beat that finds it unset waits."""
        self._session = f"reconciler-{uuid.uuid4().hex[:12]}"
        self._progress: dict[int, OffsetProgress] = {}
        self._committed: dict[int, int] = {}
        self._assignments: Counter[int] = Counter()
        self._lanes: dict[str, _Lane] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; then end what runs and commit. An unexpected error ends it by exception."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.health.served(self._config.web_host, self._config.web_port))
            producer = await stack.enter_async_context(kafkaclients.running_producer(self._config.kafka))
            self._publisher = Publisher(producer)
            # A group member that may not read its topic would wait for ever, and say nothing.
            await producer.partitions_for(DECISIONS)
            consumer = self._group_consumer()
            stack.push_async_callback(consumer.stop)
            self._consumer = consumer
            await self._work(consumer, stop)

    def _group_consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            **kafkaclients.aiokafka_kwargs(self._config.kafka),
            group_id=self._config.group_id,
            enable_auto_commit=False,
            auto_offset_reset="latest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=3_000,
        )

    async def _work(self, consumer: AIOKafkaConsumer, stop: asyncio.Event) -> None:
        self._clients = [ClusterClient(cluster) for cluster in self._config.clusters]
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                tasks = [group.create_task(self._follow_settings()), group.create_task(self._beat())]
                for client in self._clients:
                    tasks += self._open_lane(client, group)
                await self._until_settings_known(stop)
                await consumer.start()
                consumer.subscribe([DECISIONS], listener=_Rebalance(self))
                await self._read(consumer, stop)
                await self._finish(consumer)
                for task in tasks:
                    task.cancel()
        finally:
            for client in self._clients:
                await client.close()

    def _open_lane(self, client: ClusterClient, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        actuator = Actuator(
            client,
            is_newest=self._inbox.is_newest,
            guards=lambda: self._settings.guards(client.name),
            metrics=self._metrics,
            clock=self._config.clock,
            timeout_s=self._config.request_timeout_s,
        )
        shower = Shower(client, metrics=self._metrics, clock=self._config.clock)

        async def carry_out(wish: WantedWrite) -> None:
            await self._end(wish, await actuator.carry_out(wish.decision))

        async def show(showing: Showing) -> None:
            await shower.show(showing)
            self._shown(showing)

        wishes: WorkerPool[str, WantedWrite] = WorkerPool(
            carry_out, workers=self._config.workers, limit=self._config.queue
        )
        shows: WorkerPool[tuple[str, str], Showing] = WorkerPool(
            show, workers=max(1, self._config.workers // 2), limit=self._config.queue
        )
        self._lanes[client.name] = _Lane(client, wishes, shows, actuator, shower)
        return [group.create_task(wishes.run()), group.create_task(shows.run())]

    # --- settings -----------------------------------------------------------------------------------------------------

    async def _follow_settings(self) -> None:
        def caught_up() -> None:
            self.health.ready("settings")
            self._settings_known.set()

        await follow_settings(self._config.kafka, lambda entry, _: self._settings.apply(entry), caught_up)

    async def _until_settings_known(self, stop: asyncio.Event) -> None:
        # A frozen cluster must be known as frozen before the first write.
        waits = {asyncio.create_task(event.wait()) for event in (self._settings_known, stop)}
        _, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()

    # --- being heard --------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Report which clusters are served, for as long as decisions are read: readers tell from it who is missing."""
        while True:
            await self._reading.wait()
            self._reading.clear()
            troubles = {name: lane.actuator.trouble for name, lane in self._lanes.items()}
            body = Serving(
                session=self._session,
                clusters=sorted(self._lanes),
                problems={name: text for name, text in troubles.items() if text},
            )
            try:
                await self._publisher.send(SCALES, "", "", [body], self._config.clock())
            except TopicAuthorizationFailedError:
                raise
            except KafkaError as error:
                # The brokers are away: no decision is read either, and readers rightly find this reconciler silent.
                log.warning("the clusters served could not be reported", extra={"error": repr(error)})
            await asyncio.sleep(self._config.heartbeat_ms / 1000)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _read(self, consumer: AIOKafkaConsumer, stop: asyncio.Event) -> None:
        while not stop.is_set():
            batches = await consumer.getmany(timeout_ms=200, max_records=500)
            if consumer.assignment():
                self.health.ready("decisions")
                self._reading.set()
            for partition, records in batches.items():
                known = self._progress.get(partition.partition)
                if known is not None and records[0].offset < known.next:
                    self.went_back(partition, (await consumer.end_offsets([partition]))[partition])
                for record in records:
                    await self._take(partition.partition, record)
            await self._commit(consumer)
            for name, lane in self._lanes.items():
                self._metrics.waiting.labels(name).set(len(lane.wishes))

    def went_back(self, partition: TopicPartition, end: int) -> None:
        """Reading went back in a partition that ends at `end`: what comes is read once more, or what was read is gone.

        The first is for the inbox to find out. In a topic that was made again the numbers begin anew, too, and what was
        seen before says nothing about them.
        """
        if end < self._progress[partition.partition].next:
            log.warning("the decisions begin again", extra={"partition": partition.partition, "end": end})
            self.revoked([partition])

    async def _take(self, partition: int, record: ConsumerRecord) -> None:
        progress = self._progress.setdefault(partition, OffsetProgress())
        progress.begin(record.offset)
        decision = self._decode(record)
        if isinstance(decision, ShortDecision):
            self._take_short(decision)
        elif decision is not None and decision.cluster in self._lanes:
            self._full.take(decision, partition, self._config.clock())
            position = Position(partition, record.offset, self._assignments[partition])
            await self._accept(self._lanes[decision.cluster], decision, position)
        progress.done(record.offset)

    def _decode(self, record: ConsumerRecord) -> Decision | ShortDecision | None:
        """Read a record; None: it is not for a cluster that is served here, or cannot be read."""
        headers = dict(record.headers)
        source = headers.get("ce_source", b"").decode(errors="replace")
        if source and source.removeprefix(_SOURCE) not in self._lanes:
            return None
        try:
            if headers.get("ce_type") == _SHORT:
                return decode(record.value, ShortDecision)
            return decode(record.value, Decision)
        except WireError as error:
            self._metrics.decisions.labels("unreadable").inc()
            where = f"{record.topic}-{record.partition}@{record.offset}"
            log.error("not a decision record", extra={"position": where, "error": str(error)})
            return None

    def _take_short(self, short: ShortDecision) -> None:
        """Show what a short record says. It asks for no write, and the next one makes up for it where it gets lost."""
        decision = self._full.whole(short)
        lane = self._lanes.get(decision.cluster) if decision is not None else None
        if decision is None or lane is None:
            return
        is_due = lane.shower.is_due(decision, self._settings.status_every_ms(decision.cluster))
        if (is_due and wants_status(decision)) or wants_events(decision):
            self._queue_showing(lane, decision, None, status=is_due)

    async def _accept(self, lane: _Lane, decision: Decision, position: Position) -> None:
        wish, replaced = self._inbox.offer(decision, position)
        for old in replaced:
            # One that is being worked on finds out by itself, before it writes.
            if lane.wishes.take_back(old.decision.id) is not None:
                self._end_later(old, End("superseded", "a newer decision took its place"))
        if wish is not None:
            self._metrics.decisions.labels("write").inc()
            self._progress[position.partition].begin(position.offset)
            overflow = lane.wishes.put(decision.id, wish)
            if overflow is not None:
                self._end_later(overflow, End("failed", "too many writes wait for this cluster"))
        if wants_status(decision) or wants_events(decision):
            self._queue_showing(lane, decision, position)

    def _queue_showing(
        self, lane: _Lane, decision: Decision, position: Position | None, *, status: bool = True
    ) -> None:
        self._metrics.decisions.labels("show").inc()
        key = (decision.namespace, decision.name)
        showing = lane.shows.waiting(key) or Showing()
        showing.add(decision, position, status=status)
        if position is not None:
            self._progress[position.partition].begin(position.offset)
        overflow = lane.shows.put(key, showing)
        if overflow is not None:
            self._shown(overflow)

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _end_later(self, wish: WantedWrite, end: End) -> None:
        self._group.create_task(self._end(wish, outcome(wish.decision, end)))

    async def _end(self, wish: WantedWrite, ended: Outcome) -> None:
        if self._is_ours(wish.position):
            await self._tell(wish, ended)
            self._inbox.ended(wish.decision)
            self._done(wish.position)
        elif ended.result == "applied":
            await self._tell(wish, ended)
        # Else it is for the partition's owner of now, who reads the decision again, to say what becomes of it: the
        # first outcome counts, and ours only says that we gave it up.

    async def _tell(self, wish: WantedWrite, ended: Outcome) -> None:
        decision = wish.decision
        now = self._config.clock()
        await self._publisher.send(OUTCOMES, decision.cluster, decision.namespace, [ended], now)
        self._metrics.outcomes.labels(decision.cluster, ended.result).inc()
        if ended.result == "applied":
            self._metrics.actuation.labels(decision.cluster).observe(
                max(0, now - (time_ms(decision.time) or now)) / 1000
            )
        log.info(
            "wanted write ended",
            extra={
                "decision": decision.id,
                "hpa": f"{namespace_key(decision.cluster, decision.namespace)}/{decision.name}",
                "wants": decision.wants,
                "result": ended.result,
                "error": ended.error,
            },
        )

    def _shown(self, showing: Showing) -> None:
        for position in showing.positions:
            self._done(position)

    def _is_ours(self, position: Position) -> bool:
        return position.assignment == self._assignments[position.partition]

    def _done(self, position: Position) -> None:
        if self._is_ours(position) and (progress := self._progress.get(position.partition)) is not None:
            progress.done(position.offset)
        self._ended.set()

    async def _commit(self, consumer: AIOKafkaConsumer) -> None:
        offsets = {
            TopicPartition(DECISIONS, partition): progress.committable
            for partition, progress in self._progress.items()
            if progress.committable > self._committed.get(partition, -1)
        }
        offsets = {partition: offset for partition, offset in offsets.items() if partition in consumer.assignment()}
        if not offsets:
            return
        try:
            await consumer.commit(offsets)
        except (CommitFailedError, IllegalStateError) as error:
            # The group moved on between two polls; who owns the partition now reads these records again.
            log.warning("offsets not committed", extra={"error": str(error)})
            return
        self._committed |= {partition.partition: offset for partition, offset in offsets.items()}

    async def _finish(self, consumer: AIOKafkaConsumer) -> None:
        """Let what was begun end, for a short while; the rest is read again by whoever comes next."""
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                while any(progress.open for progress in self._progress.values()):
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            log.warning("ended with work open; it is done again at the next start")
        await self._commit(consumer)

    # --- rebalancing --------------------------------------------------------------------------------------------------

    async def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin where the group has committed, or a little before the end."""
        begins = {}
        for partition in partitions:
            begins[partition] = await self._consumer.committed(partition)
            if begins[partition] is None:
                end = (await self._consumer.end_offsets([partition]))[partition]
                first = (await self._consumer.beginning_offsets([partition]))[partition]
                begins[partition] = max(first, end - LOOK_BACK)
                self._consumer.seek(partition, begins[partition])
        if begins:
            self._begin_learning(begins)

    def _begin_learning(self, ends: dict[TopicPartition, int]) -> None:
        learning = self._learn(ends)
        try:
            self._group.create_task(learning)
        except RuntimeError:
            # The rebalance comes while the process ends: its tasks are over, and whoever comes next reads for itself.
            learning.close()

    async def _learn(self, ends: dict[TopicPartition, int]) -> None:
        """Read the full records before these offsets, which the short ones after them repeat."""
        assignments = {partition: self._assignments[partition.partition] for partition in ends}
        try:
            since_ms = self._config.clock() - LEARN_BACK_MS
            async with aclosing(
                kafkaclients.look_back(self._config.kafka, ends, since_ms, LEARN_BACK_RECORDS)
            ) as records:
                async for partition, record in records:
                    if assignments[partition] != self._assignments[partition.partition]:
                        continue
                    decision = None if dict(record.headers).get("ce_type") == _SHORT else self._decode(record)
                    if isinstance(decision, Decision) and decision.cluster in self._lanes:
                        self._full.take(decision, partition.partition, self._config.clock())
        except KafkaError as error:
            # Statuses are shown from the next full records on, ten minutes later at the latest.
            log.warning("earlier decisions could not be read", extra={"error": repr(error)})

    def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Give up what waits of these partitions: their new owner reads it again."""
        numbers = {partition.partition for partition in partitions}
        for wish in self._inbox.forget(numbers):
            self._lanes[wish.decision.cluster].wishes.take_back(wish.decision.id)
        self._full.forget(numbers)
        for number in numbers:
            self._assignments[number] += 1
            self._progress.pop(number, None)
            self._committed.pop(number, None)


class _Rebalance(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._reconciler.revoked(revoked)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        await self._reconciler.assigned(assigned)


async def run_reconciler(
    config: ReconcilerConfig, stop: asyncio.Event, announce: Callable[[int], None] | None = None
) -> None:
    """Run a reconciler until `stop` is set; `announce` is told the port of its health once it serves (0: it does
    not).
    """
    part = Reconciler(config)
    await part.health.accompany(part.run(stop), announce)
