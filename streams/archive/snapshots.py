"""Snapshots: the state rows of a log partition at the end of a segment."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import cramjam
import msgspec

from streams.archive.durable import read_small, write_atomically
from streams.archive.segments import ArchiveError, reading


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
