"""Every metric of an HPA: its calculation, its status, its errors, and which of them decides.

Source: upstream `computeReplicasForMetrics`, v1.37.1.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from schemas.kubernetes.quantity import format_milli
from streams.hpa import autoscaler as kinds
from streams.hpa import calculator
from streams.hpa.autoscaler import Autoscaler, ControllerSettings, MetricSpec
from streams.hpa.calculator import ToleranceBand
from streams.hpa.evaluation import Calculation, Conditions, Event, MetricEvaluation, MetricResult
from streams.hpa.grouping import Groups, MetricError, group
from streams.hpa.observation import (
    ExternalSamples,
    MetricFailure,
    MetricReading,
    ObjectSample,
    Observation,
    PodCounts,
    PodSamples,
    RequestTable,
    Scale,
    ScaleFailure,
    SeenPods,
    TargetPods,
)

_format = lru_cache(maxsize=8192)(format_milli)


class JoinedObservation(Struct, frozen=True, gc=False):
    """What one evaluation reads of a target whose parts were added up (`streams.hpa.parts`)."""

    scale: Scale | ScaleFailure
    pods: PodCounts
    answers: tuple[Groups | ObjectSample | ExternalSamples | MetricFailure | None, ...]
    """One per `spec.metrics` item, same order."""
    ambiguous: tuple[str, ...] = ()


class Combined(Struct, frozen=True, gc=False):
    """What all metrics together give. `proposal` is None where they give nothing to act on.

    `statuses`: None where none was read.
    """

    proposal: int | None = None
    selected: str = ""
    metrics: tuple[MetricEvaluation, ...] = ()
    statuses: list[dict[str, Any]] | None = None
    events: tuple[Event, ...] = ()
    results: tuple[MetricResult, ...] = ()
    error: str = ""
    spec_fault: bool = False

    @property
    def error_label(self) -> str:
        """Whose fault the error is, as the controller's own metrics name it."""
        if not self.error:
            return "none"
        return "spec" if self.spec_fault else "internal"


NO_METRICS = Combined()


def combine(
    autoscaler: Autoscaler,
    observation: Observation | JoinedObservation,
    scale: Scale,
    reported_replicas: int,
    settings: ControllerSettings,
    now_ms: int,
) -> Combined:
    """Evaluate all metrics and choose the largest proposal.

    `reported_replicas` is the status' currentReplicas before this reconcile: what the labels of a metric compare with.
    """
    band = tolerance_band(autoscaler, settings)
    metrics: list[MetricEvaluation] = []
    statuses: list[dict[str, Any]] = []
    results: list[MetricResult] = []
    invalid: list[MetricEvaluation] = []
    for spec, answer in zip(autoscaler.metrics, observation.answers, strict=True):
        metric = evaluate_metric(spec, answer, scale, observation.pods, band, settings, now_ms)
        metrics.append(metric)
        statuses.append(status_of(metric))
        results.append(_result(metric, reported_replicas))
        if metric.calculation is None:
            invalid.append(metric)
    best, selected = largest(metrics)
    usable = len(invalid) < len(metrics) and not (invalid and best < scale.spec_replicas)
    return Combined(
        best if usable else None,
        selected if usable else "",
        tuple(metrics),
        statuses,
        tuple([("Warning", metric.spec.reason, metric.error) for metric in invalid]) if invalid else (),
        tuple(results),
        _error(invalid, len(metrics)) if invalid else "",
        bool(invalid) and invalid[0].spec.spec_fault and settings.rules.unknown_metric_is_spec_fault,
    )


def largest(metrics: Sequence[MetricEvaluation]) -> tuple[int, str]:
    """Return the largest proposal and the name of its metric; (0, "") where no metric was calculated.

    Upstream takes the next one also after a proposal of 0.
    """
    best, selected = 0, ""
    for metric in metrics:
        calculation = metric.calculation
        if calculation is not None and (best == 0 or calculation.proposal > best):
            best, selected = calculation.proposal, metric.spec.name
    return best, selected


def _result(metric: MetricEvaluation, reported_replicas: int) -> MetricResult:
    spec, calculation = metric.spec, metric.calculation
    if calculation is None:
        return spec.type, "none", "spec" if spec.spec_fault else "internal"
    return spec.type, action(calculation.proposal, reported_replicas), "none"


def _error(invalid: list[MetricEvaluation], count: int) -> str:
    first = invalid[0].spec.outer_prefix + invalid[0].error
    return f"invalid metrics ({len(invalid)} invalid out of {count}), first error is: {first}"


def action(desired: int, current: int) -> str:
    """Name the direction as the controller's own metrics do."""
    if desired > current:
        return "scale_up"
    return "scale_down" if desired < current else "none"


