"""Segment files of an archive: records of one topic partition, framed, zstd-compressed, immutable once closed.

A segment is a row of zstd frames; each frame holds whole records, so that a file that is being written can be read,
and a torn end be cut off, at a frame
border. Hashes are over the uncompressed records, so recompressing a file changes nothing that is checked.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import cramjam
import msgspec

_FRAME_HEADER = struct.Struct(">II")  # compressed length, uncompressed length


class ArchiveError(ValueError):
    """An archive that is damaged or not what it should be; the text names the file, the record and what differs."""


class ArchivedRecord(NamedTuple):
    """A record as it stood on its topic. `timestamp_ms` is the record's own, milliseconds since the Unix epoch."""

    offset: int
    timestamp_ms: int
    key: bytes
    headers: tuple[tuple[str, bytes], ...]
    value: bytes


_RecordTuple = tuple[int, int, bytes, list[tuple[str, bytes]], bytes]
_decode = msgspec.msgpack.Decoder(list[_RecordTuple]).decode
_encode = msgspec.msgpack.Encoder().encode

GENESIS = bytes(32)
"""Head of a chain before its first record."""


def link(head: bytes, record: ArchivedRecord) -> bytes:
    """The chain head after `record`: SHA-256 over the head before it, the offset, the timestamp and hashes of key,
    headers and value.
    """
    digest = hashlib.sha256(head)
    digest.update(struct.pack(">qq", record.offset, record.timestamp_ms))
    digest.update(hashlib.sha256(record.key).digest())
    digest.update(hashlib.sha256(_encode(record.headers)).digest())
    digest.update(hashlib.sha256(record.value).digest())
    return digest.digest()


def link_all(head: bytes, records: Iterable[ArchivedRecord]) -> bytes:
    """The chain head after all of `records`."""
    for record in records:
        head = link(head, record)
    return head


def frame(records: Iterable[ArchivedRecord]) -> bytes:
    """One frame with these records."""
    plain = _encode([tuple(record) for record in records])
    packed = bytes(cramjam.zstd.compress(plain, 3))
    return _FRAME_HEADER.pack(len(packed), len(plain)) + packed


def read_frames(path: Path, *, torn_end_ok: bool) -> Iterator[tuple[int, list[ArchivedRecord]]]:
    """The frames of a segment file: (file position after the frame, its records).

    Args:
        path: the segment file.
        torn_end_ok: a last frame that is incomplete ends the reading quietly (a file still being written).

    Raises:
        ArchiveError: a frame that cannot be read; names the file and the position.
    """
    data = path.read_bytes()
    position = 0
    while position < len(data):
        end = _frame_end(data, position)
        if end is None:
            if torn_end_ok:
                return
            raise ArchiveError(f"{path}: the frame at byte {position} is cut off")
        yield end, _unpack(path, position, data[position:end])
        position = end


def _frame_end(data: bytes, position: int) -> int | None:
    start = position + _FRAME_HEADER.size
    if start > len(data):
        return None
    end = start + int(_FRAME_HEADER.unpack_from(data, position)[0])
    return end if end <= len(data) else None


def _unpack(path: Path, position: int, data: bytes) -> list[ArchivedRecord]:
    try:
        plain = bytes(cramjam.zstd.decompress(data[_FRAME_HEADER.size :]))
        if len(plain) != _FRAME_HEADER.unpack_from(data)[1]:
            raise ArchiveError(f"{path}: the frame at byte {position} has another length than its header says")
        rows = _decode(plain)
    except (cramjam.DecompressionError, msgspec.DecodeError) as error:
        raise ArchiveError(f"{path}: the frame at byte {position} cannot be read: {error}") from error
    return [ArchivedRecord(o, t, k, tuple((n, v) for n, v in h), value) for o, t, k, h, value in rows]
