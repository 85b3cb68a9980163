"""A world in log time: simulated workloads, an observer, native controllers, and a decider's partitions.

Nothing here reads a clock, a file or a random number: the same workloads and events give the same log and decisions.
Each log record is folded at once, so that the outcome of a wanted write can answer it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

import msgspec

from fleethpa.lab.simulator.model import LoadCurve, PodProfile, SimulatedPod, SimulatedWorkload
from fleethpa.lab.simulator.nativecontroller import MANAGER, NativeRule
from schemas import observed
from schemas.answers import Answers, MetricAnswer, PodUsage, in_columns
from schemas.codec import encode
from schemas.entries import WHOLE_PARTITION_KEY, Body, Entry, LogRecord, Outcome, Source
from schemas.keys import HpaId
from schemas.kubernetes.shape import Json
from schemas.partitioning import partition_for
from streams.archive.layout import DECISIONS, LOG, ArchivedRecord, archived_record
from streams.hpa.autoscaler import ControllerSettings, compile_autoscaler
from streams.hpa.evaluation import ScaleApplied
from streams.hpa.observation import ContainerRequests, Observation, PodRow, PodTemplate, Scale, TargetPods, pod_samples
from streams.partition import Partition

PERIOD_MS: Final = 30_000
"""Sync period of fleethpa and of the native controllers."""
NATIVE_AT_MS, OBSERVED_AT_MS, APPLIED_AT_MS, HEARTBEAT_AT_MS = 4_000, 9_000, 10_000, 24_000
"""When in a period native controllers sync, metrics arrive, writes are made, and observers repeat themselves."""
SESSION: Final = "day"
WATCHES: Final = ["pods", "autoscalers", "scales"]
Emit = Callable[[str, int, ArchivedRecord], None]
"""Takes a record of a topic (`LOG` or `DECISIONS`) and partition."""
Look = Callable[[Sequence[tuple[int, ArchivedRecord]]], None]
"""Takes decisions, each with its partition."""


@dataclass
class DayApp:
    """A workload and its HPA. `native`: the cluster's own controller scales it, and fleethpa decides in shadow."""

    id: HpaId
    spec: Json
    load: LoadCurve
    profile: PodProfile
    request_milli: int = 500
    native: bool = False
    replicas: int = 3
    native_settings: ControllerSettings = field(default_factory=ControllerSettings)


class _NativeController:
    """The native controller of one HPA, which sees the workload as it is."""

    def __init__(self, app: DayApp, hpa: Json) -> None:
        self._rule, self._compiled = NativeRule(app.native_settings), compile_autoscaler(hpa)
        self._template = PodTemplate([ContainerRequests("main", {"cpu": f"{app.request_milli}m"})])
        self.status: dict[str, Any] = {}

    def sync(self, workload: SimulatedWorkload, selector: str, write: Callable[[int], ScaleApplied]) -> None:
        """Decide as of now; `write` sets the replicas where others are wanted."""
        now_ms, sample = workload.now_ms, workload.samples[-1]
        used = {name: (u.cpu_milli, sample.time_ms, 15_000) for name, u in sample.pods.items()}
        rows = tuple(self._row(pod, now_ms) for pod in workload.pods.values())
        scale = Scale(workload.replicas, len(workload.alive()), selector)
        observation = Observation(scale, TargetPods(rows), (pod_samples(used),))
        self.status = self._rule.sync(self._compiled, self.status, observation, write, now_ms)

    def _row(self, pod: SimulatedPod, now_ms: int) -> PodRow:
        ready = pod.ready(now_ms)
        since_ms = pod.ready_at_ms if ready else pod.created_ms
        phase, state = pod.phase(now_ms), "True" if ready else "False"
        return PodRow(pod.name, self._template, phase, pod.created_ms, state, since_ms, pod.deleting_ms is not None)


