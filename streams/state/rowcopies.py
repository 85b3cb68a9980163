"""Stored rows, undecoded: the partition of each, its applied offset, and which of two copies is newer.

A row's key begins with its log partition, `b"<partition>|…"`; its value with the log offset that it has applied, 8
bytes big-endian, signed.
"""

from collections.abc import Iterable, Mapping, MutableMapping

APPLIED_BYTES = 8
DELETED = b""
"""In the place of a row's value: the row is deleted, on the changelog a record without value."""


def row_partition(key: bytes) -> int:
    """Give the log partition that a row belongs to."""
    return int(key.partition(b"|")[0])


def rows_by_partition(rows: Mapping[bytes, bytes], numbers: Iterable[int]) -> dict[int, dict[bytes, bytes]]:
    """Give the rows of each of these partitions."""
    found: dict[int, dict[bytes, bytes]] = {number: {} for number in numbers}
    for key, value in rows.items():
        if (number := row_partition(key)) in found:
            found[number][key] = value
    return found


def applied_offset(value: bytes) -> int:
    """Give the log offset that a stored row has applied; -1: nothing."""
    return int.from_bytes(value[:APPLIED_BYTES], "big", signed=True)


def applied_prefix(offset: int) -> bytes:
    """Write the head of a stored row: the inverse of `applied_offset`."""
    return offset.to_bytes(APPLIED_BYTES, "big", signed=True)


def wins(value: bytes, held: bytes | None) -> bool:
    """Whether a row that is read later replaces the copy that is held: it must not have applied less.

    A worker that was paused may write an old copy after its successor's.
    """
    return held is None or applied_offset(held) <= applied_offset(value)


def merge_row(rows: MutableMapping[bytes, bytes], key: bytes, value: bytes | None) -> None:
    """Put a row that is read later among the others, unless the copy there wins. One without value deletes the row."""
    if not value:
        rows.pop(key, None)
    elif wins(value, rows.get(key)):
        rows[key] = value


def merge_rows(rows: MutableMapping[bytes, bytes], written: Iterable[tuple[bytes, bytes]]) -> None:
    """Put the rows of a checkpoint among those of the checkpoints before it."""
    for key, value in written:
        merge_row(rows, key, value)
