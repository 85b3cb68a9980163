"""Following the log and the decisions into an archive: all partitions, in no consumer group, from strict offsets."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError
from prometheus_client import CollectorRegistry, Counter, Gauge

from runtime import ending
from runtime.ending import first_of, task_group
from runtime.groups import keep_signing
from runtime.kafkaclients import has_reached, partition_counts, reader
from runtime.log import Clock, wall_clock_ms
from runtime.process import PartConfig, health_server
from schemas import topics
from schemas.connection import KafkaSettings
from streams.archive.archiver import ANOTHER, Archiver, SegmentLimits
from streams.archive.layout import LOG, ArchiveError, MissingTopicError, archived
from streams.archive.signing import CheckpointWriter, read_private
from streams.history.kafkapast import TOPICS, KafkaPast

log = logging.getLogger("fleethpa.archive")
NAMES = {topic: name for name, topic in TOPICS.items()}
FETCH_MS = 200
SILENT_S = 60.0
"""Every partition of a running fleet gets a tick each second: after this time without a record something is wrong."""
DRAIN_S = 10.0
"""How long, at the end, decisions that follow from the archived log are waited for."""


@dataclass(frozen=True, kw_only=True)
class ArchiveConfig(PartConfig):
    """The configuration of the archiver.

    `once`: end at what the topics hold now. `flush_ms`: how long a record may wait to be durable. `key`: private key
    file for signed checkpoints; None: none are made. `sign_ms`: how often they are made. `clock`: of heartbeats
    (Unix milliseconds).
    """

    root: Path
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    once: bool = False
    limits: SegmentLimits = field(default_factory=SegmentLimits)
    flush_ms: int = 500
    key: Path | None = None
    sign_ms: int = 60_000
    clock: Clock = wall_clock_ms


class Archived(NamedTuple):
    """How many records a run added to the archive, by topic, and how many it holds at its end."""

    added: dict[str, int]
    held: dict[str, int]


class ArchiverHealth:
    """What the archiver reports of itself."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.records = Counter(
            "fleethpa_archived_records", "Records taken into the archive.", ["topic"], registry=self.registry
        )
        self.flushed = Gauge(
            "fleethpa_archive_flushed_timestamp_seconds", "When records were last made durable.", registry=self.registry
        )
        self._received = time.monotonic()
        self.durable = asyncio.Event()
        """Whether this process has made records durable."""

    def received(self) -> None:
        self._received = time.monotonic()

    def problems(self) -> list[str]:
        """Return what keeps the archive from growing; empty when it is ready."""
        silent_s = time.monotonic() - self._received
        return [f"no record has come in for {silent_s:.0f}s"] if silent_s > SILENT_S else []


async def run_archive(
    config: ArchiveConfig, stop: asyncio.Event, reported: Callable[[int], None] = lambda port: None
) -> Archived:
    """Archive until `stop` is set or, with `once`, until the end as of now.

    Raises ArchiveError: the directory is not usable, or the topics no longer hold what comes next.
    """
    health = ArchiverHealth()
    server = health_server(health.registry, health.problems, host=config.web_host, port=config.web_port)
    reading = reader(config.kafka, auto_offset_reset="none", fetch_max_wait_ms=FETCH_MS)
    try:
        async with reading as consumer, server as port, task_group() as group:
            if config.web_port is not None:
                reported(port)
            if not config.once:
                group.create_task(sign_once_durable(config, health, stop))
            return await _Follower(config, consumer, stop, health).run()
    except OffsetOutOfRangeError as error:
        raise lost(error) from error


def lost(error: OffsetOutOfRangeError) -> ArchiveError:
    """Which records expired, or were deleted, before they were archived."""
    of_parts: Mapping[TopicPartition, int] = error.args[0] if error.args else {}
    parts = ", ".join(f"{part.topic}-{part.partition} from offset {at} on" for part, at in sorted(of_parts.items()))
    what = f"the topics no longer hold what follows in the archive{f': {parts}' if parts else ''}"
    return ArchiveError(what, next_step=ANOTHER)


async def sign_once_durable(config: ArchiveConfig, health: ArchiverHealth, stop: asyncio.Event) -> None:
    """Send heartbeats once records are durable: a process that is started again and again on a full disk sends none."""
    await first_of(stop.wait(), health.durable.wait())
    if health.durable.is_set():
        await keep_signing(config.kafka, "archiver", config.clock, stop)


