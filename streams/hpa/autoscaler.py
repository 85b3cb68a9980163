"""A HorizontalPodAutoscaler's spec (autoscaling/v2, defaulted), compiled once per generation: an evaluation only
computes. Error texts and metric names are fixed here, as upstream words them.
"""

from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from schemas.kubernetes.fielderrors import go_quote
from schemas.kubernetes.metricspecs import metric_name
from schemas.kubernetes.quantity import parse_milli, parse_quantity
from schemas.kubernetes.selectors import label_selector_error, print_label_selector
from schemas.kubernetes.shape import JsonView, parse_group_version
from streams.hpa.rules import CURRENT, Rules

UTILIZATION: Final = "utilization"
RAW_AVERAGE: Final = "rawAverage"
PODS: Final = "pods"
OBJECT_VALUE: Final = "objectValue"
OBJECT_PER_POD: Final = "objectPerPod"
EXTERNAL_VALUE: Final = "externalValue"
EXTERNAL_PER_POD: Final = "externalPerPod"
INVALID: Final = "invalid"
"""How a metric's replicas are calculated. `invalid`: the spec itself is the error, the metric is never asked for."""

OF_PODS: Final = (UTILIZATION, RAW_AVERAGE, PODS)
"""Calculations from a sample of each pod."""


class ControllerSettings(Struct, frozen=True, kw_only=True):
    """The controller's flags and version, as far as they take part in a decision; the defaults are those of v1.37."""

    tolerance: float = 0.1
    downscale_stabilization_ms: int = 300_000
    cpu_initialization_period_ms: int = 300_000
    initial_readiness_delay_ms: int = 30_000
    rules: Rules = CURRENT


class MetricSpec(Struct, frozen=True, kw_only=True):
    """One item of `spec.metrics`."""

    type: str
    """`type` as written: the label of metric_computation_total."""
    calculation: str
    target: int = 0
    """Percent for `utilization`, else milli units."""
    name: str = ""
    """The metric as messages call it, e.g. `cpu resource utilization (percentage of request)`."""
    resource: str = ""
    container: str = ""
    """Empty: the whole pod."""
    binary: bool = False
    """The status shows its averages in BinarySI (resource memory)."""
    status_key: str = ""
    """Member of a MetricStatus that carries this metric: `resource`, `pods`, …"""
    status_before: tuple[tuple[str, Any], ...] = ()
    """The members of that member beside `current`: what identifies the metric. Shared; never changed."""
    reason: str = ""
    """Condition and event reason when it fails, e.g. FailedGetResourceMetric."""
    fetch_prefix: str = ""
    """Put before an error text of the metrics client."""
    inner_prefix: str = ""
    """Put before every error of the calculation; the result is what condition and event carry."""
    outer_prefix: str = ""
    """Put before the condition's text in the error of the reconcile."""
    error: str = ""
    """The error of an `invalid` metric, as condition and event carry it."""
    spec_fault: bool = False
    """The error counts as a fault of the spec (label `spec`), not of the system (`internal`)."""

    @property
    def own_name(self) -> str:
        """The name that the spec gives it: its resource's, or its own; empty where the type is not known."""
        return metric_name({"type": self.type, self.status_key: dict(self.status_before)})


class ScalingPolicy(Struct, frozen=True):
    """One policy of a direction. `factor`: what a Percent policy multiplies the start value with."""

    type: str
    value: int
    period_ms: int
    factor: float


class ScalingRules(Struct, frozen=True, kw_only=True):
    """`behavior.scaleUp` or `behavior.scaleDown`."""

    window_ms: int | None
    """Stabilization window; None (scaleDown only): the controller's downscale stabilization."""
    select: str
    policies: tuple[ScalingPolicy, ...]
    longest_ms: int
    """The longest period of the policies: events older than it are outdated when the next one is stored."""
    tolerance: float | None


class Autoscaler(Struct, frozen=True, kw_only=True, gc=False):
    """A compiled HorizontalPodAutoscaler spec (identity, target, limits, metrics, behavior)."""

    namespace: str
    name: str
    generation: int
    target_kind: str
    target_group: str
    target_name: str
    target_error: str
    """Why `scaleTargetRef.apiVersion` cannot be parsed; empty when it can."""
    min_replicas: int
    max_replicas: int
    metrics: tuple[MetricSpec, ...]
    has_object_or_external: bool
    """Some metric is of type Object or External: what scaling to and from zero requires."""
    scale_up: ScalingRules | None
    """None together with `scale_down`: no `behavior`, the legacy limits apply."""
    scale_down: ScalingRules | None

    @property
    def reference(self) -> str:
        """`kind/namespace/name` of the target, as error texts print it."""
        return f"{self.target_kind}/{self.namespace}/{self.target_name}"


