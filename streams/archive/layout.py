"""The archive: log and decisions as closed, immutable segment files with manifests, plus snapshots of the state rows.

    DIR/archive.json                                  what this is: version, partition count
    DIR/log/<partition>/<first offset>.seg            a closed segment of the log
    DIR/decisions/<partition>/<first offset>.jsonl.zst   a closed segment of decisions, one per line
    DIR/decisions/<partition>/<first offset>.hpas     in which of its frames the decisions of each HPA are
    DIR/<topic>/<partition>/<first offset>.json       its manifest; names the hash of the manifest before it
    DIR/<topic>/<partition>/HEAD.json                 how many segments there are and the hash of the newest manifest
    DIR/<topic>/<partition>/open.seg, open.jsonl.zst  the segment being written
    DIR/snapshots/<partition>/<applied offset>.rows   the state rows at the end of a log segment
    DIR/checkpoints/<number>.json                     signed heads of all partitions, once there is a key

A segment is closed by writing its manifest and then HEAD, each by an atomic rename, so a crash leaves either the open
file or a closed segment. A file that was renamed but is not named by HEAD yet is taken up again at the next start.
Small files are written whole or not at all. One process at a time writes an archive; readers can tell whether one does.

A segment is a row of zstd frames; each frame holds whole records, so that a file that is being written can be read,
and a torn end be cut off, at a frame border. Hashes are over the records, not over their bytes on disk.

Decisions are lines of JSON, which `zstdcat`, `jq` and DuckDB read. Before each of their frames is one of eight bytes,
which every reader of zstd passes over: how long the frame is, packed and unpacked. When a segment of them is closed,
its records are put together by HPA, so that those of one are read without the others; within an HPA they stay in order.
"""

import base64
import fcntl
import hashlib
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256 as _sha256
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

import msgspec
from msgspec import Struct

from runtime.errors import NextStepError
from schemas.codec import WireError, decode, encode
from schemas.limits import Int64
from schemas.packing import pack, unpack
from schemas.topics import MAX_PARTITIONS

# --- layout -----------------------------------------------------------------------------------------------------------

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

    The time of its file is the heartbeat of that process.
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
    write_atomically(path, hashlib.sha256(plain).digest() + pack(plain))
    return path


def read_snapshot(path: Path) -> dict[bytes, bytes]:
    """Read a snapshot back. Raises ArchiveError: damaged."""
    data = read_small(path)
    try:
        plain = unpack(data[32:])
        rows = msgspec.msgpack.decode(plain, type=list[tuple[bytes, bytes]])
    except (ValueError, RecursionError) as error:  # msgspec.DecodeError is a ValueError
        raise ArchiveError(f"{path}: cannot be read: {error}") from error
    if hashlib.sha256(plain).digest() != data[:32]:
        raise ArchiveError(f"{path}: the rows are not those whose hash it holds")
    return dict(rows)


def snapshots(root: Path, partition: int) -> list[tuple[int, Path]]:
    """The snapshots of a log partition: (applied offset, file), oldest first."""
    folder = root / "snapshots" / str(partition)
    with reading(folder):
        paths = sorted(folder.glob("[0-9]*.rows"))
    return [(int(path.stem), path) for path in paths if path.stem.isdecimal()]


VERSION = 1
LOG = "log"
DECISIONS = "decisions"
SEGMENT = {LOG: ".seg", DECISIONS: ".jsonl.zst"}
"""How the names of a topic's segments end."""


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
    """Return what the archive is. Raises ArchiveError: no archive, or one of another version."""
    path = root / "archive.json"
    with reading(path):
        there = path.exists()
    if not there:
        raise ArchiveError(f"{root} is not a fleethpa archive (no archive.json)")
    info = struct_in(path, read_small(path), ArchiveInfo)
    if info.v != VERSION:
        raise ArchiveError(f"{path}: version {info.v}; this program reads version {VERSION}")
    if not 1 <= info.partitions <= MAX_PARTITIONS:  # a damaged number would have readers look for as many folders
        raise ArchiveError(f"{path}: {info.partitions} partitions; an archive has 1 to {MAX_PARTITIONS:,}")
    return info


# --- segments ---------------------------------------------------------------------------------------------------------

_FRAME_HEADER = struct.Struct(">II")  # compressed length, uncompressed length
_SKIPPED = struct.pack("<II", 0x184D2A51, _FRAME_HEADER.size)
"""Begin of a frame of eight bytes that readers of zstd pass over. Source: RFC 8878, 3.1.2."""
_PLACE = struct.Struct(">qq")
MAX_FRAME_BYTES = 256 * 1024 * 1024


