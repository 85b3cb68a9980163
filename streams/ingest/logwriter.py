"""The writing end: log records and rejected records, acknowledged by all replicas before offsets may be committed."""

import asyncio
from collections.abc import Awaitable, Iterable

from aiokafka import AIOKafkaProducer

from runtime.kafkaclients import patiently
from schemas.topics import LOG, REJECTED
from streams.ingest.batch import Batch
from streams.ingest.reject import Rejected


class LogWriter:
    """Appends to the log.

    Args:
        last_times: for playback: timestamp (ms) of the last record per partition; None lets the broker stamp.
    """

    def __init__(self, producer: AIOKafkaProducer, last_times: dict[int, int] | None) -> None:
        self._producer = producer
        self._last_times = last_times

    async def write(self, batches: Iterable[Batch], rejects: Iterable[Rejected]) -> None:
        """Send all and wait until the brokers have all of it.

        Raises:
            KafkaError: something was not written; nothing of this may then be committed.
        """
        sent = [await self._append(batch) for batch in batches]
        for reject in rejects:
            sent.append(await self._reject(reject))
        await asyncio.gather(*sent)

    async def _append(self, batch: Batch) -> "asyncio.Future[object]":
        key, stamp_ms = batch.key.encode(), self._stamp(batch)

        def send() -> "Awaitable[asyncio.Future[object]]":
            sent: Awaitable[asyncio.Future[object]]
            sent = self._producer.send(LOG, batch.value, key=key, partition=batch.partition, timestamp_ms=stamp_ms)
            return sent

        return await patiently(send, f"room for a record of {LOG}")

    async def _reject(self, reject: Rejected) -> "asyncio.Future[object]":
        def send() -> "Awaitable[asyncio.Future[object]]":
            sent: Awaitable[asyncio.Future[object]]
            sent = self._producer.send(REJECTED, reject.value, headers=reject.headers)
            return sent

        return await patiently(send, f"room for a record of {REJECTED}")

    def _stamp(self, batch: Batch) -> int | None:
        if self._last_times is None:
            return None
        stamp_ms = max(self._last_times.get(batch.partition, 0), batch.time_ms)
        self._last_times[batch.partition] = stamp_ms
        return stamp_ms
