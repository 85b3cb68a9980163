"""Logs in which everything happens: writes and outcomes, edits, deletions, pauses, restarts, silent observers."""

import random
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from schemas.answers import Answers, MetricAnswer, PodUsage, in_columns
from schemas.codec import encode
from schemas.entries import WHOLE_PARTITION_KEY, Body, Entry, LogRecord, Outcome, Source
from schemas.keys import HpaId
from schemas.observed import (
    AutoscalerDeleted,
    AutoscalerList,
    AutoscalerSet,
    Command,
    ConflictingAutoscaler,
    Container,
    Heartbeat,
    Pod,
    PodDeleted,
    PodList,
    PodSet,
    Point,
    Samples,
    ScaleSet,
    Serving,
    Target,
)
from schemas.settings import ClusterSettings, Restart, SettingsSet, WatermarkReset
from streams.analysis.revisions import Revision, RevisionReader
from streams.archive.layout import PlainRecord
from streams.partition import Partition
from streams.state.ledger import DecisionRecord
from streams.state.logtime import CONFIRMED_MS, STEP_LIMIT_MS

START_MS = 1_767_225_600_000
CLUSTER, NAMESPACE = "eu", "shop"
KEY = f"{CLUSTER}/{NAMESPACE}"
ENFORCING = ClusterSettings(default_mode="enforce", native_controller="absent")


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    value: bytes


def make_hpa(name: str = "web", uid: str = "uid-web", generation: int = 1, **spec: Any) -> dict[str, Any]:
    """A defaulted HPA of a Deployment of the same name."""
    target = {"type": "Utilization", "averageUtilization": 50}
    full: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 1,
        "maxReplicas": 10,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    } | spec
    metadata = {"name": name, "namespace": NAMESPACE, "uid": uid, "generation": generation}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": full}


def make_pod(name: str, app: str = "web", **fields: Any) -> Pod:
    """A running, ready, old pod that requests 100m CPU."""
    defaults: dict[str, Any] = {
        "labels": {"app": app},
        "start": START_MS - 3_600_000,
        "ready": "True",
        "ready_at": START_MS - 3_590_000,
        "containers": [Container(name="main", requests={"cpu": "100m"})],
    }
    return Pod(name=name, **(defaults | fields))


def cpu_answer(app: str, usage_milli: Mapping[str, int], time_ms: int) -> MetricAnswer:
    """What metrics.k8s.io answers for the pods of an app."""
    usages = [PodUsage(pod, time_ms, 15_000, [("main", {"cpu": milli})]) for pod, milli in usage_milli.items()]
    return MetricAnswer(api="resource", selector=f"app={app}", pods=in_columns(usages))


def scale(app: str = "web", spec: int = 2, status: int | None = None, **fields: Any) -> ScaleSet:
    """An observation of a Deployment's scale."""
    return ScaleSet(
        target=Target(group="apps", kind="Deployment", name=app),
        spec_replicas=spec,
        status_replicas=spec if status is None else status,
        selector=f"app={app}",
        **fields,
    )


class LogBuilder:
    """Appends records to a log and folds them at once, so that outcomes can answer decisions."""

    def __init__(self, number: int = 0) -> None:
        self.partition = Partition.empty(number)
        self.records: list[Record] = []
        self.decisions: list[DecisionRecord] = []
        self.now_ms = START_MS
        self._source = 0

    def entry(self, body: Body, key: str = KEY, time_ms: int | None = None) -> Entry:
        """Wrap a body as if it came from a public topic now."""
        self._source += 1
        time = self.now_ms if time_ms is None else time_ms
        return Entry(key=key, body=body, source=Source(topic="t", partition=0, offset=self._source, index=0, time=time))

    def add(self, *bodies: Body | Entry, after_ms: int = 0) -> list[dict[str, Any]]:
        """Append one record and give the decisions that it causes. A long step of log time is confirmed by then."""
        self.now_ms += after_ms
        if self.now_ms - CONFIRMED_MS - self.partition.clock_ms > STEP_LIMIT_MS and self.records:
            self._append([], self.now_ms - CONFIRMED_MS)
        return self._append([body if isinstance(body, Entry) else self._wrap(body) for body in bodies], self.now_ms)

    def _append(self, entries: list[Entry], time_ms: int) -> list[dict[str, Any]]:
        record = Record(len(self.records), time_ms, encode(LogRecord(v=1, entries=entries)))
        self.records.append(record)
        made = self.partition.apply(*record)
        self.decisions.extend(made)
        return [msgspec.json.decode(decision.value) for decision in made]

    def _wrap(self, body: Body) -> Entry:
        everywhere = SettingsSet | Restart | WatermarkReset | Serving
        whole = isinstance(body, everywhere) or (isinstance(body, Command) and body.cluster)
        return self.entry(body, WHOLE_PARTITION_KEY if whole else KEY)

    def ticks(self, seconds: int) -> list[dict[str, Any]]:
        """Let log time pass, a tick a second."""
        return [decision for _ in range(seconds) for decision in self.add(after_ms=1_000)]


