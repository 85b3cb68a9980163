"""Write public records: explicit partition, the namespace's key, one encoder."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, cast

from msgspec import Raw

from schemas.codec import encode
from schemas.entries import VERSION, WHOLE_PARTITION_KEY, Body, PublicRecord
from schemas.keys import namespace_key, partition_for

if TYPE_CHECKING:
    import asyncio

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

        Raises:
            KafkaTimeoutError: the driver's queue stayed full, and this publisher does not wait for room.
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
