"""Batches of Kafka records, unpacked with a bound, before the driver sees them. No I/O.

The driver (aiokafka 0.14) unpacks a batch of any size as a whole: 60 kB of zstd may be gigabytes, and end the process.
Here each batch is unpacked into a buffer of `limits.BATCH` bytes. One that has no room there, or cannot be unpacked, is
passed over: in its place there is one record at its last offset, whose value is a `PassedOver`.
"""

import mmap
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import cramjam
from aiokafka import TopicPartition
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords

from schemas.limits import BATCH, Refusal, check

_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_CODECS = {_GZIP: cramjam.gzip, _LZ4: cramjam.lz4, _ZSTD: cramjam.zstd}
NAMES = {_GZIP: "gzip", _SNAPPY: "snappy", _LZ4: "lz4", _ZSTD: "zstd"}
_CODEC_BITS = 0x07
_HEADER = struct.Struct(">qiibIhiqqqhii")
"""Of a batch: base offset, length, epoch of the leader, magic, CRC, attributes, last offset delta, first and newest
timestamp, producer and its epoch, base sequence, number of records. Source: Kafka's `DefaultRecordBatch`.
"""
_OFFSET, _LENGTH = struct.Struct(">q"), struct.Struct(">i")
_PREFIX_BYTES = 12
"""Base offset and length, which are not counted in the length."""
_MAGIC_AT, _ATTRIBUTES_AT = 16, 21
_V2 = 2
_XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
"""How snappy in blocks begins, as Java's clients write it."""
_LEAST_BLOCK_BYTES = 1_024
"""Of snappy in blocks on average, else a batch of empty ones would keep the process busy; Java's have 32 KiB."""


class _Room(threading.local):
    """Where a thread writes what it unpacks. Each has its own: the codecs let other threads run meanwhile, and the page
    and the decider read in two. Pages that were never used take no memory.
    """

    def __init__(self) -> None:
        self.bytes = memoryview(mmap.mmap(-1, BATCH.most))


_room = _Room()


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
    """Unpack the records of a batch. What is returned is valid until the thread's next call.

    Args:
        codec: Kafka's number of it.

    Raises Refusal: `overLimit`, `malformed`: it is larger than the limit, or damaged.
    """
    if codec not in NAMES:
        raise Refusal("malformed", f"unknown codec {codec}")
    try:
        size = _snappy(packed) if codec == _SNAPPY else _CODECS[codec].decompress_into(packed, _room.bytes)
    except cramjam.DecompressionError as error:
        if "whole buffer" in str(error):
            raise Refusal("overLimit", f"more than {BATCH.most} bytes of {NAMES[codec]}") from error
        raise Refusal("malformed", f"{NAMES[codec]} that cannot be unpacked: {error}") from error
    return _room.bytes[:size]


def _snappy(packed: memoryview) -> int:
    """Unpack snappy, in blocks or as one; how many bytes it gave."""
    blocks = _blocks(packed) if packed[: len(_XERIAL)] == _XERIAL else iter([packed])
    used = 0
    for block in blocks:
        size = cramjam.snappy.decompress_raw_len(block)
        check(BATCH, used + size, "snappy")
        if size:
            used += cramjam.snappy.decompress_raw_into(block, _room.bytes[used:])
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

    is_control_batch = False

    def __init__(self, batch: DriverBatch, base_offset: int, records: Callable[[], Iterator[Any]]) -> None:
        self.producer_id, self.is_transactional = batch.producer_id, batch.is_transactional
        self.next_offset = batch.next_offset
        self.base_offset, self._batch, self._records = base_offset, batch, records

    def validate_crc(self) -> bool:
        return self._batch.validate_crc()

    def __iter__(self) -> Iterator[Any]:
        return self._records()


class Pieces:
    """The batches of what a broker sent of a partition, as bytes, in order."""

    def __init__(self, data: bytes) -> None:
        self._view, self._at = memoryview(data), 0

    def peek(self) -> memoryview:
        """The bytes of the next batch, which must be there."""
        length = _LENGTH.unpack_from(self._view, self._at + 8)[0]
        return self._view[self._at : self._at + _PREFIX_BYTES + length]

    def next(self) -> memoryview:
        """Go on behind the next batch, and return its bytes."""
        piece = self.peek()
        self._at += len(piece)
        return piece


def header_of(piece: memoryview) -> BatchHeader:
    """Read what is known of a batch before it is unpacked."""
    if piece[_MAGIC_AT] < _V2:
        (offset,) = _OFFSET.unpack_from(piece)
        return BatchHeader(offset, offset, 1, len(piece), 0)
    base, _, _, _, _, _, last, _, newest_ms, _, _, _, records = _HEADER.unpack_from(piece)
    return BatchHeader(base, base + last, records, len(piece), newest_ms)


