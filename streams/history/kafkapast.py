"""The past as the topics of a running fleet hold it, read in no consumer group: nothing is committed or disturbed.

State rows as of a checkpoint are found in the changelog, whose compaction keeps every version for an hour at least
(`schemas.topics`); `checkpointrows` knows which of them belong together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from runtime import kafkaclients
from runtime.groups import SIGN_EVERY_S, last_signs
from runtime.kafkaclients import OffsetBounds
from runtime.log import wall_clock_ms
from schemas import topics
from schemas.connection import KafkaSettings
from schemas.decisions import links_of
from streams.archive.layout import BAD_JSON, DECISIONS, LOG, ArchivedRecord, MissingTopicError, archived
from streams.history.checkpointrows import NewestCheckpoint, OldestCheckpoint, restorable, without
from streams.history.past import Past
from streams.state.rowcodec import applied_offset

TOPICS = {LOG: topics.LOG, DECISIONS: topics.DECISIONS}
STRETCH = 250
"""Decisions of a partition that are read first, from its end backwards; then twice as many, and so on."""
ROWS = 256
"""Records of the changelog that are read first, from its end backwards; then twice as many, and so on."""


MOST_LOOKUPS = 16
"""Places of the changelog in which rows are looked up, unlike all of it; each takes some twenty fetches."""


class KafkaPast(Past):
    """The topics of a running fleet.

    Each reading opens a consumer of its own, unless the past is `opened`: then all share one.
    """

    def __init__(self, settings: KafkaSettings, at_ms: int | None = None) -> None:
        super().__init__(settings.bootstrap_servers, at_ms)
        self.settings = settings
        self._shared: AIOKafkaConsumer | None = None
        self._counts: dict[str, int] = {}
        self._asked: set[TopicPartition] = set()
        self._asking: asyncio.Task[dict[TopicPartition, OffsetBounds]] | None = None
        self._signs: Mapping[topics.QuietProcess, int] = {}
        self._signs_read_s = -SIGN_EVERY_S

    def __reduce__(self) -> tuple[type[KafkaPast], tuple[KafkaSettings, int | None]]:
        return KafkaPast, (self.settings, self.at_ms)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[KafkaPast]:
        """Share one consumer among all readings. Raises MissingTopicError: log, decisions or changelog do not exist."""
        async with kafkaclients.reader(self.settings) as consumer:
            self._counts = await kafkaclients.partition_counts(consumer)
            for topic in (topics.LOG, topics.DECISIONS, topics.CHANGELOG):
                if not self._counts.get(topic):
                    raise MissingTopicError(topic)
            # Everything is assigned at once (`kafkaclients.reader` says why); what is not being read is paused.
            everything = [
                TopicPartition(topic, number)
                for topic in (topics.LOG, topics.DECISIONS, topics.CHANGELOG)
                for number in range(self._counts[topic])
            ]
            consumer.assign(everything)
            consumer.pause(*everything)
            self._shared = consumer
            try:
                yield self
            finally:
                self._shared = None

    # --- consumers --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _consumer(self, *parts: TopicPartition) -> AsyncIterator[AIOKafkaConsumer]:
        if self._shared is not None:
            yield self._shared
            return
        async with kafkaclients.reader(self.settings, parts) as consumer:
            yield consumer

    @asynccontextmanager
    async def _reading(
        self, topic: str, partition: int
    ) -> AsyncIterator[tuple[AIOKafkaConsumer, TopicPartition, OffsetBounds]]:
        part = TopicPartition(topic, partition)
        async with self._consumer(part) as consumer:
            yield consumer, part, await self._span(consumer, part)

    async def _span(self, consumer: AIOKafkaConsumer, part: TopicPartition) -> OffsetBounds:
        """Return where a partition begins and ends now; those asked about at the same time are asked for at once."""
        if consumer is not self._shared:
            begin, end = await consumer.beginning_offsets([part]), await consumer.end_offsets([part])
            return OffsetBounds(begin[part], end[part])
        if not self._asked or self._asking is None:
            self._asking = asyncio.create_task(self._ask(consumer))
        self._asked.add(part)
        # One of those who wait may be cancelled: the others still want the answer.
        return (await asyncio.shield(self._asking))[part]

    async def _ask(self, consumer: AIOKafkaConsumer) -> dict[TopicPartition, OffsetBounds]:
        await asyncio.sleep(0)  # other callers in this turn of the loop join
        waiting, self._asked = list(self._asked), set()
        begin, end = await asyncio.gather(consumer.beginning_offsets(waiting), consumer.end_offsets(waiting))
        return {part: OffsetBounds(begin[part], end[part]) for part in waiting}

    # --- log and decisions ------------------------------------------------------------------------------------------

    async def partitions(self) -> int:
        if not self._counts:
            async with kafkaclients.reader(self.settings) as consumer:
                self._counts = await kafkaclients.partition_counts(consumer)
        if not self._counts.get(topics.LOG):
            raise MissingTopicError(topics.LOG)
        return self._counts[topics.LOG]

    async def stretches(
        self, topic: str, partition: int, first: int = 0
    ) -> AsyncGenerator[Sequence[ArchivedRecord], None]:
        async with self._reading(TOPICS[topic], partition) as (consumer, part, span):
            stretch = kafkaclients.read_batches(consumer, part, max(span.first, first), span.end)
            async with aclosing(stretch) as batches:
                async for batch in batches:
                    yield list(map(archived, batch))

    async def backwards(
        self, topic: str, partition: int, upto_ms: int | None = None
    ) -> AsyncGenerator[list[ArchivedRecord], None]:
        async with self._reading(TOPICS[topic], partition) as (consumer, part, span):
            end = span.end
            if upto_ms is not None:
                later = (await consumer.offsets_for_times({part: max(0, upto_ms)}))[part]
                end = end if later is None else max(span.first, later.offset)
            lists = kafkaclients.read_backwards(consumer, part, span.first, end, STRETCH)
            async with aclosing(lists):
                async for _, records in lists:
                    yield list(map(archived, records))

    async def arriving(self, positions: dict[int, int]) -> AsyncGenerator[tuple[int, ArchivedRecord], None]:
        parts = [TopicPartition(topics.DECISIONS, number) for number in positions]
        async with self._consumer(*parts) as consumer:
            for part in parts:
                span = await self._span(consumer, part)
                consumer.seek(part, max(span.first, positions[part.partition]))
            consumer.resume(*parts)
            try:
                while True:
                    for part, records in (await consumer.getmany(*parts, timeout_ms=500)).items():
                        for record in records:
                            yield part.partition, archived(record)
            finally:
                consumer.pause(*parts)

    async def offsets(self, topic: str, partition: int) -> range:
        async with self._reading(TOPICS[topic], partition) as (_, _, span):
            return range(span.first, span.end)

    def now_ms(self) -> int:
        return wall_clock_ms()

    async def signs_of_life(self) -> Mapping[topics.QuietProcess, int]:
        now_s = time.monotonic()
        if now_s - self._signs_read_s >= SIGN_EVERY_S:  # each reading takes a connection of its own
            try:
                self._signs = await last_signs(self.settings)
            except KafkaError as error:  # an answer about the fleet does not need these
                unknown = f"whether router, scheduler and archiver run is not known: {error}"
                self.remark(f"{unknown}. Next: fleethpa admin topics acls")
                self._signs = {}
            self._signs_read_s = now_s
        return self._signs

    async def last_ms(self, partition: int) -> int:
        return await self._newest_ms(LOG, partition)

    async def _newest_ms(self, topic: str, partition: int) -> int:
        async with (
            self._reading(TOPICS[topic], partition) as (consumer, part, span),
            aclosing(kafkaclients.read_range(consumer, part, max(span.first, span.end - 1), span.end)) as records,
        ):
            async for record in records:
                return int(record.timestamp)
        return 0

    async def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        part = TopicPartition(TOPICS[topic], partition)
        async with self._consumer(part) as consumer:
            position = (await consumer.offsets_for_times({part: max(0, time_ms)}))[part]
        if position is not None:
            return int(position.offset)
        # Nothing is as late, or it is the embedded broker, which looks nothing up by time.
        kept = await self.offsets(topic, partition)
        return kept.stop if await self._newest_ms(topic, partition) < time_ms else kept.start

    async def first_decision(self, partition: int, seq: int) -> int:
        # Numbers have no gaps and copies only add records: number n is at offset n - 1 or later, but for a topic
        # that was created anew; there the record says so.
        guess = max(0, seq - 1)
        async with aclosing(self.records(DECISIONS, partition, guess)) as records:
            async for record in records:
                try:
                    return guess if links_of(record.value).seq <= seq else 0
                except BAD_JSON:  # reading on from the first one gives the error
                    return 0
        return 0

    # --- state rows -------------------------------------------------------------------------------------------------

    async def newest_rows(self, partition: int) -> Mapping[bytes, bytes]:
        async with self._reading(topics.CHANGELOG, partition) as (consumer, part, span):
            checkpoint = NewestCheckpoint(partition)
            rows = await self._newest(consumer, part, span, checkpoint)
        if checkpoint.own is None or not checkpoint.gone:
            return rows
        # Compaction keeps every row; the embedded broker, which keeps some MB of a partition, may lose quiet ones.
        self.rows_gone |= {key.decode() for key in checkpoint.gone}
        return without(dict(rows), checkpoint.own, checkpoint.gone)

    async def checkpoint_to_continue(self, partition: int) -> tuple[Mapping[bytes, bytes], int] | None:
        """Return the rows of the newest checkpoint, and the offset of the last record of the changelog that ends one:
        what a checkpoint that has not ended has left comes after it. None: finding the rows takes as long as reading
        the changelog from its begin, or one is lost.
        """
        async with self._reading(topics.CHANGELOG, partition) as (consumer, part, span):
            checkpoint = NewestCheckpoint(partition)
            rows = await self._newest(consumer, part, span, checkpoint, MOST_LOOKUPS)
        return None if checkpoint.own is None or checkpoint.missing else (rows, checkpoint.end_record)

    async def checkpoint(
        self, partition: int, *, below: int | None = None, before_ms: int | None = None
    ) -> Mapping[bytes, bytes]:
        part = TopicPartition(topics.CHANGELOG, partition)
        log = TopicPartition(topics.LOG, partition)
        async with self._consumer(part, log) as consumer:
            span, kept = await asyncio.gather(self._span(consumer, part), self._span(consumer, log))
            if below is None and before_ms is None:
                return await self._oldest(consumer, part, span, kept.first) if kept.first else {}
            if below is None:
                later = (await consumer.offsets_for_times({log: max(0, before_ms or 0)}))[log]
                below = kept.end if later is None else later.offset
            end = await self._first_row(consumer, part, span, below)
            newest = NewestCheckpoint(partition, below, before_ms)
            return restorable(
                partition, dict(await self._newest(consumer, part, OffsetBounds(span.first, end), newest))
            )

    async def _newest(
        self,
        consumer: AIOKafkaConsumer,
        part: TopicPartition,
        span: OffsetBounds,
        checkpoint: NewestCheckpoint,
        most: int | None = None,
    ) -> Mapping[bytes, bytes]:
        """Read the changelog from its end backwards; rows that were written long ago are looked up where they are,
        unless they are in more than `most` places.
        """
        lists = kafkaclients.read_backwards(consumer, part, span.first, span.end, ROWS)
        async with aclosing(lists):
            async for top, records in lists:
                for record in reversed(records):
                    checkpoint.add(record.key, record.value, record.offset)
                if checkpoint.own is None:
                    continue
                if checkpoint.missing and top > span.first and span.end - top > 2 * len(checkpoint.named) + ROWS:
                    if most is None or len({*checkpoint.missing.values()}) <= most:
                        await self._look_up(consumer, part, OffsetBounds(span.first, top), checkpoint)
                    break
                if not checkpoint.missing:
                    break
        checkpoint.end()
        return checkpoint.rows

    async def _look_up(
        self, consumer: AIOKafkaConsumer, part: TopicPartition, span: OffsetBounds, checkpoint: NewestCheckpoint
    ) -> None:
        while checkpoint.missing:
            written = max(checkpoint.missing.values())
            first = await self._first_row(consumer, part, span, written)
            async with aclosing(kafkaclients.read_range(consumer, part, first, span.end)) as records:
                async for record in records:
                    checkpoint.add(record.key, record.value)
                    if written not in checkpoint.missing.values():
                        break
            if written in checkpoint.missing.values():
                # An older copy was written late, so that the rows are not in order: all of them are looked at.
                async with aclosing(kafkaclients.read_range(consumer, part, span.first, span.end)) as records:
                    async for record in records:
                        checkpoint.add(record.key, record.value)
                return

    async def _first_row(
        self, consumer: AIOKafkaConsumer, part: TopicPartition, span: OffsetBounds, applied: int
    ) -> int:
        """Return where the rows begin that have applied a log offset: they are written in the order of the log."""

        async def before(offset: int) -> tuple[int, bool]:
            """The next record that holds a row, and whether that row has applied less."""
            async with aclosing(kafkaclients.read_batches(consumer, part, offset, span.end, 1)) as batches:
                async for [record] in batches:
                    if record.value:
                        return record.offset, applied_offset(record.value) < applied
            return span.end, False

        return await _bisected(span, before)

    async def _oldest(
        self, consumer: AIOKafkaConsumer, part: TopicPartition, span: OffsetBounds, kept: int
    ) -> Mapping[bytes, bytes]:
        wanted = OldestCheckpoint(part.partition, kept - 1)
        async with aclosing(kafkaclients.read_range(consumer, part, span.first, span.end)) as records:
            async for record in records:
                if not wanted.add(record.key, record.value):
                    break
        return restorable(part.partition, wanted.rows)


async def _bisected(span: OffsetBounds, before: Callable[[int], Awaitable[tuple[int, bool]]]) -> int:
    """Return the first offset of a span at which `before` does not hold; it holds up to there and no further."""
    low, high = span
    while low < high:
        middle = (low + high) // 2
        record, is_before = await before(middle)
        if is_before:
            low = record + 1
        else:
            high = middle
    return low