class _Living:
    """One app as it lives: its pods, what the observer has reported of them, and its native controller."""

    def __init__(self, app: DayApp, start_ms: int) -> None:
        self.app = app
        self.workload = SimulatedWorkload(app.id.name, start_ms, app.replicas, app.load, app.profile)
        self.hpa = autoscaler(app)
        self.native = _NativeController(app, self.hpa) if app.native else None
        self.manager = ""
        self._reported: dict[str, observed.Pod] = {}

    @property
    def selector(self) -> str:
        """The selector of its pods."""
        return f"app={self.app.id.name}"

    def pod_changes(self) -> Iterator[Body]:
        """Yield what a watch of its pods reports since the last time."""
        now_ms = self.workload.now_ms
        pods = {pod.name: self._pod(pod, now_ms) for pod in self.workload.pods.values()}
        for name, pod in pods.items():
            if self._reported.get(name) != pod:
                yield observed.PodSet(pod=pod, session=SESSION)
        for name in sorted(self._reported.keys() - pods.keys()):
            yield observed.PodDeleted(name=name, session=SESSION)
        self._reported = pods

    def _pod(self, pod: SimulatedPod, now_ms: int) -> observed.Pod:
        ready = pod.ready(now_ms)
        return observed.Pod(
            name=pod.name,
            labels={"app": self.app.id.name},
            start=pod.created_ms,
            phase=pod.phase(now_ms),
            ready="True" if ready else "False",
            ready_at=pod.ready_at_ms if ready else pod.created_ms,
            deleting=pod.deleting_ms is not None,
            containers=[observed.Container(name="main", requests={"cpu": f"{self.app.request_milli}m"})],
        )

    def answer(self, error: str) -> MetricAnswer:
        """Return what the metrics API answers."""
        if error:
            return MetricAnswer(api="resource", selector=self.selector, error=error)
        sample = self.workload.samples[-1]
        usages = [
            PodUsage(name, sample.time_ms, 15_000, [("main", {"cpu": used.cpu_milli})])
            for name, used in sample.pods.items()
        ]
        return MetricAnswer(api="resource", selector=self.selector, pods=in_columns(usages))

    def scale(self) -> observed.ScaleSet:
        """Its scale, as a watch reports it."""
        return observed.ScaleSet(
            target=observed.Target(group="apps", kind="Deployment", name=self.app.id.name),
            spec_replicas=self.workload.replicas,
            status_replicas=self.workload.replicas,
            selector=self.selector,
            session=SESSION,
            manager=self.manager,
            manager_time=self.workload.now_ms,
        )


