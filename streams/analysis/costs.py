"""Cost and waste of an HPA, from its decision records alone: nothing is folded.

A decision has the replicas and, of each metric, the usage per pod and how many pods it is of. That gives the pods that
the load needed, with three assumptions (`ASSUMED`), which are not needed where the log is folded (`fleethpa tune`).
Replicas, times and everything that follows from them alone are exact.

A utilization is recorded in whole percent, the usage per pod in milli units: each decision bounds what a pod requests,
and all of them together, as long as they agree, give it more exactly than one does.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec import Struct

from schemas.decisionfields import reader_of
from schemas.decisions import Decision, MetricDecision
from schemas.keys import FLEET, HpaId
from streams.analysis.ideal import ideal
from streams.analysis.load import pod_capacity
from streams.analysis.measures import Measures, Moment, Scores, measure, scores
from streams.history.parallel import DecisionsTask, Faults, read_evaluations

ASSUMED: Final = (
    "± LOAD: percentages are whole, and pods that were not counted (no sample, or not ready yet) may have taken load; "
    "a pod whose sample counts is taken to be ready",
    "a pod carries its request, and of a metric without a request the load per pod that 99% of the time does not "
    "exceed, at least 1.1 times the target",
    "what a pod requests follows from usage and whole percents of many decisions; values of objects and external "
    "series are shared by the pods that the scale asks for where a decision counts none",
)
"""The assumptions of the figures of the load."""
HIGH: Final = 1.1
"""Upper end of upstream's default tolerance."""
_LARGEST: Final = 2**62
_OF_PODS: Final = ("Resource", "ContainerResource", "Pods")

read = reader_of(
    "seq", "time", "cluster", "namespace", "name", "kind", "current_replicas", "metrics", "max_replicas", "spec_hash"
)
"""Reads what the figures need of a decision record."""


class Cost(Struct, frozen=True, kw_only=True):
    """Cost and waste of one HPA.

    `measures`: over all of the time; `scores`: over the time in which the load is known. `error`: by which share the
    load may be wrong: percentages are whole, and pods that were not counted may have taken load.
    """

    hpa: HpaId
    evaluations: int
    since_ms: int
    until_ms: int
    period_ms: int
    measures: Measures
    scores: Scores
    error: float


class _Target(NamedTuple):
    """That of a metric. `percent`: of the request; None: it is one of the usage itself, in milli units."""

    percent: int | None
    target: int


