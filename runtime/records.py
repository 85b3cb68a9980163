"""Follow `fleethpa.settings` from its beginning: settings, pauses, and which clusters have an agent; or the breaker's
topic.

Write public records: explicit partition, the namespace's key, one encoder.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from aiokafka.errors import KafkaTimeoutError
from msgspec import Raw

from runtime import kafkaclients
from schemas.agents import AgentSet
from schemas.codec import WireError, decode, encode
from schemas.connection import KafkaSettings
from schemas.entries import VERSION, WHOLE_PARTITION_KEY, Body, BreakerCommand, GuardrailResume, PublicRecord
from schemas.keys import namespace_key, partition_for
from schemas.observed import Command
from schemas.settings import SettingsSet
from schemas.topics import BREAKER, SETTINGS

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer
    from aiokafka.structs import RecordMetadata


class TopicMissingError(LookupError):
    """A public topic does not exist."""


class Publisher:
    """Writes bodies to public topics; returns when the brokers have them.

    `waits_for_room`: where the brokers are slower than records come, a record waits until the driver's queue of its
    partition has room for it, however long that takes; otherwise only for as long as a request may take.
    """

    def __init__(self, producer: AIOKafkaProducer, *, waits_for_room: bool = False) -> None:
        self._producer, self._waits_for_room = producer, waits_for_room
        self._partitions: dict[str, int] = {}

    async def send(
        self, topic: str, cluster: str, namespace: str, bodies: Sequence[Body | Raw], time_ms: int
    ) -> RecordMetadata:
        """Write one record and await its acknowledgement; gives its partition and offset.

        A `Raw` body is encoded already. No namespace: settings, under the key of whole partitions.

        Raises KafkaTimeoutError: the driver's queue stayed full, and this publisher does not wait for room.
        """
        entries = cast("list[Body]", bodies)
        record = PublicRecord(v=VERSION, entries=entries, time=time_ms, cluster=cluster, namespace=namespace)
        key = namespace_key(cluster, namespace) if namespace else WHOLE_PARTITION_KEY
        partition = partition_for(key, await self._count(topic))
        queued = await self._queued(topic, encode(record), key.encode(), partition)
        return await queued

    async def _queued(self, topic: str, value: bytes, key: bytes, partition: int) -> asyncio.Future[RecordMetadata]:
        def send() -> Awaitable[asyncio.Future[RecordMetadata]]:
            sent: Awaitable[asyncio.Future[RecordMetadata]]
            sent = self._producer.send(topic, value=value, key=key, partition=partition)
            return sent

        if not self._waits_for_room:
            return await send()
        from runtime.kafkaclients import patiently  # not at the top: commands that write nothing load this module

        return await patiently(send, f"room for a record of {topic}")

    async def _count(self, topic: str) -> int:
        if topic not in self._partitions:
            found = await self._producer.partitions_for(topic)
            if not found:
                raise TopicMissingError(f"topic {topic} does not exist: run `fleethpa topics init`")
            self._partitions[topic] = len(found)
        return self._partitions[topic]


log = logging.getLogger(__name__)

ANSWER_WITHIN_S = 60.0
"""How long a command waits for the newest entries; a process that follows them waits for ever."""

OfNamespace = Callable[[str, str, Body], None]
"""cluster, namespace, entry."""

B = TypeVar("B", SettingsSet, AgentSet, Command, BreakerCommand, GuardrailResume)


async def follow_settings(
    settings: KafkaSettings, apply: Callable[[SettingsSet, int], None], caught_up: Callable[[], None]
) -> None:
    """Hand every entry of settings to `apply`, with the time of its record (Unix ms), for ever.

    `caught_up` is called once everything has been handed over that the topic held at the start.
    """
    await follow_entries(settings, SettingsSet, apply, caught_up)


async def follow_entries(
    settings: KafkaSettings,
    kind: type[B],
    apply: Callable[[B, int], None],
    caught_up: Callable[[], None],
    *,
    patient: bool = True,
) -> None:
    """The same for entries of one kind, on the topic that carries it.

    Args:
        patient: wait for brokers that cannot be reached.
    """

    def take(entry: Body, time_ms: int) -> None:
        if isinstance(entry, kind):
            apply(entry, time_ms)

    await follow_topic(settings, BREAKER if kind is BreakerCommand else SETTINGS, take, caught_up, patient=patient)


async def follow_topic(
    settings: KafkaSettings,
    topic: str,
    apply: Callable[[Body, int], None],
    caught_up: Callable[[], None],
    *,
    patient: bool = True,
    of_namespace: OfNamespace | None = None,
) -> None:
    """The same for all entries of a topic.

    Args:
        of_namespace: takes what a record says of one namespace, with the cluster and the namespace; such records are
            not given to `apply`.
    """
    async with kafkaclients.topic_reader(settings, topic, patient=patient) as consumer:
        ends = await kafkaclients.ends_of(consumer)
        reported = await kafkaclients.has_reached(consumer, ends)
        if reported:
            caught_up()
        while True:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                for record in records:
                    hand_over(record.value, record.timestamp, apply, of_namespace)
            if not reported and await kafkaclients.has_reached(consumer, ends):
                reported = True
                caught_up()


async def newest_entries(settings: KafkaSettings, kind: type[B]) -> list[B]:
    """The entries of one kind that the topic holds now, in their order.

    Raises KafkaConnectionError: no broker can be reached. Raises KafkaTimeoutError: the brokers took too long for
    somebody who waits at a terminal.
    """
    found: list[B] = []
    done = asyncio.Event()
    following = asyncio.create_task(
        follow_entries(settings, kind, lambda entry, _: found.append(entry), done.set, patient=False)
    )
    waiting = asyncio.create_task(done.wait())
    try:
        await asyncio.wait({following, waiting}, timeout=ANSWER_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            following.result()
        if not done.is_set():
            raise KafkaTimeoutError(f"the brokers did not answer within {ANSWER_WITHIN_S:g} s")
        return found
    finally:
        for task in (following, waiting):
            task.cancel()
        await asyncio.gather(following, waiting, return_exceptions=True)


def hand_over(value: bytes, time_ms: int, apply: Callable[[Body, int], None], of_namespace: OfNamespace | None) -> None:
    try:
        record = decode(value, PublicRecord)
    except WireError as error:
        # Ingest rejects it with its position and reason; here it only must not stop the guards.
        log.warning("not a record of ours", extra={"error": str(error)})
        return
    for entry in record.entries:
        if not record.namespace:
            apply(entry, time_ms)
        elif of_namespace is not None:
            of_namespace(record.cluster, record.namespace, entry)
