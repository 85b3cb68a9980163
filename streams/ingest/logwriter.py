"""The writing end: log records and rejected records, acknowledged by all replicas before offsets may be committed."""

import asyncio
from collections.abc import Iterable

from aiokafka import AIOKafkaProducer

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
            sent.append(await self._producer.send(REJECTED, reject.value, headers=reject.headers))
        await asyncio.gather(*sent)

    async def _append(self, batch: Batch) -> "asyncio.Future[object]":
        future: asyncio.Future[object] = await self._producer.send(
            LOG,
            batch.value,
            key=batch.key.encode(),
            partition=batch.partition,
            timestamp_ms=self._stamp(batch),
        )
        return future

    def _stamp(self, batch: Batch) -> int | None:
        if self._last_times is None:
            return None
        stamp_ms = max(self._last_times.get(batch.partition, 0), batch.time_ms)
        self._last_times[batch.partition] = stamp_ms
        return stamp_ms
