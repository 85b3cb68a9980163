"""Plain reads beside Faust's consumer: where the log and the decisions begin and end, published decisions."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from hashlib import sha256
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from runtime.driverlife import stop_soon
from runtime.kafkaclients import OffsetBounds, aiokafka_kwargs, bounds_of, read_range
from schemas.connection import KafkaSettings
from streams.decider.recordedtail import Fetch, RecordedTail, TailHead

FETCH_MS = 1_000


class LastRecord(NamedTuple):
    """A record of the log: its timestamp as the broker gives it, and the SHA-256 of its value."""

    timestamp_ms: int
    digest: bytes


class TailReader:
    """One consumer in no group, shared by the partitions of an assignment; closed when nothing is left to read."""

    def __init__(self, settings: KafkaSettings, log_topic: str, decisions_topic: str) -> None:
        self._consumer = AIOKafkaConsumer(
            **aiokafka_kwargs(settings), group_id=None, enable_auto_commit=False, auto_offset_reset="none"
        )
        self._log_topic = log_topic
        self._decisions_topic = decisions_topic
        self._log: dict[int, OffsetBounds] = {}
        self._decisions: dict[int, OffsetBounds] = {}
        self._standing: list[RecordedTail] = []
        self._applied: dict[int, LastRecord] = {}

    async def start(self, numbers: Iterable[int], from_offsets: Mapping[int, int], applied: Mapping[int, int]) -> None:
        """Connect, and begin to read the decisions from these offsets, or from the first that is left.

        `applied`: the log offsets up to which the states go; the records there are read, where the log still has them.
        """
        await self._consumer.start()
        wanted = list(numbers)
        self._log = await self._bounds(self._log_topic, wanted)
        for number, offset in applied.items():
            if self._log[number].first <= offset < self._log[number].end:
                self._applied[number] = await self._read_log(number, offset)
        decisions = await self._bounds(self._decisions_topic, wanted)
        self._decisions = {
            number: OffsetBounds(min(max(from_offsets[number], first), end), end)
            for number, (first, end) in decisions.items()
        }
        # Only what has something to read, all at once: an idle partition would hold up each fetch of the others.
        unread = {
            TopicPartition(self._decisions_topic, number): first
            for number, (first, end) in self._decisions.items()
            if first < end
        }
        self._consumer.assign(list(unread))
        for tp, first in unread.items():
            self._consumer.seek(tp, first)

    async def stop(self) -> None:
        """Close the connection."""
        await stop_soon(self._consumer)

    async def stop_when_exhausted(self) -> bool:
        """Close the connection if all that stood has been read; whether it is closed."""
        if any(not standing.exhausted for standing in self._standing):
            return False
        await self.stop()
        return True

    def log_bounds(self, number: int) -> OffsetBounds:
        """What the log partition holds."""
        return self._log[number]

    async def _read_log(self, number: int, offset: int) -> LastRecord:
        tp = TopicPartition(self._log_topic, number)
        self._consumer.assign([tp])
        async with aclosing(read_range(self._consumer, tp, offset, offset + 1)) as records:
            async for record in records:
                return LastRecord(record.timestamp, sha256(record.value or b"").digest())
        return LastRecord(0, b"")

    def applied_record(self, number: int) -> LastRecord | None:
        """The record of the log up to which the state of a partition goes; None: the log no longer has its offset."""
        return self._applied.get(number)

    def standing(self, number: int, recovered: TailHead) -> RecordedTail:
        """The published decisions after `recovered`."""
        first, end = self._decisions[number]
        standing = RecordedTail(
            number, recovered, first, end, self._fetch(TopicPartition(self._decisions_topic, number))
        )
        self._standing.append(standing)
        return standing

    def _fetch(self, tp: TopicPartition) -> Fetch:
        async def fetch() -> Sequence[ConsumerRecord]:
            batches = await self._consumer.getmany(tp, timeout_ms=FETCH_MS)
            return list(batches.get(tp, ()))

        return fetch

    async def _bounds(self, topic: str, numbers: Iterable[int]) -> dict[int, OffsetBounds]:
        tps = [TopicPartition(topic, number) for number in numbers]
        if not tps:
            return {}
        return {tp.partition: bounds for tp, bounds in (await bounds_of(self._consumer, tps)).items()}
