"""Write public records: explicit partition, the namespace's key, one encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from schemas.codec import encode
from schemas.entries import VERSION, WHOLE_PARTITION_KEY, Body, PublicRecord
from schemas.keys import namespace_key, partition_for

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer
    from aiokafka.structs import RecordMetadata


class TopicMissingError(LookupError):
    """A public topic does not exist."""


class Publisher:
    """Writes bodies to public topics; returns when the brokers have them."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer
        self._partitions: dict[str, int] = {}

    async def send(
        self, topic: str, cluster: str, namespace: str, bodies: Sequence[Body], time_ms: int
    ) -> RecordMetadata:
        """Write one record and await its acknowledgement; gives its partition and offset.

        No namespace: settings, under the key of whole partitions.
        """
        record = PublicRecord(v=VERSION, entries=list(bodies), time=time_ms, cluster=cluster, namespace=namespace)
        key = namespace_key(cluster, namespace) if namespace else WHOLE_PARTITION_KEY
        partition = partition_for(key, await self._count(topic))
        return await self._producer.send_and_wait(topic, value=encode(record), key=key.encode(), partition=partition)

    async def _count(self, topic: str) -> int:
        if topic not in self._partitions:
            found = await self._producer.partitions_for(topic)
            if not found:
                raise TopicMissingError(f"topic {topic} does not exist: run `fleethpa topics init`")
            self._partitions[topic] = len(found)
        return self._partitions[topic]
