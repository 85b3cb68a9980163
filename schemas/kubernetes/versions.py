"""autoscaling/v1 and v2beta2 to v2: what the older versions cannot say travels in annotations.

Source: pkg/apis/autoscaling/v1/conversion.go, annotations.go and helpers.go v1.37.1; v2beta2 as of v1.33.
"""

import json
from collections.abc import Mapping
from typing import Any

from schemas.kubernetes.hpashapes import BEHAVIOR, CONDITIONS, CURRENT_METRICS_V1, METRICS_V1, cpu_metric
from schemas.kubernetes.quantity import QuantityError, parse_quantity
from schemas.kubernetes.shape import Decoding, Json, RawNumber, Shape

_PREFIX = "autoscaling.alpha.kubernetes.io/"
METRICS = f"{_PREFIX}metrics"
CURRENT_METRICS = f"{_PREFIX}current-metrics"
CONDITIONS_KEY = f"{_PREFIX}conditions"
BEHAVIOR_KEY = f"{_PREFIX}behavior"
TOLERANCES = {"scaleUp": f"{_PREFIX}scale-up-tolerance", "scaleDown": f"{_PREFIX}scale-down-tolerance"}
_ROUND_TRIP = frozenset({METRICS, CURRENT_METRICS, CONDITIONS_KEY, BEHAVIOR_KEY, *TOLERANCES.values()})


def drop_round_trip_annotations(metadata: Json) -> Json:
    """Give the metadata without the annotations that carry other versions' fields."""
    kept = {key: value for key, value in metadata.get("annotations", {}).items() if key not in _ROUND_TRIP}
    rest = {key: value for key, value in metadata.items() if key != "annotations"}
    return rest | ({"annotations": kept} if kept else {})


def v1_to_v2(hpa: Json) -> Json:
    """Convert a decoded and defaulted autoscaling/v1 object. Annotations that cannot be read are ignored."""
    annotations = hpa["metadata"].get("annotations", {})
    spec = {key: hpa["spec"][key] for key in ("scaleTargetRef", "minReplicas", "maxReplicas") if key in hpa["spec"]}
    spec["metrics"] = _metrics_of(hpa["spec"], annotations)
    behavior = _read(annotations, BEHAVIOR_KEY, BEHAVIOR)
    if behavior:
        spec["behavior"] = behavior
    return of_version(
        "autoscaling/v2", drop_round_trip_annotations(hpa["metadata"]), spec, _status_of(hpa, annotations)
    )


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
    """Give the counts and times that a status has alike in both versions."""
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
