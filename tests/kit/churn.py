"""The log of a fleet in which names come and go, in log time.

Previews with new names come and go every day, a cluster is renamed every week, its agent leaves, targets are deleted,
and one namespace has thousands of HPA names over the year.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from schemas.agents import AgentSet, AgentTopics
from schemas.answers import Answers
from schemas.codec import encode
from schemas.entries import WHOLE_PARTITION_KEY, Body, ControlTransferred, Entry, LogRecord, Source
from schemas.observed import (
    AutoscalerDeleted,
    AutoscalerSet,
    ClusterReport,
    Command,
    Heartbeat,
    PodDeleted,
    PodList,
    Point,
    Samples,
    ScaleSet,
    Serving,
    Target,
)
from schemas.topics import SAMPLES
from tests.kit.partition import START_MS, Record, cpu_answer, make_hpa, make_pod

HOUR_MS = 3_600_000
MONTH_DAYS = 30
STEADY = "eu/steady"
RICH = "eu/rich"
PODS = 2


@dataclass(frozen=True)
class Churn:
    """What comes and goes. All previews live two days."""

    days: int = 12 * MONTH_DAYS
    previews: int = 20
    """New namespaces a day, each with an HPA of its own."""
    names: int = 28
    """New HPA names a day in the one rich namespace."""
    steady: int = 10
    rename_days: int = 7
    """A cluster with an agent gets another name so often."""
    renamed_hpas: int = 5
    seed: int = 1


class _World:
    """The log: one record an hour, with what changed and the answers."""

    def __init__(self, churn: Churn) -> None:
        self.churn = churn
        self.random = random.Random(churn.seed)
        self.now_ms = START_MS
        self.live: dict[tuple[str, str], int] = {}
        """Namespace key and HPA name -> hour of its deletion; 0: it stays."""
        self.cluster, self.incarnation = "", 0
        self._sources: dict[str, int] = {}

    def records(self) -> Iterator[Record]:
        """Give the log."""
        for hour in range(24 * self.churn.days):
            self.now_ms = START_MS + hour * HOUR_MS + 600_000
            entries = list(self._entries(hour))
            yield Record(hour, self.now_ms, encode(LogRecord(v=1, entries=entries)))

    def _entry(self, key: str, body: Body) -> Entry:
        topic = SAMPLES
        if self.cluster and key.startswith(f"{self.cluster}/"):
            topic = AgentTopics(self.cluster, self.incarnation).reports
        offset = self._sources[topic] = self._sources.get(topic, -1) + 1
        return Entry(
            key=key, body=body, source=Source(topic=topic, partition=0, offset=offset, index=0, time=self.now_ms)
        )

    def _entries(self, hour: int) -> Iterator[Entry]:
        if hour == 0:
            for index in range(self.churn.steady):
                yield from self._born(STEADY, f"steady-{index}", 0)
        if hour % (24 * self.churn.rename_days) == 0:
            yield from self._rename(hour)
        yield from self._due(hour, "preview", self.churn.previews)
        yield from self._due(hour, "name", self.churn.names)
        for (key, name), until in list(self.live.items()):
            if until and until <= hour:
                yield from self._deleted(key, name)
        yield from self._reports()

    def _due(self, hour: int, what: str, a_day: int) -> Iterator[Entry]:
        for index in range(hour * a_day // 24, (hour + 1) * a_day // 24):
            name = f"{what}-{index}"
            key = f"eu/{name}" if what == "preview" else RICH
            yield from self._born(key, name, hour + 48)
            # Somebody pushes samples of names that nobody reports.
            yield self._entry(f"eu/random-{hour}-{index}", Samples(points=[self._point(f"{name}-0")]))
            if index % 4 == 0:
                yield self._entry(key, Command(command="pause", name=name, until=self.now_ms + HOUR_MS))

    def _point(self, pod: str) -> Point:
        return Point(type="Resource", metric="cpu", pod=pod, milli=50, time=self.now_ms)

    def _born(self, key: str, name: str, until: int) -> Iterator[Entry]:
        self.live[key, name] = until
        cluster, _, namespace = key.partition("/")
        hpa = make_hpa(name, f"uid-{key}-{name}")
        hpa["metadata"]["namespace"] = namespace
        yield self._entry(key, AutoscalerSet(hpa=hpa, session=cluster))
        target = Target(group="apps", kind="Deployment", name=name)
        yield self._entry(
            key,
            ScaleSet(target=target, spec_replicas=PODS, status_replicas=PODS, selector=f"app={name}", session=cluster),
        )

    def _deleted(self, key: str, name: str) -> Iterator[Entry]:
        del self.live[key, name]
        cluster = key.partition("/")[0]
        yield self._entry(key, AutoscalerDeleted(name=name, uid=f"uid-{key}-{name}", session=cluster))
        if self.random.random() < 0.5:  # else the observer has stopped to report the namespace before its pods went
            for index in range(PODS):
                yield self._entry(key, PodDeleted(name=f"{name}-{index}", session=cluster))

    def _rename(self, hour: int) -> Iterator[Entry]:
        """The cluster's agent leaves; the same cluster comes back under another name."""
        if self.cluster:
            yield Entry(
                key=WHOLE_PARTITION_KEY, body=AgentSet(cluster=self.cluster, incarnation=self.incarnation, left=True)
            )
            self.live = {key: until for key, until in self.live.items() if not key[0].startswith(f"{self.cluster}/")}
        self.cluster, self.incarnation = f"edge-{hour}", hour + 1
        yield Entry(key=WHOLE_PARTITION_KEY, body=AgentSet(cluster=self.cluster, incarnation=self.incarnation))
        hands = ControlTransferred(cluster=self.cluster, holder="hub", generation=1, time=self.now_ms)
        yield Entry(key=WHOLE_PARTITION_KEY, body=hands)
        for index in range(self.churn.renamed_hpas):
            yield from self._born(f"{self.cluster}/shop", f"app-{index}", 0)

    def _reports(self) -> Iterator[Entry]:
        """Give what observers and reconcilers report each hour: here full lists of pods, beats and answers."""
        names: dict[str, list[str]] = {}
        for key, name in self.live:
            names.setdefault(key, []).append(name)
        for key, its in sorted(names.items()):
            session = key.partition("/")[0]
            pods = [make_pod(f"{name}-{index}", name) for name in its for index in range(PODS)]
            yield self._entry(key, PodList(list_id=str(self.now_ms), pods=pods, session=session))
            yield self._entry(key, Heartbeat(session=session, watches=["pods", "scales", "autoscalers", "metrics"]))
            answers = [
                cpu_answer(name, {f"{name}-{at}": self.random.randrange(20, 80) for at in range(PODS)}, self.now_ms)
                for name in its
            ]
            yield self._entry(key, Answers(items=answers, session=session))
        for cluster in ("eu", self.cluster):
            yield Entry(key=WHOLE_PARTITION_KEY, body=Serving(session=cluster, clusters=[cluster]))
            yield Entry(key=WHOLE_PARTITION_KEY, body=ClusterReport(cluster=cluster, instance=cluster, session=cluster))


def churned(churn: Churn) -> Iterator[Record]:
    """Make the log of a fleet in which names come and go."""
    return _World(churn).records()
