"""autoscaling/v2 to v1, which the API server answers a client of v1 with, and fleethpa never needs.

Source: pkg/apis/autoscaling/v1/conversion.go, annotations.go and helpers.go v1.37.1.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from schemas.kubernetes import versions
from schemas.kubernetes.decoding import ALWAYS, Struct
from schemas.kubernetes.fielderrors import go_json
from schemas.kubernetes.shape import Json
from schemas.kubernetes.versions import CURRENT_METRIC_V1, METRIC_V1

_GO_NAMES = {
    "scaleUp": "ScaleUp",
    "scaleDown": "ScaleDown",
    "stabilizationWindowSeconds": "StabilizationWindowSeconds",
    "selectPolicy": "SelectPolicy",
    "policies": "Policies",
    "tolerance": "Tolerance",
}


def v2_to_v1(hpa: Json) -> Json:
    """Convert a decoded and defaulted autoscaling/v2 object; what v1 lacks goes into annotations."""
    metadata, spec, status = versions.drop_round_trip_annotations(hpa["metadata"]), hpa["spec"], hpa["status"]
    annotations = metadata.get("annotations", {}) | dict(_annotations(spec, status))
    metadata |= {"annotations": annotations} if annotations else {}
    old_spec = {key: spec[key] for key in ("scaleTargetRef", "minReplicas", "maxReplicas") if key in spec}
    utilization = _target_cpu(spec.get("metrics", ()))
    if utilization is not None:
        old_spec["targetCPUUtilizationPercentage"] = utilization
    old_status = versions.shared_status(status) | {"desiredReplicas": status["desiredReplicas"]}
    current = _current_cpu(status["currentMetrics"] or ())
    if current is not None:
        old_status["currentCPUUtilizationPercentage"] = current
    return versions.of_version("autoscaling/v1", metadata, old_spec, old_status)


def _annotations(spec: Json, status: Json) -> Iterable[tuple[str, str]]:
    """Give the annotations in the order of their keys, as Go prints a map."""
    if spec.get("behavior") is not None:
        yield (
            versions.BEHAVIOR_KEY,
            go_json({_GO_NAMES[name]: _go_rules(spec["behavior"].get(name)) for name in ("scaleUp", "scaleDown")}),
        )
    if status.get("conditions"):
        yield versions.CONDITIONS_KEY, go_json(status["conditions"])
    if status["currentMetrics"]:
        yield (
            versions.CURRENT_METRICS,
            go_json([_to_v1(each, CURRENT_METRIC_V1, versions.STATUS_PLACES) for each in status["currentMetrics"]]),
        )
    others = [metric for metric in spec.get("metrics", ()) if not _is_cpu_utilization(metric)]
    if others:
        yield versions.METRICS, go_json([_to_v1(each, METRIC_V1, versions.SPEC_PLACES) for each in others])


def _go_rules(rules: Json | None) -> Json | None:
    """Give the internal struct, which has no JSON names, as Go encodes it."""
    if rules is None:
        return None
    shown: Json = {_GO_NAMES[name]: rules.get(name) for name in list(_GO_NAMES)[2:]}
    if shown["Policies"] is not None:
        shown["Policies"] = [
            {"Type": each["type"], "Value": each["value"], "PeriodSeconds": each["periodSeconds"]}
            for each in shown["Policies"]
        ]
    return shown


def _is_cpu(metric: Json) -> bool:
    return metric["type"] == "Resource" and "resource" in metric and metric["resource"]["name"] == "cpu"


def _is_cpu_utilization(metric: Json) -> bool:
    return _is_cpu(metric) and "averageUtilization" in metric["resource"]["target"]


def _target_cpu(metrics: Iterable[Json]) -> int | None:
    """Give the target of the first CPU metric that has a utilization."""
    return next((m["resource"]["target"]["averageUtilization"] for m in metrics if _is_cpu_utilization(m)), None)


def _current_cpu(metrics: Iterable[Json]) -> int | None:
    """Give the utilization of the last CPU metric that has one."""
    found = [metric["resource"]["current"].get("averageUtilization") for metric in metrics if _is_cpu(metric)]
    return next((each for each in reversed(found) if each is not None), None)


def _to_v1(metric: Json, shape: Struct, places: Mapping[str, tuple[str, ...]]) -> Json:
    """Convert a metric of a spec or a status, its fields in the order of v1, with the zero values that v1 shows."""
    converted: Json = {"type": metric["type"]}
    for source in shape.fields:
        if source.name in metric and isinstance(source.shape, Struct):
            found = ((each, _at(metric[source.name], places[each.name])) for each in source.shape.fields)
            converted[source.name] = {
                each.name: each.shape.zero() if value is None else value
                for each, value in found
                if value is not None or each.presence == ALWAYS
            }
    return converted


def _at(source: Json, place: Sequence[str]) -> Any:
    """Give the value at a place, or None; the labels of a selector in order, as Go prints a map."""
    value: Any = source
    for name in place:
        value = value.get(name)
        if value is None:
            return None
    if place[-1] == "selector" and "matchLabels" in value:
        return value | {"matchLabels": dict(sorted(value["matchLabels"].items()))}
    return value
