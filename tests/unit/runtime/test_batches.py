"""Compressed batches are unpacked with a bound; what exceeds it is passed over by its offsets, and reading goes on."""

import struct
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import SimpleNamespace
from typing import Any

import cramjam
import pytest
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from aiokafka.consumer import fetcher
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from runtime.batches import BatchHeader, PassedOver, unpack
from runtime.driver import FairFetcher
from runtime.kafkaclients import aiokafka_kwargs
from schemas.connection import KafkaSettings
from schemas.limits import BATCH, Refusal
from streams.ingest.convert import convert
from streams.ingest.logwriter import raw_record
from streams.ingest.mapping import Mapping, Resolver

NAMES = ["??", "name"]
CODECS = [
    pytest.param(1, gzip_encode, id="gzip"),
    pytest.param(2, snappy_encode, id="snappy in blocks"),
    pytest.param(2, lambda data: snappy_encode(data, xerial_compatible=False), id="snappy as one"),
    pytest.param(3, lz4_encode, id="lz4"),
    pytest.param(3, lambda data: bytes(cramjam.lz4.compress(bytes(data))), id="lz4 of linked blocks"),
    pytest.param(4, zstd_encode, id="zstd"),
]


@pytest.fixture(autouse=True)
def bounded_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MemoryRecords", "PartitionRecords"):
        monkeypatch.setattr(fetcher, name, getattr(fetcher, name))  # restored at the end
    aiokafka_kwargs(KafkaSettings(bootstrap_servers="127.0.0.1:1"))


def batch(first: int, values: list[bytes], name: str = "name") -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for offset, value in enumerate(values):
        builder.append(offset, 1_700_000_000_000, b"key", value, [(name, b"header")])
    return sealed(bytes(builder.build()).replace(b"??", b"\xff\xfe"), first, 0)


def sealed(plain: bytes, first: int, codec: int, body: bytes | None = None) -> bytes:
    """The batch with its first offset, its codec and this body, and the checksum that a broker would ask for."""
    head, records = bytearray(plain[:61]), plain[61:] if body is None else body
    head[22] |= codec
    head[0:8] = first.to_bytes(8, "big")
    head[8:12] = (len(head) + len(records) - 12).to_bytes(4, "big")
    data = head + records
    data[17:21] = struct.pack(">I", calc_crc32c(memoryview(data)[21:]))
    return bytes(data)


def read(data: bytes, offset: int = 0, gate: "Gate | None" = None) -> Iterator[ConsumerRecord]:
    place = TopicPartition("shop.samples", 3)
    yield from fetcher.PartitionRecords(place, fetcher.MemoryRecords(data), [], offset, None, gate, True, 0)


def packed(first: int, values: list[bytes], codec: int, encode: Any, name: str = "name") -> bytes:
    plain = batch(first, values, name)
    return sealed(plain, first, codec, bytes(encode(plain[61:])))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("codec", "encode"), CODECS)
def test_what_is_within_the_bound_is_read_as_it_was_written(codec: int, encode: Any, name: str) -> None:
    data = packed(5, [b"a", b"b" * 70_000, b""], codec, encode, name) + packed(8, [b"c"], codec, encode)
    found = [(record.offset, record.value, record.key, record.timestamp) for record in read(data, 5)]
    assert found == [
        (5, b"a", b"key", 1_700_000_000_000),
        (6, b"b" * 70_000, b"key", 1_700_000_000_000),
        (7, b"", b"key", 1_700_000_000_000),
        (8, b"c", b"key", 1_700_000_000_000),
    ]


@cache
def too_large(codec: int, encode: Any) -> bytes:
    """A batch of two records at offset 1 that unpacks to four times the bound."""
    return sealed(batch(1, [b"", b""]), 1, codec, bytes(encode(bytes(4 * BATCH.most))))


