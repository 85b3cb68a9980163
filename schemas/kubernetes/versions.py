"""The HorizontalPodAutoscaler in each version: shapes and defaults of autoscaling/v1 and v2, and older ones as v2.

What the older versions cannot say travels in annotations.
Source: k8s.io/api/autoscaling/v1/types.go and v2/types.go v0.37.1; pkg/apis/autoscaling/v2/defaults.go, v1/defaults.go,
v1/conversion.go, annotations.go and helpers.go v1.37.1; v2beta2 as of v1.33,
v2beta1 as of v1.24; v2alpha1 has a part of the fields of v2beta1.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from schemas.kubernetes.decoding import Decoding, ListOf, RawNumber, Shape, declared
from schemas.kubernetes.quantity import QuantityError, parse_quantity
from schemas.kubernetes.shape import Json


def set_defaults_v2(hpa: Json) -> None:
    """Complete a decoded autoscaling/v2 object in place."""
    spec = hpa["spec"]
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        spec["metrics"] = [cpu_metric(80)]
    if spec.get("behavior") is not None:
        complete_behavior(spec["behavior"])


def set_defaults_v1(hpa: Json) -> None:
    """Complete a decoded object of autoscaling/v1 or v2beta1 in place. The default metric comes with the conversion."""
    hpa["spec"].setdefault("minReplicas", 1)


def complete_behavior(behavior: Json) -> None:
    """Give both directions every default that the user did not set, field by field; a policy list counts as one."""
    behavior["scaleUp"] = _rules_up() | behavior.get("scaleUp", {})
    behavior["scaleDown"] = _rules_down() | behavior.get("scaleDown", {})


def cpu_metric(utilization: int) -> Json:
    """Return the metric that autoscaling/v1 knows: average CPU utilization in percent of the requests."""
    target = {"type": "Utilization", "averageUtilization": utilization}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _rules_up() -> Json:
    pods = {"type": "Pods", "value": 4, "periodSeconds": 15}
    percent = {"type": "Percent", "value": 100, "periodSeconds": 15}
    return {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [pods, percent]}


def _rules_down() -> Json:
    # No stabilization window: its absence selects the controller's own setting at every reconcile.
    return {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}


_TYPES = declared(
    {
        "OwnerReference": """
            apiVersion string!, kind string!, name string!, uid string!, controller bool?, blockOwnerDeletion bool?
        """,
        "ObjectMeta": """
            name string, generateName string, namespace string, selfLink string, uid string, resourceVersion string,
            generation int64, creationTimestamp time, deletionTimestamp time?, deletionGracePeriodSeconds int64?,
            labels map, annotations map, ownerReferences []OwnerReference, finalizers []string, managedFields []any
        """,
        "Requirement": "key string!, operator string!, values []string",
        "LabelSelector": "matchLabels map, matchExpressions []Requirement",
        "Reference": "kind string!, name string!, apiVersion string",
        # --- autoscaling/v2 -------------------------------------------------------------------------------------------
        "Metric": "name string!, selector LabelSelector?",
        "Target": "type string!, value quantity?, averageValue quantity?, averageUtilization int32?",
        "Value": "value quantity?, averageValue quantity?, averageUtilization int32?",
        "ObjectSource": "describedObject Reference!, target Target!, metric Metric!",
        "MetricSource": "metric Metric!, target Target!",
        "ResourceSource": "name string!, target Target!",
        "ContainerResourceSource": "name string!, target Target!, container string!",
        "MetricSpec": """
            type string!, object ObjectSource?, pods MetricSource?, resource ResourceSource?,
            containerResource ContainerResourceSource?, external MetricSource?
        """,
        "ObjectStatus": "metric Metric!, current Value!, describedObject Reference!",
        "CurrentStatus": "metric Metric!, current Value!",
        "ResourceStatus": "name string!, current Value!",
        "ContainerResourceStatus": "name string!, current Value!, container string!",
        "MetricStatus": """
            type string!, object ObjectStatus?, pods CurrentStatus?, resource ResourceStatus?,
            containerResource ContainerResourceStatus?, external CurrentStatus?
        """,
        "Policy": "type string!, value int32!, periodSeconds int32!",
        # An explicit empty list of policies survives defaulting and is then refused; an absent one gets the default.
        "Rules": """
            stabilizationWindowSeconds int32?, selectPolicy string?, policies []Policy+, tolerance quantity?
        """,
        "Behavior": "scaleUp Rules?, scaleDown Rules?",
        "Spec": """
            scaleTargetRef Reference!, minReplicas int32?, maxReplicas int32!, metrics []MetricSpec, behavior Behavior?
        """,
        "Condition": """
            type string!, status string!, lastTransitionTime time!, reason string, message string,
            observedGeneration int64?
        """,
        "Status": """
            observedGeneration int64?, lastScaleTime time?, currentReplicas int32, desiredReplicas int32!,
            currentMetrics []MetricStatus!, conditions []Condition
        """,
        "Hpa": "kind string, apiVersion string, metadata ObjectMeta!, spec Spec!, status Status!",
        # --- autoscaling/v1 -------------------------------------------------------------------------------------------
        "SpecV1": """
            scaleTargetRef Reference!, minReplicas int32?, maxReplicas int32!, targetCPUUtilizationPercentage int32?
        """,
        "StatusV1": """
            observedGeneration int64?, lastScaleTime time?, currentReplicas int32!, desiredReplicas int32!,
            currentCPUUtilizationPercentage int32?
        """,
        "HpaV1": "kind string, apiVersion string, metadata ObjectMeta!, spec SpecV1!, status StatusV1!",
        "ObjectSourceV1": """
            target Reference!, metricName string!, targetValue quantity!, selector LabelSelector?,
            averageValue quantity?
        """,
        "PodsSourceV1": "metricName string!, targetAverageValue quantity!, selector LabelSelector?",
        "ResourceSourceV1": "name string!, targetAverageUtilization int32?, targetAverageValue quantity?",
        "ContainerResourceSourceV1": """
            name string!, targetAverageUtilization int32?, targetAverageValue quantity?, container string!
        """,
        "ExternalSourceV1": """
            metricName string!, metricSelector LabelSelector?, targetValue quantity?, targetAverageValue quantity?
        """,
        "MetricSpecV1": """
            type string!, object ObjectSourceV1?, pods PodsSourceV1?, resource ResourceSourceV1?,
            containerResource ContainerResourceSourceV1?, external ExternalSourceV1?
        """,
        "ObjectStatusV1": """
            target Reference!, metricName string!, currentValue quantity!, selector LabelSelector?,
            averageValue quantity?
        """,
        "PodsStatusV1": "metricName string!, currentAverageValue quantity!, selector LabelSelector?",
        "ResourceStatusV1": "name string!, currentAverageUtilization int32?, currentAverageValue quantity!",
        "ContainerResourceStatusV1": """
            name string!, currentAverageUtilization int32?, currentAverageValue quantity!, container string!
        """,
        "ExternalStatusV1": """
            metricName string!, metricSelector LabelSelector?, currentValue quantity!, currentAverageValue quantity?
        """,
        "MetricStatusV1": """
            type string!, object ObjectStatusV1?, pods PodsStatusV1?, resource ResourceStatusV1?,
            containerResource ContainerResourceStatusV1?, external ExternalStatusV1?
        """,
        # --- autoscaling/v2beta1: its metrics are those of the annotations of v1 --------------------------------------
        "SpecV2beta1": """
            scaleTargetRef Reference!, minReplicas int32?, maxReplicas int32!, metrics []MetricSpecV1
        """,
        "StatusV2beta1": """
            observedGeneration int64?, lastScaleTime time?, currentReplicas int32!, desiredReplicas int32!,
            currentMetrics []MetricStatusV1!, conditions []Condition!
        """,
        "HpaV2beta1": """
            kind string, apiVersion string, metadata ObjectMeta!, spec SpecV2beta1!, status StatusV2beta1!
        """,
    }
)
"""Upstream's types with their fields in upstream's order, written as `schemas.kubernetes.shape.declared` reads them."""

METADATA, BEHAVIOR, SPEC, STATUS = _TYPES["ObjectMeta"], _TYPES["Behavior"], _TYPES["Spec"], _TYPES["Status"]
HPA_V2, HPA_V1, HPA_V2BETA1 = _TYPES["Hpa"], _TYPES["HpaV1"], _TYPES["HpaV2beta1"]
METRIC_V1, CURRENT_METRIC_V1 = _TYPES["MetricSpecV1"], _TYPES["MetricStatusV1"]
METRICS_V1, CURRENT_METRICS_V1, CONDITIONS = ListOf(METRIC_V1), ListOf(CURRENT_METRIC_V1), ListOf(_TYPES["Condition"])


ROUND_TRIP_PREFIX = "autoscaling.alpha.kubernetes.io/"
METRICS = f"{ROUND_TRIP_PREFIX}metrics"
CURRENT_METRICS = f"{ROUND_TRIP_PREFIX}current-metrics"
CONDITIONS_KEY = f"{ROUND_TRIP_PREFIX}conditions"
BEHAVIOR_KEY = f"{ROUND_TRIP_PREFIX}behavior"
TOLERANCES = {
    "scaleUp": f"{ROUND_TRIP_PREFIX}scale-up-tolerance",
    "scaleDown": f"{ROUND_TRIP_PREFIX}scale-down-tolerance",
}
_ROUND_TRIP = frozenset({METRICS, CURRENT_METRICS, CONDITIONS_KEY, BEHAVIOR_KEY, *TOLERANCES.values()})


_READ_AS: Final[dict[str, Shape]] = {
    METRICS: METRICS_V1,
    CURRENT_METRICS: CURRENT_METRICS_V1,
    CONDITIONS_KEY: CONDITIONS,
    BEHAVIOR_KEY: BEHAVIOR,
}


def round_trip_annotations(annotations: Json) -> dict[str, bool]:
    """Return the annotations that carry fields of other versions, and whether each can be read."""
    own = [name for name in annotations if name in _ROUND_TRIP]
    return {name: name not in _READ_AS or _read(annotations, name, _READ_AS[name]) is not None for name in own}


def drop_round_trip_annotations(metadata: Json) -> Json:
    """Return the metadata without the annotations that carry other versions' fields."""
    kept = {key: value for key, value in metadata.get("annotations", {}).items() if key not in _ROUND_TRIP}
    rest = {key: value for key, value in metadata.items() if key != "annotations"}
    return rest | ({"annotations": kept} if kept else {})


