"""The archive: log and decisions as closed, immutable segment files with manifests, plus snapshots of the state rows.

    DIR/archive.json                                  what this is: version, partition count
    DIR/<topic>/<partition>/<first offset>.seg        a closed segment
    DIR/<topic>/<partition>/<first offset>.json       its manifest; names the hash of the manifest before it
    DIR/<topic>/<partition>/HEAD.json                 how many segments there are and the hash of the newest manifest
    DIR/<topic>/<partition>/open.seg                  the segment being written
    DIR/snapshots/<partition>/<applied offset>.rows   the state rows at the end of a log segment
    DIR/checkpoints/<number>.json                     signed heads of all partitions, once there is a key

A segment is closed by writing its manifest and then HEAD, each by an atomic rename, so a crash leaves either the open
file or a closed segment. A file that was renamed but is not named by HEAD yet is taken up again at the next start.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import cramjam
import msgspec
from msgspec import Struct

from schemas.codec import WireError, decode, encode
from streams.replay.segments import (
    BAD_JSON,
    GENESIS,
    ArchivedRecord,
    ArchiveError,
    frame,
    link,
    read_frames,
    record_digest,
)

T = TypeVar("T")
VERSION = 1
LOG = "log"
DECISIONS = "decisions"
_OPEN = "open.seg"
_HEAD = "HEAD.json"


class Manifest(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a closed segment holds. `head`: chain head (hex) after its last record; `previous`: SHA-256 of the
    manifest before it, empty for the first.

    `content`: SHA-256 (hex) over the chain of this segment alone, starting at GENESIS.
    """

    topic: str
    partition: int
    segment: int
    first_offset: int
    last_offset: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    records: int
    content: str
    head: str
    previous: str
    file: str


class Head(Struct, frozen=True, kw_only=True, rename="camel"):
    """The end of a topic partition in the archive."""

    segments: int
    manifest: str
    last_offset: int


class ArchiveInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the directory is."""

    v: int
    partitions: int
    cluster_id: str = ""


class _Numbered(Struct):
    seq: int


def write_atomically(path: Path, data: bytes) -> None:
    """Write a whole file or nothing: temporary file, fsync, rename, fsync of the folder."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_hex(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


class Tally:
    """What is known of a segment while its records come in: counts, ends, and both hashes."""

    def __init__(self, head: bytes) -> None:
        self.records = 0
        self.first: ArchivedRecord | None = None
        self.last: ArchivedRecord | None = None
        self.content, self.head = GENESIS, head

    def add(self, records: Iterable[ArchivedRecord]) -> None:
        """Take more records, in order."""
        for record in records:
            digest = record_digest(record)
            self.content, self.head = link(self.content, digest), link(self.head, digest)
            self.first = self.first or record
            self.last = record
            self.records += 1

    def manifest(self, topic: str, partition: int, previous: Manifest | None) -> Manifest:
        """The manifest of a segment of these records; there is at least one."""
        assert self.first is not None
        assert self.last is not None
        return Manifest(
            topic=topic,
            partition=partition,
            segment=previous.segment + 1 if previous else 0,
            first_offset=self.first.offset,
            last_offset=self.last.offset,
            first_timestamp_ms=self.first.timestamp_ms,
            last_timestamp_ms=self.last.timestamp_ms,
            records=self.records,
            content=self.content.hex(),
            head=self.head.hex(),
            previous=sha256_hex(encode(previous)) if previous else "",
            file=f"{self.first.offset:020d}.seg",
        )


class PartitionWriter:
    """Appends the records of one topic partition; resumes where a former run stopped, without gap or duplicate."""

    def __init__(self, root: Path, topic: str, partition: int) -> None:
        self.folder = root / topic / str(partition)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.topic, self.partition = topic, partition
        if not (self.folder / _HEAD).exists() and not any(self.folder.glob("[0-9]*.json")):
            write_atomically(self.folder / _HEAD, encode(_head([])))
        self._manifests = PartitionReader(root, topic, partition).manifests()
        self._adopt_unlisted()
        self._pending: list[ArchivedRecord] = []
        self._tally = Tally(self._closed_head())
        self._bytes = 0
        self._recover_open()

    @property
    def manifests(self) -> list[Manifest]:
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
        with (self.folder / _OPEN).open("ab") as file:
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
        path = self.folder / _OPEN
        if path.exists():
            for _, records in read_frames(path, torn_end_ok=True):
                yield from records

    def close_segment(self) -> Manifest | None:
        """Close the open segment with all that is on disk; None when it holds nothing."""
        if not self._tally.records:
            return None
        manifest = self._tally.manifest(self.topic, self.partition, self._manifests[-1] if self._manifests else None)
        (self.folder / _OPEN).replace(self.folder / manifest.file)
        _sync_folder(self.folder)
        self._list(manifest)
        self._tally, self._bytes = Tally(self._closed_head()), 0
        return manifest

    def _closed_head(self) -> bytes:
        return bytes.fromhex(self._manifests[-1].head) if self._manifests else GENESIS

    def _list(self, manifest: Manifest) -> None:
        write_atomically(self.folder / manifest.file.replace(".seg", ".json"), encode(manifest))
        self._manifests.append(manifest)
        write_atomically(self.folder / _HEAD, encode(_head(self._manifests)))

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
        path = self.folder / _OPEN
        if not path.exists():
            return
        for end, records in read_frames(path, torn_end_ok=True):
            self._tally.add(records)
            self._bytes = end
        with path.open("rb+") as file:
            file.truncate(self._bytes)
            os.fsync(file.fileno())