@pytest.mark.parametrize("begin", [0, 1, 2], ids=lambda begin: f"read from offset {begin}")
@pytest.mark.parametrize("before", NAMES, ids=["after slower code", "by the compiled code"])
@pytest.mark.parametrize(("codec", "encode"), CODECS)
def test_a_batch_beyond_the_bound_is_passed_over_by_its_offsets_and_the_next_is_read(
    codec: int, encode: Any, before: str, begin: int
) -> None:
    bomb = too_large(codec, encode)
    data = batch(0, [b"before"], before) + bomb + batch(3, [b"after"])
    tracemalloc.start()
    found = list(read(data, begin))
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [record.offset for record in found][-2:] == [2, 3]
    assert found[-1].value == b"after"
    over = found[-2]
    assert isinstance(over.value, PassedOver)
    assert not over.value
    assert over.value.refusal.code == "overLimit"
    assert f"a batch of {len(bomb)} bytes with offsets 1 to 2 (2 records) is passed over" in over.value.refusal.text
    assert str(BATCH.most) in over.value.refusal.text
    assert most_bytes < BATCH.most


@pytest.mark.parametrize(("codec", "encode"), CODECS)
def test_just_the_bound_is_unpacked_and_a_byte_more_is_not(codec: int, encode: Any) -> None:
    room = BATCH.most - (len(batch(0, [bytes(BATCH.most - 100)])) - 61 - (BATCH.most - 100))
    for size, is_read in ((room, True), (room + 1, False)):
        (record,) = read(packed(0, [bytes(size)], codec, encode))
        assert (len(record.value) == size) is is_read
        assert isinstance(record.value, PassedOver) is not is_read


@pytest.mark.parametrize(
    ("codec", "body"),
    [
        pytest.param(1, b"no gzip", id="no gzip"),
        pytest.param(4, zstd_encode(bytes(1000))[:-2], id="zstd that was cut"),
        pytest.param(3, lz4_encode(bytes(1000))[:-6], id="lz4 that was cut"),
        pytest.param(2, b"\xff" * 40, id="no snappy"),
        pytest.param(2, snappy_encode(bytes(1000))[:16] + b"\xff\xff\xff\xfc" + b"x" * 40, id="a length below 0"),
        pytest.param(2, snappy_encode(bytes(1000))[:-3], id="a block that was cut"),
        pytest.param(2, snappy_encode(b"")[:16] + (b"\0\0\0\1\0" * 200_000), id="empty blocks without number"),
        pytest.param(7, b"what?", id="a codec that nobody knows"),
    ],
)
def test_what_cannot_be_unpacked_is_passed_over(codec: int, body: bytes) -> None:
    data = sealed(batch(0, [b"", b""]), 0, codec, body) + batch(2, [b"after"])
    over, after = read(data)
    assert (over.offset, after.offset, after.value) == (1, 2, b"after")
    assert over.value.refusal.code == "malformed"


def test_a_compressed_message_of_the_old_format_is_passed_over() -> None:
    bomb, plain = (LegacyRecordBatchBuilder(1, codec, 1 << 26) for codec in (1, 0))
    bomb.append(0, 1_700_000_000_000, b"key", bytes(2 * BATCH.most))
    plain.append(1, 1_700_000_000_000, b"key", b"after")
    over, after = read(bytes(bomb.build()) + bytes(plain.build()))
    assert isinstance(over.value, PassedOver)
    assert (over.offset, after.value) == (0, b"after")


def test_ingest_rejects_it_by_topic_partition_and_offset() -> None:
    bomb = sealed(batch(0, [b"", b""]), 7, 4, zstd_encode(bytes(2 * BATCH.most)))
    (record,) = read(bomb)
    raw = raw_record(record)
    assert (raw.topic, raw.partition, raw.offset) == ("shop.samples", 3, 8)
    found = convert(raw, Resolver(Mapping()))
    assert (found.result, found.code, found.pieces) == ("rejected", "overLimit", [])
    assert "offsets 7 to 8" in found.reason()


