"""Writing an archive: records come in per topic partition, are made durable, folded, and closed into segments.

Decisions are made durable only after the log record that caused them, so that an archive never holds an answer to a
question that it does not hold.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streams.archive.layout import DECISIONS, LOG, create
from streams.archive.lock import Lock
from streams.archive.segmentmanifests import SegmentManifest
from streams.archive.segmentreader import PartitionReader
from streams.archive.segments import ArchivedRecord
from streams.archive.segmentwriter import PartitionWriter
from streams.archive.signing import CheckpointWriter
from streams.archive.snapshots import read_snapshot, snapshots, write_snapshot
from streams.state.logerrors import CoreError
from streams.state.partition import Partition
from streams.state.rowcodec import partition_key, row_kind
from streams.state.rowcopies import applied_offset, merge_rows

log = logging.getLogger("fleethpa.archive")
_ID = re.compile(rb'\{"id":"\d+-(\d+)-')
_SEQ = re.compile(rb'"seq":(\d+)')


@dataclass(frozen=True, kw_only=True)
class SegmentLimits:
    """When a segment is closed: compressed size, or span of its records' timestamps."""

    segment_bytes: int = 16 * 1024 * 1024
    segment_ms: int = 3_600_000


def torn(rows: Mapping[bytes, bytes], partition: int) -> bool:
    """Whether state rows were read in the middle of a checkpoint: some are newer than the partition row."""
    own = rows.get(partition_key(partition))
    if own is None:
        return any(row_kind(key)[0] in "hni" for key in rows)
    return any(applied_offset(value) > applied_offset(own) for value in rows.values())


class Fold:
    """The state rows of one log partition as its archive grows.

    At every segment's end the state is read back from the rows just stored, so that whoever checks a segment starts
    from exactly what this fold started from.
    """

    def __init__(self, root: Path, number: int, first_rows: Mapping[bytes, bytes] | None = None) -> None:
        self.root, self.number = root, number
        self.rows: dict[bytes, bytes] = dict(first_rows or {})
        self.partition = Partition.restore(number, self.rows)
        self.fault = ""

    def start(self, writer: PartitionWriter) -> None:
        """Take up what the archive holds: the newest snapshot, and the records after it."""
        for _, path in reversed(snapshots(self.root, self.number)):
            self.rows = read_snapshot(path)
            self.partition = Partition.restore(self.number, self.rows)
            break
        stored = {offset for offset, _ in snapshots(self.root, self.number)}
        reader = PartitionReader(self.root, LOG, self.number)
        for manifest in writer.manifests:
            if manifest.last_offset > self.partition.applied_offset:
                for record in reader.segment(manifest):
                    self.apply(record)
                if manifest.last_offset not in stored:
                    self.close(manifest)
        for record in writer.open_records():
            self.apply(record)

    def apply(self, record: ArchivedRecord) -> None:
        """Fold a record; what cannot be folded stops the fold (and the decider), never the archive."""
        if self.fault or record.offset <= self.partition.applied_offset:
            return
        try:
            self.partition.apply(record.offset, record.timestamp_ms, record.value)
        except CoreError as error:
            self.fault = str(error)
            log.error("no more snapshots of log partition %d: %s", self.number, error)

    def close(self, manifest: SegmentManifest) -> None:
        """Store a snapshot of the rows at a segment's end, and go on from it."""
        if self.fault or self.partition.applied_offset != manifest.last_offset:
            return
        merge_rows(self.rows, self.partition.checkpoint())
        write_snapshot(self.root, self.number, manifest.last_offset, self.rows)
        self.partition = Partition.restore(self.number, self.rows)


@dataclass
class _Pair:
    log: PartitionWriter
    decisions: PartitionWriter
    fold: Fold = field(init=False)
    seq: int = 0
    """Number of the newest decision that came in."""


