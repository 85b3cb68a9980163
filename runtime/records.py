"""Public records of fleethpa on their topics: writing them, and following a topic from its beginning."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from aiokafka.errors import KafkaTimeoutError
from msgspec import Raw

from runtime import kafkaclients
from runtime.ending import first_of
from schemas.codec import WireError, decode, encode
from schemas.connection import KafkaSettings
from schemas.entries import VERSION, WHOLE_PARTITION_KEY, Body, PublicRecord, central_name
from schemas.inforce import InForce
from schemas.keys import namespace_key
from schemas.partitioning import by_partition, partition_for
from schemas.settingskeys import settings_records
from schemas.topics import SETTINGS, SPECS

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer, TopicPartition
    from aiokafka.structs import RecordMetadata

    from runtime.driver import EndingConsumer


class TopicMissingError(LookupError):
    """A public topic does not exist."""


LONG_UNACKNOWLEDGED_S = 15.0
"""Whoever writes at all has a heartbeat to write every few seconds, which brokers that work take at once."""


class Unacknowledged:
    """Since when records wait for the brokers, without one that these have taken. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pending = 0
        self._waits_since: float | None = None
        """None: none waits."""

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A record waits while the context is open, which ends when the brokers have it, or it is given up."""
        self._pending += 1
        self._waits_since = self._clock() if self._waits_since is None else self._waits_since
        try:
            yield
        finally:
            self._pending -= 1
        self._waits_since = self._clock() if self._pending else None

    @property
    def problem(self) -> str:
        """That the brokers take no records, for `/readyz`; empty: they do, or nobody has one to write."""
        since = self._waits_since
        if since is None or (waits_s := self._clock() - since) < LONG_UNACKNOWLEDGED_S:
            return ""
        return f"the brokers have taken no record for {waits_s:.0f} s"


class Publisher:
    """Writes bodies to public topics; returns when the brokers have them.

    `waits_for_room`: where the brokers are slower than records come, a record waits until the driver's queue of its
    partition has room for it, however long that takes; otherwise only for as long as a request may take.
    """

    def __init__(
        self, producer: AIOKafkaProducer, *, waits_for_room: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._producer, self._waits_for_room = producer, waits_for_room
        self._partitions: dict[str, int] = {}
        self._unacknowledged = Unacknowledged(clock)

    def problem(self) -> str:
        """Return that the brokers take no records, for `/readyz`; empty: they do, or nobody has one to write."""
        return self._unacknowledged.problem

    async def send(
        self, topic: str, cluster: str, namespace: str, bodies: Sequence[Body | Raw], time_ms: int
    ) -> RecordMetadata:
        """Write one record and await its acknowledgement; return its partition and offset.

        A `Raw` body is encoded already. No namespace: it is about whole clusters. The key of a
        central HPA is its own, since its topic keeps the newest record of each key; its partition is its namespace's.

        Raises KafkaTimeoutError: the driver's queue stayed full, and this publisher does not wait for room.
        """
        with self._unacknowledged.waiting():
            return await self._send(topic, cluster, namespace, bodies, time_ms)

    async def _send(
        self, topic: str, cluster: str, namespace: str, bodies: Sequence[Body | Raw], time_ms: int
    ) -> RecordMetadata:
        if topic == SETTINGS:
            return await self._send_settings(cluster, namespace, bodies, time_ms)
        entries = cast("list[Body]", bodies)
        record = PublicRecord(v=VERSION, entries=entries, time=time_ms, cluster=cluster, namespace=namespace)
        key = namespace_key(cluster, namespace) if namespace else WHOLE_PARTITION_KEY
        if topic == SPECS:
            key = f"{key}/{central_name(entries[0])}"
        partition = await self._partition(topic, cluster, namespace)
        return await (await self._queued(topic, encode(record), key, partition))

    async def _send_settings(
        self, cluster: str, namespace: str, bodies: Sequence[Body | Raw], time_ms: int
    ) -> RecordMetadata:
        """Write what a change of settings or pauses consists of; return the place of what comes first, as `send`."""
        partition = await self._partition(SETTINGS, cluster, namespace)
        sent = []
        for key, entries in settings_records(cluster, namespace, cast("list[Body]", bodies)):
            record = PublicRecord(v=VERSION, entries=list(entries), time=time_ms, cluster=cluster, namespace=namespace)
            sent.append(await self._queued(SETTINGS, encode(record), key, partition))
        return (await asyncio.gather(*sent))[0]

    async def _queued(self, topic: str, value: bytes, key: str, partition: int) -> asyncio.Future[RecordMetadata]:
        send = partial(kafkaclients.queue, self._producer) if self._waits_for_room else self._producer.send
        queued: asyncio.Future[RecordMetadata] = await send(topic, value=value, key=key.encode(), partition=partition)
        return queued

    async def _partition(self, topic: str, cluster: str, namespace: str) -> int:
        key = namespace_key(cluster, namespace) if namespace else WHOLE_PARTITION_KEY
        return partition_for(key, await self._count(topic))

    async def together(self, topic: str, cluster: str, namespaces: Iterable[str]) -> list[list[str]]:
        """Divide namespaces of a cluster into those whose records of a topic are in one partition."""
        return list(by_partition(cluster, namespaces, await self._count(topic)).values())

    async def _count(self, topic: str) -> int:
        if topic not in self._partitions:
            partitions = await self._producer.partitions_for(topic)
            if not partitions:
                raise TopicMissingError(f"topic {topic} does not exist: run `fleethpa admin topics init`")
            self._partitions[topic] = len(partitions)
        return self._partitions[topic]


log = logging.getLogger(__name__)

ANSWER_WITHIN_S = 60.0
"""How long a command waits for the newest entries; a process that follows them waits for ever."""

HandleEntry = Callable[[Body, int, str, str], object]
"""Takes an entry in: with the time of its record (Unix ms), and the cluster and namespace that the record is about."""


async def follow_topic(settings: KafkaSettings, topic: str, handle: HandleEntry, caught_up: Callable[[], None]) -> None:
    """Hand every entry of a topic to `handle`, for ever; one may come up to half a second late. Brokers that cannot
    be reached are waited for. A topic that was deleted and created again is read from its beginning. What the deleted
    one said stays in force, since it may be a pause or a freeze, and the process logs that.

    `caught_up` is called once everything has been handed over that the topic held at the start.
    """
    async with kafkaclients.topic_reader(settings, topic, patient=True, unhurried=True) as consumer:
        ends = await kafkaclients.ends_of(consumer)
        async with aclosing(kafkaclients.read_to(consumer, ends)) as records:
            async for record in records:
                hand_over(record.value, record.timestamp, handle)
        caught_up()
        presence = _Presence(topic, ends)
        while True:
            for fetched in (await consumer.getmany(timeout_ms=1_000)).values():
                for record in fetched:
                    hand_over(record.value, record.timestamp, handle)
            presence.look(consumer)


class _Presence:
    """Logs that the followed topic is missing, is back, or was created again.

    `ends`: its end offsets when it was read.
    """

    def __init__(self, topic: str, ends: Mapping[TopicPartition, int]) -> None:
        self._topic, self._ends, self._is_gone = topic, dict(ends), False

    def look(self, consumer: EndingConsumer) -> None:
        """Compare what is there now with what was there."""
        if not consumer.assignment() and not self._is_gone:
            log.error("%s is not there any more: %s. Next: fleethpa admin topics init", self._topic, _STAYS)
        elif self._is_gone and consumer.assignment():
            log.warning("%s is there again, and is read from its beginning", self._topic)
        self._is_gone = not consumer.assignment()
        before, now = self._ends, consumer.ends_seen()
        if any(end < before.get(part, 0) for part, end in now.items()):
            step = "fleethpa doctor, then state again what is to stay in force"
            log.error("%s was created again, or its records were deleted: %s. Next: %s", self._topic, _STAYS, step)
        self._ends = before | now


_STAYS: Final = "what it said before stays in force here until this process is started again"


async def follow_topics(
    group: asyncio.TaskGroup,
    settings: KafkaSettings,
    handlers: Mapping[str, HandleEntry],
    stop: asyncio.Event,
    caught_up: Callable[[str], None] = lambda topic: None,
) -> list[asyncio.Task[None]]:
    """Follow several topics in tasks of a group, each as `follow_topic` does; `caught_up` is called with its name.

    Returns the tasks once everything was handed over that the topics held at the start, or `stop` is set.
    """
    known = {topic: asyncio.Event() for topic in handlers}

    def read(topic: str) -> None:
        known[topic].set()
        caught_up(topic)

    following = [follow_topic(settings, topic, handle, partial(read, topic)) for topic, handle in handlers.items()]
    tasks = [group.create_task(each) for each in following]
    for event in known.values():
        await first_of(event.wait(), stop.wait())
    return tasks


async def read_in_force(settings: KafkaSettings) -> InForce:
    """Return what the topic of settings states now.

    Raises KafkaConnectionError: no broker can be reached. Raises KafkaTimeoutError: the brokers took too long for
    somebody who waits at a terminal.
    """
    in_force = InForce()
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S), kafkaclients.topic_reader(settings, SETTINGS) as consumer:
            ends = await kafkaclients.ends_of(consumer)
            async with aclosing(kafkaclients.read_to(consumer, ends)) as records:
                async for record in records:
                    hand_over(record.value, record.timestamp, in_force.apply)
    except TimeoutError as error:
        raise KafkaTimeoutError(f"the brokers did not answer within {ANSWER_WITHIN_S:g} s") from error
    return in_force


def hand_over(value: bytes | None, time_ms: int, handle: HandleEntry) -> None:
    """Hand the entries of a record over. One that cannot be read is logged and passed over."""
    try:
        record = decode(value or b"", PublicRecord)
    except WireError as error:
        # Ingest rejects it with its position and reason; here it only must not stop the guards.
        log.warning("not a record of ours", extra={"error": str(error)})
        return
    for entry in record.entries:
        handle(entry, time_ms, record.cluster if record.namespace else "", record.namespace)
