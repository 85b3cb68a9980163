"""An observer's settings, and what it knows of one cluster: HPAs, pods and scales, and whether the API server answers
at all; with the metrics that it shows of this.
"""

import asyncio
import socket
import time
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from reconciler.clusters.answers import ClusterError
from reconciler.clusters.client import ClusterClient, ClusterMetrics
from reconciler.clusters.clusterfinder import FleetConfig
from reconciler.core.objects import Asking, KeptHpa, conflicting_autoscaler, reports_the_same
from reconciler.observer.polledsource import OpenSource
from reconciler.observer.troubles import ReadProblem, Troubles, problem_of
from runtime.log import wall_clock_ms
from schemas.answers import MetricAnswer
from schemas.kubernetes.shape import Json
from schemas.observed import API_SERVER_PART, ConflictingAutoscaler, Heartbeat, Pod, ScaleSet, Target
from schemas.syncperiods import StatedPeriod


@dataclass(frozen=True, kw_only=True)
class ObserverConfig(FleetConfig):
    """Settings of an observer.

    `namespaces`: watch only these (empty: the whole cluster; where that is forbidden, each namespace that may be seen).
    `all_pods`: report pods of namespaces without HPAs, too. `sync_period_ms` holds where the settings topic has none.
    `instance`: name of this observer, which stays over restarts; two that run at once need different ones.
    `prove_native_absent`: run the canary, in `canary_namespace`, for `canary_wait_s`. `polled`: what is asked in place
    of metrics APIs, by name.
    """

    polled: Mapping[str, OpenSource] = field(default_factory=dict)
    instance: str = field(default_factory=socket.gethostname)
    namespaces: tuple[str, ...] = ()
    all_pods: bool = False
    sync_period_ms: int = 15_000
    heartbeat_ms: int = 10_000
    reread_ms: int = 300_000
    metrics_timeout_s: float = 10.0
    metrics_at_once: int = 16
    list_limit: int = 500
    watch_s: int = 300
    prove_native_absent: bool = False
    canary_namespace: str = "default"
    canary_wait_s: float = 45.0
    author: str = "observer"


class ObserverMetrics(ClusterMetrics):
    """What the observer measures."""

    def __init__(self, registry: CollectorRegistry, shared: ClusterMetrics | None = None) -> None:
        super().__init__(registry, shared)
        counter = partial(Counter, registry=registry)
        self.watch_restarts = counter(
            "fleethpa_watch_restarts_total", "Watches that had to begin again", ["cluster", "resource", "reason"]
        )
        self.list_errors = counter("fleethpa_list_errors_total", "Lists that failed", ["cluster", "resource"])
        answers = counter("fleethpa_metric_answers_total", "Answers of metrics APIs", ["cluster", "api", "result"])
        self._answers_of = cache(answers.labels)
        self.polls_late = counter(
            "fleethpa_metric_polls_late_total",
            "Polls that started late because the previous poll was still running",
            ["cluster"],
        )
        records = counter("fleethpa_observer_records_total", "Records written to public topics", ["topic"])
        self.records_of = cache(records.labels)
        self.namespaces = Gauge(
            "fleethpa_observer_namespaces", "Namespaces with HPAs that are reported", ["cluster"], registry=registry
        )

    def answered(self, cluster: str, answers: Iterable[MetricAnswer]) -> None:
        """Count answers to questions for metrics."""
        counts = Tally((each.api, "ok" if each.error is None else "error") for each in answers)
        for (api, result), count in counts.items():
            self._answers_of(cluster, api, result).inc(count)


ASK_EVERY_S = 5.0
"""It is asked for its version where it has answered nothing else for this long."""
AWAY_PAUSE_S = 2.0
FAILURES = 2
"""Requests that must fail in a row before an API server counts as unreachable."""


class ApiServer:
    """The API server of one cluster: `answered` is called at each answer that it gives to anybody."""

    def __init__(self, client: ClusterClient, troubles: Troubles, metrics: ObserverMetrics) -> None:
        self._client, self._troubles = client, troubles
        self._up = metrics.up.labels(client.name)
        self._last_sync = metrics.last_sync.labels(client.name)
        self._answered_at = time.monotonic()
        self._failures = 0
        self._asking = asyncio.Lock()
        self._asked_at = self._answered_at

    def answered(self) -> None:
        """It has answered just now."""
        self._answered_at = time.monotonic()
        self._up.set(1)
        self._last_sync.set_to_current_time()
        if self._failures >= FAILURES:
            self._troubles.record(API_SERVER_PART, "", None)
        self._failures = 0

    async def watch(self) -> None:
        """Send it a request whenever no other request was answered for a while, until cancelled."""
        while True:
            await asyncio.sleep(AWAY_PAUSE_S if self._failures else ASK_EVERY_S)
            if time.monotonic() - self._answered_at >= ASK_EVERY_S:
                await self._ask()

    async def answers(self) -> bool:
        """Whether it answers now. Who asks meanwhile shares the requests; where it answers none of them, it is away."""
        since = time.monotonic()
        async with self._asking:
            if self._asked_at < since:
                for _ in range(FAILURES):
                    if self._answered_at < since:
                        await self._ask()
                self._asked_at = time.monotonic()
            return self._answered_at >= since

    async def _ask(self) -> None:
        since = time.monotonic()
        try:
            await self._client.get("/version")
        except ClusterError as error:
            if self._answered_at < since:  # a refusal is an answer
                self._failed(problem_of(error))

    def _failed(self, problem: ReadProblem) -> None:
        self._failures += 1
        if self._failures >= FAILURES:
            self._up.set(0)
            self._troubles.record(API_SERVER_PART, "", problem)


