"""Small files of an archive: written whole or not at all, read with their place in the error."""

import hashlib
import os
from pathlib import Path
from typing import TypeVar

from schemas.codec import WireError, decode
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
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def read_struct(path: Path, type_: type[T]) -> T:
    """Read a JSON file as `type_`.

    Raises:
        ArchiveError: it is missing or not such a value.
    """
    return struct_in(path, read_small(path), type_)


def read_small(path: Path) -> bytes:
    """Read a small file whole.

    Raises:
        ArchiveError: it is missing or cannot be read.
    """
    try:
        with reading(path):
            return path.read_bytes()
    except FileNotFoundError as error:
        raise ArchiveError(f"{path} is missing") from error


def struct_in(path: Path, data: bytes, type_: type[T]) -> T:
    """Decode what was read from a JSON file.

    Raises:
        ArchiveError: it is no such value.
    """
    try:
        return decode(data, type_)
    except WireError as error:
        raise ArchiveError(f"{path}: {error}") from error
