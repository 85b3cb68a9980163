"""What the API server refuses in one metric of a HorizontalPodAutoscaler.

Source: pkg/apis/autoscaling/validation/validation.go, pkg/apis/core/validation/validation.go v1.37.1.
"""

from __future__ import annotations

from collections.abc import Iterator

from schemas.kubernetes.apiversions import parse_group_version
from schemas.kubernetes.fielderrors import FieldError, Named, forbidden, invalid, not_supported, required
from schemas.kubernetes.jsontypes import Json
from schemas.kubernetes.objectnames import dns_label_errors, label_key_errors, path_segment_errors
from schemas.kubernetes.quantity import parse_quantity

METRIC_TYPES = ("ContainerResource", "External", "Object", "Pods", "Resource")
_SOURCES = ("object", "external", "pods", "resource", "containerResource")

_CONTAINER_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_STANDARD_RESOURCES = _CONTAINER_RESOURCES | {
    *(f"{side}.{name}" for side in ("requests", "limits") for name in _CONTAINER_RESOURCES),
    *("pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps"),
    *("persistentvolumeclaims", "storage", "requests.storage", "services.nodeports", "services.loadbalancers"),
}


def validate_metric(metric: Json, path: str, *, any_version: bool = False) -> Iterator[FieldError]:
    """Check one metric spec.

    Args:
        metric: decoded metric spec.
        path: its field path.
        any_version: let an unreadable API version of a described object pass (the stored object has one).
    """
    kind = metric["type"]
    if not kind:
        yield required(f"{path}.type", "must specify a metric source type")
    if kind not in METRIC_TYPES:
        yield not_supported(f"{path}.type", kind, METRIC_TYPES)
    present = [source for source in _SOURCES if source in metric]
    # Only the first source is looked at; the others are refused as a whole below.
    for source in present[:1]:
        yield from _source(source, metric[source], f"{path}.{source}", any_version)
    expected = kind[0].lower() + kind[1:] if kind in METRIC_TYPES else ""
    if not expected:
        yield not_supported(f"{path}.type", kind, METRIC_TYPES)
    elif expected not in metric:
        yield required(f"{path}.{expected}", "must populate information for the given metric source")
    if len(present) != 1:
        for source in sorted(set(present) - {expected}):
            yield forbidden(f"{path}.{source}", "must populate the given metric source only")


def validate_path_segment(name: str, path: str) -> Iterator[FieldError]:
    """Check a name that must be set and becomes one segment of a URL."""
    if not name:
        yield required(path)
    for error in path_segment_errors(name):
        yield invalid(path, name, error)


def _source(kind: str, source: Json, path: str, any_version: bool) -> Iterator[FieldError]:
    if kind == "object":
        yield from _object(source, path, any_version)
    elif kind == "external":
        yield from _external(source, path)
    elif kind == "pods":
        yield from _pods(source, path)
    elif kind == "resource":
        if not source["name"]:
            yield required(f"{path}.name", "must specify a resource name")
        yield from _resource_target(source["target"], f"{path}.target")
    else:
        yield from _container_resource(source, path)


def _object(source: Json, path: str, any_version: bool) -> Iterator[FieldError]:
    described = source["describedObject"]
    for name in ("kind", "name"):
        yield from validate_path_segment(described[name], f"{path}.describedObject.{name}")
    version = described.get("apiVersion", "")
    error = parse_group_version(version)[1]
    if error and not any_version:
        yield invalid(f"{path}.describedObject.apiVersion", version, error)
    yield from _identifier(source["metric"], f"{path}.metric")
    yield from _target(source["target"], f"{path}.target")
    if "value" not in source["target"] and "averageValue" not in source["target"]:
        yield required(f"{path}.target.averageValue", "must set either a target value or averageValue")


def _external(source: Json, path: str) -> Iterator[FieldError]:
    target = source["target"]
    yield from _identifier(source["metric"], f"{path}.metric")
    yield from _target(target, f"{path}.target")
    if "value" not in target and "averageValue" not in target:
        detail = "must set either a target value for metric or a per-pod target"
        yield required(f"{path}.target.averageValue", detail)
    if "value" in target and "averageValue" in target:
        yield forbidden(f"{path}.target.value", "may not set both a target value for metric and a per-pod target")


def _pods(source: Json, path: str) -> Iterator[FieldError]:
    yield from _identifier(source["metric"], f"{path}.metric")
    yield from _target(source["target"], f"{path}.target")
    if "averageValue" not in source["target"]:
        yield required(f"{path}.target.averageValue", "must specify a positive target averageValue")


def _container_resource(source: Json, path: str) -> Iterator[FieldError]:
    if source["name"]:
        for error in _container_resource_name_errors(source["name"]):
            yield invalid(f"{path}.name", Named(source["name"]), error)
    else:
        yield required(f"{path}.name", "must specify a resource name")
    if source["container"]:
        for error in dns_label_errors(source["container"]):
            yield invalid(f"{path}.container", source["container"], error)
    else:
        yield required(f"{path}.container", "must specify a container")
    yield from _resource_target(source["target"], f"{path}.target")


def _resource_target(target: Json, path: str) -> Iterator[FieldError]:
    yield from _target(target, path)
    if "averageUtilization" not in target and "averageValue" not in target:
        detail = "must set either a target raw value or a target utilization"
        yield required(f"{path}.averageUtilization", detail)
    if "averageUtilization" in target and "averageValue" in target:
        yield forbidden(f"{path}.averageValue", "may not set both a target raw value and a target utilization")


def _identifier(metric: Json, path: str) -> Iterator[FieldError]:
    if not metric["name"]:
        yield required(f"{path}.name", "must specify a metric name")
    for error in path_segment_errors(metric["name"]):
        yield invalid(f"{path}.name", metric["name"], error)


def _target(target: Json, path: str) -> Iterator[FieldError]:
    kind = target["type"]
    if not kind:
        yield required(f"{path}.type", "must specify a metric target type")
    if kind not in ("Utilization", "Value", "AverageValue"):
        yield invalid(f"{path}.type", Named(kind), "must be either Utilization, Value, or AverageValue")
    for name in ("value", "averageValue"):
        if name in target and parse_quantity(target[name]).sign() <= 0:
            yield invalid(f"{path}.{name}", target[name], "must be positive")
    utilization = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        yield invalid(f"{path}.averageUtilization", utilization, "must be greater than 0")


def _container_resource_name_errors(name: str) -> list[str]:
    errors = label_key_errors(name)
    if "/" not in name:
        known = name in _STANDARD_RESOURCES or name.startswith(("hugepages-", "requests.hugepages-"))
        if not errors and not known:
            errors.append("must be a standard resource type or fully qualified")
        if name not in _CONTAINER_RESOURCES and not name.startswith("hugepages-"):
            errors.append("must be a standard resource for containers")
    elif "kubernetes.io/" not in name and not _is_extended(name):
        errors.append("doesn't follow extended resource name standard")
    return errors


def _is_extended(name: str) -> bool:
    return not name.startswith("requests.") and not label_key_errors(f"requests.{name}")
