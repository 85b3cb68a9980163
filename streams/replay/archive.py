"""The archive: log and decisions as closed, immutable segment files with manifests, plus snapshots of the state rows.

    DIR/archive.json                                  what this is: version, partition count
    DIR/<topic>/<partition>/<first offset>.seg        a closed segment
    DIR/<topic>/<partition>/<first offset>.json       its manifest; names the hash of the manifest before it
    DIR/<topic>/<partition>/HEAD.json                 how many segments there are and the hash of the newest manifest
    DIR/<topic>/<partition>/open.seg                  the segment being written
    DIR/snapshots/<partition>/<applied offset>.rows   the state rows at the end of a log segment

A segment is closed by writing its manifest and then HEAD, each by an atomic rename, so a crash leaves either the open
file or a closed segment. A file
that was renamed but is not named by HEAD yet is taken up again at the next start.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import cramjam
import msgspec
from msgspec import Struct

from schemas.codec import WireError, decode, encode
from streams.replay.segments import (
    GENESIS,
    ArchivedRecord,
    ArchiveError,
    frame,
    link_all,
    read_frames,
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


class PartitionWriter:
    """Appends the records of one topic partition; resumes where a former run stopped, without gap or duplicate."""

    def __init__(self, root: Path, topic: str, partition: int) -> None:
        self.folder = root / topic / str(partition)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.topic, self.partition = topic, partition
        self._manifests = PartitionReader(root, topic, partition).manifests()
        self._adopt_unlisted()
        self._pending: list[ArchivedRecord] = []
        self._open_records: list[ArchivedRecord] = []
        self._recover_open()

    @property
    def next_offset(self) -> int | None:
        """The offset to read next from the topic; None: nothing is archived yet."""
        if self._pending:
            return self._pending[-1].offset + 1
        if self._open_records:
            return self._open_records[-1].offset + 1
        return self._manifests[-1].last_offset + 1 if self._manifests else None

    @property
    def open_bytes(self) -> int:
        """Size of the open segment file."""
        path = self.folder / _OPEN
        return path.stat().st_size if path.exists() else 0

    def append(self, record: ArchivedRecord) -> None:
        """Take a record; one at or below the archived end is a duplicate and is dropped.

        Raises:
            ArchiveError: the record leaves a gap.
        """
        expected = self.next_offset
        if expected is not None and record.offset < expected:
            return
        if expected is not None and record.offset > expected:
            raise ArchiveError(
                f"{self.topic}-{self.partition}: offset {record.offset} follows {expected - 1}: records were lost "
                "(retention shorter than the archive's delay?); start a new archive directory"
            )
        self._pending.append(record)

    def flush(self) -> None:
        """Make what was appended durable and readable."""
        if not self._pending:
            return
        with (self.folder / _OPEN).open("ab") as file:
            file.write(frame(self._pending))
            file.flush()
            os.fsync(file.fileno())
        self._open_records += self._pending
        self._pending = []

    def close_segment(self) -> Manifest | None:
        """Close the open segment; None when it holds nothing."""
        self.flush()
        if not self._open_records:
            return None
        records, previous = self._open_records, self._manifests[-1] if self._manifests else None
        manifest = _manifest(self.topic, self.partition, records, previous)
        (self.folder / _OPEN).replace(self.folder / manifest.file)
        _sync_folder(self.folder)
        self._list(manifest)
        self._open_records = []
        return manifest

    def _list(self, manifest: Manifest) -> None:
        write_atomically(self.folder / manifest.file.replace(".seg", ".json"), encode(manifest))
        self._manifests.append(manifest)
        write_atomically(self.folder / _HEAD, encode(_head(self._manifests)))

    def _adopt_unlisted(self) -> None:
        """Finish a close that a crash cut short: a segment file that HEAD does not name yet."""
        listed = {manifest.file for manifest in self._manifests}
        for path in sorted(self.folder.glob("[0-9]*.seg")):
            if path.name not in listed:
                records = [record for _, part in read_frames(path, torn_end_ok=False) for record in part]
                self._list(
                    _manifest(self.topic, self.partition, records, self._manifests[-1] if self._manifests else None)
                )

    def _recover_open(self) -> None:
        path = self.folder / _OPEN
        if not path.exists():
            return
        whole = 0
        for end, records in read_frames(path, torn_end_ok=True):
            self._open_records += records
            whole = end
        with path.open("rb+") as file:
            file.truncate(whole)


def _head(manifests: list[Manifest]) -> Head | None:
    if not manifests:
        return None
    last = manifests[-1]
    return Head(segments=len(manifests), manifest=sha256_hex(encode(last)), last_offset=last.last_offset)


def _manifest(topic: str, partition: int, records: list[ArchivedRecord], previous: Manifest | None) -> Manifest:
    head = bytes.fromhex(previous.head) if previous else GENESIS
    return Manifest(
        topic=topic,
        partition=partition,
        segment=previous.segment + 1 if previous else 0,
        first_offset=records[0].offset,
        last_offset=records[-1].offset,
        first_timestamp_ms=records[0].timestamp_ms,
        last_timestamp_ms=records[-1].timestamp_ms,
        records=len(records),
        content=link_all(GENESIS, records).hex(),
        head=link_all(head, records).hex(),
        previous=sha256_hex(encode(previous)) if previous else "",
        file=f"{records[0].offset:020d}.seg",
    )


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
            if any(self.folder.glob("[0-9]*.json")):
                raise ArchiveError(f"{head_path} is missing, but there are manifests")
            return []
        head = _read(head_path, Head)
        manifests = self._chain()[: head.segments]
        if head_path.read_bytes() != encode(_head(manifests)):
            raise ArchiveError(f"{head_path}: names {head.segments} segments ending at another manifest than found")
        return manifests

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

        Raises:
            ArchiveError: a segment is damaged; hashes are checked by `verify_segment`, not here.
        """
        for manifest in self.manifests():
            if manifest.last_offset >= from_offset:
                yield from self._segment(manifest.file, from_offset, torn_end_ok=False)
        if (self.folder / _OPEN).exists():
            yield from self._segment(_OPEN, from_offset, torn_end_ok=True)

    def _segment(self, file: str, from_offset: int, *, torn_end_ok: bool) -> Iterator[ArchivedRecord]:
        for _, records in read_frames(self.folder / file, torn_end_ok=torn_end_ok):
            yield from (record for record in records if record.offset >= from_offset)

    def verify_segment(self, manifest: Manifest, head: bytes) -> tuple[list[ArchivedRecord], bytes]:
        """Check one closed segment against its manifest: (its records, the chain head after it).

        Args:
            manifest: of the segment.
            head: chain head before it.

        Raises:
            ArchiveError: names the file and what differs.
        """
        path = self.folder / manifest.file
        if not path.exists():
            raise ArchiveError(f"{path} is missing")
        records = [record for _, part in read_frames(path, torn_end_ok=False) for record in part]
        previous = manifest.first_offset - 1
        for record in records:
            if record.offset != previous + 1:
                raise ArchiveError(f"{path}: offset {record.offset} follows {previous}")
            previous = record.offset
        after = link_all(head, records)
        found = _manifest(self.topic, self.partition, records, None) if records else None
        if found is None or found.content != manifest.content or after.hex() != manifest.head:
            raise ArchiveError(f"{path}: the records are not those that {path.with_suffix('.json').name} names")
        return records, after


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
