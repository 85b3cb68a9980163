"""Where read verbs get state, decisions and log from: the topics of a running fleet, or an archive folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from fleethpa.cli.common.configuration import Config
from fleethpa.cli.common.decisionreading import Expander, Recorded, expand_all
from schemas.topics import CHANGELOG, DECISIONS, LOG

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer

    from schemas.connection import KafkaSettings

CHUNK: Final = 1_000
"""Decisions of a partition read at first, from its end backwards."""

BEYOND_MS: Final = 15 * 60_000
"""How far the times of the decisions topic are taken to be from log time at first."""

Enough = Callable[[int, list[Recorded]], bool]
"""Whether the decisions of a partition, oldest first, reach far enough back."""


@dataclass(frozen=True)
class LogRecordAt:
    """A record of the log and where it stands."""

    partition: int
    offset: int
    timestamp_ms: int
    value: bytes


class Reader(Protocol):
    """A source of everything that read verbs show."""

    name: str
    read: int
    """How many log records have been read so far."""

    async def rows(self) -> Mapping[bytes, bytes]:
        """The newest state rows of all partitions."""
        ...

    async def count(self) -> int:
        """How many partitions there are."""
        ...

    async def tail(
        self, enough: Enough, partitions: Iterable[int] | None = None, upto_ms: int | None = None
    ) -> dict[int, list[Recorded]]:
        """The newest decisions of each partition, oldest first, as far back as `enough` asks (or the source holds).

        `upto_ms`: decisions later than this log time are not needed; where it is cheap, they are not read.
        """
        ...

    def follow(self) -> AsyncIterator[Recorded]:
        """Decisions from now on, as they are made."""
        ...

    async def checkpoint(
        self, partition: int, *, below: int | None = None, before_ms: int | None = None
    ) -> Mapping[bytes, bytes]:
        """State rows to fold the log on from, empty where none are stored: see `pastsources.Source.checkpoint`."""
        ...

    def log(self, partition: int, first: int) -> AsyncGenerator[LogRecordAt, None]:
        """The log of a partition from offset `first` to its end as of now; whoever stops early closes it."""
        ...


@asynccontextmanager
async def open_reader(source: str, config: Config) -> AsyncIterator[Reader]:
    """Open `kafka` or an archive folder.

    Raises:
        CommandError: brokers cannot be reached (exit 3), or the folder is no archive (exit 2).
    """
    if source == "kafka":
        async with _open_kafka(config) as reader:
            yield reader
    else:
        from fleethpa.cli.common.archivereader import ArchiveReader

        yield ArchiveReader(Path(source))


@asynccontextmanager
async def _open_kafka(config: Config) -> AsyncIterator[KafkaReader]:
    from fleethpa.cli.common.brokerconnection import client_settings, connecting, partition_counts
    from runtime import kafkaclients

    settings = client_settings(config)
    brokers = settings.bootstrap_servers
    async with AsyncExitStack() as stack:
        async with connecting(brokers):
            consumer = await stack.enter_async_context(kafkaclients.reader(settings))
            counts = await partition_counts(consumer, (LOG, DECISIONS, CHANGELOG), brokers)
        yield KafkaReader(consumer, counts, settings)


class KafkaReader:
    """Reads the topics of a running fleet in no consumer group: it commits nothing and disturbs nobody."""

    def __init__(self, consumer: AIOKafkaConsumer, counts: Mapping[str, int], settings: KafkaSettings) -> None:
        from aiokafka import TopicPartition

        self._consumer, self._counts, self._settings = consumer, counts, settings
        self.name = settings.bootstrap_servers
        self.read = 0
        # Everything is assigned at once (`runtime.kafkaclients.reader` says why); what is not being read is paused.
        everything = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
        consumer.assign(everything)
        consumer.pause(*everything)

    async def rows(self) -> Mapping[bytes, bytes]:
        from streams.state.rowcopies import merge_row

        newest: dict[bytes, bytes] = {}
        for records in (await self._whole(CHANGELOG)).values():
            for record in records:
                if record.value is not None:
                    merge_row(newest, record.key, record.value)
        return newest

    async def count(self) -> int:
        return self._counts[LOG]

    async def tail(
        self, enough: Enough, partitions: Iterable[int] | None = None, upto_ms: int | None = None
    ) -> dict[int, list[Recorded]]:
        wanted = range(self._counts[DECISIONS]) if partitions is None else partitions
        spans = await self._spans(DECISIONS, wanted)
        ends = {part: end for part, (_, end) in spans.items()}
        if upto_ms is not None:
            spans = await self._upto(spans, upto_ms + BEYOND_MS)
        found: dict[int, list[Recorded]] = {}
        size = CHUNK
        while spans:
            ranges = {part: (max(first, end - size), end) for part, (first, end) in spans.items()}
            for part, records in (await self._fetch(ranges)).items():
                decisions, lacking = expand_all(part.partition, ((r.offset, r.value) for r in records))
                found[part.partition] = decisions
                first, end = spans[part]
                if end < ends[part] and (not decisions or decisions[-1].time_ms <= (upto_ms or 0)):
                    # The decider lagged: the topic's times are later than the decisions' own.
                    spans[part] = (first, ends[part])
                elif ranges[part][0] <= first or (not lacking and enough(part.partition, decisions)):
                    del spans[part]
            size *= 4
        return found

    async def _upto(self, spans: Mapping[Any, tuple[int, int]], time_ms: int) -> dict[Any, tuple[int, int]]:
        """The spans, ended where the topic's times pass a time; as they are where no index says so."""
        later = await self._consumer.offsets_for_times(dict.fromkeys(spans, max(0, time_ms)))
        return {
            part: (first, max(first, later[part].offset) if later[part] is not None else end)
            for part, (first, end) in spans.items()
        }

    async def follow(self) -> AsyncIterator[Recorded]:
        expanders = {number: Expander() for number in range(self._counts[DECISIONS])}
        spans = await self._spans(DECISIONS, expanders)
        ends = {part: end for part, (_, end) in spans.items()}
        # Short decisions repeat earlier full ones, so a stretch before the end is read first.
        for part, (first, end) in spans.items():
            self._consumer.seek(part, max(first, end - CHUNK))
        self._consumer.resume(*spans)
        while True:
            batches = await self._consumer.getmany(*spans, timeout_ms=500)
            for part, records in batches.items():
                for record in records:
                    taken = expanders[part.partition].take(part.partition, record.offset, record.value)
                    if taken is not None and record.offset >= ends[part]:
                        yield taken

    async def checkpoint(
        self, partition: int, *, below: int | None = None, before_ms: int | None = None
    ) -> Mapping[bytes, bytes]:
        from streams.history.pastsources import KafkaSource

        return await KafkaSource(self._settings).checkpoint(partition, below=below, before_ms=before_ms)

    async def log(self, partition: int, first: int) -> AsyncGenerator[LogRecordAt, None]:
        from runtime import kafkaclients

        for part, (start, end) in (await self._spans(LOG, [partition])).items():
            self._consumer.resume(part)
            try:
                async with aclosing(kafkaclients.read_range(self._consumer, part, max(first, start), end)) as records:
                    async for record in records:
                        self.read += 1
                        yield LogRecordAt(partition, record.offset, record.timestamp, record.value)
            finally:
                self._consumer.pause(part)

    async def _spans(self, topic: str, partitions: Iterable[int]) -> dict[Any, tuple[int, int]]:
        from aiokafka import TopicPartition

        parts = [TopicPartition(topic, number) for number in partitions if number < self._counts[topic]]
        first, end = await asyncio.gather(self._consumer.beginning_offsets(parts), self._consumer.end_offsets(parts))
        return {part: (first[part], end[part]) for part in parts}

    async def _whole(self, topic: str) -> dict[Any, list[Any]]:
        return await self._fetch(await self._spans(topic, range(self._counts[topic])))

    async def _fetch(self, ranges: Mapping[Any, tuple[int, int]]) -> dict[Any, list[Any]]:
        """Read [first, end) of assigned partitions, all at the same time."""
        found: dict[Any, list[Any]] = {part: [] for part in ranges}
        left = {part: end for part, (first, end) in ranges.items() if first < end}
        for part in left:
            self._consumer.seek(part, ranges[part][0])
        self._consumer.resume(*left)
        while left:
            for part, records in (await self._consumer.getmany(*left, timeout_ms=200)).items():
                found[part] += [record for record in records if record.offset < left[part]]
            # Positions, not records: the last offsets of a range may be transaction markers or compacted away.
            done = [part for part, end in left.items() if await self._consumer.position(part) >= end]
            self._consumer.pause(*done)
            for part in done:
                del left[part]
        return found