def v1_to_v2(hpa: Json) -> Json:
    """Convert a decoded and defaulted autoscaling/v1 object. Annotations that cannot be read are ignored."""
    annotations = hpa["metadata"].get("annotations", {})
    return _with_metrics(hpa, _metrics_of(hpa["spec"], annotations), _status_of(hpa, annotations))


def v2beta1_to_v2(hpa: Json) -> Json:
    """Convert a decoded and defaulted autoscaling/v2beta1 or v2alpha1 object: of v2 it lacks the behavior, which is in
    the annotation that v1 has it in.
    """
    metrics = [_spec_to_v2(metric) for metric in hpa["spec"].get("metrics", ())] or [cpu_metric(80)]
    status = hpa["status"]
    current = [_to_v2(metric, STATUS_PLACES) for metric in status.get("currentMetrics") or ()] or None
    counts = shared_status(status) | {"desiredReplicas": status["desiredReplicas"], "currentMetrics": current}
    conditions = status.get("conditions")
    return _with_metrics(hpa, metrics, counts | ({"conditions": conditions} if conditions else {}))


def _with_metrics(hpa: Json, metrics: list[Json], status: Json) -> Json:
    """The v2 object of one of a version that has its behavior in an annotation."""
    spec = {key: hpa["spec"][key] for key in ("scaleTargetRef", "minReplicas", "maxReplicas") if key in hpa["spec"]}
    spec["metrics"] = metrics
    behavior = _read(hpa["metadata"].get("annotations", {}), BEHAVIOR_KEY, BEHAVIOR)
    if behavior:
        spec["behavior"] = behavior
    return of_version("autoscaling/v2", drop_round_trip_annotations(hpa["metadata"]), spec, status)


