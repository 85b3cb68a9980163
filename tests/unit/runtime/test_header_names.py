"""A header name that is not UTF-8, which any producer can send, does not stop a consumer."""

from collections.abc import Iterator

import pytest
from aiokafka import TopicPartition
from aiokafka.codec import lz4_encode
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from runtime.kafkaclients import aiokafka_kwargs
from schemas.connection import KafkaSettings

NONE, LZ4 = 0, 3


@pytest.fixture(autouse=True)
def tolerant(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MemoryRecords", "PartitionRecords"):
        monkeypatch.setattr(fetcher, name, getattr(fetcher, name))  # restored at the end
    aiokafka_kwargs(KafkaSettings(bootstrap_servers="127.0.0.1:1"))


def batch(first: int, names: list[str], codec: int) -> bytes:
    """One batch with a record for each name; `??` stands for two bytes that are not UTF-8."""
    builder = DefaultRecordBatchBuilder(2, NONE, 0, -1, -1, -1, 1 << 20)
    for offset, name in enumerate(names):
        builder.append(offset, 1_700_000_000_000, b"key", b"%d" % (first + offset), [(name, b"header")])
    plain = bytes(builder.build()).replace(b"??", b"\xff\xfe")
    return with_head(plain, first, codec)


def with_head(plain: bytes, first: int, codec: int) -> bytes:
    """The batch with its first offset and its codec; the checksum is not looked at."""
    head, records = bytearray(plain[:61]), plain[61:]
    if codec == LZ4:
        records = lz4_encode(records)
        head[22] |= LZ4
    head[0:8] = first.to_bytes(8, "big")
    head[8:12] = (len(head) + len(records) - 12).to_bytes(4, "big")
    return bytes(head) + records


def read(data: bytes, offset: int = 0) -> Iterator[tuple[int, bytes, str]]:
    records = fetcher.PartitionRecords(
        TopicPartition("fleethpa.samples", 0), fetcher.MemoryRecords(data), [], offset, None, None, False, 0
    )
    for record in records:
        yield record.offset, record.value, record.headers[0][0]
        assert records.next_fetch_offset == record.offset + 1


@pytest.mark.parametrize("codec", [pytest.param(NONE, id="plain"), pytest.param(LZ4, id="lz4")])
def test_every_record_is_read_once_and_in_order(codec: int) -> None:
    data = batch(0, ["a", "b"], codec) + batch(2, ["c", "x??", "d"], codec) + batch(5, ["??", "é"], codec)
    assert list(read(data)) == [
        (0, b"0", "a"),
        (1, b"1", "b"),
        (2, b"2", "c"),
        (3, b"3", "x\ufffd\ufffd"),
        (4, b"4", "d"),
        (5, b"5", "\ufffd\ufffd"),
        (6, b"6", "é"),
    ]


def test_reading_goes_on_in_the_middle_of_a_batch() -> None:
    assert [offset for offset, _, _ in read(batch(7, ["??", "b", "??"], NONE), offset=8)] == [8, 9]
