"""Public records of fleethpa on their topics: writing them, and following a topic from its beginning."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from aiokafka.errors import KafkaTimeoutError
from msgspec import Raw

from runtime import kafkaclients
from schemas.codec import WireError, decode, encode
from schemas.connection import KafkaSettings
from schemas.entries import VERSION, WHOLE_PARTITION_KEY, Body, PublicRecord
from schemas.keys import namespace_key, partition_for
from schemas.topics import SETTINGS

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
        send = partial(kafkaclients.queue, self._producer) if self._waits_for_room else self._producer.send
        queued = await send(topic, value=encode(record), key=key.encode(), partition=partition)
        return await queued

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

B = TypeVar("B", bound=Body)


async def follow_topic(
    settings: KafkaSettings,
    topic: str,
    apply: Callable[[Body, int], None],
    caught_up: Callable[[], None],
    *,
    of_namespace: OfNamespace | None = None,
) -> None:
    """Give every entry of a topic to `apply`, with the time of its record (Unix ms), for ever.

    `caught_up` is called once everything has been given that the topic held at the start. Brokers that cannot be
    reached are waited for.

    Args:
        of_namespace: takes the entries about one namespace, with the cluster and the namespace; they are not given to
            `apply`.
    """
    async with kafkaclients.topic_reader(settings, topic, patient=True) as consumer:
        async with aclosing(kafkaclients.read_to(consumer, await kafkaclients.ends_of(consumer))) as records:
            async for record in records:
                hand_over(record.value, record.timestamp, apply, of_namespace)
        caught_up()
        while True:
            for found in (await consumer.getmany(timeout_ms=1_000)).values():
                for record in found:
                    hand_over(record.value, record.timestamp, apply, of_namespace)


async def newest_entries(settings: KafkaSettings, kind: type[B]) -> list[B]:
    """The entries of one kind that the topic of settings holds now, in their order.

    Raises KafkaConnectionError: no broker can be reached. Raises KafkaTimeoutError: the brokers took too long for
    somebody who waits at a terminal.
    """
    found: list[B] = []

    def take(entry: Body, _: int) -> None:
        if isinstance(entry, kind):
            found.append(entry)

    try:
        async with asyncio.timeout(ANSWER_WITHIN_S), kafkaclients.topic_reader(settings, SETTINGS) as consumer:
            ends = await kafkaclients.ends_of(consumer)
            async with aclosing(kafkaclients.read_to(consumer, ends)) as records:
                async for record in records:
                    hand_over(record.value, record.timestamp, take, None)
    except TimeoutError as error:
        raise KafkaTimeoutError(f"the brokers did not answer within {ANSWER_WITHIN_S:g} s") from error
    return found


def hand_over(value: bytes, time_ms: int, apply: Callable[[Body, int], None], of_namespace: OfNamespace | None) -> None:
    """Give the entries of a record to those who take them; one that is no public record is logged and passed over."""
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
