"""Make a log: seeded, the same for the same arguments. For benchmarks, laws and crash tests; no file, no clock.

A fleet of namespaces with Deployments, pods, HPAs and an answer of the metrics API every sync period. Load
follows a slow wave with noise. Wanted writes get no outcome here: an enforcing HPA waits until its write times out.
`tests.kit.closedloop` applies them.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from schemas.answers import Answers, MetricAnswer, PodUsage, in_columns
from schemas.codec import encode
from schemas.entries import WHOLE_PARTITION_KEY as WHOLE
from schemas.entries import Body, Entry, LogRecord, Source
from schemas.keys import namespace_key
from schemas.observed import AutoscalerSet, Container, Heartbeat, Pod, PodList, PodSet, ScaleSet, Target
from schemas.partitioning import partition_for
from schemas.settings import ClusterSettings, SettingsSet
from schemas.topics import AUTOSCALERS, PODS, SAMPLES, SCALES, SETTINGS

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
_SESSION = "generated"


@dataclass(frozen=True)
class Fleet:
    """What to make. Every HPA has a Deployment of its own with `pods` pods."""

    hpas: int = 20
    namespaces: int = 4
    minutes: float = 5.0
    seed: int = 1
    partitions: int = 1
    clusters: int = 1
    pods: int = 5
    metrics: int = 1
    """1: cpu utilization; 2: and memory; 3: and an External metric."""
    behavior: bool = True
    period_ms: int = 15_000
    tick_ms: int = 1_000
    churn: float = 0.02
    """Share of the workloads whose pods change at an answer."""
    noise: float = 0.1
    """By which share the usage of a pod differs from the load at most."""
    settings: ClusterSettings | None = None
    start_ms: int = START_MS


class GeneratedRecord(NamedTuple):
    """A log record as the broker would give it."""

    partition: int
    offset: int
    timestamp_ms: int
    value: bytes


@dataclass
class GeneratedWorkload:
    """A Deployment with its pods and its HPA. `phase`: of its load's wave."""

    cluster: str
    namespace: str
    name: str
    replicas: int
    phase: float
    born: int = 0
    pods: list[Pod] = field(default_factory=list)

    @property
    def key(self) -> str:
        return namespace_key(self.cluster, self.namespace)

    @property
    def selector(self) -> str:
        return f"app={self.name}"


def generate(fleet: Fleet) -> Iterator[GeneratedRecord]:
    """Make the records of all partitions in the order of their times; offsets are dense in each partition."""
    return LogGenerator(fleet).run()


def partition_log(fleet: Fleet, partition: int = 0) -> list[tuple[int, int, bytes]]:
    """Make one partition's records: (offset, timestamp ms, value)."""
    return [record[1:] for record in generate(fleet) if record.partition == partition]


