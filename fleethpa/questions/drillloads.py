"""The load of HPAs in a recorded time, for the fleet drill: read from decisions alone.

Of each metric a decision has the ratio of its usage to its target, and the pods that this is of.
"""

import math
from array import array
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fleethpa.show.words import cause, scale_is_known, short
from schemas.decisionfields import reader_of
from schemas.decisions import Decision, MetricDecision
from schemas.keys import HpaId
from streams.history.parallel import DecisionsTask, Faults, read_evaluations

_OF_PODS: Final = ("Resource", "ContainerResource", "Pods")

read_decision = reader_of(
    "seq",
    "time",
    "cluster",
    "namespace",
    "name",
    "kind",
    "current_replicas",
    "metrics",
    "observed",
    "reason",
    "error",
    "spec_hash",
)
"""Reads what the drill needs of a decision record."""


class Load(NamedTuple):
    """The pods that a load takes at the target of its metrics; None: no metric says it. `unread`: why the load may be
    larger, as a metric has no value; empty: all have.
    """

    pods: float | None
    unread: str = ""


def load_of(decision: Decision) -> Load:
    """Return the load that an evaluation saw. One whose target is set to 0 has none."""
    if not scale_is_known(decision):
        return Load(None, "its scale could not be read")
    if not decision.metrics:
        if not decision.current_replicas and not decision.error:
            return Load(0.0)
        why = cause(decision.error) or "its replicas were out of its bounds, so that its metrics were not asked"
        return Load(None, why)
    pods_of: list[float] = []
    unread = ""
    replicas = int(decision.observed.get("statusReplicas", decision.current_replicas))
    for metric in decision.metrics:
        if (pods := _pods_for(metric, replicas)) is not None:
            pods_of.append(pods)
        elif not unread:
            unread = f"{short(metric.name)}: {cause(metric.error) or 'its value is no load'}"
    return Load(max(pods_of, default=None), unread)


def _pods_for(metric: MetricDecision, replicas: int) -> float | None:
    """Return the pods that one metric's load takes; None: it has no usable value."""
    if metric.proposal is None:
        return None
    ratio, pods = float(metric.ratio), metric.pods_used or (0 if metric.type in _OF_PODS else replicas)
    load = ratio * pods
    if not math.isfinite(load) or load < 0 or metric.proposal < 0 or not (pods or metric.proposal):
        return None
    # Where nothing kept the count, the proposal is the load in whole pods: it knows of the pods without a sample.
    return load if metric.note or math.ceil(load) == metric.proposal else float(metric.proposal)


class LoadSeries:
    """The evaluations of one HPA under its newest spec, in the order of the log, some 30 bytes for each.

    `clusters`: of a FleetHPA, what each evaluation shows of them.
    """

    def __init__(self) -> None:
        self._spec_hash = ""
        self._clear()

    def _clear(self) -> None:
        self.times_ms, self.replicas, self._pods = array("q"), array("q"), array("d")
        self._unread: dict[int, str] = {}
        self.clusters: list[Mapping[str, Mapping[str, Any]]] = []

    def __len__(self) -> int:
        return len(self.times_ms)

    def add(self, decision: Decision, time_ms: int) -> None:
        """Add an evaluation. The first one under another spec removes those before it."""
        if decision.spec_hash != self._spec_hash:
            self._clear()
            self._spec_hash = decision.spec_hash
        load = load_of(decision)
        if load.unread:
            self._unread[len(self)] = load.unread
        self.times_ms.append(time_ms)
        self.replicas.append(decision.current_replicas)
        self._pods.append(math.nan if load.pods is None else load.pods)
        if (clusters := decision.observed.get("clusters")) is not None:
            self.clusters.append(clusters)

    def load(self, at: int) -> Load:
        """Return the load of one of them."""
        pods = self._pods[at]
        return Load(None if math.isnan(pods) else pods, self._unread.get(at, ""))

    def newest(self, time_ms: int) -> int:
        """Return which of them was the newest at a time; -1: none was before."""
        return bisect_right(self.times_ms, time_ms) - 1


class DrillTask(NamedTuple):
    """A partition's decisions of some HPAs."""

    decisions: DecisionsTask
    hpas: frozenset[HpaId]


Loads = dict[HpaId, LoadSeries]


async def read_loads(task: DrillTask) -> tuple[Loads, Faults]:
    """Read the loads of the HPAs of a partition, and the faults with others; one without an evaluation is left out."""
    loads, faults = Loads(), Faults()

    def add(hpa: HpaId, decision: Decision, time_ms: int) -> None:
        with faults.of(hpa):
            loads.setdefault(hpa, LoadSeries()).add(decision, time_ms)

    await read_evaluations(task.decisions, read_decision, task.hpas, add)
    return {hpa: each for hpa, each in loads.items() if hpa not in faults}, faults