def evaluate_metric(
    spec: MetricSpec,
    answer: MetricReading | Groups | None,
    scale: Scale,
    pods: SeenPods,
    band: ToleranceBand,
    settings: ControllerSettings,
    now_ms: int,
) -> MetricEvaluation:
    """Evaluate one metric.

    Raises TypeError: the answer is not of the kind that this metric's type takes (the caller's mistake).
    """
    if spec.calculation == kinds.INVALID:
        return MetricEvaluation(spec, None, spec.error)
    if type(answer) is MetricFailure:
        return MetricEvaluation(spec, None, spec.inner_prefix + spec.fetch_prefix + answer.error)
    oldest_ms, newest_ms = _ages(answer)
    try:
        if type(answer) is Groups and spec.calculation == kinds.UTILIZATION:
            calculation = calculator.utilization(scale.spec_replicas, spec.target, answer, band, settings.rules)
        else:
            calculation = _calculate(spec, answer, scale, pods, band, settings, now_ms)
    except MetricError as error:
        return MetricEvaluation(spec, None, spec.inner_prefix + str(error), oldest_ms, newest_ms)
    return MetricEvaluation(spec, calculation, "", oldest_ms, newest_ms)


def _calculate(
    spec: MetricSpec,
    answer: MetricReading | Groups | None,
    scale: Scale,
    pods: SeenPods,
    band: ToleranceBand,
    settings: ControllerSettings,
    now_ms: int,
) -> Calculation:
    how, current, target, rules = spec.calculation, scale.spec_replicas, spec.target, settings.rules
    if type(answer) is PodSamples and type(pods) is TargetPods:
        answer = grouped(spec, answer, pods, settings, now_ms)
    if type(answer) is Groups:
        if how == kinds.UTILIZATION:
            return calculator.utilization(current, target, answer, band, rules)
        if how in (kinds.RAW_AVERAGE, kinds.PODS):
            return calculator.raw_average(current, target, answer, band, rules)
    elif type(answer) is ObjectSample:
        if how == kinds.OBJECT_VALUE:
            return calculator.object_value(current, target, answer.value_milli, pods, band, rules)
        if how == kinds.OBJECT_PER_POD:
            return calculator.object_per_pod(scale.status_replicas, target, answer.value_milli, band, rules)
    elif type(answer) is ExternalSamples:
        if how == kinds.EXTERNAL_VALUE:
            return calculator.external_value(current, target, answer.values_milli, pods, band, rules)
        if how == kinds.EXTERNAL_PER_POD:
            return calculator.external_per_pod(scale.status_replicas, target, answer.values_milli, band, rules)
    raise TypeError(f"{type(answer).__name__} is not an answer for metric {spec.name!r} ({how})")


def grouped(
    spec: MetricSpec, answer: PodSamples, pods: TargetPods, settings: ControllerSettings, now_ms: int
) -> Groups:
    """Group the pods for a metric that is calculated from a sample of each pod."""
    requests = _requests(spec, pods, settings)
    target = 0 if requests is None else spec.target
    return group(pods, answer, spec.resource == "cpu", requests, settings, now_ms, target)


def _requests(spec: MetricSpec, pods: TargetPods, settings: ControllerSettings) -> RequestTable | None:
    if spec.calculation != kinds.UTILIZATION:
        return None
    return pods.requests(spec.resource, spec.container, settings.rules)


def _ages(answer: MetricReading | Groups | None) -> tuple[int | None, int | None]:
    if type(answer) is Groups or type(answer) is PodSamples or type(answer) is ExternalSamples:
        return answer.oldest_ms, answer.newest_ms
    if type(answer) is ObjectSample:
        return answer.time_ms, answer.time_ms
    return None, None


def tolerance_band(autoscaler: Autoscaler, settings: ControllerSettings) -> ToleranceBand:
    """Return the ratios between which nothing changes: the HPA's own tolerances, else the controller's."""
    up = down = settings.tolerance
    if settings.rules.tolerance_field:
        if autoscaler.scale_up is not None and autoscaler.scale_up.tolerance is not None:
            up = autoscaler.scale_up.tolerance
        if autoscaler.scale_down is not None and autoscaler.scale_down.tolerance is not None:
            down = autoscaler.scale_down.tolerance
    return calculator.bounds(down, up, settings.rules)


def set_scaling_active(conditions: Conditions, combined: Combined) -> None:
    """Say in ScalingActive which metric gave the replica count, or why none did."""
    if combined.proposal is not None:
        message = f"the HPA was able to successfully calculate a replica count from {combined.selected}"
        conditions.set("ScalingActive", "True", "ValidMetricFound", message)
    elif combined.events:
        _, reason, error = combined.events[0]
        conditions.set("ScalingActive", "False", reason, f"the HPA was unable to compute the replica count: {error}")
    else:
        # No metrics at all (the API refuses it): upstream sets its zero value, a condition without a type.
        conditions.set("", "", "", "")


def status_of(metric: MetricEvaluation) -> dict[str, Any]:
    """Return the item of `currentMetrics`; for a metric that has failed the empty one, as upstream does."""
    spec, calculation = metric.spec, metric.calculation
    if calculation is None:
        return {"type": ""}
    how = spec.calculation
    if how == kinds.UTILIZATION:
        average = _format(calculation.average_milli or 0, "BinarySI" if spec.binary else "DecimalSI")
        current = {"averageValue": average, "averageUtilization": calculation.value}
    elif how in (kinds.OBJECT_VALUE, kinds.EXTERNAL_VALUE):
        current = {"value": _format(calculation.value)}
    else:
        current = {"averageValue": _format(calculation.value, "BinarySI" if spec.binary else "DecimalSI")}
    shown = dict(spec.status_before)
    shown["current"] = current
    return {"type": spec.type, spec.status_key: shown}
