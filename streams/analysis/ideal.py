"""The ideal autoscaler: at each moment it runs the pods that the load needs where each carries what a pod can carry.

There is one for an HPA and a time, whatever spec is tried: it knows no target, no minReplicas and no maxReplicas, runs
at least one pod, and has each at once. Every report that names it takes it from here.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from streams.analysis.load import MetricNeed, capacity_of, needs
from streams.analysis.measures import demand
from streams.hpa.autoscaler import MetricSpec
from streams.hpa.metrics import tolerance_band
from streams.state.inputs import EvaluationInputs

Capacities = Mapping[tuple[int, int], float]
"""By generation of the spec and place of the metric in it: what a pod carries, as a multiple of the target."""


def capacities(evaluations: Iterable[tuple[int, Sequence[MetricNeed], float]]) -> Capacities:
    """Return what a pod carries, from evaluations: generation, needs, upper end of the tolerance."""
    ratios: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    last: dict[tuple[int, int], tuple[MetricSpec, float]] = {}
    for generation, asked, high in evaluations:
        for need in asked:
            key = generation, need.index
            last[key] = need.spec, high
            if need.ratio is not None:
                ratios[key].append(need.ratio)
    return {key: capacity_of(spec, ratios[key], high) for key, (spec, high) in last.items()}


def at_capacity(asked: Sequence[MetricNeed], generation: int, known: Capacities) -> float:
    """Return the pods that the most demanding of some metrics needs where each carries what it can; 1.0 is the target
    of a metric without a known capacity.
    """
    return max(each.pods / known.get((generation, each.index), 1.0) for each in asked)


def ideal(loads: Iterable[float | None]) -> list[int | None]:
    """Return the replicas of the ideal autoscaler for loads in pods at capacity; None where the load is not known."""
    return [None if load is None else demand(load) for load in loads]


def recorded_loads(inputs: Sequence[EvaluationInputs]) -> list[float | None]:
    """Return the load at recorded evaluations of one HPA, oldest first, in pods that each carry what a pod can carry;
    None where it is not known.
    """
    needed = [needs(each.autoscaler, each.observation.answers, each.observation.pods) for each in inputs]
    highs = [tolerance_band(each.autoscaler, each.settings)[1] for each in inputs]
    generations = [each.generation for each in inputs]
    known = capacities(zip(generations, needed, highs, strict=True))
    return [
        at_capacity(row, generation, known) if row else None
        for row, generation in zip(needed, generations, strict=True)
    ]


def recorded_ideal(inputs: Sequence[EvaluationInputs]) -> list[int | None]:
    """Return the replicas of the ideal autoscaler at recorded evaluations of one HPA, oldest first."""
    return ideal(recorded_loads(inputs))
