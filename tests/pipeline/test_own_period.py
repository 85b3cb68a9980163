"""HPAs with a shorter sync period than their cluster's, from a simulated cluster's metrics API to their decisions."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from aiokafka import TopicPartition
from msgspec import structs

from fleethpa.lab.simulator.broker import EmbeddedBroker
from fleethpa.lab.simulator.cluster import write_kubeconfig
from reconciler.clusters.client import clusters_of
from reconciler.observer.clusterview import ObserverConfig
from reconciler.observer.process import Observer
from runtime.kafkaclients import reader, strict_producer
from runtime.log import wall_clock_ms
from runtime.records import Publisher
from schemas import topics
from schemas.answers import Answers
from schemas.connection import KafkaSettings
from schemas.decisions import Decision
from schemas.kubernetes.gotimes import time_ms
from schemas.settings import ClusterSettings, SettingsSet
from schemas.syncperiods import PERIOD_ANNOTATION
from schemas.topics import EMBEDDED_PARTITIONS as PARTITIONS
from tests.kit.clusters import FaultyCluster
from tests.kit.decider_process import Decider
from tests.patience import PATIENCE_S
from tests.pipeline.cluster_rig import NAMESPACE, RARELY_MS, Json, deployment, hpa, observed, rig, running
from tests.pipeline.ingesting import Process
from tests.pipeline.playing import ALL_TOPICS

CALM = "calm"
ALLOWED = ClusterSettings(min_sync_period_ms=1_000, native_controller="absent")


def stating(name: str, text: str, **spec: Any) -> Json:
    made = hpa(name, **spec)
    made["metadata"]["annotations"] = {PERIOD_ANNOTATION: text}
    return made


async def state(kafka: KafkaSettings, cluster: str, settings: ClusterSettings) -> None:
    """Publish settings of a cluster."""
    async with strict_producer(kafka) as producer:
        body = SettingsSet(cluster=cluster, settings=settings)
        await Publisher(producer).send(topics.SETTINGS, "", "", [body], wall_clock_ms())


async def test_a_namespace_is_asked_as_often_as_its_shortest_period_where_that_is_allowed(tmp_path: Path) -> None:
    """Others are asked once, when their target is known: the sync period of the clusters is a day."""
    async with rig(tmp_path, ("east", "west", "north")) as made:
        of_cluster = {
            "east": ALLOWED,
            "west": structs.replace(ALLOWED, min_sync_period_ms=None),
            "north": structs.replace(ALLOWED, native_controller=None),
        }
        for name, settings in of_cluster.items():
            sim = made.sims[name]
            for namespace in (NAMESPACE, CALM):
                sim.apply(deployment("web", 2, namespace=namespace))
            sim.apply(stating("web", "100ms"))
            sim.apply(hpa("web", namespace=CALM))
            await state(made.kafka, name, settings)

        def answers(cluster: str, namespace: str) -> int:
            return len(made.topics.of(Answers, cluster, namespace))

        async with observed(made, sync_period_ms=RARELY_MS):
            places = [(cluster, namespace) for cluster in of_cluster for namespace in (NAMESPACE, CALM)]
            await made.topics.until(lambda: all(answers(*place) for place in places), "a first answer everywhere")
            begun_s, before = time.monotonic(), answers("east", NAMESPACE)
            await made.topics.until(lambda: answers("east", NAMESPACE) > before + 3, "further answers")
            asked, seconds = answers("east", NAMESPACE) - before, time.monotonic() - begun_s
            assert asked <= seconds + 2, "the annotation says 100ms, once a second is allowed"
            assert {place: answers(*place) for place in places if place != ("east", NAMESPACE)} == dict.fromkeys(
                [place for place in places if place != ("east", NAMESPACE)], 1
            )
            # The setting ends it, and an annotation begins with it elsewhere at once.
            await state(made.kafka, "west", ALLOWED)
            await made.topics.until(lambda: answers("west", NAMESPACE) > 2, "answers where it is allowed now")
            made.sims["east"].apply(stating("web", "1s", namespace=CALM))
            await made.topics.until(lambda: answers("east", CALM) > 2, "answers where one is stated now")


@asynccontextmanager
async def pipeline(folder: Path) -> AsyncIterator[tuple[KafkaSettings, FaultyCluster]]:
    """Observer, ingest and decider of one simulated cluster."""
    cluster = FaultyCluster("east", sample_ms=1_000)
    with EmbeddedBroker() as broker:
        broker.ensure_topics(ALL_TOPICS)
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(cluster)
            kubeconfig = write_kubeconfig(folder / "kubeconfig", [cluster])
            stack.enter_context(Process(kafka))
            stack.enter_context(Decider(broker.bootstrap, folder / "decider.txt"))
            config = ObserverConfig(kafka=kafka, clusters=tuple(clusters_of(str(kubeconfig))))
            await stack.enter_async_context(running(Observer(config), asyncio.Event()))
            yield kafka, cluster


async def test_an_hpa_is_evaluated_in_its_shorter_period_with_fresh_metrics_and_its_neighbours_in_theirs(
    tmp_path: Path,
) -> None:
    async with pipeline(tmp_path) as (kafka, cluster):
        for namespace, name in ((NAMESPACE, "web"), (NAMESPACE, "api"), (CALM, "web")):
            cluster.apply(deployment(name, 2, namespace=namespace))
        cluster.apply(stating("web", "100ms", low=2, high=2))  # nothing is written, so that no write has to end first
        cluster.apply(hpa("api", low=2, high=2))
        cluster.apply(hpa("web", namespace=CALM, low=2, high=2))
        await state(kafka, "*", structs.replace(ALLOWED, default_mode="enforce"))
        made: dict[tuple[str, str], list[Decision]] = {
            (NAMESPACE, "web"): [],
            (NAMESPACE, "api"): [],
            (CALM, "web"): [],
        }
        parts = [TopicPartition(topics.DECISIONS, number) for number in range(PARTITIONS)]
        async with asyncio.timeout(PATIENCE_S), reader(kafka, parts) as consumer:
            while not made[CALM, "web"] or len(made[NAMESPACE, "web"]) < 8:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    for record in records:
                        each = msgspec.json.decode(record.value, type=Decision)
                        made[each.namespace, each.name].append(each)
        settled = made[NAMESPACE, "web"][2:]  # the first may come before the settings
        assert not [each.error for each in settled if each.error]
        assert all(one.input.sources != after.input.sources for one, after in pairwise(settled)), (
            "each has a new answer"
        )
        gaps_s = [(_time_ms(after) - _time_ms(one)) / 1_000 for one, after in pairwise(settled)]
        assert sum(gaps_s) >= 0.75 * len(gaps_s), "as often as is allowed, and not as the annotation says"
        assert max(len(made[NAMESPACE, "api"]), len(made[CALM, "web"])) <= 3, "in the sync period of the cluster"


def _time_ms(decision: Decision) -> int:
    found = time_ms(decision.time)
    assert found is not None
    return found