def _head(manifests: list[Manifest]) -> Head:
    if not manifests:
        return Head(segments=0, manifest="", last_offset=-1)
    last = manifests[-1]
    return Head(segments=len(manifests), manifest=sha256_hex(encode(last)), last_offset=last.last_offset)


class PartitionReader:
    """Reads one topic partition of an archive, also while it is being written."""

    def __init__(self, root: Path, topic: str, partition: int) -> None:
        self.folder = root / topic / str(partition)
        self.topic, self.partition = topic, partition

    def manifests(self) -> list[Manifest]:
        """The manifests of the closed segments, oldest first.

        Raises:
            ArchiveError: HEAD, a manifest or the chain of manifests is damaged.
        """
        head_path = self.folder / _HEAD
        if not head_path.exists():
            raise ArchiveError(f"{head_path} is missing")
        head = _read(head_path, Head)
        manifests = self._chain()[: head.segments]
        if head_path.read_bytes() != encode(_head(manifests)):
            raise ArchiveError(f"{head_path}: names {head.segments} segments ending at another manifest than found")
        return manifests

    def last_offset(self) -> int:
        """Offset of the last record, the open segment's included; -1: none."""
        last = -1
        for record in self._open():
            last = record.offset
        manifests = self.manifests()
        return max(last, manifests[-1].last_offset if manifests else -1)

    def last_timestamp_ms(self) -> int:
        """Timestamp of the last record, the open segment's included; 0: none."""
        manifests = self.manifests()
        last = manifests[-1].last_timestamp_ms if manifests else 0
        for record in self._open():
            last = record.timestamp_ms
        return last

    def first_offset(self) -> int | None:
        """Offset of the first record; None: none."""
        return next((record.offset for record in self.records()), None)

    def _chain(self) -> list[Manifest]:
        manifests: list[Manifest] = []
        previous = ""
        for number, path in enumerate(sorted(self.folder.glob("[0-9]*.json"))):
            manifest = _read(path, Manifest)
            if (manifest.topic, manifest.partition) != (self.topic, self.partition):
                raise ArchiveError(f"{path}: is the manifest of {manifest.topic}-{manifest.partition}")
            if manifest.segment != number or manifest.previous != previous:
                raise ArchiveError(f"{path}: does not follow the manifest before it (segment {manifest.segment})")
            if path.read_bytes() != encode(manifest):
                raise ArchiveError(f"{path}: is not in canonical form")
            previous = sha256_hex(path.read_bytes())
            manifests.append(manifest)
        return manifests

    def records(self, from_offset: int = 0) -> Iterator[ArchivedRecord]:
        """The records from `from_offset` on, closed segments first, then the open one.

        A segment that is closed meanwhile is read on under its new name.

        Raises:
            ArchiveError: a segment is damaged; hashes are checked by `verify_segment`, not here.
        """
        position, seen = from_offset, -1
        while True:
            manifests = self.manifests()
            for manifest in manifests[seen + 1 :]:
                seen = manifest.segment
                if manifest.last_offset >= position:
                    for record in self.segment(manifest):
                        if record.offset >= position:
                            position = record.offset + 1
                            yield record
            for record in self._open():
                if record.offset >= position:
                    position = record.offset + 1
                    yield record
            if len(self.manifests()) == len(manifests):
                return

    def _open(self) -> Iterator[ArchivedRecord]:
        path = self.folder / _OPEN
        if path.exists():
            try:
                yield from self._segment(path, torn_end_ok=True)
            except FileNotFoundError:  # closed between the two looks: `records` reads it under its new name
                return

    def backwards(self) -> Iterator[list[ArchivedRecord]]:
        """The records segment by segment, the newest segment first, each in order."""
        last = list(self._open())
        if last:
            yield last
        for manifest in reversed(self.manifests()):
            records = list(self.segment(manifest))
            if not last or records[0].offset < last[0].offset:
                yield records

    def segment(self, manifest: Manifest) -> Iterator[ArchivedRecord]:
        """The records of a closed segment.

        Raises:
            ArchiveError: it is missing or cannot be read.
        """
        path = self.folder / manifest.file
        if not path.exists():
            raise ArchiveError(f"{path} is missing")
        return self._segment(path, torn_end_ok=False)

    def first_seq(self, manifest: Manifest) -> int:
        """The number of the first decision of a closed segment of decisions; only its first frame is read."""
        record = next(self.segment(manifest))
        try:
            return msgspec.json.decode(record.value, type=_Numbered).seq
        except BAD_JSON as error:
            raise ArchiveError(f"{self.folder / manifest.file}: offset {record.offset} is no decision") from error

    def _segment(self, path: Path, *, torn_end_ok: bool) -> Iterator[ArchivedRecord]:
        for _, records in read_frames(path, torn_end_ok=torn_end_ok):
            yield from records

    def verify_segment(self, manifest: Manifest, head: bytes) -> bytes:
        """Check one closed segment against its manifest: the chain head after it.

        Args:
            manifest: of the segment.
            head: chain head before it.

        Raises:
            ArchiveError: names the file and what differs.
        """
        path = self.folder / manifest.file
        if not path.exists():
            raise ArchiveError(f"{path} is missing")
        tally = Tally(head)
        expected = manifest.first_offset
        for _, records in read_frames(path, torn_end_ok=False):
            for record in records:
                if record.offset != expected:
                    raise ArchiveError(f"{path}: offset {record.offset} stands where {expected} belongs")
                expected += 1
            tally.add(records)
        if not tally.records:
            raise ArchiveError(f"{path} is empty")
        if tally.head.hex() != manifest.head or tally.content.hex() != manifest.content:
            raise ArchiveError(
                f"{path}: the records (offsets {manifest.first_offset} to {manifest.last_offset}) are not those that "
                f"{path.with_suffix('.json').name} names: their chain ends in {tally.head.hex()[:16]}…, "
                f"not {manifest.head[:16]}…"
            )
        rest = tally.manifest(self.topic, self.partition, None)
        for name in ("last_offset", "first_timestamp_ms", "last_timestamp_ms", "records", "file"):
            if getattr(rest, name) != getattr(manifest, name):
                raise ArchiveError(f"{path.with_suffix('.json')}: {name} is not that of the records")
        return tally.head


