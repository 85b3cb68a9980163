"""Batches of Kafka records, unpacked with a bound, before the driver sees them. No I/O.

The driver (aiokafka 0.14) unpacks a batch of any size as a whole: 60 kB of zstd may be gigabytes, and end the process.
Here each batch is unpacked into a buffer of `limits.BATCH` bytes. One that has no room there, or cannot be unpacked, is
passed over: in its place there is one record at its last offset, whose value is a `PassedOver`.
"""

import mmap
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import cramjam
from aiokafka.record.default_records import DefaultRecordBatch

from schemas.limits import BATCH, Refusal, check

_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_CODECS = {_GZIP: cramjam.gzip, _LZ4: cramjam.lz4, _ZSTD: cramjam.zstd}
NAMES = {_GZIP: "gzip", _SNAPPY: "snappy", _LZ4: "lz4", _ZSTD: "zstd"}
_CODEC_BITS = 0x07
_CONTROL_BIT = 0x20
_HEADER = struct.Struct(">qiibIhiqqqhii")
"""Of a batch: base offset, length, epoch of the leader, magic, CRC, attributes, last offset delta, first and newest
timestamp, producer and its epoch, base sequence, number of records. Source: Kafka's `DefaultRecordBatch`.
"""
_LENGTH = struct.Struct(">i")
_PREFIX_BYTES = 12
"""Base offset and length, which are not counted in the length."""
_MAGIC_AT, _ATTRIBUTES_AT = 16, 21
_V2 = 2
_XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
"""How snappy in blocks begins, as Java's clients write it."""
_LEAST_BLOCK_BYTES = 1_024
"""Of snappy in blocks on average, else a batch of empty ones would keep the process busy; Java's have 32 KiB."""

_room = memoryview(mmap.mmap(-1, BATCH.most))
"""What is unpacked is written here first. Pages that were never used take no memory."""


class PassedOver(bytes):
    """The value of the one record that stands for batches that were not read: empty, as far as others know."""

    refusal: Refusal


class BatchHeader(NamedTuple):
    """What is known of a batch before it is unpacked."""

    base_offset: int
    last_offset: int
    records: int
    """As its producer stated it; brokers check that."""
    packed_bytes: int
    newest_ms: int
    """Kafka's time of its newest record: when the broker appended it, or what its producer stated."""


class StandInRecord(NamedTuple):
    """A record in place of batches that were passed over."""

    offset: int
    timestamp: int
    value: PassedOver
    timestamp_type: int = 0
    key: bytes | None = None
    checksum: int | None = None
    headers: tuple[()] = ()


def passed_over(refusal: Refusal) -> PassedOver:
    """Make a value that says why batches were not read."""
    value = PassedOver()
    value.refusal = refusal
    return value


def unpack(codec: int, packed: memoryview) -> memoryview:
    """Unpack the records of a batch. What is returned is valid until the next call.

    Args:
        codec: Kafka's number of it.

    Raises Refusal: `overLimit`, `malformed`: it is larger than the limit, or damaged.
    """
    if codec not in NAMES:
        raise Refusal("malformed", f"unknown codec {codec}")
    try:
        size = _snappy(packed) if codec == _SNAPPY else _CODECS[codec].decompress_into(packed, _room)
    except cramjam.DecompressionError as error:
        if "whole buffer" in str(error):
            raise Refusal("overLimit", f"more than {BATCH.most} bytes of {NAMES[codec]}") from error
        raise Refusal("malformed", f"{NAMES[codec]} that cannot be unpacked: {error}") from error
    return _room[:size]


def _snappy(packed: memoryview) -> int:
    """Unpack snappy, in blocks or as one; how many bytes it gave."""
    blocks = _blocks(packed) if packed[: len(_XERIAL)] == _XERIAL else iter([packed])
    used = 0
    for block in blocks:
        size = cramjam.snappy.decompress_raw_len(block)
        check(BATCH, used + size, "snappy")
        if size:
            used += cramjam.snappy.decompress_raw_into(block, _room[used:])
    return used


def _blocks(packed: memoryview) -> Iterator[memoryview]:
    """The blocks of snappy, each behind its length."""
    at, left = len(_XERIAL), BATCH.most // _LEAST_BLOCK_BYTES
    while at < len(packed):
        begin = at + _LENGTH.size
        length = _LENGTH.unpack_from(packed, at)[0] if begin <= len(packed) else -1
        if length <= 0 or begin + length > len(packed) or not left:
            raise Refusal("malformed", "snappy whose blocks are damaged, or too many")
        yield packed[begin : begin + length]
        at, left = begin + length, left - 1