_NO_RESOURCE_TARGET = (
    "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set"
)


def compile_autoscaler(hpa: JsonView, rules: Rules = CURRENT) -> Autoscaler:
    """Compile a defaulted HPA for a controller with these rules.

    Raises ValueError: a quantity in the spec cannot be read.
    """
    metadata, spec = hpa["metadata"], hpa["spec"]
    target, behavior = spec["scaleTargetRef"], spec.get("behavior")
    namespace = metadata.get("namespace", "")
    group, target_error = parse_group_version(target.get("apiVersion", ""))
    metrics = tuple(_metric(metric, namespace, rules) for metric in spec.get("metrics") or ())
    minimum = spec.get("minReplicas")
    return Autoscaler(
        namespace=namespace,
        name=metadata["name"],
        generation=metadata.get("generation", 0),
        target_kind=target["kind"],
        target_group=group,
        target_name=target["name"],
        target_error=target_error,
        min_replicas=1 if minimum is None else minimum,
        max_replicas=spec["maxReplicas"],
        metrics=metrics,
        has_object_or_external=any(metric.type in ("Object", "External") for metric in metrics),
        scale_up=_rules(behavior, "scaleUp", rules),
        scale_down=_rules(behavior, "scaleDown", rules),
    )


def _metric(metric: JsonView, namespace: str, rules: Rules) -> MetricSpec:
    is_of_namespace = metric.get("type") in ("Object", "External")
    return _compile_metric(msgspec.json.encode(metric), namespace if is_of_namespace else "", rules)


def _rules(behavior: JsonView | None, direction: str, rules: Rules) -> ScalingRules | None:
    if behavior is None:
        return None
    encoded = msgspec.json.encode(behavior.get(direction) or {})
    return _compile_rules(encoded, up=direction == "scaleUp", saturating=rules.quantities_saturate)


@lru_cache(maxsize=4096)
def _compile_rules(encoded: bytes, *, up: bool, saturating: bool) -> ScalingRules:
    rules: JsonView = msgspec.json.decode(encoded)
    window_s, tolerance = rules.get("stabilizationWindowSeconds"), rules.get("tolerance")
    policies = tuple(_compile_policy(policy, up=up) for policy in rules.get("policies") or ())
    return ScalingRules(
        window_ms=None if window_s is None else window_s * 1000,
        select=rules.get("selectPolicy") or "Max",
        policies=policies,
        longest_ms=max([0, *(policy.period_ms for policy in policies)]),
        tolerance=None if tolerance is None else parse_quantity(tolerance, saturating=saturating).as_float(),
    )


def _compile_policy(policy: JsonView, *, up: bool) -> ScalingPolicy:
    value = policy["value"]
    share = float(value) / 100
    return ScalingPolicy(policy["type"], value, policy["periodSeconds"] * 1000, 1 + share if up else 1 - share)


@lru_cache(maxsize=4096)
def _compile_metric(encoded: bytes, namespace: str, rules: Rules) -> MetricSpec:
    """Compile a metric once for all HPAs that have it: the metrics of a large fleet are few."""
    metric: JsonView = msgspec.json.decode(encoded)
    match metric.get("type", ""):
        case "Resource":
            return _resource(metric["resource"], None, rules)
        case "ContainerResource":
            return _resource(metric["containerResource"], metric["containerResource"]["container"], rules)
        case "Pods":
            return _pods(metric["pods"], rules)
        case "Object":
            return _object(metric["object"], namespace, rules)
        case "External":
            return _external(metric["external"], namespace, rules)
        case unknown:
            error = f"unknown metric source type {go_quote(unknown)}"
            reason = "InvalidMetricSourceType"
            return MetricSpec(type=unknown, calculation=INVALID, reason=reason, error=error, spec_fault=True)