class _Follower:
    def __init__(
        self, config: ArchiveConfig, consumer: AIOKafkaConsumer, stop: asyncio.Event, health: ArchiverHealth
    ) -> None:
        self._health = health
        self._config, self._consumer, self._stop = config, consumer, stop

    async def run(self) -> Archived:
        partitions = await self._partitions()
        root, key = self._config.root, self._config.key
        checkpoints = None if key is None else CheckpointWriter(root, read_private(key))
        archiver = await asyncio.to_thread(Archiver, root, partitions, self._config.limits, checkpoints)
        before = archiver.records()
        try:
            ends = await self._seek(archiver, [TopicPartition(t, n) for t in NAMES for n in range(partitions)])
            log.info("archiving to %s", self._config.root)
            await self._follow(archiver, ends)
        finally:
            await asyncio.to_thread(archiver.finish)
        held = archiver.records()
        return Archived({topic: held[topic] - before[topic] for topic in held}, held)

    async def _partitions(self) -> int:
        by_topic = await partition_counts(self._consumer)
        counts = {topic: by_topic.get(topic, 0) for topic in NAMES}
        for topic, count in counts.items():
            if not count:
                raise MissingTopicError(topic)
        if len(set(counts.values())) > 1:
            raise ArchiveError(f"{topics.LOG} and {topics.DECISIONS} have different partition counts: {counts}")
        return counts[topics.LOG]

    async def _seek(self, archiver: Archiver, parts: list[TopicPartition]) -> dict[TopicPartition, int]:
        self._consumer.assign(parts)
        firsts, ends = await self._consumer.beginning_offsets(parts), await self._consumer.end_offsets(parts)
        late = [part.partition for part in parts if part.topic == topics.LOG and firsts[part]]
        for number in late:
            if archiver.next_offset(LOG, number) is None:
                archiver.begin_with(number, await self._state_rows(number))
        for part in parts:
            wanted = archiver.next_offset(NAMES[part.topic], part.partition)
            if wanted is not None and not firsts[part] <= wanted <= ends[part]:
                raise ArchiveError(
                    f"{part.topic}-{part.partition} holds offsets {firsts[part]} to {ends[part] - 1}, the archive goes "
                    f"on at {wanted}: what lies between is lost",
                    next_step=ANOTHER,
                )
            self._consumer.seek(part, firsts[part] if wanted is None else wanted)
        return dict(ends)

    async def _state_rows(self, number: int) -> Mapping[bytes, bytes]:
        """The oldest stored state of a partition whose log no longer begins at its first record."""
        has_rows = bool((await partition_counts(self._consumer)).get(topics.CHANGELOG))
        rows = await KafkaPast(self._config.kafka).checkpoint(number) if has_rows else {}
        if not rows:
            raise ArchiveError(
                f"the log no longer begins at its first record, and {topics.CHANGELOG} holds no whole state to start "
                "from; start the decider, or start the archive before the log's retention has passed"
            )
        return rows

    async def _follow(self, archiver: Archiver, ends: dict[TopicPartition, int]) -> None:
        flushed = signed = time.monotonic()
        while not self._stop.is_set():
            batches = await self._consumer.getmany(timeout_ms=FETCH_MS)
            archiver.sign_of_life()
            for part, records in batches.items():
                wanted = ends[part] if self._config.once and part.topic == topics.LOG else None
                self._archive(archiver, part, records, wanted)
            now = time.monotonic()
            done = self._config.once and await has_reached(self._consumer, ends)
            if done or now - flushed >= self._config.flush_ms / 1000:
                await asyncio.to_thread(archiver.flush)
                self._health.flushed.set_to_current_time()
                self._health.durable.set()
                flushed = now
            if now - signed >= self._config.sign_ms / 1000:
                await asyncio.to_thread(archiver.sign)
                signed = now
            if done:
                break
        await self._drain(archiver)

    async def _drain(self, archiver: Archiver) -> None:
        """Read no more of the log, but the decisions that follow from what was taken."""
        await asyncio.to_thread(archiver.flush)
        parts = {number: TopicPartition(topics.DECISIONS, number) for number in archiver.behind()}
        deadline = time.monotonic() + ending.left_s(DRAIN_S)
        while parts and time.monotonic() < deadline:
            batches = await self._consumer.getmany(*parts.values(), timeout_ms=FETCH_MS)
            for part, records in batches.items():
                self._archive(archiver, part, records)
            await asyncio.to_thread(archiver.flush)
            parts = {number: parts[number] for number in archiver.behind() if number in parts}
        if parts:
            log.warning("the decider is behind: decisions of partitions %s are not archived yet", sorted(parts))

    def _archive(
        self, archiver: Archiver, part: TopicPartition, records: list[ConsumerRecord], end: int | None = None
    ) -> None:
        name = NAMES[part.topic]
        for record in records:
            if end is not None and record.offset >= end:
                return
            archiver.append(name, part.partition, archived(record))
            self._health.records.labels(topic=name).inc()
        self._health.received()