def autoscaler(app: DayApp) -> Json:
    """The HPA object of an app, with the uid and generation that its cluster gives it."""
    metadata = {
        "name": app.id.name,
        "namespace": app.id.namespace,
        "uid": str(uuid5(NAMESPACE_URL, str(app.id))),
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": app.spec}


class DayWorld:
    """All apps of all clusters, and the partitions that decide about them.

    Args:
        emit: takes each record of the log, and the decisions that follow from it.
    """

    def __init__(self, apps: list[DayApp], partitions: int, start_ms: int, emit: Emit) -> None:
        self.now_ms = start_ms
        self.apps = {app.id: _Living(app, start_ms) for app in apps}
        self.metrics_error: dict[tuple[str, str], str] = {}
        """(cluster, namespace) → what its metrics API answers instead of values."""
        self.decided: list[tuple[int, ArchivedRecord]] = []
        """Partition and record of the decisions that nobody has taken yet."""
        self._emit = emit
        self._partitions = {number: Partition.empty(number) for number in range(partitions)}
        self._offsets = {(topic, number): 0 for topic in (LOG, DECISIONS) for number in self._partitions}
        self._sources = 0
        self._by_namespace: dict[str, list[_Living]] = {}
        for living in self.apps.values():
            self._by_namespace.setdefault(living.app.id.namespace_key, []).append(living)
        self._clusters = sorted({app.id.cluster for app in apps})

    def begin(self) -> None:
        """Report what there is: the HPAs of the clusters, their scales and pods."""
        for key, livings in self._by_namespace.items():
            hpas = [
                observed.AutoscalerSet(hpa=living.hpa, session=SESSION)
                if living.app.native
                else observed.AutoscalerSet(
                    hpa=living.hpa, origin="central", mode="enforce", author="anna", reason="moved in"
                )
                for living in livings
            ]
            pods = [change for living in livings for change in living.pod_changes()]
            self.add(key, *hpas, *(living.scale() for living in livings), *pods)

    def live(self, look: Look = lambda decided: None) -> None:
        """Live through one period; `look` gets the decisions of its metrics, before they are carried out."""
        begin_ms = self.now_ms
        self._advance(begin_ms + NATIVE_AT_MS)
        self.broadcast(*self._reports())
        for living in self.apps.values():
            if living.native is not None and living.workload.samples:
                self._native_sync(living, living.native)
        self._advance(begin_ms + OBSERVED_AT_MS)
        for key, livings in self._by_namespace.items():
            self._observe(key, livings)
        look(self.decided)
        self._advance(begin_ms + APPLIED_AT_MS)
        self._apply()
        self._advance(begin_ms + HEARTBEAT_AT_MS)
        self.broadcast(*self._reports())
        for key, livings in self._by_namespace.items():
            changes = [change for living in livings for change in living.pod_changes()]
            self.add(key, observed.Heartbeat(session=SESSION, watches=WATCHES), *changes)
        self._advance(begin_ms + PERIOD_MS)

    def _advance(self, now_ms: int) -> None:
        self.now_ms = now_ms
        for living in self.apps.values():
            living.workload.advance_to(now_ms)

    def _reports(self) -> list[Body]:
        reports = [
            observed.ClusterReport(cluster=name, session=SESSION, instance="observer") for name in self._clusters
        ]
        return [*reports, observed.Serving(session=SESSION, clusters=self._clusters)]

    def _native_sync(self, living: _Living, native: _NativeController) -> None:
        bodies = list[Body]()

        def write(replicas: int) -> ScaleApplied:
            living.workload.replicas, living.manager = replicas, MANAGER
            bodies.append(living.scale())
            return ScaleApplied()

        native.sync(living.workload, living.selector, write)
        status = observed.AutoscalerSet(hpa=living.hpa | {"status": native.status}, session=SESSION)
        self.add(living.app.id.namespace_key, status, *bodies)

    def _observe(self, key: str, livings: list[_Living]) -> None:
        cluster, _, namespace = key.partition("/")
        error = self.metrics_error.get((cluster, namespace), "")
        answers = [living.answer(error) for living in livings if living.workload.samples]
        changes = [change for living in livings for change in living.pod_changes()]
        self.add(key, *changes, Answers(items=answers, session=SESSION))

    def _apply(self) -> None:
        """Carry out what was decided in this period, as a reconciler does."""
        decided, self.decided = self.decided, []
        for _, record in decided:
            if b'"wants":' not in record.value:
                continue
            decision = msgspec.json.decode(record.value)
            hpa = HpaId(decision["cluster"], decision["namespace"], decision["name"])
            if decision.get("wants") is None or decision["mode"] != "enforce":
                continue
            living = self.apps[hpa]
            living.workload.replicas, living.manager = decision["wants"], "fleethpa"
            outcome = Outcome(
                decision=decision["id"],
                name=hpa.name,
                uid=decision["uid"],
                result="applied",
                spec_replicas=decision["wants"],
            )
            self.add(hpa.namespace_key, outcome, living.scale())

    # --- the log ------------------------------------------------------------------------------------------------------

    def add(self, key: str, *bodies: Body) -> None:
        """Append one record of a namespace."""
        self._append(partition_for(key, len(self._partitions)), key, bodies)

    def broadcast(self, *bodies: Body) -> None:
        """Append a record that concerns all partitions to each of them."""
        for number in self._partitions:
            self._append(number, WHOLE_PARTITION_KEY, bodies)

    def _append(self, number: int, key: str, bodies: tuple[Body, ...]) -> None:
        entries = [Entry(key=key, body=body, source=self._source(at)) for at, body in enumerate(bodies)]
        record = self._record(LOG, number, encode(LogRecord(v=1, entries=entries)))
        self._emit(LOG, number, record)
        for decision in self._partitions[number].apply(record.offset, record.timestamp_ms, record.value):
            decision_record = self._record(
                DECISIONS, number, decision.value, decision.key.encode(), tuple(decision.headers)
            )
            self._emit(DECISIONS, number, decision_record)
            self.decided.append((number, decision_record))

    def _source(self, index: int) -> Source:
        self._sources += index == 0
        return Source(topic="day", partition=0, offset=self._sources, index=index, time=self.now_ms)

    def _record(
        self, topic: str, number: int, value: bytes, key: bytes = b"", headers: tuple[tuple[str, bytes], ...] = ()
    ) -> ArchivedRecord:
        offset = self._offsets[topic, number]
        self._offsets[topic, number] += 1
        return archived_record(offset, self.now_ms, key, headers, value)
