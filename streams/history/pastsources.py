"""Where replay and verification read log and decisions from: an archive's folder, or the topics of a running fleet."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from schemas import topics
from schemas.connection import KafkaSettings
from streams.archive.archiver import is_written
from streams.archive.layout import DECISIONS, LOG, open_archive
from streams.archive.segmentreader import PartitionReader, seq_of
from streams.archive.segments import BAD_JSON, ArchivedRecord, MissingTopicError
from streams.archive.snapshots import read_snapshot, snapshots
from streams.state.logerrors import StateError
from streams.state.rows import PartitionRow, decode_row, partition_key

TOPICS = {LOG: topics.LOG, DECISIONS: topics.DECISIONS}


class Source(Protocol):
    """Log, decisions and snapshots of all partitions; picklable, so that every process opens its own."""

    @property
    def name(self) -> str:
        """How messages call it."""
        ...

    async def partitions(self) -> int:
        """How many partitions log and decisions have."""
        ...

    def records(self, topic: str, partition: int, first: int = 0) -> AsyncGenerator[ArchivedRecord, None]:
        """Records from offset `first` to the end as of now; whoever stops early closes it (`aclosing`)."""
        ...

    def snapshot(self, partition: int, before_ms: int | None) -> tuple[int, Mapping[bytes, bytes]] | None:
        """The newest snapshot whose log time is before `before_ms` (None: the first there is, if the log does not
        begin at its first record): (applied offset, rows).
        """
        ...

    async def checkpoint(
        self, partition: int, *, below: int | None = None, before_ms: int | None = None
    ) -> Mapping[bytes, bytes]:
        """The newest stored rows that have applied nothing from a log offset on, or from a time on; empty: none.

        With neither, the oldest stored rows if the log has lost its beginning, else none.
        """
        ...

    def marks(self, partition: int) -> frozenset[int]:
        """The log offsets at which a snapshot belongs: the ends of closed segments."""
        ...

    def stored(self, partition: int, offset: int) -> dict[bytes, bytes] | None:
        """The rows of the snapshot at a log offset; None: there is none."""
        ...

    def is_live(self) -> bool:
        """Whether more is being written now."""
        ...

    async def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        """An offset at or before the first record of this time, as near as can cheaply be known."""
        ...

    async def first_decision(self, partition: int, seq: int) -> int:
        """An offset at or before that of decision number `seq`, as near as can cheaply be known."""
        ...


@dataclass(frozen=True)
class ArchiveSource:
    """An archive's folder. `checked`: as of `PartitionReader`, for whoever does not compare the records otherwise."""

    root: Path
    checked: bool = False

    @property
    def name(self) -> str:
        return str(self.root)

    async def partitions(self) -> int:
        return open_archive(self.root).partitions

    async def records(self, topic: str, partition: int, first: int = 0) -> AsyncGenerator[ArchivedRecord, None]:
        for record in PartitionReader(self.root, topic, partition, checked=self.checked).records(first):
            yield record

    def snapshot(self, partition: int, before_ms: int | None) -> tuple[int, Mapping[bytes, bytes]] | None:
        stored = snapshots(self.root, partition)
        reader = PartitionReader(self.root, LOG, partition)
        if before_ms is None:
            begins = reader.first_offset()
            return (stored[0][0], read_snapshot(stored[0][1])) if begins and stored else None
        newest_ms = {manifest.last_offset: manifest.last_timestamp_ms for manifest in reader.manifests()}
        for offset, path in reversed(stored):
            if newest_ms.get(offset, before_ms) < before_ms:
                rows = read_snapshot(path)
                # Timestamps may step back, log time does not.
                if _clock_ms(rows, partition) < before_ms:
                    return offset, rows
        return self.snapshot(partition, None)

    async def checkpoint(
        self, partition: int, *, below: int | None = None, before_ms: int | None = None
    ) -> Mapping[bytes, bytes]:
        if below is None:
            found = self.snapshot(partition, before_ms)
            return found[1] if found else {}
        older = [path for at, path in snapshots(self.root, partition) if at < below]
        return read_snapshot(older[-1]) if older else {}

    def marks(self, partition: int) -> frozenset[int]:
        return frozenset(manifest.last_offset for manifest in PartitionReader(self.root, LOG, partition).manifests())

    def stored(self, partition: int, offset: int) -> dict[bytes, bytes] | None:
        path = dict(snapshots(self.root, partition)).get(offset)
        return None if path is None else read_snapshot(path)

    def is_live(self) -> bool:
        return is_written(self.root)

    async def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        older = [
            manifest.last_offset + 1
            for manifest in PartitionReader(self.root, topic, partition).manifests()
            if manifest.last_timestamp_ms < time_ms
        ]
        return older[-1] if older else 0

    async def first_decision(self, partition: int, seq: int) -> int:
        reader = PartitionReader(self.root, DECISIONS, partition)
        # Numbers have no gaps and copies only add records: number n stands at offset n - 1 or later, but for an
        # archive whose decisions begin late; there the first record says how much.
        manifests = reader.manifests()
        low = 0
        for manifest in manifests:
            if reader.first_seq(manifest) <= seq:
                low = manifest.first_offset
            else:
                break
        return low


