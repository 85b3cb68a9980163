"""Records whose header names are not UTF-8: the driver cannot read them, so a consumer would stop at the first one.

Kafka's protocol says that a header's name is a text, but brokers take any bytes, and Java's consumer reads them with
replacement characters. So do consumers here, after `read_any_header_names`.
"""

from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords, _MemoryRecordsPy


def read_any_header_names() -> None:
    """Let every consumer of this process read header names that are not UTF-8; U+FFFD replaces the invalid bytes."""
    fetcher.MemoryRecords = FetchedBytes
    fetcher.PartitionRecords = ReadablePartition


class FetchedBytes(MemoryRecords):  # type: ignore[misc]
    """What a broker sent of a partition, read by the driver's compiled code; `data` are the bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.data = data


class ReadablePartition(fetcher.PartitionRecords):  # type: ignore[misc]
    """Records of a partition; from the first name that is not UTF-8 on, slower code reads them, which replaces it."""

    _records: Any

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except UnicodeDecodeError:
            self._records = _ReplacingRecords(self._records.data, self.next_fetch_offset)
            self._records_iterator = self._unpack_records()
            return super().__next__()


class _ReplacingRecords(_MemoryRecordsPy):  # type: ignore[misc]
    """The batches from the one on that has an offset."""

    def __init__(self, data: bytes, offset: int) -> None:
        super().__init__(data)
        while (piece := self._next_slice) is not None and not (_has_headers(piece) and _next_offset(piece) > offset):
            self._cache_next()

    def next_batch(self) -> Any:
        piece = self._next_slice
        if piece is None or not _has_headers(piece):
            return super().next_batch()
        self._cache_next()
        return _ReplacingBatch(piece)


def _has_headers(batch: memoryview) -> bool:
    return bool(batch[_MemoryRecordsPy.MAGIC_OFFSET] >= 2)


def _next_offset(batch: memoryview) -> int:
    return int(_ReplacingBatch(batch).next_offset)


class _ReplacingBatch(_DefaultRecordBatchPy):  # type: ignore[misc]
    _buffer: bytearray

    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        self._buffer = _ReplacingBytes(self._buffer)


class _ReplacingBytes(bytearray):
    """Bytes whose slices decode with replacement characters."""

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return _ReplacingBytes(found) if isinstance(key, slice) else found

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return super().decode(encoding, "replace")
