"""Writing an archive: records come in per topic partition, are made durable, folded, and closed into segments.

A crash at any moment leaves each topic partition whole. Decisions are made durable only after the log record that
caused them, so that an archive never holds an answer to a question that it does not hold.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from schemas.codec import encode
from streams.archive.layout import (
    DECISIONS,
    GENESIS,
    LOG,
    SEGMENT,
    UNFINISHED,
    ArchivedRecord,
    ArchiveError,
    Lock,
    create,
    frame,
    frame_positions,
    read_frames,
    read_snapshot,
    sha256_hex,
    snapshots,
    sync_folder,
    write_atomically,
    write_snapshot,
)
from streams.archive.segmentreader import (
    HEAD_FILE,
    PartitionReader,
    SegmentManifest,
    Tally,
    head_of,
    hpa_frames,
    hpa_of,
    open_file,
    segment_file,
)
from streams.archive.signing import CheckpointWriter
from streams.partition import Partition
from streams.state.ledger import CoreError
from streams.state.rowcodec import merge_rows

ANOTHER: Final = "keep this archive, and begin another one: fleethpa admin archive --to NEWDIR"
"""The next step where an archive cannot continue because records were lost."""


class PartitionWriter:
    """Appends the records of one topic partition; resumes where a former run stopped, without gap or duplicate.

    `manifests`: of the closed segments, oldest first. `pending`: what was appended and is not on disk yet.
    `open_bytes`: size of the open segment file; `open_plain_bytes`: of the values in it.
    """

    def __init__(self, root: Path, topic: str, partition: int) -> None:
        self.folder = root / topic / str(partition)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.topic, self.partition = topic, partition
        if not (self.folder / HEAD_FILE).exists() and not any(self.folder.glob("[0-9]*.json")):
            write_atomically(self.folder / HEAD_FILE, encode(head_of([])))
        self.manifests = PartitionReader(root, topic, partition).manifests()
        self._adopt_unlisted()
        self.pending: list[ArchivedRecord] = []
        self._tally = Tally(self._closed_head())
        self._open_path = self.folder / open_file(topic)
        self.open_bytes = self.open_plain_bytes = 0
        self._recover_open()

    @property
    def next_offset(self) -> int | None:
        """The offset to read next from the topic; None: nothing is archived yet."""
        if self.pending:
            return self.pending[-1].offset + 1
        durable = self.durable_offset
        return None if durable is None else durable + 1

    @property
    def durable_offset(self) -> int | None:
        """Offset of the last record that is on disk; None: none is."""
        if self._tally.last is not None:
            return self._tally.last.offset
        return self.manifests[-1].last_offset if self.manifests else None

    @property
    def records(self) -> int:
        """How many records are on disk."""
        return sum(manifest.records for manifest in self.manifests) + self._tally.records

    @property
    def head(self) -> bytes:
        """Chain head after the last record that is on disk."""
        return self._tally.head

    @property
    def open_ms(self) -> int:
        """Span of the record timestamps in the open segment, milliseconds."""
        first, last = self._tally.first, self._tally.last
        return last.timestamp_ms - first.timestamp_ms if first and last else 0

    def append(self, record: ArchivedRecord) -> bool:
        """Add a record; one at or below the archived end is a duplicate and is dropped (False).

        Raises ArchiveError: the record leaves a gap.
        """
        expected = self.next_offset
        if expected is not None and record.offset < expected:
            return False
        if expected is not None and record.offset > expected:
            raise ArchiveError(
                f"{self.topic}-{self.partition}: offset {record.offset} follows {expected - 1}: records were lost "
                "(retention shorter than the archive's delay?)",
                next_step=ANOTHER,
            )
        self.pending.append(record)
        return True

    def flush(self, upto: int | None = None) -> None:
        """Make what was appended (the first `upto` records of it) durable and readable."""
        ready = self.pending if upto is None else self.pending[:upto]
        if not ready:
            return
        data = frame(ready, self.topic)
        with self._open_file() as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self.open_bytes += len(data)
        self._count(ready)
        self.pending = self.pending[len(ready) :]

    def _open_file(self) -> BinaryIO:
        """The file of the open segment, cut to what it is known to hold: a disk that was full has left part of a frame
        behind it.
        """
        self._open_path.touch()
        file = self._open_path.open("rb+")
        file.truncate(self.open_bytes)
        file.seek(self.open_bytes)
        return file

    def open_records(self) -> Iterator[ArchivedRecord]:
        """The records of the open segment that are on disk."""
        if self._open_path.exists():
            for _, records in read_frames(self._open_path, torn_end_ok=True):
                yield from records

    def close_segment(self) -> SegmentManifest | None:
        """Close the open segment with all that is on disk; None when it holds nothing."""
        if not self._tally.records:
            return None
        with self._open_file() as file:
            os.fsync(file.fileno())
        first = self._tally.first
        path = self.folder / segment_file(self.topic, first.offset if first else 0)
        if self.topic == DECISIONS:
            self._write_by_hpa(path)
        else:
            self._open_path.replace(path)
        sync_folder(self.folder)
        manifest = self._list(self._tally, path)
        self._open_path.unlink(missing_ok=True)
        self._tally = Tally(self._closed_head())
        self.open_bytes = self.open_plain_bytes = 0
        return manifest

    def _write_by_hpa(self, path: Path) -> None:
        """Write the records of the open segment so that those of an HPA are beside each other."""
        records = sorted(self.open_records(), key=hpa_of)
        temporary = path.with_name(path.name + UNFINISHED)
        with temporary.open("wb") as file:
            for part in _frame_parts(records):
                file.write(frame(part, self.topic))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)

    def _closed_head(self) -> bytes:
        return bytes.fromhex(self.manifests[-1].head) if self.manifests else GENESIS

    def _list(self, tally: Tally, path: Path) -> SegmentManifest:
        """Write the manifest of a segment that is closed, and name it in HEAD."""
        hpas = b""
        if self.topic == DECISIONS:
            frames = (records for _, records in read_frames(path, torn_end_ok=False))
            hpas = encode(hpa_frames(zip(frame_positions(path), frames, strict=True)))
        previous = self.manifests[-1] if self.manifests else None
        manifest = tally.manifest(self.topic, self.partition, previous, sha256_hex(hpas) if hpas else "")
        if hpas:
            write_atomically(self.folder / manifest.hpas_file, hpas)
        write_atomically(self.folder / manifest.own_file, encode(manifest))
        self.manifests.append(manifest)
        write_atomically(self.folder / HEAD_FILE, encode(head_of(self.manifests)))
        return manifest

    def _count(self, records: list[ArchivedRecord]) -> None:
        self._tally.add(records)
        self.open_plain_bytes += sum(len(record.value) for record in records)

    def _adopt_unlisted(self) -> None:
        """Finish a close that a crash cut short: a segment file that HEAD does not name yet."""
        listed = {manifest.file for manifest in self.manifests}
        for path in sorted(self.folder.glob(f"[0-9]*{SEGMENT[self.topic]}")):
            if path.name not in listed:
                tally = Tally(self._closed_head())
                records = [record for _, part in read_frames(path, torn_end_ok=False) for record in part]
                tally.add(sorted(records, key=lambda record: record.offset))
                self._list(tally, path)

    def _recover_open(self) -> None:
        path, closed = self._open_path, self.manifests[-1].last_offset if self.manifests else -1
        if not path.exists():
            return
        for end, records in read_frames(path, torn_end_ok=True):
            if records and records[0].offset <= closed:  # a crash came after its close, before it was removed
                path.unlink()
                return
            self._count(records)
            self.open_bytes = end
        with path.open("rb+") as file:
            file.truncate(self.open_bytes)
            os.fsync(file.fileno())


log = logging.getLogger("fleethpa.archive")
_ID = re.compile(rb'\{"id":"\d+-(\d+)-')
_SEQ = re.compile(rb'"seq":(\d+)')


_FRAME_BYTES = 256 * 1024
"""A frame of a closed segment of decisions holds so much or more, unpacked, or the last of them."""
PLAIN_BYTES = 64 * 1024 * 1024
"""A segment of decisions is closed when it holds so much unpacked, as it is read as a whole."""


def _frame_parts(records: list[ArchivedRecord]) -> Iterator[list[ArchivedRecord]]:
    part, size = list[ArchivedRecord](), 0
    for record in records:
        part.append(record)
        size += len(record.value)
        if size >= _FRAME_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


@dataclass(frozen=True, kw_only=True)
class SegmentLimits:
    """When a segment is closed: compressed size, or span of its records' timestamps."""

    segment_bytes: int = 16 * 1024 * 1024
    segment_ms: int = 3_600_000


