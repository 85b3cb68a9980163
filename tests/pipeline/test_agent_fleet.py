"""A fleet with an agent: every part is a process of its own, and each is killed while a load rises and falls."""

import asyncio
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition

from fleethpa.lab.simulator.broker import EmbeddedBroker
from fleethpa.lab.simulator.cluster import write_kubeconfig
from fleethpa.lab.simulator.model import ConstantLoad
from fleethpa.processes.parts import Child, Supervisor
from reconciler.agents.agent.process import HOME
from runtime.kafkaclients import reader
from runtime.records import Publisher
from schemas.agents import AgentSet
from schemas.codec import decode
from schemas.connection import KafkaSettings
from schemas.decisions import ENGINE
from schemas.entries import LogRecord, Outcome
from schemas.observed import AutoscalerSet
from schemas.settings import ClusterSettings, EngineSet, SettingsSet
from schemas.topicconfigs import TOPICS
from schemas.topics import DECISIONS, LOG, SETTINGS, SPECS
from streams.partition import Partition
from tests.kafka.broker import free_ports
from tests.kit.clusters import FaultyCluster
from tests.patience import PATIENCE_S
from tests.pipeline.cluster_rig import NAMESPACE, deployment, hpa

EAST = AgentSet(cluster="east", incarnation=7)
SETTING = ClusterSettings(
    sync_period_ms=2_000,
    downscale_stabilization_ms=0,
    cpu_initialization_period_ms=1_000,
    initial_readiness_delay_ms=500,
)
HIGH, MOST, LEAST = 100_000.0, 6, 1


@dataclass
class Fleet:
    kafka: KafkaSettings
    sim: FaultyCluster
    supervisor: Supervisor
    children: dict[str, Child]
    ports: dict[str, int]

    @property
    def replicas(self) -> int:
        found = self.sim.store.get(("deployments.apps", NAMESPACE, "web"))
        assert found is not None
        return int(found["spec"]["replicas"])

    def load(self, value: float) -> None:
        self.sim.set_load(NAMESPACE, "web", ConstantLoad(value))

    async def until(self, replicas: int, timeout_s: float = PATIENCE_S) -> None:
        def logs() -> str:
            return "\n".join(f"{child.name}:\n{child.tail()}" for child in self.children.values())

        try:
            async with asyncio.timeout(timeout_s):
                while self.replicas != replicas:
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{self.replicas} replicas, not {replicas}\n{logs()}") from None

    async def leader(self) -> str:
        """The replica of the agent that leads."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for name, port in self.ports.items():
                    if "this replica" in await asyncio.to_thread(_readyz, port):
                        return name
                await asyncio.sleep(0.2)

    def kill(self, *names: str) -> None:
        for name in names:
            pid = self.children[name].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)


def _readyz(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return ""


@asynccontextmanager
async def fleet(folder: Path) -> AsyncIterator[Fleet]:
    with EmbeddedBroker() as broker:
        broker.ensure_topics([*(topic.name for topic in TOPICS), EAST.topics.reports, EAST.topics.commands])
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap)
        sim = FaultyCluster("east", sample_ms=500)
        await sim.start()
        sim.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
        sim.apply(deployment("web", 2, simulation="load: 0"))
        kubeconfig = write_kubeconfig(folder / "kubeconfig", [sim])
        supervisor = Supervisor(lambda child: None)
        ports = dict(zip(("agent-a", "agent-b"), free_ports(2), strict=True))
        made = Fleet(kafka, sim, supervisor, {}, ports)
        try:
            await _write(kafka)
            base = [sys.executable, "-m", "fleethpa", "run"]
            reach = ["--brokers", broker.bootstrap, "--log-level", "info"]
            member = ["--kubeconfig", str(kubeconfig), "--contexts", "east", "--incarnation", "7", "--local-clock"]
            commands = {
                "ingest": [*base, "ingest", *reach, "--session-timeout", "2"],
                "decider": [*base, "decider", *reach, "--session-timeout", "10"],
                "router": [*base, "router", *reach],
                **{name: [*base, "agent", *reach, *member, "--web-port", str(port)] for name, port in ports.items()},
            }
            for name, arguments in commands.items():
                made.children[name] = Child(name, arguments, folder / f"{name}.log", {"FLEETHPA_CONFIG": ""})
                await supervisor.start(made.children[name])
            yield made
        finally:
            await supervisor.stop()
            await sim.stop()


async def _write(kafka: KafkaSettings) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    await producer.start()
    try:
        publisher = Publisher(producer)
        settings = SettingsSet(cluster="*", settings=SETTING)
        await publisher.send(SETTINGS, "", "", [EngineSet(engine=ENGINE, partitions=4), settings, EAST], 1)
        manifest = hpa("web", low=LEAST, high=MOST)
        central = AutoscalerSet(hpa=manifest, origin="central", mode="enforce")
        await publisher.send(SPECS, "east", NAMESPACE, [central], 1)
    finally:
        await producer.stop()


@pytest.mark.slow
async def test_the_fleet_scales_on_whatever_is_killed_and_the_log_explains_it_all(tmp_path: Path) -> None:
    async with fleet(tmp_path) as made:
        made.load(HIGH)
        await made.until(MOST)

        first = await made.leader()
        made.kill(first)
        made.load(0.0)
        await made.until(LEAST)

        made.kill("ingest", "decider", "router")
        made.load(HIGH)
        await made.until(MOST)

        made.kill(*made.children)
        made.load(0.0)
        await made.until(LEAST)
        decisions, log = await _read(made.kafka, DECISIONS), await _read(made.kafka, LOG)

    recorded = {number: [record.value for record in records] for number, records in decisions.items()}
    for number, records in log.items():
        partition = Partition.empty(number)
        derived = [d.value for r in records for d in partition.apply(r.offset, r.timestamp, r.value)]
        unique = list(dict.fromkeys(recorded[number]))  # a decider that was killed may publish a decision twice
        assert unique == derived[: len(unique)]
    outcomes = [
        entry.body
        for records in log.values()
        for record in records
        for entry in decode(record.value, LogRecord).entries
        if isinstance(entry.body, Outcome)
    ]
    assert {each.result for each in outcomes} >= {"applied"}


async def _read(kafka: KafkaSettings, topic: str) -> dict[int, list[Any]]:
    tps = [TopicPartition(topic, number) for number in range(4)]
    found: dict[int, list[Any]] = {tp.partition: [] for tp in tps}
    async with reader(kafka, tps) as consumer:
        ends = await consumer.end_offsets(tps)
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            for tp, records in (await consumer.getmany(timeout_ms=100)).items():
                found[tp.partition] += records
    return found
