"""Batches as a hostile producer makes them, which the driver's own producer would not: bombs and floods of records."""

import struct
from collections.abc import Callable
from typing import Any

import cramjam
from aiokafka import TopicPartition
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from runtime.driver import driver_of
from runtime.kafkaclients import running_producer
from schemas.connection import KafkaSettings

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
_HEAD_BYTES = 61
_CHUNK = bytes(2**20)


def _varint(number: int) -> bytes:
    """A number as Kafka writes one of variable length."""
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def bomb(megabytes: int, codec: int = ZSTD) -> bytes:
    """A batch of one record, whose value is so many MiB of zeros, made without having them in memory."""
    size = megabytes * 2**20
    fields = b"\0" + _varint(0) + _varint(0) + _varint(-1) + _varint(size)  # attributes, time, offset, key, value
    makers: dict[int, Callable[[], Any]] = {
        GZIP: cramjam.gzip.Compressor,
        LZ4: lambda: cramjam.lz4.Compressor(block_linked=False),
        ZSTD: cramjam.zstd.Compressor,
    }
    compressor = makers[codec]()
    compressor.compress(_varint(len(fields) + size + 1) + fields)
    for _ in range(megabytes):
        compressor.compress(_CHUNK)
    compressor.compress(_varint(0))  # no headers
    return _sealed(bytes(_empty()), codec, bytes(compressor.finish()))


def flood(records: int, value: bytes, time_ms: int, encode: Callable[[bytes], Any] = cramjam.zstd.compress) -> bytes:
    """A batch of zstd with so many records of one value."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for offset in range(records):
        builder.append(offset, time_ms, None, value, [])
    plain = bytes(builder.build())
    return _sealed(plain, ZSTD, bytes(encode(plain[_HEAD_BYTES:])))


def _empty() -> bytearray:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    builder.append(0, 1, None, b"", [])
    return bytearray(builder.build())


def _sealed(plain: bytes, codec: int, body: bytes) -> bytes:
    data = bytearray(plain[:_HEAD_BYTES]) + body
    data[22] |= codec
    data[8:12] = struct.pack(">i", len(data) - 12)
    data[17:21] = struct.pack(">I", calc_crc32c(memoryview(data)[21:]))
    return bytes(data)


class RawProducer:
    """Sends batches as they are, with somebody's credentials."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings

    async def send(self, topic: str, partition: int, *batches: bytes) -> list[int]:
        """Send batches one after another, each in a request; the broker's error codes, 0 for each that it took."""
        codes = []
        async with running_producer(self._settings, request_timeout_ms=120_000) as producer:
            await producer.partitions_for(topic)
            client = driver_of(producer)
            for batch in batches:
                node = client.cluster.leader_for_partition(TopicPartition(topic, partition))
                answer = await client.send(node, ProduceRequest(None, -1, 60_000, [(topic, [(partition, batch)])]))
                codes.append(int(answer.topics[0][1][0][1]))
        return codes
