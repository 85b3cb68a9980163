"""The two topics of an agent: the one that comes to it, with decisions and what it must know, and all that it reports.

Outcomes and heartbeats are reported first, the rest in order: that of the observations of a namespace is kept. An
outcome or a heartbeat that waited behind the full lists of a large cluster would come too late.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, TopicAuthorizationFailedError

from reconciler.apply.clusterwriters import ClusterWriters
from reconciler.core.inbox import Position
from reconciler.core.knowledge import KnowledgeFold, Learnt
from reconciler.observer.clusterview import ObserverMetrics
from reconciler.observer.observertopics import heartbeats, within_limits
from runtime import kafkaclients
from runtime.brokerclock import BrokerClock
from runtime.driver import stop_soon
from runtime.kafkaclients import strict_producer
from runtime.records import Unacknowledged
from schemas.agentknowledge import SNAPSHOT_TYPE, AgentKnowledge
from schemas.agents import ONLY_PARTITION
from schemas.codec import WireError, decode, encode, whole_number
from schemas.connection import KafkaSettings
from schemas.decisions import Decision
from schemas.entries import VERSION, WHOLE_PARTITION_KEY, Body, PublicRecord
from schemas.fitting import split
from schemas.keys import namespace_key
from schemas.observed import ClusterReport, Heartbeat, Serving
from schemas.topics import SCALES

# --- what comes to it -------------------------------------------------------------------------------------------------

log = logging.getLogger(__name__)

OLD_MS = 60_000
"""Decisions older than this at the start of a term are only remembered: their outcome is awaited no longer."""
LOOK_BACK_MS = 660_000
"""How far back a process that starts reads: two snapshots, which come every 5 minutes, and the newest decisions."""
LOOK_BACK_RECORDS = 2_000
"""This many records are read back where the broker cannot look up a time, as the embedded broker cannot."""


class CommandReader:
    """Hands decisions to the writers and knowledge to `learnt`.

    Args:
        now_ms: the brokers' time.
        received: is called with each decision, and whether it is only remembered.
        looked: called whenever the topic was looked at, with whether all was read that it held when it was opened.
        failed: called with why it cannot be read.
    """

    def __init__(
        self,
        topic: str,
        writers: ClusterWriters,
        knowledge: KnowledgeFold,
        *,
        learnt: "Callable[[Learnt], None]",
        received: Callable[[Decision, bool], None],
        looked: Callable[[bool], None],
        failed: Callable[[str], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._partition = TopicPartition(topic, ONLY_PARTITION)
        self._writers, self._knowledge = writers, knowledge
        self._learnt, self._received, self._looked, self._now_ms = learnt, received, looked, now_ms
        self._failed = failed

    async def run(self, settings: KafkaSettings) -> None:
        """Read until cancelled; brokers that are away are asked again without limit."""
        while True:
            try:
                await self._read(settings)
            except KafkaError as error:
                log.error("nothing can be read", extra={"topic": self._partition.topic, "error": repr(error)})
                self._failed(f"{self._partition.topic} cannot be read: {_why(error, 'READ')}")
            await asyncio.sleep(RECONNECT_S)

    async def _read(self, settings: KafkaSettings) -> None:
        tp = self._partition
        async with kafkaclients.reader(settings) as consumer:
            await kafkaclients.check_topic(consumer, tp.topic)  # or the driver would ask for a denied one without end
            consumer.assign([tp])
            end = (await consumer.end_offsets([tp]))[tp]
            await kafkaclients.seek_back(consumer, {tp: end}, self._now_ms() - LOOK_BACK_MS, LOOK_BACK_RECORDS)
            while True:
                for record in (await consumer.getmany(timeout_ms=1_000)).get(tp, ()):
                    is_new = record.offset >= end
                    is_past = not is_new and self._now_ms() - record.timestamp > OLD_MS
                    self.add(record, is_past=is_past, is_new=is_new)
                self._looked(await consumer.position(tp) >= end)

    def add(self, record: ConsumerRecord, *, is_past: bool, is_new: bool = False) -> None:
        """Add one record. A record that cannot be read is logged and passed over.

        Args:
            is_past: it is only remembered.
            is_new: it came after this process began to read.
        """
        if dict(record.headers).get("ce_type") == SNAPSHOT_TYPE:
            self._learn(record)
            return
        decision = self._writers.decode(record)
        # The key is the log partition that the decision's number counts in.
        partition = whole_number(record.key.decode(errors="replace")) if record.key else None
        if decision is None or partition is None:
            return
        self._received(decision, is_past)
        if not is_past:
            self._writers.add(decision, Position(partition, record.offset, is_new=is_new))

    def _learn(self, record: ConsumerRecord) -> None:
        try:
            knowledge = decode(record.value or b"", AgentKnowledge)
        except WireError as error:
            log.error("not a snapshot", extra={"position": f"{record.topic}@{record.offset}", "error": str(error)})
            return
        learnt = self._knowledge.add(knowledge)
        if learnt.hpas or learnt.has_settings:
            self._learnt(learnt)


def _why(error: KafkaError, right: str) -> str:
    """Return the text of a Kafka error; where permission was denied, also which one the agent's Kafka user needs."""
    name, text = type(error).__name__, str(error)
    text = text if name in text else f"{name}: {text}"
    return f"{text}; its Kafka user needs {right} on it" if isinstance(error, TopicAuthorizationFailedError) else text


