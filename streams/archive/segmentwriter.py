"""Writing one topic partition of an archive, so that a crash at any moment leaves it whole."""

import os
from collections.abc import Iterator
from pathlib import Path

from schemas.codec import encode
from streams.archive.durable import sync_folder, write_atomically
from streams.archive.segmentmanifests import HEAD_FILE, OPEN_FILE, SegmentManifest, Tally, head_of
from streams.archive.segmentreader import PartitionReader
from streams.archive.segments import GENESIS, ArchivedRecord, ArchiveError, frame, read_frames


class PartitionWriter:
    """Appends the records of one topic partition; resumes where a former run stopped, without gap or duplicate."""

    def __init__(self, root: Path, topic: str, partition: int) -> None:
        self.folder = root / topic / str(partition)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.topic, self.partition = topic, partition
        if not (self.folder / HEAD_FILE).exists() and not any(self.folder.glob("[0-9]*.json")):
            write_atomically(self.folder / HEAD_FILE, encode(head_of([])))
        self._manifests = PartitionReader(root, topic, partition).manifests()
        self._adopt_unlisted()
        self._pending: list[ArchivedRecord] = []
        self._tally = Tally(self._closed_head())
        self._bytes = 0
        self._recover_open()

    @property
    def manifests(self) -> list[SegmentManifest]:
        """The closed segments, oldest first."""
        return self._manifests

    @property
    def next_offset(self) -> int | None:
        """The offset to read next from the topic; None: nothing is archived yet."""
        if self._pending:
            return self._pending[-1].offset + 1
        durable = self.durable_offset
        return None if durable is None else durable + 1

    @property
    def durable_offset(self) -> int | None:
        """Offset of the last record that is on disk; None: none is."""
        if self._tally.last is not None:
            return self._tally.last.offset
        return self._manifests[-1].last_offset if self._manifests else None

    @property
    def records(self) -> int:
        """How many records are on disk."""
        return sum(manifest.records for manifest in self._manifests) + self._tally.records

    @property
    def head(self) -> bytes:
        """Chain head after the last record that is on disk."""
        return self._tally.head

    @property
    def open_bytes(self) -> int:
        """Size of the open segment file."""
        return self._bytes

    @property
    def open_ms(self) -> int:
        """Span of the record timestamps in the open segment, milliseconds."""
        first, last = self._tally.first, self._tally.last
        return last.timestamp_ms - first.timestamp_ms if first and last else 0

    def append(self, record: ArchivedRecord) -> bool:
        """Take a record; one at or below the archived end is a duplicate and is dropped (False).

        Raises:
            ArchiveError: the record leaves a gap.
        """
        expected = self.next_offset
        if expected is not None and record.offset < expected:
            return False
        if expected is not None and record.offset > expected:
            raise ArchiveError(
                f"{self.topic}-{self.partition}: offset {record.offset} follows {expected - 1}: records were lost "
                "(retention shorter than the archive's delay?); start a new archive directory"
            )
        self._pending.append(record)
        return True

    def flush(self, upto: int | None = None) -> None:
        """Make what was appended (the first `upto` records of it) durable and readable."""
        ready = self._pending if upto is None else self._pending[:upto]
        if not ready:
            return
        data = frame(ready)
        with (self.folder / OPEN_FILE).open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._bytes += len(data)
        self._tally.add(ready)
        self._pending = self._pending[len(ready) :]

    def pending(self) -> list[ArchivedRecord]:
        """What was appended and is not on disk yet."""
        return self._pending

    def open_records(self) -> Iterator[ArchivedRecord]:
        """The records of the open segment that are on disk."""
        path = self.folder / OPEN_FILE
        if path.exists():
            for _, records in read_frames(path, torn_end_ok=True):
                yield from records

    def close_segment(self) -> SegmentManifest | None:
        """Close the open segment with all that is on disk; None when it holds nothing."""
        if not self._tally.records:
            return None
        manifest = self._tally.manifest(self.topic, self.partition, self._manifests[-1] if self._manifests else None)
        (self.folder / OPEN_FILE).replace(self.folder / manifest.file)
        sync_folder(self.folder)
        self._list(manifest)
        self._tally, self._bytes = Tally(self._closed_head()), 0
        return manifest

    def _closed_head(self) -> bytes:
        return bytes.fromhex(self._manifests[-1].head) if self._manifests else GENESIS

    def _list(self, manifest: SegmentManifest) -> None:
        write_atomically(self.folder / manifest.file.replace(".seg", ".json"), encode(manifest))
        self._manifests.append(manifest)
        write_atomically(self.folder / HEAD_FILE, encode(head_of(self._manifests)))

    def _adopt_unlisted(self) -> None:
        """Finish a close that a crash cut short: a segment file that HEAD does not name yet."""
        listed = {manifest.file for manifest in self._manifests}
        for path in sorted(self.folder.glob("[0-9]*.seg")):
            if path.name not in listed:
                tally = Tally(self._closed_head())
                for _, records in read_frames(path, torn_end_ok=False):
                    tally.add(records)
                self._list(tally.manifest(self.topic, self.partition, self._manifests[-1] if self._manifests else None))

    def _recover_open(self) -> None:
        path = self.folder / OPEN_FILE
        if not path.exists():
            return
        for end, records in read_frames(path, torn_end_ok=True):
            self._tally.add(records)
            self._bytes = end
        with path.open("rb+") as file:
            file.truncate(self._bytes)
            os.fsync(file.fileno())
