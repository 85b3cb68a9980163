"""Evaluations that a pushed sample brings between two sync periods (setting `evaluateOn: sample`).

A sample brings one if, with it, a metric asks for other replicas than there are, and its ratio has left the tolerance
around what the last evaluation saw. So a metric that stays where it is brings none, even if nothing more can be done
about it. What a sample has brought is kept in the row (`early_ms`) until then, so that no rebalance moves it; only
records with samples set or remove it.
"""

from collections.abc import Iterator

from schemas.keys import HpaId
from streams.hpa.autoscaler import MetricSpec
from streams.hpa.evaluation import Calculation, Evaluation
from streams.hpa.metrics import evaluate_metric, tolerance_band
from streams.hpa.observation import Scale, TargetPods
from streams.state.gather import observe_metric, observe_scale
from streams.state.guards import asked_mode
from streams.state.hpastate import Hpa
from streams.state.namespace import Namespace
from streams.state.partitionstate import State

_OF_PODS = ("Resource", "ContainerResource", "Pods")


def ratios_of(evaluation: Evaluation) -> tuple[float | None, ...]:
    """Give usage over target per metric of an evaluation; None where a metric gave none."""
    return tuple([None if each.calculation is None else each.calculation.ratio for each in evaluation.metrics])


def plan_sampled(state: State) -> None:
    """Plan an evaluation of the HPAs whose metrics this record's samples have moved; what they moved back is not."""
    for name in sorted(_sampled(state)):
        hpa = state.hpas[name]
        namespace = state.namespace(name.cluster, name.namespace)
        if not state.holds(hpa, namespace):
            _plan(state, namespace, hpa)
    state.sampled.clear()


def _sampled(state: State) -> set[HpaId]:
    """Give the HPAs of which this record has samples: of pods of their targets, or of a series that has no pods."""
    found: set[HpaId] = set()
    for (key, series), pods in state.sampled.items():
        namespace = state.namespaces[key]
        for name in namespace.watchers.get(series, ()):
            scale = namespace.scales.get(state.hpas[name].target)
            if scale is not None and (series[0] not in _OF_PODS or namespace.membership.has_any(scale.selector, pods)):
                found.add(name)
    return found


def _plan(state: State, namespace: Namespace, hpa: Hpa) -> None:
    row, settings = hpa.row, state.settings(hpa.id.cluster)
    floor_ms, autoscaler = settings.sample_floor_ms, hpa.autoscaler
    if floor_ms is None or autoscaler is None or row.deleted or len(row.ratios) != len(hpa.queries):
        return
    if asked_mode(namespace, hpa.id.name, settings) == "off":
        return
    scale = observe_scale(namespace, autoscaler, namespace.scales.get(hpa.target), state.now_ms)
    if not isinstance(scale, Scale):
        return
    pods = namespace.membership.matching(scale.selector)
    low, high = tolerance_band(autoscaler, settings.controller)
    moved = any(
        calculation.proposal != scale.spec_replicas
        and (calculation.ratio < low * before or calculation.ratio > high * before)
        for before, calculation in _calculations(state, namespace, hpa, scale, pods)
    )
    early_ms = max(row.evaluated_ms + floor_ms, state.now_ms) if moved else 0
    if early_ms != row.early_ms:
        row.early_ms, hpa.dirty = early_ms, True
        state.schedule.plan(hpa)


def _calculations(
    state: State, namespace: Namespace, hpa: Hpa, scale: Scale, pods: TargetPods
) -> Iterator[tuple[float, Calculation]]:
    """Per pushed metric with a value now and at the last evaluation: its ratio then, and what it is now."""
    settings, autoscaler = state.settings(hpa.id.cluster), hpa.autoscaler
    specs: tuple[MetricSpec, ...] = () if autoscaler is None else autoscaler.metrics
    for query, spec, before in zip(hpa.queries, specs, hpa.row.ratios, strict=True):
        if query.series is None or before is None or autoscaler is None:
            continue
        answer, _ = observe_metric(namespace, query, pods, settings, state.now_ms)
        band = tolerance_band(autoscaler, settings.controller)
        found = evaluate_metric(spec, answer, scale, pods, band, settings.controller, state.now_ms).calculation
        if found is not None:
            yield before, found