# --- what it reports --------------------------------------------------------------------------------------------------

LINGER_S = 0.02
WAITING_LIMIT = 20_000
"""Entries that may wait; beyond that the watches wait, too, until Kafka accepts records again."""
AT_ONCE = 16
"""Records of observations that are sent between two checks for something urgent."""
RECONNECT_S = 2.0
REQUEST_TIMEOUT_MS = 10_000
_SIGNS_OF_LIFE = (Heartbeat, ClusterReport, Serving)

Where = tuple[str, str]
"""Cluster and namespace of a record."""


class AgentPublisher:
    """Takes bodies and writes them soon after. Each acknowledgement shows the brokers' time.

    Where the brokers are away, what waits is written once they are back: outcomes and observations all of them, of the
    heartbeats the newest of a kind.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        metrics: ObserverMetrics,
        clock: BrokerClock,
        waits: Unacknowledged | None = None,
    ) -> None:
        self._kafka, self._topic, self._metrics = kafka, topic, metrics
        self._clock = clock
        self._unacknowledged, self._error = waits or Unacknowledged(), ""
        self._producer: AIOKafkaProducer | None = None
        self._outcomes: deque[tuple[Where, Body, asyncio.Future[None]]] = deque()
        self._signs: dict[tuple[Where, type], Body] = {}
        self._batches: dict[Where, list[Body]] = {}
        self._waiting = 0
        self._stated_ms = 0
        self._is_over = False
        self._arrived, self._has_room, self._idle = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._has_room.set()

    @property
    def problem(self) -> str:
        """Why nothing can be written, for `/readyz`; empty: it can. The driver tries for long without an error."""
        return self._error or self._unacknowledged.problem

    async def put(self, topic: str, cluster: str, namespace: str, bodies: list[Body]) -> None:
        """Hand bodies over; waits while too many wait already. `topic` is where an observer of the hub would write."""
        where = (cluster, namespace)
        observed: list[Body] = []
        for body in within_limits(bodies, namespace):
            if isinstance(body, _SIGNS_OF_LIFE):
                self._signs.pop((where, type(body)), None)  # the newest comes last: it may be about more namespaces
                self._signs[where, type(body)] = body
            else:
                observed.append(body)
        self._came()
        if not observed:
            return
        await self._has_room.wait()
        self._batches.setdefault(where, []).extend(observed)
        self._waiting += len(observed)
        self._came()
        if self._waiting >= WAITING_LIMIT:
            self._has_room.clear()

    async def beat(self, cluster: str, namespaces: Sequence[str], body: Heartbeat) -> None:
        """Hand a heartbeat over that is about these namespaces; ingest divides it by partitions of the log."""
        for namespace, beat in heartbeats(namespaces, body):
            await self.put(SCALES, cluster, namespace, [beat])

    async def publish(self, cluster: str, namespace: str, body: Body) -> None:
        """Write one body before all that waits; return once the brokers have it. Cancelled where `run` has ended."""
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._is_over:
            sent.cancel()
        self._outcomes.append(((cluster, namespace), body, sent))
        self._came()
        await sent

    def _came(self) -> None:
        self._idle.clear()
        self._arrived.set()

    async def drained(self) -> None:
        """Wait until nothing waits any more."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                if not self._outcomes:
                    await asyncio.sleep(LINGER_S)  # batching, not synchronisation: what comes now shares a record
                while self._outcomes or self._signs or self._batches:
                    await (self._write_urgent() if self._outcomes or self._signs else self._write_observations())
                self._idle.set()
        finally:
            # What is still queued will not be written: tasks that wait for it must be released.
            self._is_over = True
            for _, _, sent in self._outcomes:
                sent.cancel()
            await self._disconnect()

    async def _write_urgent(self) -> None:
        outcomes, self._outcomes = list(self._outcomes), deque()
        signs, self._signs = self._signs, {}
        grouped: dict[Where, list[Body]] = {}
        for where, body, _ in outcomes:
            grouped.setdefault(where, []).append(body)
        for (where, _), body in signs.items():
            grouped.setdefault(where, []).append(body)
        try:
            await self._send([(where, part) for where, bodies in grouped.items() for part in split(bodies)])
        except asyncio.CancelledError:
            for _, _, sent in outcomes:
                sent.cancel()
            raise
        for _, _, sent in outcomes:
            if not sent.done():
                sent.set_result(None)

    async def _write_observations(self) -> None:
        records: list[tuple[Where, list[Body]]] = []
        for where in list(self._batches):
            parts = list(split(self._batches.pop(where)))
            fitting = parts[: AT_ONCE - len(records)]
            records += [(where, part) for part in fitting]
            if rest := [body for part in parts[len(fitting) :] for body in part]:
                self._batches = {where: rest} | self._batches
            if len(records) == AT_ONCE:
                break
        await self._send(records)
        self._waiting -= sum(len(bodies) for _, bodies in records)
        if self._waiting < WAITING_LIMIT:
            self._has_room.set()

    # --- Kafka --------------------------------------------------------------------------------------------------------

    async def _send(self, records: list[tuple[Where, list[Body]]]) -> None:
        """Write records in their order; tried until it works. What was written twice does no harm."""
        with self._unacknowledged.waiting():
            while not await self._is_sent(records):
                await self._disconnect()
                await asyncio.sleep(RECONNECT_S)

    async def _is_sent(self, records: list[tuple[Where, list[Body]]]) -> bool:
        try:
            await self._try_to_send(records)
        except KafkaError as error:
            text = _why(error, "WRITE")
            self._error = f"{self._topic} cannot be written: {text}"
            log.error("nothing can be reported", extra={"topic": self._topic, "error": text})
            return False
        self._error = ""
        return True

    async def _try_to_send(self, records: list[tuple[Where, list[Body]]]) -> None:
        producer = await self._connected()
        sent_s, now_ms = self._clock.seconds(), self._now_ms()
        acks = []
        for (cluster, namespace), bodies in records:
            record = PublicRecord(v=VERSION, entries=bodies, time=now_ms, cluster=cluster, namespace=namespace)
            key = namespace_key(cluster, namespace) if namespace else WHOLE_PARTITION_KEY
            value = encode(record)
            try:
                sending = producer.send(self._topic, value=value, key=key.encode(), partition=ONLY_PARTITION)
                acks.append(await sending)
            except MessageSizeTooLargeError:
                # No topic will ever take it, and all that waits behind it would wait for ever.
                kinds = ", ".join(sorted({type(body).__name__ for body in bodies}))
                log.error("too large to be reported", extra={"of": key, "kinds": kinds, "bytes": len(value)})
        for ack in await asyncio.gather(*acks):
            self._metrics.records_of(self._topic).inc()
            self._clock.acknowledged(ack, sent_s)

    async def _connected(self) -> AIOKafkaProducer:
        if self._producer is None:
            producer = strict_producer(self._kafka, request_timeout_ms=REQUEST_TIMEOUT_MS)
            try:
                await producer.start()
            except BaseException:  # raised again; a cancellation leaves no connection behind, either
                await stop_soon(producer)
                raise
            self._producer = producer
        return self._producer

    async def _disconnect(self) -> None:
        """A producer that could not write is not used again: its numbering of records may have a hole."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await stop_soon(producer)

    def _now_ms(self) -> int:
        """The brokers' time, which never runs backwards here: readers take what is older for late. 0: it is not known,
        and ingest takes the time at which a broker appended the record.
        """
        if self._clock.problem:
            return 0
        self._stated_ms = max(self._stated_ms, self._clock.now_ms())
        return self._stated_ms
