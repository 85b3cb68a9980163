"""Measure agents on Apache Kafka, for docs/agents.md: `python -m tests.kafka.measure_agents [AGENTS] [--router]`.

With `--router` only what one router does, a minute and a half.

1. Many agents' topics on one ingest: how long from the append of a report until the log has it, and the CPU for it.
2. The extra hop: how long from a decision's append until the agent's topic has it.
3. Traffic: bytes on one agent's topic while the other clusters decide nothing, and while they decide much.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiokafka import AIOKafkaProducer, TopicPartition
from msgspec import structs

from runtime import topicneeds
from runtime.kafkaclients import reader, running_producer
from runtime.records import Publisher
from runtime.topicadmin import TopicAdmin
from runtime.topicneeds import agent_topics
from schemas.agents import ONLY_PARTITION, AgentSet
from schemas.answers import Answers, MetricAnswer, PodUsage, in_columns
from schemas.codec import decode, encode
from schemas.connection import KafkaSettings
from schemas.decisions import Decision, InputPosition
from schemas.entries import Body, LogRecord, PublicRecord
from schemas.keys import namespace_key
from schemas.observed import Heartbeat
from schemas.partitioning import partition_for
from schemas.topics import DECISIONS, LOG, SETTINGS
from tests.kafka.broker import KafkaBroker
from tests.kafka.conftest import make_topics

PARTITIONS = 24
NAMESPACES, PODS = 5, 50
"""Of each cluster: 5 namespaces with an HPA of 50 pods each, polled every 15 s, with heartbeats every 10 s."""
SECONDS = 20


def agents(count: int) -> list[AgentSet]:
    return [AgentSet(cluster=f"c{number:03}", incarnation=7) for number in range(count)]


@asynccontextmanager
async def part(kafka: KafkaSettings, folder: Path, name: str) -> AsyncIterator[int]:
    """A part of fleethpa as a process; gives its process id."""
    command = [sys.executable, "-m", "fleethpa", "run", name, "--brokers", kafka.bootstrap_servers]
    with (folder / f"{name}.log").open("wb") as output:
        process = await asyncio.create_subprocess_exec(*command, stderr=output, stdout=output)
        try:
            async with asyncio.timeout(120):
                while b"is running" not in (folder / f"{name}.log").read_bytes():
                    assert process.returncode is None, (folder / f"{name}.log").read_text()
                    await asyncio.sleep(0.1)
            yield process.pid
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def report(producer: AIOKafkaProducer, agent: AgentSet, namespace: str, *bodies: Body) -> int:
    record = PublicRecord(
        v=1, entries=list(bodies), time=time.time_ns() // 1_000_000, cluster=agent.cluster, namespace=namespace
    )
    value = encode(record)
    await producer.send(agent.topics.reports, value, partition=ONLY_PARTITION)
    return len(value)


def answer(time_ms: int) -> Answers:
    pods = [
        PodUsage(
            pod=f"web-7c9f8b5d4-{number:05}", time=time_ms, window_ms=15_000, containers=[("server", {"cpu": 250})]
        )
        for number in range(PODS)
    ]
    return Answers(items=[MetricAnswer(api="resource", selector="app=web", pods=in_columns(pods))])


async def load(producer: AIOKafkaProducer, all_agents: list[AgentSet], seconds: int) -> tuple[int, int]:
    """What so many agents report; gives records and bytes."""
    records = size = 0
    begin = time.monotonic()
    for step in range(seconds * 10):
        now_ms = time.time_ns() // 1_000_000
        for number, agent in enumerate(all_agents):
            for index in range(NAMESPACES):
                phase = number * 7 + index * 29 + step
                if phase % 150 == 0:
                    size += await report(producer, agent, f"n{index}", answer(now_ms))
                    records += 1
                if phase % 100 == 0:
                    beat = Heartbeat(session=f"agent-{agent.cluster}@1", watches=["pods", "autoscalers", "scales"])
                    size += await report(producer, agent, f"n{index}", beat)
                    records += 1
        await asyncio.sleep(max(0.0, begin + (step + 1) / 10 - time.monotonic()))
    await producer.flush()
    return records, size


async def times(kafka: KafkaSettings, topic: str, partitions: int) -> dict[int, list[tuple[int, bytes]]]:
    """Append times and values of a topic."""
    tps = [TopicPartition(topic, number) for number in range(partitions)]
    found: dict[int, list[tuple[int, bytes]]] = {tp.partition: [] for tp in tps}
    async with reader(kafka, tps) as consumer:
        ends = await consumer.end_offsets(tps)
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            for tp, records in (await consumer.getmany(timeout_ms=200)).items():
                found[tp.partition] += [(record.timestamp, record.value) for record in records]
    return found


def shown(name: str, delays_ms: list[float]) -> None:
    delays_ms = sorted(delays_ms)
    p50, p99 = statistics.median(delays_ms), delays_ms[int(len(delays_ms) * 0.99)]
    print(f"{name}: p50 {p50:.0f} ms, p99 {p99:.0f} ms, most {delays_ms[-1]:.0f} ms of {len(delays_ms)}", flush=True)


async def measure_ingest(kafka: KafkaSettings, folder: Path, all_agents: list[AgentSet]) -> None:
    async with part(kafka, folder, "ingest") as pid, running_producer(kafka) as producer:
        await asyncio.sleep(10)  # the group forms, with all topics
        before_s = cpu_s(pid)
        records, size = await load(producer, all_agents, SECONDS)
        used_s = cpu_s(pid) - before_s
        memory_mb = rss_mb(pid)
        await asyncio.sleep(20)  # on a busy machine ingest may still have some to do
    appended: dict[tuple[str, int], int] = {}
    for stamp, value in [each for found in (await times(kafka, LOG, PARTITIONS)).values() for each in found]:
        for entry in decode(value, LogRecord).entries:
            if entry.source and entry.source.topic.startswith("fleethpa.from."):
                appended[entry.source.topic, entry.source.offset] = stamp
    delays: list[float] = []
    for agent in all_agents:
        for offset, (stamp, _) in enumerate((await times(kafka, agent.topics.reports, 1))[0]):
            if (agent.topics.reports, offset) in appended:
                delays.append(appended[agent.topics.reports, offset] - stamp)
    print(f"{len(all_agents)} agents: {records / SECONDS:.0f} records/s, {size / SECONDS / 1e3:.0f} kB/s")
    print(f"ingest: {100 * used_s / SECONDS:.0f} % of a core, {memory_mb:.0f} MB")
    shown("report appended -> in the log", delays)


def decision(cluster: str, seq: int) -> Decision:
    hpa = f"web-{seq % 10}"
    return Decision(
        id=f"0-{seq}-{hpa}",
        seq=seq,
        prev="0" * 64,
        cluster=cluster,
        namespace=f"n{seq % NAMESPACES}",
        name=hpa,
        uid="uid-" + hpa,
        time="2026-11-21T12:00:00.000Z",
        input=InputPosition(partition=0, offset=seq, hash="0" * 64),
        mode="enforce",
        origin="central",
        wants=5,
        status={"currentReplicas": 2, "desiredReplicas": 5, "conditions": ["x" * 100] * 3},
    )


async def decide(producer: AIOKafkaProducer, cluster: str, count: int, every_s: float, first: int = 1) -> int:
    """Write decisions of a cluster at a rate; gives their bytes."""
    size, begin = 0, time.monotonic()
    for number in range(count):
        made = structs.replace(decision(cluster, first + number), expires=time.time_ns() // 1_000)
        key = namespace_key(cluster, made.namespace)
        headers = [("ce_type", b"io.fleethpa.decision.v1"), ("ce_source", f"/clusters/{cluster}".encode())]
        value = encode(made)
        size += len(value)
        await producer.send(
            DECISIONS, value, key=key.encode(), partition=partition_for(key, PARTITIONS), headers=headers
        )
        await asyncio.sleep(max(0.0, begin + (number + 1) * every_s - time.monotonic()))
    return size


async def measure_router(kafka: KafkaSettings, folder: Path, all_agents: list[AgentSet]) -> None:
    own, others = all_agents[0], all_agents[1:]
    async with part(kafka, folder, "router") as pid, running_producer(kafka) as producer:
        await asyncio.sleep(8)
        before = len((await times(kafka, own.topics.commands, 1))[0])
        alone = await decide(producer, own.cluster, 200, 0.05)
        await producer.flush()
        await asyncio.sleep(2)
        quiet = (await times(kafka, own.topics.commands, 1))[0][before:]
        before_s, begin = cpu_s(pid), time.monotonic()
        busy = await asyncio.gather(
            decide(producer, own.cluster, 200, 0.05, first=1_001),
            *(decide(producer, agent.cluster, 40, 0.25, first=1) for agent in others),
        )
        await producer.flush()
        await asyncio.sleep(2)
        used = (cpu_s(pid) - before_s) / (time.monotonic() - begin)
        memory_mb = rss_mb(pid)
        loud = (await times(kafka, own.topics.commands, 1))[0][before + len(quiet) :]
    for name, copied, written in (
        ("others quiet", quiet, alone),
        (f"others at {sum(busy[1:]) / 1e4:.0f} kB/s", loud, busy[0]),
    ):
        orders = [(stamp, value) for stamp, value in copied if b'"snapshot"' not in value]
        print(f"{name}: {written} bytes decided for the cluster, {sum(len(v) for _, v in copied)} bytes to its agent")
        delays = [stamp - decode(value, Decision).expires / 1_000 for stamp, value in orders]  # type: ignore[operator]
        shown("decision sent -> on the agent's topic", delays)
    print(f"router: {100 * used:.0f} % of a core, {memory_mb:.0f} MB")


async def main(count: int, *, with_ingest: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with KafkaBroker(folder / "kafka") as broker:
            kafka = KafkaSettings(bootstrap_servers=broker.bootstrap)
            await make_topics(kafka, topicneeds.wanted(PARTITIONS, 1))
            made = agents(count)
            async with TopicAdmin(kafka) as client:
                await client.create([topic for agent in made for topic in agent_topics(agent.topics, 1)])
            async with running_producer(kafka) as producer:
                for agent in made:
                    await Publisher(producer).send(SETTINGS, "", "", [agent], 1)
            await asyncio.sleep(5)
            if with_ingest:
                await measure_ingest(kafka, folder, made)
            await measure_router(kafka, folder, made)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agents", type=int, nargs="?", default=200)
    parser.add_argument("--router", action="store_true", help="only what one router does")
    asked = parser.parse_args()
    asyncio.run(main(asked.agents, with_ingest=not asked.router))
