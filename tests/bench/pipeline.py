"""The whole pipeline on the embedded broker: public topics, an ingest process, a decider process, decisions.

Two runs. *Steady*: answers for 5,000 HPAs come as an observer sends them, each namespace every 15 seconds, which is
334 decisions a second; what is measured is latency, and the CPU time that it takes. *Full speed*: the same kind
of fleet played as fast as it goes (playback: log time is source time), at most four rounds ahead of the decisions.

Wall-clock figures fall when others use the machine; CPU time per decision hardly does.
"""

import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from fleethpa.lab.simulator.broker import EmbeddedBroker
from runtime.kafkaclients import reader, strict_producer
from schemas import topics
from schemas.codec import decode, encode
from schemas.connection import KafkaSettings
from schemas.entries import VERSION, Body, LogRecord, PublicRecord
from schemas.partitioning import partition_for
from schemas.topicconfigs import TOPICS
from schemas.topics import EMBEDDED_PARTITIONS as PARTITIONS
from tests.kit.generated_log import Fleet, generate

Line = tuple[str, float, str]

ROOT = Path(__file__).parents[2]
HPAS, NAMESPACES, PERIOD_S = 5_000, 250, 15.02
FAST_HPAS, FAST_NAMESPACES, FAST_ROUNDS = 1_000, 50, 12
START_S = 45.0
"""How long the processes may take to start, and a run to end after its last record was sent."""


class Sent(NamedTuple):
    """A record for a public topic; `time_ms` is when it is due."""

    time_ms: int
    topic: str
    key: str
    value: bytes
    decisions: int
    """How many decisions it brings."""


def pipeline() -> Iterator[Line]:
    """Print both runs."""
    yield from asyncio.run(_steady())
    yield from asyncio.run(_full_speed())


# --- what comes in ----------------------------------------------------------------------------------------------------


def _public(fleet: Fleet, *, timed: bool) -> list[Sent]:
    """A generated log as the public records that it was made of; what exists comes right before its first answers."""
    held: dict[str, list[Sent]] = {}
    records: list[Sent] = []
    size = fleet.hpas // fleet.namespaces
    for record in generate(fleet):
        entries = decode(record.value, LogRecord).entries
        bodies: dict[str, list[Body]] = {}
        for entry in entries:
            assert entry.source
            bodies.setdefault(entry.source.topic, []).append(entry.body)
        if not entries:
            continue
        key, now_ms = entries[0].key, record.timestamp_ms
        made = [_sent(key, topic, now_ms, some, size, timed=timed) for topic, some in bodies.items()]
        if topics.SAMPLES in bodies:
            records += [one._replace(time_ms=now_ms) for one in held.pop(key, [])] + made
        else:
            held.setdefault(key, []).extend(made)
    return records


def _sent(key: str, topic: str, now_ms: int, bodies: list[Body], size: int, *, timed: bool) -> Sent:
    cluster, namespace = key.split("/")
    record = PublicRecord(v=VERSION, cluster=cluster, namespace=namespace, time=now_ms if timed else 0, entries=bodies)
    return Sent(now_ms, topic, key, encode(record), size if topic == topics.SAMPLES else 0)


# --- the processes ----------------------------------------------------------------------------------------------------


@dataclass
class Rig:
    """The running pipeline, and what came out of it."""

    ingest: subprocess.Popen[bytes]
    decider: subprocess.Popen[bytes]
    producer: AIOKafkaProducer
    decisions: AIOKafkaConsumer
    sent_s: dict[str, float] = field(default_factory=dict)
    """When the newest answers of a namespace were sent."""
    latencies_s: list[float] = field(default_factory=list)
    came: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    grew: asyncio.Event = field(default_factory=asyncio.Event)

    def cpu_s(self) -> tuple[float, float]:
        """CPU time of ingest and of the decider until now, in seconds."""
        return _cpu_s(self.ingest.pid), _cpu_s(self.decider.pid)

    async def send(self, record: Sent) -> None:
        """Send one record to its partition."""
        self.bytes_in += len(record.value)
        if record.decisions:
            self.sent_s[record.key] = time.monotonic()
        await self.producer.send(record.topic, record.value, partition=partition_for(record.key, PARTITIONS))

    async def read(self) -> None:
        """Count decisions as they come, until cancelled."""
        while True:
            got = await self.decisions.getmany(timeout_ms=200)
            now_s = time.monotonic()
            for record in (record for records in got.values() for record in records):
                self.came += 1
                self.bytes_out += len(record.value)
                self.latencies_s.append(now_s - self.sent_s[record.key.decode()])
            self.grew.set()

    async def until(self, count: int) -> None:
        """Wait for so many decisions."""
        async with asyncio.timeout(START_S):
            while self.came < count:
                self.grew.clear()
                await self.grew.wait()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def _rig(ingest: list[str], decider: list[str]) -> AsyncIterator[Rig]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleethpa-bench-")))
        broker = stack.enter_context(EmbeddedBroker())
        broker.ensure_topics([topic.name for topic in TOPICS])
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap)
        reach = ["--brokers", broker.bootstrap, "--web-port", "0", "--log-level", "warning"]
        one = stack.enter_context(_process(folder / "ingest", *reach, *ingest))
        two = stack.enter_context(_process(folder / "decider", *reach, *decider))
        for name in ("ingest", "decider"):
            await _is_ready(folder / name)
        producer = await stack.enter_async_context(_producer(kafka))
        numbers = [TopicPartition(topics.DECISIONS, number) for number in range(PARTITIONS)]
        consumer = await stack.enter_async_context(reader(kafka, numbers))
        rig = Rig(one, two, producer, consumer)
        reading = asyncio.create_task(rig.read())
        try:
            yield rig
        finally:
            reading.cancel()
            await asyncio.wait({reading})