def uncompressed(piece: memoryview) -> bytes:
    """The same batch, not compressed; its CRC is that of before. Raises Refusal: as `unpack`."""
    if piece[_MAGIC_AT] < _V2:
        raise Refusal("malformed", "compressed in a format before Kafka 0.11, which is not unpacked here")
    fields = list(_HEADER.unpack_from(piece))
    body = unpack(fields[5] & _CODEC_BITS, piece[_HEADER.size :])
    fields[1] = _HEADER.size - _PREFIX_BYTES + len(body)
    fields[5] &= ~_CODEC_BITS
    return b"".join((_HEADER.pack(*fields), body))


def is_packed(piece: memoryview) -> bool:
    """Whether the records of a batch are compressed."""
    attributes = piece[_ATTRIBUTES_AT + 1] if piece[_MAGIC_AT] >= _V2 else piece[_MAGIC_AT + 1]
    return bool(attributes & _CODEC_BITS)


class BatchGate(Protocol):
    """Which batches of a partition are read at all, by what is known before they are unpacked.

    A consumer gets one as its `value_deserializer`, the only thing of a consumer that the driver hands on to where
    batches are read.
    """

    def refusal(self, partition: TopicPartition, batch: BatchHeader) -> Refusal | None:
        """Why a batch is passed over; None: it is read, and counted. Who asks again is told the same."""

    def unpacked(self, partition: TopicPartition, batch: BatchHeader, unpacked_bytes: int) -> None:
        """Count what a batch that is read was unpacked."""


class FetchedRecords:
    """What a broker sent of a partition, as the driver reads it: each batch is unpacked with the bound, and those that
    a gate refuses are passed over without that, all that follow each other with one record.

    Args:
        data: as it was sent.
        records: what reads it; None: the driver's own.
        skipped: how many batches `records` has passed already.
        read: what reads an uncompressed batch.
    """

    def __init__(
        self,
        data: bytes,
        records: Any = None,
        skipped: int = 0,
        read: Callable[[bytes], DriverBatch] = DefaultRecordBatch,
    ) -> None:
        self.data, self._read = data, read
        self._records = MemoryRecords(data) if records is None else records
        self._pieces = Pieces(data)
        for _ in range(skipped):
            self._pieces.next()
        self._gate: BatchGate | None = None
        self._partition = TopicPartition("", 0)

    def guard(self, partition: TopicPartition, gate: BatchGate) -> None:
        """Ask a gate before each batch."""
        self._partition, self._gate = partition, gate

    def size_in_bytes(self) -> int:
        return len(self.data)

    def has_next(self) -> bool:
        return bool(self._records.has_next())

    def next_batch(self) -> DriverBatch | None:
        if not self.has_next():
            return None
        passed: list[BatchHeader] = []
        batch: DriverBatch | None = None
        last_refusal: Refusal | None = None
        while self._gate is not None and self.has_next():
            header = header_of(self._pieces.peek())
            refusal = self._gate.refusal(self._partition, header)
            if refusal is None:
                break
            last_refusal, batch = refusal, self._records.next_batch()
            passed.append(header)
            self._pieces.next()
        if batch is not None and last_refusal is not None:
            return _in_place_of(batch, passed, last_refusal)
        return self._bounded(self._records.next_batch(), self._pieces.next())

    def _bounded(self, batch: DriverBatch, piece: memoryview) -> DriverBatch:
        if not is_packed(piece) or batch.is_control_batch:
            return batch
        header = header_of(piece)
        try:
            data = uncompressed(piece)
        except Refusal as refusal:
            self._count(header, BATCH.most)
            return _in_place_of(batch, [header], refusal)
        self._count(header, len(data))
        read = self._read
        return ReadBatch(batch, header.base_offset, lambda: iter(read(data)))

    def _count(self, header: BatchHeader, unpacked_bytes: int) -> None:
        if self._gate is not None:
            self._gate.unpacked(self._partition, header, unpacked_bytes)


def _in_place_of(batch: DriverBatch, passed: list[BatchHeader], refusal: Refusal) -> ReadBatch:
    """One record in place of batches, at their last offset, so that whoever begins in the middle gets it, too.

    Args:
        batch: the last of them.
    """
    count = sum(header.records for header in passed)
    size = sum(header.packed_bytes for header in passed)
    begin, end = passed[0].base_offset, passed[-1].last_offset
    what = f"a batch of {size} bytes" if len(passed) == 1 else f"{len(passed)} batches of {size} bytes"
    are = "is" if len(passed) == 1 else "are"
    text = f"{what} with offsets {begin} to {end} ({count} records) {are} passed over: {refusal.text}"
    record = StandInRecord(end, passed[-1].newest_ms, passed_over(Refusal(refusal.code, text)))
    return ReadBatch(batch, begin, lambda: iter((record,)))