WATCHES = ("pods", "autoscalers", "scales")


@dataclass
class NamespaceState:
    """One namespace. `central` HPAs exist only in fleethpa; `scales` holds what was last reported.

    `asked`: target → the selector with which its metrics were asked for at once, when its scale became known.
    `periods`: the sync periods that its HPAs state (`stated_periods`), as its work is planned by them.
    """

    hpas: dict[str, KeptHpa] = field(default_factory=dict)
    central: dict[str, Asking] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    scales: dict[Target, ScaleSet] = field(default_factory=dict)
    asked: dict[Target, str] = field(default_factory=dict)
    conflicting: dict[str, ConflictingAutoscaler] = field(default_factory=dict)
    periods: frozenset[StatedPeriod] = frozenset()

    def targets(self) -> set[Target]:
        """Return what the HPAs of the namespace scale."""
        return {hpa.target for hpa in self.all_hpas()}

    def all_hpas(self) -> list[Asking]:
        """HPAs of the cluster and central ones."""
        return [*(hpa.asking for hpa in self.hpas.values()), *self.central.values()]

    def stated_periods(self) -> frozenset[StatedPeriod]:
        """Return the sync periods that HPAs state; one of the cluster behind a central one of its name states none."""
        own = [each.asking.period_ms for name, each in self.hpas.items() if name not in self.central]
        central = [each.period_ms for each in self.central.values()]
        stated = [StatedPeriod(each, "cluster") for each in own if each is not None]
        return frozenset([*stated, *(StatedPeriod(each, "central") for each in central if each is not None)])

    def forget(self, target: Target) -> None:
        """No HPA scales the target any more."""
        self.scales.pop(target, None)
        self.asked.pop(target, None)

    def selectors(self) -> dict[Target, str]:
        """Selectors of the targets whose scale is known."""
        return {target: scale.selector for target, scale in self.scales.items() if scale.error is None}

    @property
    def active(self) -> bool:
        """Whether there is anything to scale here."""
        return bool(self.hpas or self.central)