@asynccontextmanager
async def _producer(kafka: KafkaSettings) -> AsyncIterator[AIOKafkaProducer]:
    producer = strict_producer(kafka)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@contextmanager
def _process(output: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with output.open("wb") as stream:
        command = [sys.executable, "-m", "fleethpa", "run", output.name, *arguments]
        process = subprocess.Popen(command, cwd=ROOT, stdout=stream, stderr=stream)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def _is_ready(output: Path) -> None:
    """Wait until a part says where its web server is, and that says ready."""
    import aiohttp

    async with asyncio.timeout(START_S), aiohttp.ClientSession() as session:
        while not (port := re.search(r"(?:port |:)(\d+)\n", output.read_text())):
            await asyncio.sleep(0.05)
        while True:
            async with session.get(f"http://127.0.0.1:{port[1]}/readyz") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.05)


# --- the runs ---------------------------------------------------------------------------------------------------------


async def _steady() -> list[Line]:
    """The first period brings the fleet into being, the second is measured."""
    fleet = Fleet(
        hpas=HPAS, namespaces=NAMESPACES, partitions=PARTITIONS, minutes=(2 * PERIOD_S + 1) / 60, start_ms=_now_ms()
    )
    records = _public(fleet, timed=False)
    async with _rig([], []) as rig:
        lag_s = time.monotonic() - fleet.start_ms / 1000
        measured_ms = fleet.start_ms + round((1 + PERIOD_S) * 1000)
        before, asked, spent = 0, 0, rig.cpu_s()
        for record in records:
            if record.time_ms >= measured_ms and not asked:
                before, spent = rig.came, rig.cpu_s()
                rig.latencies_s.clear()
            asked += record.decisions if record.time_ms >= measured_ms else 0
            await asyncio.sleep(max(0.0, lag_s + record.time_ms / 1000 - time.monotonic()))
            await rig.send(record)
        await rig.until(before + asked)
        used = [now - then for now, then in zip(rig.cpu_s(), spent, strict=True)]
    cuts = statistics.quantiles(rig.latencies_s, n=100)
    name, done = "pipeline, 5,000 HPAs at 15 s", rig.came - before
    return [
        (f"{name}: decisions", done / PERIOD_S, "decisions/s of time"),
        (f"{name}: sample to decision, p50", 1000 * cuts[49], "ms"),
        (f"{name}: sample to decision, p99", 1000 * cuts[98], "ms"),
        (f"{name}: share of a core, ingest", 100 * used[0] / PERIOD_S, "%"),
        (f"{name}: share of a core, decider", 100 * used[1] / PERIOD_S, "%"),
    ]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _full_speed() -> list[Line]:
    """The first two rounds warm up, the others are measured."""
    minutes = (FAST_ROUNDS * PERIOD_S + 1) / 60
    records = _public(
        Fleet(hpas=FAST_HPAS, namespaces=FAST_NAMESPACES, partitions=PARTITIONS, minutes=minutes), timed=True
    )
    async with _rig(["--timestamp", "source"], ["--playback"]) as rig:
        asked, warm, began, spent, came = 0, False, 0.0, rig.cpu_s(), 0
        for record in records:
            await rig.until(asked - 4 * FAST_HPAS)
            if rig.came >= 2 * FAST_HPAS and not warm:
                warm, began, spent, came = True, time.monotonic(), rig.cpu_s(), rig.came
                rig.bytes_in = rig.bytes_out = 0
            await rig.send(record)
            asked += record.decisions
        await rig.until(asked)
        took_s, done = time.monotonic() - began, rig.came - came
        used = [now - then for now, then in zip(rig.cpu_s(), spent, strict=True)]
    name = "pipeline, full speed"
    return [
        (f"{name}: decisions", done / took_s, "decisions/s of time"),
        (f"{name}: of ingest's CPU time", done / used[0], "decisions/s/core"),
        (f"{name}: of the decider's CPU time", done / used[1], "decisions/s/core"),
        (f"{name}: samples in", rig.bytes_in / done, "bytes/decision"),
        (f"{name}: decisions out", rig.bytes_out / done, "bytes/decision"),
    ]