class LogGenerator:
    """Makes the records of a fleet one after the other; a subclass may let the fleet react to its decisions."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.random = random.Random(fleet.seed)
        self.now_ms = fleet.start_ms
        self.offsets = [0] * fleet.partitions
        self.sources: dict[tuple[str, int], int] = {}
        self.workloads = [self._workload(index) for index in range(fleet.hpas)]
        self.by_namespace: dict[str, list[GeneratedWorkload]] = {}
        for workload in self.workloads:
            self.by_namespace.setdefault(workload.key, []).append(workload)

    def _workload(self, index: int) -> GeneratedWorkload:
        fleet = self.fleet
        place = index % fleet.namespaces
        return GeneratedWorkload(
            cluster=f"c{place % fleet.clusters}",
            namespace=f"ns{place}",
            name=f"app{index}",
            replicas=fleet.pods,
            phase=self.random.random() * math.tau,
        )

    def run(self) -> Iterator[GeneratedRecord]:
        """Settings, what exists, then answers and ticks until the end."""
        yield from self._settings()
        yield from self._inventory()
        end_ms = self.fleet.start_ms + round(self.fleet.minutes * 60_000)
        keys = sorted(self.by_namespace)
        phases = {key: partition_for(key, 997) * self.fleet.period_ms // 997 for key in keys}
        next_ms = {key: self.fleet.start_ms + 1_000 + phases[key] for key in keys}
        next_tick_ms = self.fleet.start_ms + self.fleet.tick_ms
        while True:
            key = min(next_ms, key=lambda name: (next_ms[name], name)) if next_ms else ""
            if key and next_ms[key] <= next_tick_ms:
                self.now_ms = next_ms[key]
                next_ms[key] += self.fleet.period_ms + 20
                turn: Any = self._round(key)
            else:
                self.now_ms = next_tick_ms
                next_tick_ms += self.fleet.tick_ms
                turn = self._ticks()
            if self.now_ms > end_ms:
                return
            yield from turn

    def _settings(self) -> Iterator[GeneratedRecord]:
        settings = self.fleet.settings
        if settings is None:
            return
        for partition in range(self.fleet.partitions):
            entry = self._entry(WHOLE, SETTINGS, SettingsSet(cluster="*", settings=settings), partition)
            yield self._record(partition, [entry])

    def _inventory(self) -> Iterator[GeneratedRecord]:
        for key, workloads in sorted(self.by_namespace.items()):
            bodies: list[tuple[str, Body]] = []
            for workload in workloads:
                workload.pods = [self._pod(workload) for _ in range(workload.replicas)]
                bodies.append((AUTOSCALERS, AutoscalerSet(hpa=self._hpa(workload), session=_SESSION)))
                bodies.append((SCALES, self._scale(workload)))
            pods = [pod for workload in workloads for pod in workload.pods]
            chunks = [pods[at : at + 500] for at in range(0, len(pods), 500)]
            for index, chunk in enumerate(chunks):
                bodies.append(
                    (PODS, PodList(list_id="first", pods=chunk, chunk=index, chunks=len(chunks), session=_SESSION))
                )
            for at in range(0, len(bodies), 200):
                yield self._batch(key, bodies[at : at + 200])

    def _hpa(self, workload: GeneratedWorkload) -> dict[str, Any]:
        return hpa(workload, self.fleet)

    def _round(self, key: str) -> Iterator[GeneratedRecord]:
        """One poll of a namespace: a heartbeat, some pod changes, and the answers."""
        workloads = self.by_namespace[key]
        bodies: list[tuple[str, Body]] = [
            (SCALES, Heartbeat(session=_SESSION, watches=["pods", "autoscalers", "scales"]))
        ]
        for workload in workloads:
            if self.random.random() < self.fleet.churn:
                bodies.extend(self._change(workload))
        bodies.append((SAMPLES, Answers(items=[a for w in workloads for a in self._answers(w)], session=_SESSION)))
        yield self._batch(key, bodies)

    def _change(self, workload: GeneratedWorkload) -> list[tuple[str, Body]]:
        """One pod is replaced or its readiness changes."""
        at = self.random.randrange(len(workload.pods))
        if self.random.random() < 0.5:
            old = workload.pods[at]
            ready = "False" if old.ready == "True" else "True"
            pod = msgspec.structs.replace(old, ready=ready, ready_at=self.now_ms // 1000 * 1000)
        else:
            pod = self._pod(workload)
        workload.pods[at] = pod
        return [(PODS, PodSet(pod=pod, session=_SESSION))]

    def _answers(self, workload: GeneratedWorkload) -> list[MetricAnswer]:
        time_ms = self.now_ms // 1000 * 1000
        load = self._load(workload)
        usages, noise = [], self.fleet.noise
        for pod in workload.pods:
            cpu = round(400 * load * self.random.uniform(1 - noise, 1 + noise))
            memory = round(200_000_000_000 * self.random.uniform(0.9, 1.0))
            usages.append(PodUsage(pod.name, time_ms, 15_000, [("main", {"cpu": cpu, "memory": memory})]))
        answers = [MetricAnswer(api="resource", selector=workload.selector, pods=in_columns(usages))]
        if self.fleet.metrics > 2:
            depth = round(60_000 * load * self.random.uniform(0.8, 1.2))
            answers.append(MetricAnswer(api="external", metric=f"queue-{workload.name}", items=[(depth, time_ms)]))
        return answers

    def _load(self, workload: GeneratedWorkload) -> float:
        """Give the load of each pod now: 1 is 400m of CPU."""
        minutes = (self.now_ms - self.fleet.start_ms) / 60_000
        return 0.5 + 0.4 * math.sin(workload.phase + minutes / 3)

    def _pod(self, workload: GeneratedWorkload) -> Pod:
        workload.born += 1
        born_ms = self.now_ms // 1000 * 1000
        return Pod(
            name=f"{workload.name}-{workload.born:05d}",
            uid=f"{workload.name}-uid-{workload.born}",
            labels={"app": workload.name},
            start=born_ms - 600_000,
            ready="True",
            ready_at=born_ms - 590_000,
            containers=[Container(name="main", requests={"cpu": "250m", "memory": "256Mi"})],
            owner=f"ReplicaSet/{workload.name}",
        )

    def _scale(self, workload: GeneratedWorkload) -> ScaleSet:
        return ScaleSet(
            target=Target(group="apps", kind="Deployment", name=workload.name),
            spec_replicas=workload.replicas,
            status_replicas=workload.replicas,
            selector=workload.selector,
            resource_version="1",
            session=_SESSION,
        )

    def _ticks(self) -> Iterator[GeneratedRecord]:
        for partition in range(self.fleet.partitions):
            yield self._record(partition, [])

    def _batch(self, key: str, bodies: list[tuple[str, Body]]) -> GeneratedRecord:
        partition = partition_for(key, self.fleet.partitions)
        return self._record(partition, [self._entry(key, topic, body, partition) for topic, body in bodies])

    def _entry(self, key: str, topic: str, body: Body, partition: int) -> Entry:
        place = (topic, partition)
        offset = self.sources[place] = self.sources.get(place, -1) + 1
        source = Source(topic=topic, partition=partition, offset=offset, index=0, time=self.now_ms)
        return Entry(key=key, body=body, source=source)

    def _record(self, partition: int, entries: list[Entry]) -> GeneratedRecord:
        offset = self.offsets[partition]
        self.offsets[partition] += 1
        return GeneratedRecord(partition, offset, self.now_ms, encode(LogRecord(v=1, entries=entries)))


def hpa(workload: GeneratedWorkload, fleet: Fleet) -> dict[str, Any]:
    """Make a defaulted autoscaling/v2 HPA for a workload."""
    metrics: list[dict[str, Any]] = [_resource("cpu", 80)]
    if fleet.metrics > 1:
        metrics.append(_resource("memory", 90))
    if fleet.metrics > 2:
        target = {"type": "AverageValue", "averageValue": "10"}
        external = {"metric": {"name": f"queue-{workload.name}"}, "target": target}
        metrics.append({"type": "External", "external": external})
    spec: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": workload.name},
        "minReplicas": 2,
        "maxReplicas": 2 * fleet.pods + 2,
        "metrics": metrics,
    }
    if fleet.behavior:
        spec["behavior"] = _behavior()
    metadata = {
        "name": workload.name,
        "namespace": workload.namespace,
        "uid": f"00000000-0000-4000-8000-{partition_for(workload.key + '/' + workload.name, 10**12):012d}",
        "generation": 1,
    }
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}


def _resource(name: str, utilization: int) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": utilization}
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def _behavior() -> dict[str, Any]:
    percent = {"type": "Percent", "value": 100, "periodSeconds": 15}
    return {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, percent],
        },
        "scaleDown": {"selectPolicy": "Max", "policies": [percent]},
    }