class ClusterState:
    """All namespaces of one cluster, and what cannot be seen."""

    def __init__(self, troubles: Troubles | None = None) -> None:
        self.namespaces: dict[str, NamespaceState] = {}
        self.troubles = troubles or Troubles(wall_clock_ms)
        self._pods_listed: set[str] = set()

    def namespace(self, name: str) -> NamespaceState:
        """The state of a namespace, made when it is first named."""
        return self.namespaces.setdefault(name, NamespaceState())

    def active(self) -> list[str]:
        """Namespaces with HPAs."""
        return [name for name, state in self.namespaces.items() if state.active]

    def scope(self, namespace: str) -> list[str]:
        """Namespaces that a list of this scope covers (empty: the cluster)."""
        return [namespace] if namespace else list(self.namespaces)

    # --- pods ---------------------------------------------------------------------------------------------------------

    def replace_pods(self, scope: str, pods: Iterable[tuple[str, Pod]]) -> set[str]:
        """Apply a full list; return the namespaces it covers."""
        self._pods_listed.add(scope)
        pods_of: dict[str, dict[str, Pod]] = {name: {} for name in self.scope(scope)}
        for namespace, pod in pods:
            pods_of.setdefault(namespace, {})[pod.name] = pod
        for name, listed in pods_of.items():
            self.namespace(name).pods = listed
        return set(pods_of)

    def set_pod(self, namespace: str, pod: Pod) -> bool:
        """Store a pod; False if nothing changed."""
        pods = self.namespace(namespace).pods
        before, pods[pod.name] = pods.get(pod.name), pod
        return before != pod

    def pods_known(self, namespace: str) -> bool:
        """Whether the namespace's pods have been listed."""
        return "" in self._pods_listed or namespace in self._pods_listed

    def known_pods(self, namespace: str) -> dict[str, Pod] | None:
        """The pods of a namespace; None: they have not been listed."""
        return self.namespace(namespace).pods if self.pods_known(namespace) else None

    # --- HPAs ---------------------------------------------------------------------------------------------------------

    def replace_hpas(self, scope: str, hpas: Iterable[tuple[str, str, KeptHpa]]) -> set[str]:
        """Apply a full list, with namespaces and names; return the namespaces that have or had HPAs."""
        hpas_of: dict[str, dict[str, KeptHpa]] = {}
        for name in self.scope(scope):
            if self.namespaces.get(name, NamespaceState()).hpas or name == scope:
                hpas_of[name] = {}
        for namespace, name, hpa in hpas:
            hpas_of.setdefault(namespace, {})[name] = hpa
        for namespace, listed in hpas_of.items():
            self.namespace(namespace).hpas = listed
        return set(hpas_of)

    def set_central(self, namespace: str, name: str, hpa: Asking | None) -> None:
        """A central HPA was applied, or deleted (None)."""
        central = self.namespace(namespace).central
        if hpa is None:
            central.pop(name, None)
        else:
            central[name] = hpa

    def replace_scaled_objects(self, scope: str, items: Iterable[Json]) -> list[str]:
        """Apply a full list of ScaledObjects; return the namespaces in which something changed."""
        conflicting_of: dict[str, dict[str, ConflictingAutoscaler]] = {name: {} for name in self.scope(scope)}
        for item in items:
            conflicting_of.setdefault(item["metadata"]["namespace"], {})[item["metadata"]["name"]] = (
                conflicting_autoscaler(item)
            )
        changed = [
            name for name, conflicting in conflicting_of.items() if self.namespace(name).conflicting != conflicting
        ]
        for name in changed:
            self.namespace(name).conflicting = conflicting_of[name]
        return changed

    def set_scaled_object(self, item: Json, *, is_there: bool) -> bool:
        """A ScaledObject came or was changed, or is gone; False if nothing that is reported changed."""
        conflicting, name = self.namespace(item["metadata"]["namespace"]).conflicting, item["metadata"]["name"]
        before, now = conflicting.get(name), conflicting_autoscaler(item) if is_there else None
        if now is None:
            conflicting.pop(name, None)
        else:
            conflicting[name] = now
        return before != now

    # --- scales -------------------------------------------------------------------------------------------------------

    def set_scale(self, namespace: str, scale: ScaleSet) -> bool:
        """Store a scale; False if nothing changed, or if it is older than what was reported."""
        scales = self.namespace(namespace).scales
        before = scales.get(scale.target)
        if before is not None and _is_older(scale, before):
            return False
        scales[scale.target] = scale
        return not reports_the_same(before, scale)

    # --- problems -----------------------------------------------------------------------------------------------------

    def problems(self, namespace: str) -> dict[str, ReadProblem]:
        """Return what a reader of this namespace has to know: watch -> why it is down.

        Scales whose parents cannot be watched are read one by one, so `scales` is down only if reading fails, too.
        While the API server is away nothing that was reported is known to hold.
        """
        away = self.troubles.find(API_SERVER_PART, "")
        if away is not None:
            return dict.fromkeys(WATCHES, away)
        problems = {watch: self.troubles.find(watch, namespace) for watch in WATCHES}
        if problems["scales"] is not None and self._all_watched(namespace):
            problems["scales"] = None
        return {watch: problem for watch, problem in problems.items() if problem is not None}

    def heartbeats(
        self, namespaces: Iterable[str], session: str, kubernetes: str
    ) -> Iterator[tuple[list[str], Heartbeat]]:
        """A heartbeat for all of these namespaces that have the same problems, mostly none."""
        alike: dict[tuple[tuple[str, ReadProblem], ...], list[str]] = {}
        for namespace in namespaces:
            alike.setdefault(tuple(self.problems(namespace).items()), []).append(namespace)
        for problems, names in alike.items():
            yield (
                names,
                Heartbeat(
                    session=session,
                    watches=list(WATCHES),
                    problems={watch: problem.text for watch, problem in problems},
                    reasons={watch: problem.reason for watch, problem in problems},
                    kubernetes=kubernetes,
                ),
            )

    def _all_watched(self, namespace: str) -> bool:
        return all(self.is_watched(target, namespace) for target in self.namespace(namespace).targets())

    def is_watched(self, target: Target, namespace: str) -> bool:
        """Whether the target's kind is watched here without a problem."""
        return self.troubles.find(scales_watch(target.kind, target.group), namespace) is None


def scales_watch(kind: str, group: str) -> str:
    """Name of the watch of a kind of scale parents."""
    return f"scales/{kind}.{group}"


def _is_older(now: ScaleSet, before: ScaleSet) -> bool:
    """Of one object the higher resource version is newer; versions of the API server are decimal integers."""
    if now.error is not None or before.error is not None or now.uid != before.uid:
        return False
    both = (now.resource_version, before.resource_version)
    return all(version.isdecimal() for version in both) and int(both[0]) < int(both[1])