class ArchiveError(NextStepError, ValueError):
    """An archive that is damaged or not what it should be; the text names the file, the record and what differs."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Count a file or folder that is there and cannot be read as a fault of the archive that it belongs to.

    Raises:
        ArchiveError: permissions, a folder in a file's place, a disk that fails. (A missing file: FileNotFoundError.)
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ArchiveError(f"{path} cannot be read: {error.strerror or error}") from error


class MissingTopicError(LookupError):
    """A topic to read does not exist."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic} does not exist; next: fleethpa admin topics init")
        self.topic = topic


class ArchivedRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A record as its topic had it. `timestamp_ms` is the record's own, milliseconds since the Unix epoch.

    `packed_headers`: MessagePack of the headers. They are decoded when they are asked for, as most readers want values
    only.
    """

    offset: Int64
    timestamp_ms: Int64
    key: bytes
    packed_headers: msgspec.Raw
    value: bytes

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """Names and values. Raises ArchiveError: they cannot be read."""
        try:
            return _decode_headers(self.packed_headers)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ArchiveError(f"the headers of the record at offset {self.offset} cannot be read: {error}") from error

    @property
    def plain(self) -> "PlainRecord":
        """What the fold takes of a log record."""
        return self.offset, self.timestamp_ms, self.value


PlainRecord = tuple[int, int, bytes]
"""(offset, timestamp ms, value) of a log record."""


_decode = msgspec.msgpack.Decoder(list[ArchivedRecord]).decode
_decode_one = msgspec.msgpack.Decoder(ArchivedRecord).decode
_decode_headers = msgspec.msgpack.Decoder(tuple[tuple[str, bytes], ...]).decode
_encode = msgspec.msgpack.Encoder().encode
_NO_HEADERS = msgspec.Raw(_encode(()))


def archived_record(
    offset: int, timestamp_ms: int, key: bytes, headers: Sequence[tuple[str, bytes]], value: bytes
) -> ArchivedRecord:
    packed = msgspec.Raw(_encode(headers)) if headers else _NO_HEADERS
    return ArchivedRecord(offset, timestamp_ms, key, packed, value)


def archived(record: Any) -> ArchivedRecord:
    """Return a record of a topic, as aiokafka gives it, as the archive keeps it."""
    headers = [(str(name), bytes(value)) for name, value in record.headers or ()]
    return archived_record(record.offset, record.timestamp, record.key or b"", headers, record.value or b"")


BAD_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding bytes that were tampered with raises."""

GENESIS = bytes(32)
"""Head of a chain before its first record."""


def record_digest(record: ArchivedRecord) -> bytes:
    """SHA-256 over offset, timestamp and the hashes of key, headers and value."""
    place, named = _PLACE.pack(record.offset, record.timestamp_ms), _sha256(record.packed_headers).digest()
    parts = (place, _key_digest(record.key), named, _sha256(record.value).digest())
    return _sha256(b"".join(parts)).digest()


@lru_cache(4096)
def _key_digest(key: bytes) -> bytes:
    """Of few keys: each names a namespace."""
    return _sha256(key).digest()


def link(head: bytes, digest: bytes) -> bytes:
    """The chain head after a record: SHA-256 over the head before it and the record's digest."""
    return _sha256(head + digest).digest()


def frame(records: Iterable[ArchivedRecord], topic: str = LOG) -> bytes:
    """A frame of a segment of a topic."""
    plain = _encode(list(records)) if topic == LOG else b"".join(map(line_of, records))
    packed = pack(plain)
    return (b"" if topic == LOG else _SKIPPED) + _FRAME_HEADER.pack(len(packed), len(plain)) + packed


