"""Segment files of an archive: records of one topic partition, framed, zstd-compressed, immutable once closed.

A segment is a row of zstd frames; each frame holds whole records, so that a file that is being written can be read,
and a torn end be cut off, at a frame border. Hashes are over the uncompressed records, so recompressing a file changes
nothing that is checked.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256 as _sha256
from pathlib import Path
from typing import Any, BinaryIO

import cramjam
import msgspec

from schemas.limits import Int64
from schemas.topics import Sieve

_FRAME_HEADER = struct.Struct(">II")  # compressed length, uncompressed length
_PLACE = struct.Struct(">qq")
MAX_FRAME_BYTES = 256 * 1024 * 1024


class ArchiveError(ValueError):
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
        super().__init__(f"topic {topic} does not exist; next: fleethpa topics init")
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
_pieces = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
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


def frame(records: Iterable[ArchivedRecord]) -> bytes:
    plain = _encode(list(records))
    packed = bytes(cramjam.zstd.compress(plain, 3))
    return _FRAME_HEADER.pack(len(packed), len(plain)) + packed


def read_frames(
    path: Path, *, torn_end_ok: bool, begin: int = 0, sieve: Sieve | None = None
) -> Iterator[tuple[int, list[ArchivedRecord]]]:
    """The frames of a segment file: (file position after the frame, its records).

    Args:
        path: the segment file.
        torn_end_ok: a last frame that is incomplete ends the reading quietly (a file still being written).
        begin: position of the first frame to read.
        sieve: only the records that pass it are decoded, and the last one of each frame; None: all are.

    Raises:
        ArchiveError: a frame that cannot be read; names the file and the position.
    """
    for position, end, packed, length in _whole_frames(path, torn_end_ok=torn_end_ok, position=begin):
        yield end, _unpack(path, position, packed, length, sieve)


def frame_positions(path: Path) -> list[int]:
    """Where the whole frames of a segment file begin; only their headers are read."""
    found: list[int] = []
    size = path.stat().st_size
    with reading(path), path.open("rb") as file:
        while len(header := file.read(_FRAME_HEADER.size)) == _FRAME_HEADER.size:
            begin = file.tell() - _FRAME_HEADER.size
            if (end := file.tell() + _FRAME_HEADER.unpack(header)[0]) > size:
                break
            found.append(begin)
            file.seek(end)
    return found


def read_frame(path: Path, position: int) -> list[ArchivedRecord]:
    """The records of the frame at a position. Raises ArchiveError: it cannot be read."""
    with reading(path), path.open("rb") as file:
        file.seek(position)
        found = _next_frame(file)
    lengths, packed = found or ((1, 0), b"")
    return _unpack(path, position, packed, lengths[1])


def _whole_frames(path: Path, *, torn_end_ok: bool, position: int = 0) -> Iterator[tuple[int, int, bytes, int]]:
    with reading(path), path.open("rb") as file:
        file.seek(position)
        while (found := _next_frame(file)) is not None:
            lengths, packed = found
            if len(packed) < lengths[0]:
                if torn_end_ok:
                    return
                raise ArchiveError(f"{path}: the frame at byte {position} is cut off")
            end = position + _FRAME_HEADER.size + len(packed)
            yield position, end, packed, lengths[1]
            position = end


def torn_bytes(path: Path) -> int:
    """How many bytes at the end of a segment file are no whole frame."""
    end = max((end for _, end, _, _ in _whole_frames(path, torn_end_ok=True)), default=0)
    return path.stat().st_size - end


def _next_frame(file: BinaryIO) -> tuple[tuple[int, int], bytes] | None:
    """The lengths and the packed bytes of the next frame, fewer bytes at a torn end; None at the end."""
    header = file.read(_FRAME_HEADER.size)
    if not header:
        return None
    if len(header) < _FRAME_HEADER.size:
        return (1, 0), b""
    packed, plain = _FRAME_HEADER.unpack(header)
    return (packed, plain), file.read(packed)


def _unpack(path: Path, position: int, packed: bytes, length: int, sieve: Sieve | None = None) -> list[ArchivedRecord]:
    try:
        if length > MAX_FRAME_BYTES:
            raise ArchiveError(f"{path}: the frame at byte {position} claims {length} bytes")
        plain = bytes(cramjam.zstd.decompress(packed))
        if len(plain) != length:
            raise ArchiveError(f"{path}: the frame at byte {position} has another length than its header says")
        return _decode(plain) if sieve is None else _sifted(plain, sieve)
    except (cramjam.DecompressionError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArchiveError(f"{path}: the frame at byte {position} cannot be read: {error}") from error


def _sifted(plain: bytes, sieve: Sieve) -> list[ArchivedRecord]:
    pieces, found = _pieces(plain), list[ArchivedRecord]()
    if not pieces:
        return []
    last = _decode_one(pieces[-1])
    if sieve.may_pass(plain, last.offset + 1):
        for piece in pieces[:-1]:
            if sieve.may_pass(bytes(piece), last.offset):
                record = _decode_one(piece)
                if sieve.passes(record.value, record.offset):
                    found.append(record)
        sieve.passes(last.value, last.offset)
    return [*found, last]