class DriverBatch(Protocol):
    """What the driver's reader asks of a batch."""

    producer_id: int | None
    base_offset: int
    next_offset: int
    is_control_batch: bool
    is_transactional: bool

    def validate_crc(self) -> bool: ...
    def __iter__(self) -> Iterator[Any]: ...


class ReadBatch:
    """A batch of which the driver reads these records; the rest is as the broker sent it."""

    def __init__(self, batch: DriverBatch, records: Callable[[], Iterator[Any]]) -> None:
        self.producer_id, self.base_offset, self.next_offset = batch.producer_id, batch.base_offset, batch.next_offset
        self.is_control_batch, self.is_transactional = False, batch.is_transactional
        self._batch, self._records = batch, records

    def validate_crc(self) -> bool:
        return self._batch.validate_crc()

    def __iter__(self) -> Iterator[Any]:
        return self._records()


class LegacyBatch:
    """A compressed message of a format before Kafka 0.11, of which nothing is read but the offset."""

    producer_id: int | None = None
    is_control_batch = is_transactional = False

    def __init__(self, offset: int) -> None:
        self.base_offset, self.next_offset = offset, offset + 1

    def validate_crc(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Pieces:
    """The batches of what a broker sent of a partition, as bytes, in order."""

    def __init__(self, data: bytes) -> None:
        self._view, self._at = memoryview(data), 0

    def next(self) -> memoryview:
        """The bytes of the next batch, which must be there."""
        begin = self._at
        self._at += _PREFIX_BYTES + _LENGTH.unpack_from(self._view, begin + 8)[0]
        return self._view[begin : self._at]


def header_of(piece: memoryview) -> BatchHeader:
    """Read what is known of a batch before it is unpacked."""
    base, _, _, _, _, _, last, _, newest_ms, _, _, _, records = _HEADER.unpack_from(piece)
    return BatchHeader(base, base + last, records, len(piece), newest_ms)


def uncompressed(piece: memoryview) -> bytes:
    """The same batch, not compressed; its CRC is that of before. Raises Refusal: as `unpack`."""
    fields = list(_HEADER.unpack_from(piece))
    body = unpack(fields[5] & _CODEC_BITS, piece[_HEADER.size :])
    fields[1] = _HEADER.size - _PREFIX_BYTES + len(body)
    fields[5] &= ~_CODEC_BITS
    return b"".join((_HEADER.pack(*fields), body))


def is_packed(piece: memoryview) -> bool:
    """Whether the records of a batch are compressed."""
    attributes = piece[_ATTRIBUTES_AT + 1] if piece[_MAGIC_AT] >= _V2 else piece[_MAGIC_AT + 1]
    return bool(attributes & _CODEC_BITS)


def bounded(
    batch: DriverBatch, piece: memoryview, read: Callable[[bytes], DriverBatch] = DefaultRecordBatch
) -> DriverBatch:
    """The batch, unpacked with the bound; or, in its place, one with a record that says why it is passed over.

    Args:
        batch: as the driver reads it from `piece`.
        read: what reads an uncompressed batch.
    """
    if not is_packed(piece) or batch.is_control_batch:
        return batch
    if piece[_MAGIC_AT] < _V2:
        legacy = LegacyBatch(batch.next_offset - 1)
        refusal = Refusal("malformed", "compressed in a format before Kafka 0.11, which is not unpacked here")
        return in_place_of(legacy, BatchHeader(legacy.base_offset, legacy.base_offset, 1, len(piece), 0), refusal)
    try:
        data = uncompressed(piece)
    except Refusal as refusal:
        return in_place_of(batch, header_of(piece), refusal)
    return ReadBatch(batch, lambda: iter(read(data)))


def in_place_of(batch: DriverBatch, header: BatchHeader, refusal: Refusal) -> ReadBatch:
    """One record in place of a batch, at its last offset, so that whoever begins in its middle gets it, too."""
    text = (
        f"a batch of {header.packed_bytes} bytes with offsets {header.base_offset} to {header.last_offset} "
        f"({header.records} records) is passed over: {refusal.text}"
    )
    record = StandInRecord(header.last_offset, header.newest_ms, passed_over(Refusal(refusal.code, text)))
    return ReadBatch(batch, lambda: iter((record,)))
