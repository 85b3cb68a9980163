"""Logs with their timestamps for playback, and what a pure fold makes of them."""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from schemas.codec import encode
from schemas.entries import (
    VERSION,
    Answers,
    AutoscalerSet,
    Body,
    Entry,
    Heartbeat,
    LogRecord,
    MetricAnswer,
    ScaleSet,
    Source,
    Target,
)
from schemas.keys import namespace_key, partition_for
from streams.core.partition import Partition

START_MS = 1_760_000_000_000
STEP_MS = 1_000
SYNC_MS = 15_000
HEARTBEAT_MS = 10_000
SESSION = "observer-1"
WATCHES = ["pods", "autoscalers", "scales", "metrics"]


class TimedRecord(NamedTuple):
    """A log record: its value and its timestamp."""

    timestamp_ms: int
    value: bytes


Log = Mapping[int, Sequence[TimedRecord]]
"""Log partition → its records from offset 0."""


class Workload(NamedTuple):
    """An HPA on an external metric, and its target."""

    namespace: str
    name: str
    phase_ms: int

    @property
    def hpa(self) -> dict[str, object]:
        """The manifest, as ingest puts it in the log."""
        metric = {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}}
        return {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "uid": f"uid-{self.namespace}-{self.name}",
                "generation": 1,
                "creationTimestamp": "2025-10-09T08:00:00Z",
            },
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": self.name},
                "minReplicas": 1,
                "maxReplicas": 20,
                "metrics": [{"type": "External", "external": metric}],
            },
        }

    @property
    def target(self) -> Target:
        """The scale that it drives."""
        return Target(kind="Deployment", name=self.name, group="apps")


def make_log(*, partitions: int, minutes: float, hpas: int, seed: int) -> Log:
    """A seeded log: every second a record or a tick per partition; replicas follow what upstream's rule would want."""
    rng = random.Random(seed)
    workloads = [
        Workload(f"ns-{number % max(1, hpas // 3)}", f"app-{number}", rng.randrange(SYNC_MS)) for number in range(hpas)
    ]
    owned = {
        number: [one for one in workloads if _partition(one, partitions) == number] for number in range(partitions)
    }
    return {number: list(_records(ours, int(minutes * 60), rng)) for number, ours in owned.items()}


def fold(log: Log) -> dict[int, list[bytes]]:
    """The decisions of each partition, by the pure core alone."""
    decided: dict[int, list[bytes]] = {}
    for number, records in log.items():
        partition = Partition.empty(number)
        decided[number] = [
            decision.value
            for offset, record in enumerate(records)
            for decision in partition.apply(offset, record.timestamp_ms, record.value)
        ]
    return decided


def _partition(workload: Workload, partitions: int) -> int:
    return partition_for(namespace_key("east", workload.namespace), partitions)


def _records(workloads: Sequence[Workload], seconds: int, rng: random.Random) -> Iterator[TimedRecord]:
    replicas = {one: 1 + rng.randrange(5) for one in workloads}
    for second in range(seconds):
        now = START_MS + second * STEP_MS
        entries = [
            Entry(
                key=namespace_key("east", one.namespace),
                body=body,
                source=Source(topic="made", partition=0, offset=second, index=index, time=now),
            )
            for index, (one, body) in enumerate(_bodies(workloads, replicas, second, now, rng))
        ]
        yield TimedRecord(now, encode(LogRecord(v=VERSION, entries=entries)))


def _bodies(
    workloads: Sequence[Workload], replicas: dict[Workload, int], second: int, now: int, rng: random.Random
) -> Iterator[tuple[Workload, Body]]:
    for one in workloads:
        if second == 0:
            yield one, AutoscalerSet(hpa=one.hpa, session=SESSION)
        if second * STEP_MS % HEARTBEAT_MS == 0:
            yield one, Heartbeat(session=SESSION, watches=WATCHES)
        if second == 0 or rng.random() < 0.03:
            replicas[one] = max(1, replicas[one] + rng.randrange(-1, 2))
            yield one, _scale(one, replicas[one])
        if (now - START_MS - one.phase_ms) % SYNC_MS < STEP_MS:
            yield one, Answers(items=[_answer(now, rng)], session=SESSION)


def _scale(workload: Workload, count: int) -> ScaleSet:
    return ScaleSet(
        target=workload.target,
        spec_replicas=count,
        status_replicas=count,
        selector=f"app={workload.name}",
        resource_version="1",
        session=SESSION,
    )


def _answer(now: int, rng: random.Random) -> MetricAnswer:
    if rng.random() < 0.05:
        return MetricAnswer(api="external", metric="queue", error="no matching metrics found")
    return MetricAnswer(api="external", metric="queue", items=[(rng.randrange(200_000), now)])