class CostSeries:
    """The evaluations of one HPA, in the order of the log, some 60 bytes for each with one metric."""

    def __init__(self, hpa: HpaId) -> None:
        self.hpa = hpa
        self._times_ms, self._replicas, self._at_max = array("q"), array("q"), array("b")
        self._first_metric = array("q")
        self._asked: dict[tuple[str, int], int] = {}
        self._specs: list[_Target] = []
        self._of_spec, self._usage, self._pods, self._of_request = array("q"), array("q"), array("q"), array("q")
        self._requests: list[tuple[float, float]] = []
        """Least and most that a pod requested while that agreed."""
        self._newest: dict[int, int] = {}
        self._counted = self._uncounted = 0
        """Pods over all evaluations whose samples made a value, and that had none or were not ready."""

    def __len__(self) -> int:
        return len(self._times_ms)

    def add(self, decision: Decision, time_ms: int) -> None:
        """Add an evaluation."""
        self._times_ms.append(time_ms)
        self._replicas.append(decision.current_replicas)
        self._at_max.append(decision.current_replicas >= decision.max_replicas)
        self._first_metric.append(len(self._usage))
        for index, metric in enumerate(decision.metrics):
            if metric.value is not None:
                self._add_metric(decision, metric, (decision.spec_hash, index))

    def _add_metric(self, decision: Decision, metric: MetricDecision, key: tuple[str, int]) -> None:
        value, percent = metric.value or 0, metric.target_utilization
        target = percent if percent is not None else metric.target
        if not target or not 0 <= value < _LARGEST:
            return
        if (spec := self._asked.get(key)) is None:
            spec = self._asked[key] = len(self._specs)
            self._specs.append(_Target(percent, target))
        pods = metric.pods_used or (0 if metric.type in _OF_PODS else decision.current_replicas)
        self._counted += metric.pods_used
        self._uncounted += metric.pods_not_ready + metric.pods_missing
        request = -1
        if percent is not None:
            if not value or not metric.utilization:
                # Below one percent of the request, which then is not known better than before.
                request = self._newest.get(spec, -1)
                value = value if request >= 0 else 0
            else:
                request = self._request(spec, value, metric.utilization)
        self._of_spec.append(spec)
        self._usage.append(value)
        self._pods.append(pods)
        self._of_request.append(request)

    def _request(self, spec: int, value: int, utilization: int) -> int:
        """The request that a usage and its percentage, which is cut to a whole one, agree with."""
        least, most = value * 100 / (utilization + 1), (value + 1) * 100 / utilization
        at = self._newest.get(spec, -1)
        if at >= 0:
            low, high = max(least, self._requests[at][0]), min(most, self._requests[at][1])
            if low <= high:
                self._requests[at] = low, high
                return at
        self._newest[spec] = len(self._requests)
        self._requests.append((least, most))
        return len(self._requests) - 1

    def cost(self) -> Cost:
        """Sum up. Raises ValueError: nothing was taken in."""
        times = self._times_ms
        if not times:
            raise ValueError(f"{self.hpa} has no evaluation")
        period_ms = _period_ms(times)
        needs, loads, ready = self._loads()
        moments = list(map(Moment, times, self._replicas, ready, needs, map(bool, self._at_max)))
        return Cost(
            hpa=self.hpa,
            evaluations=len(times),
            since_ms=times[0],
            until_ms=times[-1],
            period_ms=period_ms,
            measures=measure(moments, HIGH - 1.0, period_ms),
            scores=scores(moments, period_ms, ideal(loads)),
            error=max(((most - least) / (most + least) for least, most in self._requests), default=0.0)
            + (self._uncounted / self._counted if self._counted else 0.0),
        )

    def _loads(self) -> tuple[list[float | None], list[float | None], list[int]]:
        """For each evaluation the pods that the load needs at target and at capacity (None: not known), and how many
        took it.
        """
        ratios = [self._ratio(at) for at in range(len(self._usage))]
        by_spec: dict[int, list[float]] = {spec: [] for spec in range(len(self._specs))}
        for spec, ratio in zip(self._of_spec, ratios, strict=True):
            by_spec[spec].append(ratio)
        capacity = [pod_capacity(each.percent, by_spec[spec], HIGH) for spec, each in enumerate(self._specs)]
        needs, loads, ready = list[float | None](), list[float | None](), list[int]()
        ends = [*self._first_metric[1:], len(self._usage)]
        for begin, end in zip(self._first_metric, ends, strict=True):
            pods_at = [(ratios[at] * self._pods[at], at) for at in range(begin, end)]
            needs.append(max((pods for pods, _ in pods_at), default=None))
            loads.append(max((pods / capacity[self._of_spec[at]] for pods, at in pods_at), default=None))
            ready.append(max((self._pods[at] for _, at in pods_at), default=0))
        return needs, loads, ready

    def _ratio(self, at: int) -> float:
        """Load per pod over the target."""
        spec, request = self._specs[self._of_spec[at]], self._of_request[at]
        if spec.percent is None:
            return self._usage[at] / spec.target
        if request < 0:
            return 0.0
        # A usage is cut to a whole number, too.
        return (self._usage[at] + 0.5) * 100 / (sum(self._requests[request]) / 2 * spec.percent)


def _period_ms(times_ms: Sequence[int]) -> int:
    """The sync period: what most often lies between two evaluations."""
    return Counter(later - before for before, later in pairwise(times_ms)).most_common(1)[0][0] if times_ms[1:] else 0


class CostTask(NamedTuple):
    """A partition's decisions of some HPAs."""

    decisions: DecisionsTask
    hpas: frozenset[HpaId]


async def costs(task: CostTask) -> tuple[list[Cost], Faults]:
    """Return what some HPAs of a partition cost, and the faults with others; those without an evaluation are left out,
    and what is over several clusters, which runs nothing itself.
    """
    series, faults = dict[HpaId, CostSeries](), Faults()
    hpas = frozenset([hpa for hpa in task.hpas if hpa.cluster != FLEET])

    def take(hpa: HpaId, decision: Decision, time_ms: int) -> None:
        if (of_hpa := series.get(hpa)) is None:
            of_hpa = series[hpa] = CostSeries(hpa)
        with faults.of(hpa):
            of_hpa.add(decision, time_ms)

    await read_evaluations(task.decisions, read, hpas, take)
    sums = []
    for hpa in sorted(series.keys() - faults.keys()):
        with faults.of(hpa):
            sums.append(series.pop(hpa).cost())
    return sums, faults