class Archiver:
    """The writer of a whole archive.

    Raises:
        ArchiveError: the directory is another archive, or another process writes it.
    """

    def __init__(
        self, root: Path, partitions: int, limits: SegmentLimits, checkpoints: CheckpointWriter | None = None
    ) -> None:
        create(root, partitions)
        self.root, self.limits = root, limits
        self._lock = Lock(root)
        self._checkpoints = checkpoints
        self._pairs = {
            number: _Pair(PartitionWriter(root, LOG, number), PartitionWriter(root, DECISIONS, number))
            for number in range(partitions)
        }
        for number, pair in self._pairs.items():
            pair.fold = Fold(root, number)
            pair.fold.start(pair.log)
            pair.seq = _last_seq(root, number)

    def next_offset(self, topic: str, partition: int) -> int | None:
        """The offset to read next from a topic partition; None: nothing is archived yet."""
        return self._writer(topic, partition).next_offset

    def _writer(self, topic: str, partition: int) -> PartitionWriter:
        pair = self._pairs[partition]
        return pair.log if topic == LOG else pair.decisions

    def begin_with(self, partition: int, rows: Mapping[bytes, bytes]) -> None:
        """Start a partition whose log no longer begins at its first record from state rows.

        Raises:
            StateError: the rows are not whole.
        """
        fold = Fold(self.root, partition, rows)
        # An earlier start that was killed before any record came has left rows from which the log does not go on.
        for _, path in snapshots(self.root, partition):
            path.unlink()
        write_snapshot(self.root, partition, fold.partition.applied_offset, fold.rows)
        self._pairs[partition].fold = fold

    def append(self, topic: str, partition: int, record: ArchivedRecord) -> None:
        """Take a record; a duplicate is dropped.

        Raises:
            ArchiveError: the record leaves a gap.
        """
        taken = self._writer(topic, partition).append(record)
        if taken and topic == DECISIONS:
            self._pairs[partition].seq = max(self._pairs[partition].seq, _seq_of(record))

    def records(self) -> dict[str, int]:
        """How many records the archive holds, by topic."""
        pairs = self._pairs.values()
        return {LOG: sum(p.log.records for p in pairs), DECISIONS: sum(p.decisions.records for p in pairs)}

    def behind(self) -> list[int]:
        """The partitions in which decisions that follow from the archived log have not come in yet."""
        return [
            number for number, pair in self._pairs.items() if not pair.fold.fault and pair.fold.partition.seq > pair.seq
        ]

    def flush(self) -> None:
        """Make durable what came in, log before decisions, and close segments that are full."""
        for pair in self._pairs.values():
            fresh = pair.log.pending()
            pair.log.flush()
            for record in fresh:
                pair.fold.apply(record)
            pair.decisions.flush(_answerable(pair.decisions.pending(), pair.log.durable_offset))
        for pair in self._pairs.values():
            for writer in (pair.log, pair.decisions):
                if writer.open_bytes >= self.limits.segment_bytes or writer.open_ms >= self.limits.segment_ms:
                    self._close(pair, writer)

    def _close(self, pair: _Pair, writer: PartitionWriter) -> None:
        manifest = writer.close_segment()
        if manifest is not None and writer is pair.log:
            pair.fold.close(manifest)

    def sign(self) -> None:
        """Sign the heads of all partitions, if there is a key and they moved."""
        if self._checkpoints is not None:
            clock_ms = max(pair.fold.partition.clock_ms for pair in self._pairs.values())
            self._checkpoints.write(self.heads(), clock_ms)

    def heads(self) -> dict[str, tuple[int, str]]:
        """`topic/partition` -> (offset of the last durable record, chain head in hex)."""
        return {
            f"{writer.topic}/{writer.partition}": (
                -1 if writer.durable_offset is None else writer.durable_offset,
                writer.head.hex(),
            )
            for pair in self._pairs.values()
            for writer in (pair.log, pair.decisions)
        }

    def finish(self) -> None:
        """Close every segment and sign: the archive is complete as it is."""
        self.flush()
        for pair in self._pairs.values():
            self._close(pair, pair.log)
            self._close(pair, pair.decisions)
        self.sign()
        self.release()

    def release(self) -> None:
        """Let another process write the archive."""
        self._lock.release()


def _seq_of(record: ArchivedRecord) -> int:
    found = _SEQ.search(record.value[:512])
    return int(found[1]) if found else 0


def _last_seq(root: Path, partition: int) -> int:
    for records in PartitionReader(root, DECISIONS, partition).backwards():
        return max(map(_seq_of, records))
    return 0


def _answerable(pending: list[ArchivedRecord], log_offset: int | None) -> int:
    """How many of these decisions follow from log records that are durable."""
    end = -1 if log_offset is None else log_offset
    for index, record in enumerate(pending):
        found = _ID.match(record.value)
        if found is not None and int(found[1]) > end:
            return index
    return len(pending)
