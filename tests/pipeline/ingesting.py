"""What tests of ingest share: its process, a reader of what it wrote, and what the fold would keep of it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

from runtime.kafkaclients import reader, strict_producer
from schemas import topics
from schemas.codec import decode
from schemas.connection import KafkaSettings
from schemas.entries import Entry, LogRecord
from streams.ingest.preflight import IngestConfig
from streams.ingest.worker import run_ingest
from tests.patience import PATIENCE_S

NAMESPACES = 7
PARTITIONS = 4


@asynccontextmanager
async def producer(kafka: KafkaSettings, **overrides: Any) -> AsyncIterator[AIOKafkaProducer]:
    made = strict_producer(kafka, **overrides)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


class Process:
    """`fleethpa run ingest`, with its web port."""

    def __init__(self, kafka: KafkaSettings, *arguments: str) -> None:
        command = [
            sys.executable,
            "-m",
            "fleethpa",
            "run",
            "ingest",
            "--brokers",
            kafka.bootstrap_servers,
            "--log-level",
            "warning",
            "--web-port",
            "0",
        ]
        root = Path(__file__).parents[2]
        environment = {name: text for name, text in os.environ.items() if not name.startswith("FLEETHPA_")}
        self.popen = subprocess.Popen(
            [*command, "--session-timeout", "2", *arguments],
            stderr=subprocess.PIPE,
            text=True,
            cwd=root,
            env=environment,
        )

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.communicate()

    async def port(self) -> int:
        """The web port, once the worker runs; lines of its log before that are passed over."""
        assert self.popen.stderr
        said: list[str] = []
        while not (line := await asyncio.to_thread(self.popen.stderr.readline)).startswith("ingest is running"):
            assert line, f"ingest has ended: {said}"
            said.append(line)
        return int(line.rpartition(":")[2])

    async def ended(self) -> tuple[int, str]:
        """Exit code and what it printed on stderr."""
        _, error = await asyncio.to_thread(self.popen.communicate, timeout=120)
        return self.popen.returncode, error


def sample(number: int) -> bytes:
    return orjson.dumps(
        {
            "v": 1,
            "ts": 1_790_000_000_000 + number,
            "cluster": "east",
            "namespace": f"n{number % NAMESPACES}",
            "type": "External",
            "metric": "depth",
            "value": number,
        }
    )


class Log:
    """Everything on a topic so far, read as it grows."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self.records: list[ConsumerRecord] = []
        self._decoded = 0
        self._entries: list[tuple[ConsumerRecord, Entry]] = []

    async def until(self, done: Any, timeout_s: float = PATIENCE_S) -> None:
        """Read until `done(self)`; a test that waits in vain fails here."""
        async with asyncio.timeout(timeout_s):
            while not done(self):
                for records in (await self._consumer.getmany(timeout_ms=100)).values():
                    self.records += records

    def entries(self) -> list[tuple[ConsumerRecord, Entry]]:
        """Those of all records; each is decoded once, since this is asked after every fetch."""
        new = self.records[self._decoded :]
        self._decoded = len(self.records)
        self._entries += [(record, entry) for record in new for entry in decode(record.value, LogRecord).entries]
        return self._entries

    def values(self) -> set[int]:
        points = [point for _, entry in self.entries() for point in getattr(entry.body, "points", [])]
        return {point.milli // 1000 for point in points}


@asynccontextmanager
async def reading(kafka: KafkaSettings, topic: str) -> AsyncIterator[Log]:
    async with reader(kafka, [TopicPartition(topic, number) for number in range(PARTITIONS)]) as consumer:
        yield Log(consumer)


def without_duplicates(log: Log) -> dict[int, list[Entry]]:
    """What the fold keeps: per partition, entries above the watermark of their source partition."""
    kept: dict[int, list[Entry]] = {}
    marks: dict[tuple[int, str, int], tuple[int, int]] = {}
    for record, entry in sorted(log.entries(), key=lambda pair: (pair[0].partition, pair[0].offset)):
        assert entry.source
        source = (record.partition, entry.source.topic, entry.source.partition)
        position = (entry.source.offset, entry.source.index)
        if position > marks.get(source, (-1, -1)):
            marks[source] = position
            kept.setdefault(record.partition, []).append(entry)
    return kept


@asynccontextmanager
async def running(config: IngestConfig) -> AsyncIterator[asyncio.Task[None]]:
    """Ingest in this process, as the dev stack runs it."""
    stop = asyncio.Event()
    task = asyncio.create_task(run_ingest(config, stop))
    try:
        yield task
    finally:
        stop.set()
        await asyncio.wait({task})
    task.result()


async def commit(kafka: KafkaSettings, source: TopicPartition, offset: int) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, group_id=topics.INGEST_GROUP, enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign([source])
        await consumer.commit({source: offset})
    finally:
        await consumer.stop()