def _resource(source: JsonView, container: str | None, rules: Rules) -> MetricSpec:
    resource, target = source["name"], source["target"]
    calculation, aim, name, inner, error = INVALID, 0, "", "", ""
    if target.get("averageValue") is not None:
        calculation, aim = RAW_AVERAGE, _milli(target["averageValue"], rules)
        name, inner = f"{resource} resource", f"failed to get {resource} usage: "
    elif target.get("averageUtilization") is not None:
        calculation, aim = UTILIZATION, target["averageUtilization"]
        of = "resource" if container is None else "container resource"
        name = f"{resource} {of} utilization (percentage of request)"
        inner = f"failed to get {resource} utilization: "
    else:
        error = _NO_RESOURCE_TARGET
    of_pods = container is None
    return MetricSpec(
        type="Resource" if of_pods else "ContainerResource",
        calculation=calculation,
        target=aim,
        name=name,
        resource=resource,
        container=container or "",
        binary=resource == "memory" and rules.memory_is_binary,
        status_key="resource" if of_pods else "containerResource",
        status_before=(("name", resource),) if of_pods else (("name", resource), ("container", container)),
        reason="FailedGetResourceMetric" if of_pods else "FailedGetContainerResourceMetric",
        fetch_prefix=f"unable to get metrics for resource {resource}: ",
        inner_prefix=inner,
        outer_prefix=f"failed to get {resource} resource metric value: "
        if of_pods
        else f"failed to get {container} container metric value: ",
        error=error,
    )


def _milli(text: str, rules: Rules) -> int:
    return parse_milli(text, saturating=rules.quantities_saturate)


def _pods(source: JsonView, rules: Rules) -> MetricSpec:
    name = source["metric"]["name"]
    error = label_selector_error(source["metric"].get("selector"))
    average = source["target"].get("averageValue")
    return MetricSpec(
        type="Pods",
        calculation=INVALID if error else PODS,
        target=_milli(average, rules) if average is not None else 0,
        name=f"pods metric {name}",
        status_key="pods",
        status_before=(("metric", source["metric"]),),
        reason="FailedGetPodsMetric",
        fetch_prefix=f"unable to get metric {name}: ",
        outer_prefix="failed to get pods metric value: ",
        error=error,
    )


def _object(source: JsonView, namespace: str, rules: Rules) -> MetricSpec:
    metric, target, described = source["metric"], source["target"], source["describedObject"]
    error = label_selector_error(metric.get("selector"))
    calculation, milli, name, outer = INVALID, 0, "", "failed to get object metric value: "
    where, shown = f" on {described['kind']} {namespace}/{described['name']}: ", described
    if not rules.object_error_in_order:
        where = f": {described['kind']} on {namespace} {described['name']}/"
    if not error and target.get("type") == "Value" and target.get("value") is not None:
        calculation, milli = OBJECT_VALUE, _milli(target["value"], rules)
        name = f"{described['kind']} metric {metric['name']}"
    elif not error and target.get("type") == "AverageValue" and target.get("averageValue") is not None:
        calculation, milli = OBJECT_PER_POD, _milli(target["averageValue"], rules)
        name = f"{described['kind']} metric {metric['name']}" if rules.object_average_named else _external_name(metric)
        outer += f"failed to get {metric['name']} object metric: "
        shown = described if rules.average_names_object else {"kind": "", "name": ""}
    else:
        error = error or "invalid object metric source: neither a value target nor an average value target was set"
    return MetricSpec(
        type="Object",
        calculation=calculation,
        target=milli,
        name=name,
        status_key="object",
        status_before=(("metric", metric), ("describedObject", shown)),
        reason="FailedGetObjectMetric",
        fetch_prefix=f"unable to get metric {metric['name']}{where}",
        outer_prefix=outer,
        error=error,
    )


def _external(source: JsonView, namespace: str, rules: Rules) -> MetricSpec:
    metric, target = source["metric"], source["target"]
    name, selector = metric["name"], metric.get("selector")
    error = label_selector_error(selector)
    calculation, milli, outer = INVALID, 0, f"failed to get {name} external metric value: "
    if target.get("averageValue") is not None:
        calculation, milli = EXTERNAL_PER_POD, _milli(target["averageValue"], rules)
        outer += f"failed to get {name} external metric: "
    elif target.get("value") is not None:
        calculation, milli = EXTERNAL_VALUE, _milli(target["value"], rules)
        outer += f"failed to get external metric {name}: "
    else:
        error = "invalid external metric source: neither a value target nor an average value target was set"
    return MetricSpec(
        type="External",
        calculation=INVALID if error else calculation,
        target=milli,
        name=_external_name(metric),
        status_key="external",
        status_before=(("metric", metric),),
        reason="FailedGetExternalMetric",
        fetch_prefix=f"unable to get external metric {namespace}/{name}/{print_label_selector(selector)}: ",
        outer_prefix=outer,
        error=error,
    )


def _external_name(metric: JsonView) -> str:
    return f"external metric {metric['name']}({print_label_selector(metric.get('selector'))})"
