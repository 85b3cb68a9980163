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
Small files are written whole or not at all. One process at a time writes an archive; readers can tell whether one does.
"""

import fcntl
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TypeVar

import cramjam
import msgspec
from msgspec import Struct

from schemas.codec import WireError, decode, encode
from schemas.topics import MAX_PARTITIONS
from streams.archive.segments import ArchiveError, reading

T = TypeVar("T")
UNFINISHED = ".tmp"
"""How the names of files end that are being written."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write a whole file or nothing: temporary file, fsync, rename, fsync of the folder."""
    temporary = path.with_name(path.name + UNFINISHED)
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the renames in a folder survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_small(path: Path) -> bytes:
    """Read a small file whole. Raises ArchiveError: it is missing or cannot be read."""
    try:
        with reading(path):
            return path.read_bytes()
    except FileNotFoundError as error:
        raise ArchiveError(f"{path} is missing") from error


def struct_in(path: Path, data: bytes, type_: type[T]) -> T:
    """Decode what was read from a JSON file. Raises ArchiveError: it is no such value."""
    try:
        return decode(data, type_)
    except WireError as error:
        raise ArchiveError(f"{path}: {error}") from error


_LOCK = "lock"


class Lock:
    """Only one process writes an archive; readers ask with `is_written` whether one does.

    The time of its file is the sign of life of that process.
    """

    def __init__(self, root: Path) -> None:
        self._file: IO[bytes] = (root / _LOCK).open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise ArchiveError(f"{root}: another process writes this archive") from error
        self.sign()

    def sign(self) -> None:
        """Show that the process works now."""
        os.utime(self._file.fileno())

    def release(self) -> None:
        self._file.close()


def is_written(root: Path) -> bool:
    """Whether a process writes this archive now."""
    try:
        with reading(root / _LOCK):
            file = (root / _LOCK).open("rb")
    except FileNotFoundError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def last_sign_ms(root: Path) -> int | None:
    """When the process that writes this archive worked last (Unix milliseconds); None: none writes it."""
    return (root / _LOCK).stat().st_mtime_ns // 1_000_000 if is_written(root) else None


def write_snapshot(root: Path, partition: int, applied_offset: int, rows: Mapping[bytes, bytes]) -> Path:
    """Store the state rows of a log partition as of `applied_offset`."""
    folder = root / "snapshots" / str(partition)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{applied_offset:020d}.rows"
    plain = msgspec.msgpack.encode(sorted(rows.items()))
    write_atomically(path, hashlib.sha256(plain).digest() + bytes(cramjam.zstd.compress(plain, 3)))
    return path


def read_snapshot(path: Path) -> dict[bytes, bytes]:
    """Read a snapshot back. Raises ArchiveError: damaged."""
    data = read_small(path)
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
    folder = root / "snapshots" / str(partition)
    with reading(folder):
        found = sorted(folder.glob("[0-9]*.rows"))
    return [(int(path.stem), path) for path in found if path.stem.isdecimal()]


VERSION = 1
LOG = "log"
DECISIONS = "decisions"


class ArchiveInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the directory is."""

    v: int
    partitions: int


def create(root: Path, partitions: int) -> ArchiveInfo:
    """Make `root` an archive, or open it.

    Raises ArchiveError: it is an archive of another partition count or version.
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
    """What the archive is. Raises ArchiveError: no archive, or one of another version."""
    path = root / "archive.json"
    with reading(path):
        there = path.exists()
    if not there:
        raise ArchiveError(f"{root} is not a fleethpa archive (no archive.json); make one: fleethpa archive --to DIR")
    info = struct_in(path, read_small(path), ArchiveInfo)
    if info.v != VERSION:
        raise ArchiveError(f"{path}: version {info.v}; this program reads version {VERSION}")
    if not 1 <= info.partitions <= MAX_PARTITIONS:  # a damaged number would have readers look for as many folders
        raise ArchiveError(f"{path}: {info.partitions} partitions; an archive has 1 to {MAX_PARTITIONS:,}")
    return info