def _read(path: Path, type_: type[T]) -> T:
    try:
        return decode(path.read_bytes(), type_)
    except FileNotFoundError as error:
        raise ArchiveError(f"{path} is missing") from error
    except WireError as error:
        raise ArchiveError(f"{path}: {error}") from error


# --- snapshots --------------------------------------------------------------------------------------------------------


def write_snapshot(root: Path, partition: int, applied_offset: int, rows: Mapping[bytes, bytes]) -> Path:
    """Store the state rows of a log partition as of `applied_offset`."""
    folder = root / "snapshots" / str(partition)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{applied_offset:020d}.rows"
    plain = msgspec.msgpack.encode(sorted(rows.items()))
    write_atomically(path, hashlib.sha256(plain).digest() + bytes(cramjam.zstd.compress(plain, 3)))
    return path


def read_snapshot(path: Path) -> dict[bytes, bytes]:
    """Read a snapshot back.

    Raises:
        ArchiveError: damaged.
    """
    data = path.read_bytes()
    try:
        plain = bytes(cramjam.zstd.decompress(data[32:]))
        rows = msgspec.msgpack.decode(plain, type=list[tuple[bytes, bytes]])
    except (cramjam.DecompressionError, msgspec.DecodeError) as error:
        raise ArchiveError(f"{path}: cannot be read: {error}") from error
    if hashlib.sha256(plain).digest() != data[:32]:
        raise ArchiveError(f"{path}: the rows are not those whose hash it holds")
    return dict(rows)


def snapshots(root: Path, partition: int) -> list[tuple[int, Path]]:
    """The snapshots of a log partition: (applied offset, file), oldest first."""
    return [(int(path.stem), path) for path in sorted((root / "snapshots" / str(partition)).glob("[0-9]*.rows"))]


# --- the whole --------------------------------------------------------------------------------------------------------


def create(root: Path, partitions: int) -> ArchiveInfo:
    """Make `root` an archive, or open it.

    Raises:
        ArchiveError: it is an archive of another partition count or version.
    """
    root.mkdir(parents=True, exist_ok=True)
    path = root / "archive.json"
    if not path.exists():
        write_atomically(path, encode(ArchiveInfo(v=VERSION, partitions=partitions)))
    info = open_archive(root)
    if info.partitions != partitions:
        raise ArchiveError(f"{root}: has {info.partitions} partitions, the log has {partitions}; use another directory")
    return info


def open_archive(root: Path) -> ArchiveInfo:
    """What the archive is.

    Raises:
        ArchiveError: no archive, or one of another version.
    """
    path = root / "archive.json"
    if not path.exists():
        raise ArchiveError(f"{root} is no fleethpa archive (no archive.json); make one: fleethpa archive --to DIR")
    info = _read(path, ArchiveInfo)
    if info.v != VERSION:
        raise ArchiveError(f"{path}: version {info.v}; this program reads version {VERSION}")
    return info
