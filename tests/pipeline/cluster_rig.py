"""A rig for tests of the reconciler and the observer: embedded broker, simulated clusters, readers of topics."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from msgspec import structs

from fleethpa.lab.simulator.broker import EmbeddedBroker
from fleethpa.lab.simulator.cluster import write_kubeconfig
from reconciler.clusters.client import ClusterConfig, clusters_of
from reconciler.observer.clusterview import ObserverConfig
from reconciler.observer.process import Observer
from runtime.log import wall_clock_ms
from schemas.codec import WireError, decode, encode
from schemas.connection import KafkaSettings
from schemas.decisions import Decision, InputPosition
from schemas.entries import PublicRecord, central_name
from schemas.keys import namespace_key
from schemas.observed import Heartbeat, Target
from schemas.partitioning import partition_for
from schemas.topics import AUTOSCALERS, DECISIONS, OUTCOMES, PODS, SAMPLES, SCALES, SETTINGS, SPECS
from tests.kit.clusters import FaultyCluster
from tests.patience import PATIENCE_S

TOPICS = (SAMPLES, PODS, AUTOSCALERS, SCALES, SETTINGS, SPECS, OUTCOMES, DECISIONS)
NAMESPACE = "shop"
RARELY_MS = 86_400_000
"""A period of an observer of which no test sees the phase, which is one of the clock: no poll or resend comes between.
"""
FETCH_MS = 50
"""The embedded broker answers a fetch that found nothing at the end of its wait, although a record has come."""
Json = dict[str, Any]


def deployment(name: str, replicas: int = 2, *, namespace: str = NAMESPACE, simulation: str = "load: 100") -> Json:
    labels = {"app": name}
    metadata = {"name": name, "namespace": namespace, "annotations": {"fleethpa.io/simulation": simulation}}
    container = {"name": "main", "image": "x:1", "resources": {"requests": {"cpu": "500m"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def widget(name: str, replicas: int = 2, *, namespace: str = NAMESPACE) -> Json:
    return deployment(name, replicas, namespace=namespace) | {"apiVersion": "example.com/v1", "kind": "Widget"}


def hpa(name: str, target: str = "", *, namespace: str = NAMESPACE, low: int = 1, high: int = 10, **spec: Any) -> Json:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target or name}
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}
    body = {"scaleTargetRef": reference, "minReplicas": low, "maxReplicas": high, "metrics": [cpu]} | spec
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": body}


class Decider:
    """Writes decisions as the decider would: numbered without gaps per partition."""

    def __init__(self, producer: AIOKafkaProducer, partitions: int) -> None:
        self._producer, self._partitions = producer, partitions
        self._seq = dict.fromkeys(range(partitions), 0)
        self._ids = itertools.count(1)

    async def wants(
        self, cluster: FaultyCluster, name: str, replicas: int, *, ttl_ms: int = 10_000, **changes: Any
    ) -> Decision:
        """Publish that an HPA's target (of the same name) is to have so many replicas, decided now."""
        return await self.publish(await self.decision(cluster, name, wants=replicas, ttl_ms=ttl_ms, **changes))

    async def decision(self, cluster: FaultyCluster, name: str, *, ttl_ms: int = 10_000, **changes: Any) -> Decision:
        namespace = changes.pop("namespace", NAMESPACE)
        live = cluster.store.get(("horizontalpodautoscalers.autoscaling", namespace, name))
        target = cluster.store.get(("deployments.apps", namespace, name))
        now = wall_clock_ms()
        decision = Decision(
            id=f"0-{next(self._ids)}-{name}",
            seq=0,
            prev="",
            cluster=cluster.name,
            namespace=namespace,
            name=name,
            uid=live["metadata"]["uid"] if live else "gone",
            time="2026-11-21T12:00:00.000Z",
            input=InputPosition(partition=0, offset=0, hash=""),
            scale_target_ref={"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            target=Target(group="apps", kind="Deployment", name=name),
            mode="enforce",
            current_replicas=target["spec"]["replicas"] if target else 0,
            min_replicas=1,
            max_replicas=10,
            expires=now + ttl_ms,
        )
        return structs.replace(decision, **changes)

    async def publish(self, decision: Decision) -> Decision:
        key = namespace_key(decision.cluster, decision.namespace)
        partition = partition_for(key, self._partitions)
        self._seq[partition] += 1
        decision = structs.replace(decision, seq=self._seq[partition])
        headers = [("ce_type", b"io.fleethpa.decision.v1"), ("ce_id", decision.id.encode())]
        await self._producer.send_and_wait(
            DECISIONS, encode(decision), key=key.encode(), partition=partition, headers=headers
        )
        return decision

    async def repeat(self, before: Decision, time: str, milli: int, percent: int) -> Decision:
        """Publish an evaluation that came out as the one before, with these values of its only metric."""
        current = {"averageUtilization": percent, "averageValue": f"{milli}m"}
        metrics = [{"type": "Resource", "resource": {"name": "cpu", "current": current}}]
        status = {**(before.status or {}), "currentMetrics": metrics}
        id_ = f"0-{next(self._ids)}-{before.name}"
        return await self.publish(structs.replace(before, id=id_, time=time, status=status))


class Topics:
    """Reads the public topics from their beginning and keeps every entry."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self.entries: list[tuple[str, str, str, Any]] = []

    async def read(self) -> None:
        for partition, records in (await self._consumer.getmany(timeout_ms=20)).items():
            for record in records:
                try:
                    public = decode(record.value, PublicRecord)
                except WireError:
                    continue  # what a test wrote for ingest to reject
                if public.namespace and record.topic != SETTINGS:  # whose keys say what a record replaces
                    key = namespace_key(public.cluster, public.namespace)
                    own = f"/{central_name(public.entries[0])}" if record.topic == SPECS else ""
                    assert record.key == f"{key}{own}".encode()
                    assert record.partition == partition_for(key, 4)
                for body in public.entries:
                    self.entries.append((partition.topic, public.cluster, public.namespace, body))

    def of(self, kind: type, cluster: str = "", namespace: str = "") -> list[Any]:
        """All bodies of a kind so far, in order per partition."""
        return [
            body
            for _, where, inside, body in self.entries
            if isinstance(body, kind)
            and cluster in ("", where)
            and namespace in ("", inside, *(body.namespaces if isinstance(body, Heartbeat) else ()))
        ]

    async def until(self, found: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
        """Read on until `found` gives something true; returns it."""
        try:
            async with asyncio.timeout(timeout_s):
                while not (result := found()):
                    await self.read()
                return result
        except TimeoutError:
            reported = "\n".join(repr(entry) for entry in self.entries[-10:])
            raise AssertionError(f"{what}: not seen within {timeout_s:g} s; last entries:\n{reported}") from None


class Rig:
    """Everything a test needs."""

    def __init__(self, kafka: KafkaSettings, clusters: list[FaultyCluster], folder: Path) -> None:
        self.kafka = kafka
        self.sims = {cluster.name: cluster for cluster in clusters}
        self.kubeconfig = write_kubeconfig(folder / "kubeconfig", clusters)
        self.decider: Decider
        self.topics: Topics
        self.part: Any = None

    @property
    def clusters(self) -> tuple[ClusterConfig, ...]:
        return tuple(clusters_of(str(self.kubeconfig)))


@asynccontextmanager
async def rig(folder: Path, names: Iterable[str] = ("east",), *, history: int = 5_000) -> AsyncIterator[Rig]:
    """Embedded broker, clusters, a decider's pen and a reader of the public topics."""
    with EmbeddedBroker() as broker:
        broker.ensure_topics(TOPICS)
        async with rig_on(broker.bootstrap, folder, names, history=history) as made:
            yield made


@asynccontextmanager
async def rig_on(
    brokers: str, folder: Path, names: Iterable[str] = ("east",), *, history: int = 5_000
) -> AsyncIterator[Rig]:
    """The same on brokers that run, and have the topics."""
    clusters = [FaultyCluster(name, history=history, sample_ms=1_000) for name in names]
    for cluster in clusters:
        await cluster.start()
    producer = AIOKafkaProducer(bootstrap_servers=brokers)
    public = [topic for topic in TOPICS if topic != DECISIONS]
    consumer = AIOKafkaConsumer(
        *public, bootstrap_servers=brokers, auto_offset_reset="earliest", fetch_max_wait_ms=FETCH_MS
    )
    await producer.start()
    await consumer.start()
    try:
        made = Rig(KafkaSettings(bootstrap_servers=brokers), clusters, folder)
        made.decider, made.topics = Decider(producer, 4), Topics(consumer)
        yield made
    finally:
        await consumer.stop()
        await producer.stop()
        for cluster in clusters:
            await cluster.stop()


@asynccontextmanager
async def running(part: Any, stop: asyncio.Event, timeout_s: float = PATIENCE_S) -> AsyncIterator[asyncio.Task[None]]:
    """Run a Reconciler or Observer beside the block; its failure fails the test."""
    task = asyncio.create_task(part.run(stop))
    ready = asyncio.create_task(part.health.became_ready.wait())
    try:
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED, timeout=timeout_s)
        if task.done():
            task.result()
        assert ready.done(), f"not ready: {part.health.waiting_for}"
        yield task
    finally:
        ready.cancel()
        stop.set()
        if not task.cancelled():
            await task


@asynccontextmanager
async def observed(made: Rig, **changes: Any) -> AsyncIterator[Observer]:
    """An observer of the rig's clusters, while it runs. `changes`: settings of it."""
    settings: dict[str, Any] = {
        "kafka": made.kafka,
        "clusters": made.clusters,
        "sync_period_ms": 1_000,
        "heartbeat_ms": 500,
        "watch_s": 30,
        "reread_ms": RARELY_MS,
    }
    part = Observer(ObserverConfig(**(settings | changes)))
    async with running(part, asyncio.Event()):
        yield part
