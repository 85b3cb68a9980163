"""A wave of removals through ingest, decider and breaker as processes, on any broker: what is paused, and how soon."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import yaml
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from runtime.kafkaclients import reader, running_producer
from runtime.records import Publisher
from schemas import topics
from schemas.answers import Answers
from schemas.codec import decode
from schemas.connection import KafkaSettings
from schemas.entries import Body, BreakerCommand, LogRecord
from schemas.kubernetes.gotimes import parse_time_ms
from schemas.observed import AutoscalerSet, Command, PodList
from schemas.settings import ClusterSettings, EngineSet, SettingsSet
from streams.state.partition import Partition
from tests.kit.brakes import AT_ONCE
from tests.kit.decider_process import ROOT, Decider
from tests.kit.partition import cpu_answer, make_hpa, make_pod, scale
from tests.patience import PATIENCE_S
from tests.pipeline.ingesting import PARTITIONS, Process

CLUSTERS = ("east", "north", "south", "west")
REPLICAS = 10
PAUSE_MS = 15 * 60_000
RULES = {
    "apiVersion": "fleethpa.io/v1",
    "kind": "Guardrails",
    "rules": [{"name": "wave", "window": "5m", "removedPercent": 10, "leastRemoved": 10, "pause": "15m", "act": True}],
}
SETTINGS = ClusterSettings(
    sync_period_ms=2_000, default_mode="enforce", native_controller="absent", downscale_stabilization_ms=0
)


class Wave(NamedTuple):
    """What came of it.

    `delays_ms`: cluster → from the trip to the entry of the log. `wanted`: replicas that decisions removed in each
    cluster. `held`: HPAs whose scale-down the pause held. `log`, `decisions`: records, by partition.
    """

    delays_ms: dict[str, int]
    wanted: dict[str, int]
    held: int
    rejected: list[str]
    log: dict[int, list[ConsumerRecord]]
    decisions: dict[int, list[ConsumerRecord]]

    def replayed(self) -> dict[int, list[bytes]]:
        """The decisions that follow from the log alone."""
        made = {}
        for number, records in self.log.items():
            partition = Partition.empty(number)
            made[number] = [
                each.value
                for record in records
                for each in partition.apply(record.offset, record.timestamp, record.value)
            ]
        return made


class FollowedTopics:
    """Everything on the log, the decisions and the rejected records so far, read as it grows."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self.records: dict[str, dict[int, list[ConsumerRecord]]] = {}

    async def until(self, done: Callable[[], bool], running: Sequence[Callable[[], str]]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not done():
                assert not (stated := [text for look in running if (text := look())]), stated
                await self.read()

    async def read(self) -> None:
        """Take in what has come, within 50 ms."""
        for part, got in (await self._consumer.getmany(timeout_ms=50)).items():
            self.records.setdefault(part.topic, {}).setdefault(part.partition, []).extend(got)

    def of(self, topic: str) -> list[ConsumerRecord]:
        return [record for records in self.records.get(topic, {}).values() for record in records]

    def evaluations(self) -> list[dict[str, Any]]:
        found = [orjson.loads(record.value) for record in self.of(topics.DECISIONS)]
        return [each for each in found if each.get("kind", "evaluation") == "evaluation"]

    def first_removals(self, since_ms: int) -> dict[str, int]:
        """Cluster → time of the first decision since then that removes replicas (Unix ms)."""
        found: dict[str, int] = {}
        for each in self.evaluations():
            at_ms = parse_time_ms(each["time"])
            if at_ms >= since_ms and each.get("wants") is not None and each["wants"] < each["currentReplicas"]:
                found[each["cluster"]] = min(at_ms, found.get(each["cluster"], at_ms))
        return found

    def paused(self) -> dict[str, tuple[int, BreakerCommand]]:
        """Cluster → time of the log at which its pause came into the partition that came last, and the pause."""
        found: dict[str, list[tuple[int, BreakerCommand]]] = {}
        for record in self.of(topics.LOG):
            if b'"breaker"' in record.value:
                for entry in decode(record.value, LogRecord).entries:
                    if isinstance(entry.body, BreakerCommand):
                        found.setdefault(entry.body.cluster, []).append((record.timestamp, entry.body))
        return {name: max(each, key=lambda pair: pair[0]) for name, each in found.items() if len(each) >= PARTITIONS}


async def run_wave(
    kafka: KafkaSettings,
    folder: Path,
    *,
    hpas: int = 50,
    first: int = 10,
    signed_in: Callable[[str], Sequence[str]] = lambda part: (),
) -> Wave:
    """`first` HPAs of each of four clusters fall to zero, and once the pauses stand, all of them.

    Args:
        kafka: how the test itself gets in; topics exist.
        hpas: HPAs of each cluster, of 10 replicas.
        signed_in: arguments with which a part gets in.
    """
    names = [f"app-{number:02}" for number in range(hpas)]
    (folder / "guardrails.yaml").write_text(yaml.safe_dump(RULES))
    parts = [
        TopicPartition(topic, n) for topic in (topics.LOG, topics.DECISIONS, topics.REJECTED) for n in range(PARTITIONS)
    ]
    async with reader(kafka, parts) as consumer, running_producer(kafka) as producer:
        publisher, seen = Publisher(producer), FollowedTopics(consumer)
        with (
            Process(kafka, *signed_in("ingest")) as ingest,
            Decider(
                kafka.bootstrap_servers, folder / "decider.txt", *signed_in("decider"), session_timeout_s=30
            ) as decider,
            BreakerProcess(kafka, folder, signed_in("breaker")) as breaker,
        ):
            await ingest.port()
            looks = [
                lambda: decider.tail() if decider.ended else "",
                lambda: "ingest has ended" if ingest.popen.poll() is not None else "",
                breaker.ended,
            ]
            now: list[Body] = [EngineSet(engine=1), SettingsSet(cluster="*", settings=SETTINGS)]
            await publisher.send(topics.SETTINGS, "", "", now, _now_ms())
            await seen.until(lambda: _has(seen, b'"syncPeriodMs"'), looks)
            for cluster in CLUSTERS:
                await _observe(publisher, cluster, names)
            await _answer(publisher, dict.fromkeys(names, 50))
            await seen.until(lambda: len({_hpa(each) for each in seen.evaluations()}) == len(CLUSTERS) * hpas, looks)
            await breaker.running()
            # Somebody who may write the breaker's topic tries more than pause and resume.
            await publisher.send(topics.BREAKER, "", "", [Command(command="mode", mode="off")], _now_ms())
            zeros = {name: 0 if name in names[:first] else 50 for name in names}
            await _answering(publisher, zeros, lambda: len(seen.paused()) == len(CLUSTERS), seen, looks)
            paused = seen.paused()
            held: set[tuple[str, str]] = set()

            def is_held() -> bool:
                held.update(_hpa(each) for each in seen.evaluations() if "by guardrail wave" in each.get("paused", ""))
                return len(held) >= len(CLUSTERS) * (hpas - first)

            await _answering(publisher, dict.fromkeys(names, 0), is_held, seen, looks)
            await seen.until(lambda: bool(seen.of(topics.REJECTED)), looks)
            assert await breaker.terminate() == 0, breaker.ended()
            assert decider.terminate(60) == 0, decider.tail()
        ends = await consumer.end_offsets(parts)
        await seen.until(
            lambda: all(
                len(seen.records.get(part.topic, {}).get(part.partition, ())) >= end for part, end in ends.items()
            ),
            [],
        )
    wanted = {
        cluster: sum(
            each["currentReplicas"] - each["wants"]
            for each in seen.evaluations()
            if each.get("cluster") == cluster and each.get("wants") is not None
        )
        for cluster in CLUSTERS
    }
    return Wave(
        {name: at_ms - (body.until - PAUSE_MS) for name, (at_ms, body) in paused.items()},
        wanted,
        len(held),
        [dict(record.headers)["reason"].decode() for record in seen.of(topics.REJECTED)],
        seen.records[topics.LOG],
        seen.records[topics.DECISIONS],
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _has(seen: FollowedTopics, text: bytes) -> bool:
    return any(text in record.value for record in seen.of(topics.LOG))


def _hpa(decision: dict[str, Any]) -> tuple[str, str]:
    return decision.get("cluster", ""), decision.get("name", "")


async def _observe(publisher: Publisher, cluster: str, names: list[str]) -> None:
    """HPAs, scales and pods of a cluster."""
    now_ms = _now_ms()
    bodies = [
        AutoscalerSet(hpa=make_hpa(name, f"{cluster}-{name}", maxReplicas=1_000, behavior=AT_ONCE)) for name in names
    ]
    await publisher.send(topics.AUTOSCALERS, cluster, "shop", bodies, now_ms)
    await publisher.send(topics.SCALES, cluster, "shop", [scale(name, REPLICAS) for name in names], now_ms)
    pods = [make_pod(f"{name}-{index}", name) for name in names for index in range(REPLICAS)]
    await publisher.send(topics.PODS, cluster, "shop", [PodList(list_id="a", pods=pods)], now_ms)


async def _answer(publisher: Publisher, usage: dict[str, int]) -> None:
    now_ms = _now_ms()
    items = [
        cpu_answer(name, {f"{name}-{index}": milli for index in range(REPLICAS)}, now_ms)
        for name, milli in usage.items()
    ]
    for cluster in CLUSTERS:
        await publisher.send(topics.SAMPLES, cluster, "shop", [Answers(items=items)], now_ms)


async def _answering(
    publisher: Publisher,
    usage: dict[str, int],
    done: Callable[[], bool],
    seen: FollowedTopics,
    looks: list[Callable[[], str]],
) -> None:
    """Answer once a period, as an observer does, until something is so."""

    async def answer() -> None:
        while True:
            await _answer(publisher, usage)
            await asyncio.sleep(2.0)

    answering = asyncio.create_task(answer())
    try:
        await seen.until(done, looks)
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


class BreakerProcess:
    """`fleethpa run breaker`."""

    def __init__(self, kafka: KafkaSettings, folder: Path, arguments: Sequence[str]) -> None:
        command = [sys.executable, "-m", "fleethpa", "run", "breaker", "-f", str(folder / "guardrails.yaml")]
        command += ["--brokers", kafka.bootstrap_servers, *arguments]
        self._output = folder / "breaker.txt"
        environ = {name: text for name, text in os.environ.items() if not name.startswith("FLEETHPA_")}
        with self._output.open("ab") as stream:
            self._process = subprocess.Popen(command, stdout=stream, stderr=stream, cwd=ROOT, env=environ)

    def __enter__(self) -> "BreakerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def ended(self) -> str:
        """What it printed, if it has ended."""
        return self._output.read_text() or "ended" if self._process.poll() is not None else ""

    async def running(self) -> None:
        """Wait until it has read the last hour."""
        async with asyncio.timeout(PATIENCE_S):
            while "breaker is running" not in self._output.read_text():
                assert not self.ended(), self.ended()
                await asyncio.sleep(0.05)

    async def terminate(self) -> int:
        """Ask it to end; its exit code."""
        self._process.terminate()
        return await asyncio.to_thread(self._process.wait, 60)