def fold(records: list[Record], number: int = 0) -> tuple[Partition, list[bytes]]:
    """Fold a log from its start."""
    partition = Partition.empty(number)
    return partition, [decision.value for record in records for decision in partition.apply(*record)]


class _Disturbed:
    """Draws what happens next; the same for the same seed."""

    def __init__(self, seed: int, records: int, braking: ClusterSettings | None = None) -> None:
        self.random = random.Random(seed)
        self.log = LogBuilder()
        self.annotations = {"fleethpa.io/fallback": "failureThreshold=2,replicas=4"} if braking is not None else {}
        if braking is not None:
            self.log.add(SettingsSet(cluster="*", settings=braking))
        self.wanted: list[dict[str, Any]] = []
        self.replicas = {app: 3 for app in ("api", "web", "worker")}
        self.generation = dict.fromkeys(self.replicas, 1)
        self.uids = {app: f"uid-{app}-0" for app in self.replicas}
        self.births = 0
        self.session = "s1"
        self._begin()
        for _ in range(records):
            self._step()

    def _begin(self) -> None:
        settings = ENFORCING if self.random.random() < 0.7 else ClusterSettings()
        self._add(SettingsSet(cluster="*", settings=settings))
        self._add(self._hpa_list())
        self._add(*[scale(app, spec, session=self.session) for app, spec in self.replicas.items()])
        self._add(self._pod_list())

    def _add(self, *bodies: Body) -> None:
        for decision in self.log.add(*bodies, after_ms=self.random.choice((20, 700, 1_000, 3_000))):
            if decision.get("wants") is not None:
                self.wanted.append(decision)

    def _hpa(self, app: str) -> dict[str, Any]:
        spec: dict[str, Any] = {"maxReplicas": 5 + self.generation[app]}
        if app == "web":
            policy = {"type": "Percent", "value": 100, "periodSeconds": 30}
            spec["behavior"] = {
                "scaleUp": {"policies": [policy]},
                "scaleDown": {"policies": [policy], "stabilizationWindowSeconds": 20},
            }
        if app == "worker":
            # The same target's pods as api: ambiguous while both live.
            metric = {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}}
            spec["metrics"] = [{"type": "External", "external": metric}]
        hpa = make_hpa(app, self.uids[app], self.generation[app], **spec)
        if self.annotations and app == "api":
            hpa["metadata"]["annotations"] = self.annotations
        if self.random.random() < 0.3:
            second = self.log.now_ms // 1000
            from_ms = f"2026-01-01T00:{second // 60 % 60:02d}:{second % 60:02d}Z"
            hpa["status"] = {"lastScaleTime": from_ms, "currentReplicas": 3, "desiredReplicas": self.replicas[app]}
        return hpa

    def _hpa_list(self) -> AutoscalerList:
        hpas = [self._hpa(app) for app in self.replicas]
        conflicting = [
            ConflictingAutoscaler(
                kind="ScaledObject", name="x", target=Target(group="apps", kind="Deployment", name="api")
            )
        ]
        some = conflicting if self.random.random() < 0.2 else []
        return AutoscalerList(list_id=f"h{self.log.now_ms}", hpas=hpas, conflicting=some, session=self.session)

    def _pod_list(self) -> PodList:
        pods = [self._pod(app, index) for app, count in self.replicas.items() for index in range(count)]
        return PodList(list_id=f"p{self.log.now_ms}", pods=pods, session=self.session)

    def _pod(self, app: str, index: int) -> Pod:
        labels = {"app": app} if app != "worker" or self.random.random() < 0.8 else {"app": "api"}
        ready = self.random.choice(("True", "True", "True", "False"))
        return make_pod(f"{app}-{index}", app, labels=labels, ready=ready)

    def _step(self) -> None:
        kind = self.random.choices(
            (
                "answers",
                "tick",
                "heartbeat",
                "outcome",
                "pod_event",
                "scale",
                "edit",
                "delete",
                "command",
                "samples",
                "list",
                "odd",
            ),
            (30, 25, 12, 12, 6, 4, 3, 2, 4, 4, 2, 6),
        )[0]
        getattr(self, f"_{kind}")()

    def _answers(self) -> None:
        items = []
        for app, count in self.replicas.items():
            usage = {f"{app}-{index}": self.random.choice((0, 20, 45, 50, 55, 90, 200)) for index in range(count)}
            items.append(cpu_answer(app, usage, self.log.now_ms))
        if self.random.random() < 0.2:
            items[0] = MetricAnswer(api="resource", selector="app=api", error="the server is on fire")
        items.append(
            MetricAnswer(api="external", metric="queue", items=[(self.random.randrange(90_000), self.log.now_ms)])
        )
        self._add(Answers(items=items, session=self.session))

    def _tick(self) -> None:
        self._add()

    def _heartbeat(self) -> None:
        problems = {"scales": "forbidden"} if self.random.random() < 0.1 else {}
        self._add(
            Heartbeat(session=self.session, watches=["pods", "scales", "autoscalers", "metrics"], problems=problems)
        )

    def _outcome(self) -> None:
        if not self.wanted:
            return self._tick()
        decision = self.wanted[-1] if self.random.random() < 0.2 else self.wanted.pop()
        app, wants = decision["name"], decision["wants"]
        result: Any = self.random.choices(("applied", "failed", "refused", "stale", "superseded"), (8, 1, 1, 1, 1))[0]
        if result == "applied":
            self.replicas[app] = wants
        spec = wants if result == "applied" else self.random.choice((None, self.replicas[app]))
        body = Outcome(decision=decision["id"], name=app, uid=decision["uid"], result=result, spec_replicas=spec)
        return self._add(*([body] * self.random.choice((1, 1, 2))))

    def _pod_change(self, app: str) -> Body:
        index = self.random.randrange(self.replicas[app] + 1)
        if self.random.random() < 0.3:
            return PodDeleted(name=f"{app}-{index}", session=self.session)
        return PodSet(pod=self._pod(app, index), session=self.random.choice((self.session, self.session, "s0")))

    def _pick(self) -> str:
        return self.random.choice(sorted(self.replicas))

    def _pod_event(self) -> None:
        self._add(*[self._pod_change(self._pick()) for _ in range(self.random.randrange(1, 4))])

    def _scale(self) -> None:
        app = self._pick()
        self.replicas[app] = self.random.choice((0, 1, 2, 4, 20))
        error = "etcdserver: request timed out" if self.random.random() < 0.2 else None
        self._add(scale(app, self.replicas[app], session=self.session, error=error, manager="kubectl"))

    def _edit(self) -> None:
        app = self._pick()
        self.generation[app] += 1
        self._add(AutoscalerSet(hpa=self._hpa(app), session=self.session, author="anna", reason="PAY-311"))

    def _delete(self) -> None:
        app = self._pick()
        self._add(AutoscalerDeleted(name=app, uid=self.uids[app], session=self.session))
        if self.random.random() < 0.7:
            self.births += 1
            self.uids[app], self.generation[app] = f"uid-{app}-{self.births}", 1
            self._add(AutoscalerSet(hpa=self._hpa(app), session=self.session))

    def _command(self) -> None:
        name = self.random.choice(("", self._pick()))
        which = self.random.randrange(4)
        if which == 0:
            self._add(Command(command="mode", name=name, mode=self.random.choice(("off", "shadow", "enforce", None))))
        elif which == 1:
            kind: Any = self.random.choice(("all", "scaleUp", "scaleDown"))
            self._add(Command(command="pause", name=name, pause_kind=kind, until=self.log.now_ms + 20_000))
        elif which == 2:
            self._add(Command(command="resume", name=name))
        else:
            self._add(Command(command="pause", cluster="eu", until=self.log.now_ms + 5_000))

    def _samples(self) -> None:
        points = [self._counter(app) for app in self.replicas]
        self._add(Samples(points=points))
        if self.random.random() < 0.3:
            source: Any = self.random.choice(("api", "samples"))
            self._add(SettingsSet(cluster="eu", settings=ClusterSettings(sources={"Resource": source})))

    def _counter(self, app: str) -> Point:
        seconds = self.random.randrange(300_000)
        return Point(
            type="Resource", metric="cpu", pod=f"{app}-0", milli=seconds, time=self.log.now_ms, temporality="cumulative"
        )

    def _list(self) -> None:
        if self.random.random() < 0.3:
            self.session = f"s{self.random.randrange(3)}"
        self._add(self._hpa_list(), self._pod_list())

    def _odd(self) -> None:
        which = self.random.randrange(3)
        if which == 0:
            self._add(Restart(reason="rows were lost"))
        elif which == 1:
            self.log.add(after_ms=self.random.choice((400_000, -5_000, 40_000)))
        else:
            settings = ClusterSettings(
                sync_period_ms=self.random.choice((5_000, 15_000)), max_step=2, frozen=self.random.random() < 0.6
            )
            self._add(SettingsSet(cluster="eu", settings=settings))


def disturbed_log(seed: int, records: int = 120, braking: ClusterSettings | None = None) -> LogBuilder:
    """A log in which everything happens, in closed loop with the decisions it causes.

    `braking`: settings of brakes; None: none.
    """
    return _Disturbed(seed, records, braking).log


def history(partition: Partition, records: Iterable[PlainRecord], hpa: HpaId) -> list[Revision]:
    """Note every change of one HPA that some records bring; as `RevisionReader`."""
    reader = RevisionReader(partition, hpa)
    return [revision for record in records for revision in reader.read(record)]