def _clock_ms(rows: Mapping[bytes, bytes], partition: int) -> int:
    """Log time of stored rows; 0 where they tell none: whoever restores them says what is wrong."""
    key = partition_key(partition)
    try:
        row = decode_row(key, rows.get(key, b""))
    except StateError:
        return 0
    return row.clock_ms if isinstance(row, PartitionRow) else 0


@dataclass(frozen=True)
class KafkaSource:
    """The topics of a running fleet, read in no consumer group."""

    settings: KafkaSettings

    @property
    def name(self) -> str:
        return self.settings.bootstrap_servers

    async def partitions(self) -> int:
        from runtime import kafkaclients

        async with kafkaclients.reader(self.settings) as consumer:
            cluster = await consumer._client.fetch_all_metadata()
            count = len(cluster.partitions_for_topic(topics.LOG) or ())
        if not count:
            raise MissingTopicError(topics.LOG)
        return count

    async def records(self, topic: str, partition: int, first: int = 0) -> AsyncGenerator[ArchivedRecord, None]:
        from aiokafka import TopicPartition

        from runtime import kafkaclients
        from streams.archive.follow import archived

        part = TopicPartition(TOPICS[topic], partition)
        async with kafkaclients.reader(self.settings, [part]) as consumer:
            begin = (await consumer.beginning_offsets([part]))[part]
            end = (await consumer.end_offsets([part]))[part]
            async for record in kafkaclients.read_range(consumer, part, max(begin, first), end):
                yield archived(record)

    def snapshot(self, partition: int, before_ms: int | None) -> tuple[int, Mapping[bytes, bytes]] | None:
        return None

    async def checkpoint(
        self, partition: int, *, below: int | None = None, before_ms: int | None = None
    ) -> Mapping[bytes, bytes]:
        from aiokafka import TopicPartition

        from runtime import kafkaclients
        from streams.history.checkpoints import CheckpointRows

        part, log = TopicPartition(topics.CHANGELOG, partition), TopicPartition(topics.LOG, partition)
        async with kafkaclients.reader(self.settings, [part]) as consumer:
            begin, end = await consumer.beginning_offsets([part, log]), await consumer.end_offsets([part])
            oldest = below is None and before_ms is None
            if oldest and begin[log] == 0:
                return {}
            least = begin[log] - 1 if oldest else None
            wanted = CheckpointRows(partition, below=below, before_ms=before_ms, least=least)
            async with aclosing(kafkaclients.read_range(consumer, part, begin[part], end[part])) as records:
                async for record in records:
                    if not wanted.take(record.key, record.value):
                        break
        return wanted.restorable()

    def marks(self, partition: int) -> frozenset[int]:
        return frozenset()

    def stored(self, partition: int, offset: int) -> dict[bytes, bytes] | None:
        return None

    def is_live(self) -> bool:
        return True

    async def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        from aiokafka import TopicPartition

        from runtime import kafkaclients

        part = TopicPartition(TOPICS[topic], partition)
        async with kafkaclients.reader(self.settings, [part]) as consumer:
            found = (await consumer.offsets_for_times({part: max(0, time_ms)}))[part]
        return found.offset if found is not None else 0

    async def first_decision(self, partition: int, seq: int) -> int:
        # Numbers have no gaps and copies only add records: number n stands at offset n - 1 or later, but for a topic
        # that was made anew; there the record says so.
        guess = max(0, seq - 1)
        async with aclosing(self.records(DECISIONS, partition, guess)) as records:
            async for record in records:
                try:
                    return guess if seq_of(record.value) <= seq else 0
                except BAD_JSON:  # whoever reads on from the first one names it
                    return 0
        return 0