class _Place(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """What a line has before the fields of its decision: the place of the record, its key and its headers.

    `record`: in place of the rest, the whole record as the log has it (base64 of MessagePack), where its value is no
    object in one line of JSON, or key or headers are no text.
    """

    record_offset: Int64
    record_time_ms: Int64
    record_key: str = ""
    record_headers: dict[str, str] = {}
    record: str = ""


_places = msgspec.json.Decoder(_Place).decode
_UNFIT = (ValueError, RecursionError)  # msgspec.DecodeError, UnicodeDecodeError and ArchiveError are ValueErrors


def line_of(record: ArchivedRecord) -> bytes:
    """The line of a record; `_record_of` gives back the same record."""
    try:
        headers = {name: value.decode() for name, value in record.headers}
        place = _Place(
            record_offset=record.offset,
            record_time_ms=record.timestamp_ms,
            record_key=record.key.decode(),
            record_headers=headers,
        )
        record.value.decode()
        line = encode(place)[:-1] + b"," + record.value[1:]
        if record.value.startswith(b'{"') and b"\n" not in line and _record_of(line) == record:
            return line + b"\n"
    except _UNFIT:
        pass  # kept as it is, below
    text = base64.b64encode(_encode(record)).decode()
    return encode(_Place(record_offset=record.offset, record_time_ms=record.timestamp_ms, record=text)) + b"\n"


def _record_of(line: bytes) -> ArchivedRecord:
    """The record of a line without its end. Raises ValueError: it is none."""
    place = _places(line)
    head = encode(place)
    if place.record:
        if line != head:
            raise ValueError("a line is not in canonical form")
        return _decode_one(base64.b64decode(place.record, validate=True))
    if not line.startswith(head[:-1] + b","):
        raise ValueError("a line does not begin with the place of its record")
    headers = [(name, value.encode()) for name, value in place.record_headers.items()]
    value = b"{" + line[len(head) :]
    return archived_record(place.record_offset, place.record_time_ms, place.record_key.encode(), headers, value)


def read_frames(
    path: Path, *, torn_end_ok: bool, begin: int = 0, holding: bytes = b""
) -> Iterator[tuple[int, list[ArchivedRecord]]]:
    """The frames of a segment file: (file position after the frame, its records).

    Args:
        path: the segment file.
        torn_end_ok: a last frame that is incomplete ends the reading quietly (a file still being written).
        begin: position of the first frame to read.
        holding: of decisions only those that hold these bytes.

    Raises:
        ArchiveError: a frame that cannot be read; names the file and the position.
    """
    for position, end, packed, length in _complete_frames(path, torn_end_ok=torn_end_ok, position=begin):
        yield end, _unpack(path, position, packed, length, holding)


def has_lines(path: Path) -> bool:
    """Whether a segment file is one of decisions."""
    return path.name.endswith(SEGMENT[DECISIONS])


def _before_lengths(path: Path) -> bytes:
    return _SKIPPED if has_lines(path) else b""


def frame_positions(path: Path) -> list[int]:
    """Where the whole frames of a segment file begin; only their headers are read."""
    positions: list[int] = []
    size, before = path.stat().st_size, _before_lengths(path)
    with reading(path), path.open("rb") as file:
        length = len(before) + _FRAME_HEADER.size
        while len(header := file.read(length)) == length:
            begin = file.tell() - length
            if (end := file.tell() + _FRAME_HEADER.unpack(header[len(before) :])[0]) > size:
                break
            positions.append(begin)
            file.seek(end)
    return positions


def read_frame(path: Path, position: int, holding: bytes = b"") -> list[ArchivedRecord]:
    """The records of the frame at a position. Raises ArchiveError: it cannot be read."""
    with reading(path), path.open("rb") as file:
        file.seek(position)
        frame = _next_frame(path, file)
    lengths, packed = frame or ((1, 0), b"")
    return _unpack(path, position, packed, lengths[1], holding)


def _complete_frames(path: Path, *, torn_end_ok: bool, position: int = 0) -> Iterator[tuple[int, int, bytes, int]]:
    with reading(path), path.open("rb") as file:
        file.seek(position)
        while (frame := _next_frame(path, file)) is not None:
            lengths, packed = frame
            if len(packed) < lengths[0]:
                if torn_end_ok:
                    return
                raise ArchiveError(f"{path}: the frame at byte {position} is cut off")
            end = file.tell()
            yield position, end, packed, lengths[1]
            position = end


def torn_bytes(path: Path) -> int:
    """How many bytes at the end of a segment file are no whole frame."""
    end = max((end for _, end, _, _ in _complete_frames(path, torn_end_ok=True)), default=0)
    return path.stat().st_size - end


def _next_frame(path: Path, file: BinaryIO) -> tuple[tuple[int, int], bytes] | None:
    """The lengths and the packed bytes of the next frame, fewer bytes at a torn end; None at the end."""
    position, before = file.tell(), _before_lengths(path)
    header = file.read(len(before) + _FRAME_HEADER.size)
    if not header:
        return None
    if len(header) < len(before) + _FRAME_HEADER.size:
        return (1, 0), b""
    if not header.startswith(before):
        raise ArchiveError(f"{path}: no frame begins at byte {position}")
    packed, plain = _FRAME_HEADER.unpack(header[len(before) :])
    return (packed, plain), file.read(packed)


def _unpack(path: Path, position: int, packed: bytes, length: int, holding: bytes = b"") -> list[ArchivedRecord]:
    if length > MAX_FRAME_BYTES:
        raise ArchiveError(f"{path}: the frame at byte {position} claims {length} bytes")
    try:
        plain = unpack(packed, length)
        return _records_of(plain, holding) if has_lines(path) else _decode(plain)
    except _UNFIT as error:
        raise ArchiveError(f"{path}: the frame at byte {position} cannot be read: {error}") from error


def _records_of(plain: bytes, holding: bytes) -> list[ArchivedRecord]:
    *lines, rest = plain.split(b"\n")
    if rest:
        raise ValueError("its last line has no end")
    return [_record_of(line) for line in lines if holding in line]
