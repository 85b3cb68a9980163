"""A FleetHPA through broker, ingest and decider: reports and allotments cross the log, two clusters follow one load."""

import asyncio
import time
from pathlib import Path

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from fleethpa.lab.simulator.broker import EmbeddedBroker
from runtime.kafkaclients import reader, strict_producer
from runtime.records import Publisher
from schemas import topics
from schemas.answers import Answers
from schemas.connection import KafkaSettings
from schemas.decisions import Decision
from schemas.entries import Body, Outcome
from schemas.keys import FLEET
from schemas.observed import AutoscalerSet, Command, FleetCluster, FleetSpec, PodList
from schemas.settings import ClusterSettings, SettingsSet
from schemas.topics import EMBEDDED_PARTITIONS as PARTITIONS
from tests.kit.decider_process import Decider
from tests.kit.partition import NAMESPACE, cpu_answer, make_hpa, make_pod, scale
from tests.patience import PATIENCE_S
from tests.pipeline.ingesting import Process
from tests.pipeline.playing import ALL_TOPICS

MAXIMUM = 10
PERIOD_S = 2.0
CLUSTERS = ("east", "west")


class Clusters:
    """Two clusters that report what they have, and carry out what is decided."""

    def __init__(self, publisher: Publisher, consumer: AIOKafkaConsumer) -> None:
        self._publisher, self._consumer = publisher, consumer
        self.replicas = dict.fromkeys(CLUSTERS, 2)
        self.load = dict.fromkeys(CLUSTERS, 100)
        self.most = 0
        self._lists = 0

    async def say(self, topic: str, cluster: str, *bodies: Body) -> None:
        namespace = "" if cluster == "*" else NAMESPACE
        given = "" if cluster == "*" else cluster
        await self._publisher.send(topic, given, namespace, bodies, time.time_ns() // 1_000_000)

    async def report(self, cluster: str) -> None:
        had, self._lists = self.replicas[cluster], self._lists + 1
        pods = [make_pod(f"web-{number}") for number in range(had)]
        await self.say(topics.SCALES, cluster, scale("web", had))
        await self.say(topics.PODS, cluster, PodList(list_id=f"{self._lists}", pods=pods))

    async def measure(self) -> None:
        """Report what each cluster has and its load, divided among its pods, as an observer does in each period: of one
        that is silent for 30 s nothing is known.
        """
        for cluster in CLUSTERS:
            await self.report(cluster)
            had = self.replicas[cluster]
            usage = {f"web-{number}": self.load[cluster] // had for number in range(had)}
            answer = cpu_answer("web", usage, time.time_ns() // 1_000_000)
            await self.say(topics.SAMPLES, cluster, Answers(items=[answer]))

    async def until(self, total: int) -> None:
        """Let periods pass until the clusters have so many replicas together.

        How they are divided depends on a machine that stalls: a cluster whose reports are late is away for a while, and
        what the other one gets meanwhile is not taken from it again.
        """
        async with asyncio.timeout(PATIENCE_S):
            while sum(self.replicas.values()) != total:
                await self.measure()
                await self._follow(PERIOD_S)

    async def _follow(self, seconds: float) -> None:
        """Carry out what is decided, for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for records in (await self._consumer.getmany(timeout_ms=int(left * 1_000))).values():
                for record in records:
                    decision = msgspec.json.decode(record.value)
                    if "observed" in decision and decision.get("kind", "evaluation") == "evaluation":
                        await self._take(msgspec.json.decode(record.value, type=Decision))

    async def _take(self, decision: Decision) -> None:
        if decision.wants is None:
            return
        self.replicas[decision.cluster] = wanted = decision.wants
        self.most = max(self.most, sum(self.replicas.values()))
        outcome = Outcome(
            decision=decision.id,
            name="web",
            uid=decision.uid,
            result="applied",
            spec_replicas=wanted,
            status_replicas=wanted,
        )
        await self.say(topics.OUTCOMES, decision.cluster, outcome)
        await self.report(decision.cluster)


@pytest.mark.parametrize(
    "loads", [pytest.param(1, id="one load"), pytest.param(3, id="three loads", marks=pytest.mark.slow)]
)
async def test_two_clusters_follow_one_load_within_the_maximum(tmp_path: Path, loads: int) -> None:
    with EmbeddedBroker() as broker:
        broker.ensure_topics(ALL_TOPICS)
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap)
        parts = [TopicPartition(topics.DECISIONS, number) for number in range(PARTITIONS)]
        with Process(kafka), Decider(broker.bootstrap, tmp_path / "decider.txt"):
            async with strict_producer(kafka) as producer, reader(kafka, parts) as consumer:
                await _two_clusters(Clusters(Publisher(producer), consumer), loads)


async def _two_clusters(run: Clusters, loads: int) -> None:
    short = ClusterSettings(sync_period_ms=int(PERIOD_S * 1_000), native_controller="absent")
    await run.say(topics.SETTINGS, "*", SettingsSet(cluster="*", settings=short))
    # Upstream's own policies, which take two steps to the maximum, without their 15 s between the steps.
    policies = [{"type": "Pods", "value": 4, "periodSeconds": 1}, {"type": "Percent", "value": 100, "periodSeconds": 1}]
    behavior = {"scaleUp": {"policies": policies}, "scaleDown": {"stabilizationWindowSeconds": 0}}
    hpa = make_hpa(minReplicas=2, maxReplicas=MAXIMUM, behavior=behavior)
    spec = FleetSpec(clusters=[FleetCluster(name=each, max_replicas=MAXIMUM) for each in CLUSTERS])
    whole = AutoscalerSet(hpa=hpa, origin="central", fleet=spec, revision=1)
    await run.say(topics.SPECS, FLEET, whole, Command(command="mode", name="web", mode="enforce"))
    for cluster in CLUSTERS:
        member = AutoscalerSet(hpa=hpa, origin="central", mode="enforce", revision=1)
        await run.say(topics.SPECS, cluster, member)
        await run.report(cluster)

    # At a target of 50 milli-CPU for each replica; the first wants more than the maximum.
    for east, west, total in ((900, 100, MAXIMUM), (300, 100, 8), (50, 150, 4))[:loads]:
        run.load = {"east": east, "west": west}
        await run.until(total)
    assert run.most == MAXIMUM
