"""Writing to the public topics: explicit partitions, acknowledged, and read back from the log."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from fleethpa.frame.configuration import Config
from fleethpa.frame.errors import UNREACHABLE, CommandError, unreachable
from fleethpa.frame.sources import cannot_talk, client_settings, connecting, partition_counts
from runtime.log import wall_clock_ms
from runtime.records import Publisher
from schemas.codec import WireError, decode
from schemas.connection import KafkaSettings
from schemas.entries import Body, LogRecord
from schemas.topics import AUTOSCALERS, LOG, REJECTED, SETTINGS, SPECS
from streams.ingest.own import topic_of

_POLL_MS: Final = 200


class RefusedRecordError(CommandError):
    """The brokers have refused a record, so that it is not in its topic. Any other failure leaves that open."""


@dataclass(frozen=True)
class SentRecord:
    """A record that the broker has acknowledged: its place, and what it means for the user (`subject`)."""

    subject: str
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


@dataclass(frozen=True)
class Fate:
    """The end of a sent record: `logged` (in the log), `rejected` (with the reason) or `unknown` (neither in time).

    `place`: log partition and offset of a logged one.
    """

    pending: SentRecord
    state: str
    reason: str = ""
    place: tuple[int, int] | None = None


class Writer:
    """A producer of our public records, and a reader of the log's end that notices when they have arrived."""

    def __init__(self, producer: Any, consumer: Any, partitions: int, brokers: str) -> None:
        self._publisher, self._consumer = Publisher(producer), consumer
        self.partitions, self._brokers = partitions, brokers

    async def send(self, subject: str, cluster: str, namespace: str, bodies: Sequence[Body]) -> SentRecord:
        """Write a record about one namespace, or (empty) about a cluster (`*`: all).

        Raises RefusedRecordError: the brokers refused it (exit 3). Raises CommandError: they did not confirm it, so it
        may be written or not (exit 3).
        """
        from aiokafka.errors import BrokerResponseError, KafkaError

        topic = topic_of(namespace, bodies)
        try:
            sent = await self._publisher.send(topic, cluster, namespace, bodies, wall_clock_ms())
        except KafkaError as error:
            if isinstance(error, BrokerResponseError) and not error.retriable:
                what = f"{topic} at {self._brokers} did not accept the record"
                raise RefusedRecordError(
                    what, cause=str(error), next_step="fleethpa doctor", code=UNREACHABLE
                ) from error
            raise unreachable(f"{topic} at {self._brokers} did not confirm the record", cause=str(error)) from error
        return SentRecord(subject, topic, sent.partition, sent.offset)

    async def fates(self, waiting: Iterable[SentRecord], timeout_s: float) -> list[Fate]:
        """Wait until each record is in the log or among the rejected, for at most `timeout_s`.

        Raises CommandError: the log or the rejected cannot be read (exit 3).
        """
        from aiokafka.errors import KafkaError

        open_ = {(p.topic, p.partition, p.offset): p for p in waiting}
        fates: list[Fate] = []
        deadline = time.monotonic() + timeout_s
        while open_ and time.monotonic() < deadline:
            try:
                batches = await self._consumer.getmany(timeout_ms=_POLL_MS)
            except KafkaError as error:
                raise cannot_talk(self._brokers, error) from error
            for records in batches.values():
                for record in records:
                    fates += _fates_in(record, open_)
        return fates + [Fate(pending, "unknown") for pending in open_.values()]


def _fates_in(record: Any, open_: dict[tuple[str, int, int], SentRecord]) -> list[Fate]:
    if record.topic == REJECTED:
        headers = {name: value.decode("utf-8", "replace") for name, value in record.headers}
        position = (headers.get("topic", ""), int(headers.get("partition", -1)), int(headers.get("offset", -1)))
        pending = open_.pop(position, None)
        return [Fate(pending, "rejected", headers.get("reason", ""))] if pending else []
    try:
        entries = decode(record.value, LogRecord).entries
    except WireError:
        return []  # not a record of this log version: it cannot be the one that is waited for
    sources = [entry.source for entry in entries if entry.source]
    arrived = [open_.pop((s.topic, s.partition, s.offset), None) for s in sources]
    place = record.partition, record.offset
    return [Fate(pending, "logged", place=place) for pending in arrived if pending]


async def _started(stack: AsyncExitStack, settings: KafkaSettings, brokers: str) -> Any:
    """A producer that ends with the stack, also where brokers do not take what it was given."""
    from aiokafka.errors import ClusterAuthorizationFailedError

    from runtime import kafkaclients

    try:
        return await stack.enter_async_context(kafkaclients.running_producer(settings, linger_ms=0))
    except ClusterAuthorizationFailedError as error:
        # An idempotent producer is refused at once where its user may write to no topic at all (KIP-679).
        what, cause = f"{brokers} refuses to take records from this user", "It has no permission to write to any topic."
        raise unreachable(what, cause=cause, next_step="fleethpa admin topics acls operator") from error


@asynccontextmanager
async def open_writer(config: Config) -> AsyncIterator[Writer]:
    """Connect a producer and a reader at the log's end.

    Raises CommandError: the brokers cannot be reached, or the topics do not exist (exit 3).
    """
    from aiokafka import TopicPartition

    from runtime import kafkaclients

    settings = client_settings(config)
    brokers = settings.bootstrap_servers
    async with AsyncExitStack() as stack:
        async with connecting(brokers):
            consumer = await stack.enter_async_context(kafkaclients.reader(settings))
            counts = await partition_counts(consumer, (LOG, REJECTED, AUTOSCALERS, SETTINGS, SPECS), brokers)
            producer = await _started(stack, settings, brokers)
        parts = [TopicPartition(topic, number) for topic in (LOG, REJECTED) for number in range(counts[topic])]
        consumer.assign(parts)
        for part, end in (await consumer.end_offsets(parts)).items():
            consumer.seek(part, end)
        yield Writer(producer, consumer, counts[LOG], brokers)