class Fold:
    """The state rows of one log partition as its archive grows.

    At every segment's end the state is read back from the rows just stored, so that a check of a segment starts
    from exactly what this fold started from.
    """

    def __init__(self, root: Path, number: int, first_rows: Mapping[bytes, bytes] | None = None) -> None:
        self.root, self.number = root, number
        self.rows: dict[bytes, bytes] = dict(first_rows or {})
        self.partition = Partition.restore(number, self.rows)
        self.fault = ""

    def start(self, writer: PartitionWriter) -> None:
        """Load what the archive holds: the newest snapshot, and the records after it."""
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
        """Store a snapshot of the rows at a segment's end, and continue from it."""
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

    Raises ArchiveError: the directory is another archive, or another process writes it.
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

        Raises StateError: the rows are not whole.
        """
        fold = Fold(self.root, partition, rows)
        # An earlier start that was killed before any record came has left rows from which the log does not go on.
        for _, path in snapshots(self.root, partition):
            path.unlink()
        write_snapshot(self.root, partition, fold.partition.applied_offset, fold.rows)
        self._pairs[partition].fold = fold

    def append(self, topic: str, partition: int, record: ArchivedRecord) -> None:
        """Add a record; a duplicate is dropped. Raises ArchiveError: the record leaves a gap."""
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

    def due(self, partition: int) -> int:
        """The number of the newest decision that follows from the archived log of a partition; 0: none does."""
        return self._pairs[partition].fold.partition.seq

    def size(self, partition: int) -> int:
        """How many bytes the open segments of a partition have on disk."""
        pair = self._pairs[partition]
        return pair.log.open_bytes + pair.decisions.open_bytes

    def sign_of_life(self) -> None:
        """Show to readers of the archive that this process works."""
        self._lock.sign()

    def flush(self) -> None:
        """Make durable what came in, log before decisions, and close segments that are full."""
        for pair in self._pairs.values():
            fresh = pair.log.pending
            pair.log.flush()
            for record in fresh:
                pair.fold.apply(record)
            pair.decisions.flush(_answerable(pair.decisions.pending, pair.log.durable_offset))
        for pair in self._pairs.values():
            for writer in (pair.log, pair.decisions):
                is_full = writer.open_bytes >= self.limits.segment_bytes or (
                    writer is pair.decisions and writer.open_plain_bytes >= PLAIN_BYTES
                )
                if is_full or writer.open_ms >= self.limits.segment_ms:
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
        self._lock.release()


def _seq_of(record: ArchivedRecord) -> int:
    match = _SEQ.search(record.value[:512])
    return int(match[1]) if match else 0


def _last_seq(root: Path, partition: int) -> int:
    for records in PartitionReader(root, DECISIONS, partition).backwards():
        return max(map(_seq_of, records))
    return 0


def _answerable(pending: list[ArchivedRecord], log_offset: int | None) -> int:
    """How many of these decisions follow from log records that are durable."""
    end = -1 if log_offset is None else log_offset
    for index, record in enumerate(pending):
        match = _ID.match(record.value)
        if match is not None and int(match[1]) > end:
            return index
    return len(pending)