class Gate:
    """Refuses batches that begin at these offsets; remembers what it was asked and told."""

    def __init__(self, *refused: int) -> None:
        self._refused = refused
        self.asked: list[BatchHeader] = []
        self.counted: list[int] = []

    def refusal(self, partition: TopicPartition, batch: BatchHeader) -> Refusal | None:
        assert partition == TopicPartition("shop.samples", 3)
        self.asked.append(batch)
        return Refusal("overRate", "too much") if batch.base_offset in self._refused else None

    def unpacked(self, partition: TopicPartition, batch: BatchHeader, unpacked_bytes: int) -> None:
        self.counted.append(unpacked_bytes)


def test_batches_that_a_gate_refuses_are_passed_over_with_one_record_for_all_that_follow_each_other() -> None:
    bombs = [sealed(batch(0, [b"", b""]), first, 4, zstd_encode(bytes(2 * BATCH.most))) for first in (1, 3, 5)]
    data = batch(0, [b"first"]) + b"".join(bombs) + batch(7, [b"a", b"b"]) + batch(9, [b"last"])
    gate = Gate(1, 3, 5, 9)
    found = list(read(data, gate=gate))
    assert [(record.offset, bytes(record.value)) for record in found] == [
        (0, b"first"),
        (6, b""),
        (7, b"a"),
        (8, b"b"),
        (9, b""),
    ]
    text = found[1].value.refusal.text
    assert (
        text == f"3 batches of {sum(map(len, bombs))} bytes with offsets 1 to 6 (6 records) are passed over: too much"
    )
    asked = {each.base_offset: each.records for each in gate.asked}
    assert asked == {0: 1, 1: 2, 3: 2, 5: 2, 7: 2, 9: 1}
    assert gate.counted == []


def test_a_gate_is_told_what_a_batch_was_unpacked_and_the_bound_where_it_was_not() -> None:
    gate = Gate()
    bomb = sealed(batch(0, [b""]), 1, 4, zstd_encode(bytes(2 * BATCH.most)))
    assert len(list(read(packed(0, [bytes(70_000)], 4, zstd_encode) + bomb, gate=gate))) == 2
    assert 70_000 < gate.counted[0] < 70_200
    assert gate.counted[1] == BATCH.most


def test_a_name_that_is_not_utf_8_does_not_get_a_batch_past_the_gate() -> None:
    gate = Gate(1, 2)
    found = list(read(batch(0, [b"first"], "??") + batch(1, [b"x"]) + batch(2, [b"y"]) + batch(3, [b"z"]), gate=gate))
    assert [(record.offset, bytes(record.value)) for record in found] == [(0, b"first"), (2, b""), (3, b"z")]


async def test_partitions_are_read_in_turn_whatever_one_has() -> None:
    """500 records are read at a time: a partition of 10,000 keeps no other waiting for more than its own 500."""
    places = [TopicPartition("shop.samples", number) for number in range(3)]
    assignment = Assignment(set(places))
    reading = FairFetcher.__new__(FairFetcher)
    reading._subscriptions = SimpleNamespace(reassignment_in_progress=False)
    reading._records, reading._wait_consume_future = {}, None
    reading._notify = lambda future: None
    for tp, count in zip(places, (10_000, 10_000, 5), strict=True):
        assignment.state_value(tp).seek(0)
        data = fetcher.MemoryRecords(batch(0, [b"x"] * count))
        held = fetcher.PartitionRecords(tp, data, [], 0, None, None, True, 0)
        reading._records[tp] = fetcher.FetchResult(tp, partition_records=held, assignment=assignment, backoff=0)
    turns = [
        {tp.partition: len(found) for tp, found in (await reading.fetched_records([], 0, 500)).items()}
        for _ in range(5)
    ]
    assert turns == [{0: 500}, {1: 500}, {2: 5, 0: 495}, {1: 500}, {0: 500}]


def test_threads_that_unpack_at_the_same_time_do_not_get_each_others_records() -> None:
    """The page reads in two threads, and so does the decider; the codecs run beside each other."""
    bodies = [bytes([number]) * 1_000_000 for number in range(8)]
    packed = [memoryview(bytes(cramjam.zstd.compress(body))) for body in bodies]

    def unpacked(number: int) -> bool:
        return all(bytes(unpack(4, packed[number])) == bodies[number] for _ in range(60))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(unpacked, range(8)))