def v2beta2_to_v2(hpa: Json) -> Json:
    """Convert an object decoded with the v2 shape: v2beta2 differs in keeping tolerances in annotations."""
    annotations = hpa["metadata"].get("annotations", {})
    spec = dict(hpa["spec"])
    behavior = spec.get("behavior")
    if behavior is not None:
        spec["behavior"] = {name: _with_tolerance(rules, annotations, name) for name, rules in behavior.items()}
    return of_version("autoscaling/v2", drop_round_trip_annotations(hpa["metadata"]), spec, hpa["status"])


def of_version(version: str, metadata: Json, spec: Json, status: Json) -> Json:
    """Put the parts of an object together, in upstream's order."""
    return {
        "kind": "HorizontalPodAutoscaler",
        "apiVersion": version,
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def _with_tolerance(rules: Json, annotations: Json, direction: str) -> Json:
    rest = {key: value for key, value in rules.items() if key != "tolerance"}
    text = annotations.get(TOLERANCES[direction])
    try:
        return rest if text is None else rest | {"tolerance": str(parse_quantity(text))}
    except QuantityError:
        return rest  # as all annotations of this kind: what cannot be read is not there


def _metrics_of(spec: Json, annotations: Json) -> list[Json]:
    others = [_spec_to_v2(metric) for metric in _read(annotations, METRICS, METRICS_V1) or ()]
    utilization = spec.get("targetCPUUtilizationPercentage")
    if utilization is not None:
        return [*others, cpu_metric(utilization)]
    return others or [cpu_metric(80)]


def _status_of(hpa: Json, annotations: Json) -> Json:
    old = hpa["status"]
    status = shared_status(old) | {"desiredReplicas": old["desiredReplicas"], "currentMetrics": None}
    utilization = old.get("currentCPUUtilizationPercentage")
    if utilization is not None:
        current = {"averageUtilization": utilization}
        status["currentMetrics"] = [{"type": "Resource", "resource": {"name": "cpu", "current": current}}]
    metrics = _read(annotations, CURRENT_METRICS, CURRENT_METRICS_V1)
    if metrics is not None:
        status["currentMetrics"] = [_to_v2(metric, STATUS_PLACES) for metric in metrics]
    conditions = _read(annotations, CONDITIONS_KEY, CONDITIONS)
    return status | ({"conditions": conditions} if conditions else {})


def shared_status(status: Json) -> Json:
    """Return the counts and times that a status has alike in both versions."""
    shared = {key: status[key] for key in ("observedGeneration", "lastScaleTime") if key in status}
    return shared | {"currentReplicas": status.get("currentReplicas", 0)}


def _read(annotations: Json, key: str, shape: Shape) -> Any:
    """Decode an annotation as Go's standard decoder does; None if it is absent or wrong in any place."""
    text = annotations.get(key)
    if text is None:
        return None
    try:
        value = json.loads(text, parse_int=RawNumber, parse_float=RawNumber, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    run = Decoding(fold=True)
    decoded = shape.zero() if value is None else shape.decode(value, "", run)
    return None if run.problems else decoded


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _places(part: str) -> dict[str, tuple[str, ...]]:
    return {
        "name": ("name",),
        "container": ("container",),
        "target": ("describedObject",),
        "metricName": ("metric", "name"),
        "selector": ("metric", "selector"),
        "metricSelector": ("metric", "selector"),
        f"{part}Value": (part, "value"),
        f"{part}AverageValue": (part, "averageValue"),
        f"{part}AverageUtilization": (part, "averageUtilization"),
        "averageValue": (part, "averageValue"),
    }


SPEC_PLACES, STATUS_PLACES = _places("target"), _places("current")
"""Of a field of a metric in v1, the place that it has in v2: in a spec, and in a status."""


def _to_v2(metric: Json, places: Mapping[str, tuple[str, ...]]) -> Json:
    converted: Json = {"type": metric["type"]}
    for kind, source in metric.items():
        if kind == "type":
            continue
        converted[kind] = {}
        for name, value in source.items():
            *parents, last = places[name]
            holder = converted[kind]
            for parent in parents:
                holder = holder.setdefault(parent, {})
            holder[last] = value
    return converted


def _spec_to_v2(metric: Json) -> Json:
    """Convert a metric of a spec: v1 has no type of the target, which follows from the values that are set."""
    converted = _to_v2(metric, SPEC_PLACES)
    for kind in converted.keys() - {"type"}:
        target = converted[kind].setdefault("target", {})
        if "averageUtilization" in target:
            target["type"] = "Utilization"
        elif kind == "object" and "averageValue" in target:
            target["type"] = "AverageValue"
            # v1 always writes a target value; a zero beside an average means that none is set.
            if parse_quantity(target["value"]).sign() == 0:
                del target["value"]
        else:
            target["type"] = "Value" if "value" in target else "AverageValue"
    return converted
