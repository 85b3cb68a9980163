"""What the API server refuses in a HorizontalPodAutoscaler, in its order and words.

Source: pkg/apis/autoscaling/validation/validation.go, pkg/registry/autoscaling/horizontalpodautoscaler/strategy.go
and the declarative rules of k8s.io/api/autoscaling/v2 v1.37.1, other versions by `ApiRules`; for names of resources
pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from schemas.kubernetes.apirules import CURRENT_API, ApiRules
from schemas.kubernetes.fielderrors import (
    FieldError,
    Named,
    aggregate,
    forbidden,
    go_quote,
    invalid,
    merge_identical,
    not_supported,
    required,
)
from schemas.kubernetes.hpa import convert_to_v2, decode_and_default
from schemas.kubernetes.names import dns_label_errors, label_key_errors, path_segment_errors
from schemas.kubernetes.objectmeta import validate_metadata_update, validate_new_metadata, validate_stored_metadata
from schemas.kubernetes.quantity import parse_quantity
from schemas.kubernetes.shape import Json, parse_group_version

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


_RESOURCE_TARGET = (
    ("averageUtilization", "averageValue"),
    "must set either a target raw value or a target utilization",
    "may not set both a target raw value and a target utilization",
)
_TARGETS: Mapping[str, tuple[tuple[str, ...], str, str]] = {
    "object": (("averageValue", "value"), "must set either a target value or averageValue", ""),
    "external": (
        ("averageValue", "value"),
        "must set either a target value for metric or a per-pod target",
        "may not set both a target value for metric and a per-pod target",
    ),
    "pods": (("averageValue",), "must specify a positive target averageValue", ""),
    "resource": _RESOURCE_TARGET,
    "containerResource": _RESOURCE_TARGET,
}
"""By metric source: the fields of a target of which one must be set, and the texts where none is set (reported at the
first) and where both are (reported at the last; empty: they may be).
"""


def _source(kind: str, source: Json, path: str, any_version: bool) -> Iterator[FieldError]:
    if kind == "object":
        yield from _described_object(source["describedObject"], f"{path}.describedObject", any_version)
    if "metric" in source:
        yield from _identifier(source["metric"], f"{path}.metric")
    elif not source["name"]:
        yield required(f"{path}.name", "must specify a resource name")
    if kind == "containerResource":
        yield from _container(source, path)
    target, (names, none_set, both_set) = source["target"], _TARGETS[kind]
    yield from _target(target, f"{path}.target")
    if not any(name in target for name in names):
        yield required(f"{path}.target.{names[0]}", none_set)
    elif both_set and all(name in target for name in names):
        yield forbidden(f"{path}.target.{names[-1]}", both_set)


def _described_object(described: Json, path: str, any_version: bool) -> Iterator[FieldError]:
    for name in ("kind", "name"):
        yield from validate_path_segment(described[name], f"{path}.{name}")
    version = described.get("apiVersion", "")
    error = parse_group_version(version)[1]
    if error and not any_version:
        yield invalid(f"{path}.apiVersion", version, error)


def _container(source: Json, path: str) -> Iterator[FieldError]:
    for error in _container_resource_name_errors(source["name"]) if source["name"] else ():
        yield invalid(f"{path}.name", Named(source["name"]), error)
    if not source["container"]:
        yield required(f"{path}.container", "must specify a container")
    for error in dns_label_errors(source["container"]) if source["container"] else ():
        yield invalid(f"{path}.container", source["container"], error)


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


MAX_STABILIZATION_WINDOW_S = 3600
MAX_POLICY_PERIOD_S = 1800
NOT_NEGATIVE = "must be greater than or equal to 0"


def validate_create(manifest: Mapping[str, Any], rules: ApiRules = CURRENT_API) -> list[FieldError]:
    """Return all that the API server refuses in a new object, in its order.

    Raises ManifestError: the manifest cannot be decoded.
    """
    hpa = _internal(manifest, rules)
    return _final([], handwritten_create(hpa, rules), list(_declarative(hpa["spec"], None, rules)))


def validate_update(
    manifest: Mapping[str, Any], old_manifest: Mapping[str, Any], rules: ApiRules = CURRENT_API
) -> list[FieldError]:
    """Return all that the API server refuses in a changed object, in its order.

    Raises ManifestError: one of the manifests cannot be decoded.
    """
    hpa, old = _internal(manifest, rules), _internal(old_manifest, rules)
    stored = list(validate_stored_metadata(hpa["metadata"]))
    return _final(stored, handwritten_update(hpa, old, rules), list(_declarative(hpa["spec"], old["spec"], rules)))


def api_error_message(name: str, errors: Sequence[FieldError]) -> str:
    """Return the text of the API server's refusal; empty if there is nothing to refuse."""
    if not errors:
        return ""
    listed = aggregate([error.string for error in errors])
    return f"HorizontalPodAutoscaler.autoscaling {go_quote(name)} is invalid: {listed}"


def handwritten_create(hpa: Json, rules: ApiRules) -> list[FieldError]:
    """Return the errors of the hand-written rules for a new object, decoded and defaulted."""
    return [*validate_new_metadata(hpa["metadata"]), *_spec(hpa["spec"], None, rules)]


def handwritten_update(hpa: Json, old: Json, rules: ApiRules) -> list[FieldError]:
    """Return the errors of the hand-written rules for a changed object; both decoded and defaulted."""
    return [*validate_metadata_update(hpa["metadata"], old["metadata"]), *_spec(hpa["spec"], old["spec"], rules)]


def _internal(manifest: Mapping[str, Any], rules: ApiRules) -> Json:
    return convert_to_v2(decode_and_default(manifest, rules))


def _final(stored: list[FieldError], written: list[FieldError], declared: list[FieldError]) -> list[FieldError]:
    """Put the lists together: a declarative error takes the place of the hand-written one, at the end."""
    taken_over = {error.field for error in declared}
    kept = [error for error in written if not (error.covered and error.field in taken_over)]
    return merge_identical([*stored, *kept, *declared])


def _declarative(spec: Json, old: Json | None, rules: ApiRules) -> Iterator[FieldError]:
    """Check what is declared. On update a value that did not change is not looked at."""
    if rules.reference_declared:
        target, before = spec["scaleTargetRef"], {} if old is None else old["scaleTargetRef"]
        for name in ("kind", "name"):
            if not target[name] and before.get(name) != target[name]:
                yield required(f"spec.scaleTargetRef.{name}")
    if not rules.replicas_declared:
        return
    least = spec["minReplicas"]
    if least < 0 and (old is None or old["minReplicas"] != least):
        yield invalid("spec.minReplicas", least, NOT_NEGATIVE)
    most = spec["maxReplicas"]
    if most < 1 and (old is None or old["maxReplicas"] != most):
        yield _below_one(most, "")


def _below_one(replicas: int, detail: str) -> FieldError:
    if replicas == 0:
        return required("spec.maxReplicas", detail)
    return invalid("spec.maxReplicas", replicas, "must be greater than or equal to 1")


def _covered(error: FieldError) -> FieldError:
    return FieldError(error.type, error.field, error.value, error.detail, covered=True)


def _spec(spec: Json, old: Json | None, rules: ApiRules) -> Iterator[FieldError]:
    least, most = spec["minReplicas"], spec["maxReplicas"]
    if least < 0:
        yield _covered(invalid("spec.minReplicas", least, NOT_NEGATIVE))
    if most < 1 and rules.replicas_declared:
        yield _covered(_below_one(most, "must be set and greater than 0"))
    elif most < 1:
        yield invalid("spec.maxReplicas", most, "must be greater than 0")
    if most < least:
        yield invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    yield from _scale_target(spec["scaleTargetRef"], old["scaleTargetRef"] if old else None, rules)
    yield from _metrics(spec, old, rules)
    for direction in ("scaleUp", "scaleDown"):
        scaling = (spec.get("behavior") or {}).get(direction)
        if scaling is not None:
            yield from _rules(scaling, f"spec.behavior.{direction}")


def _scale_target(reference: Json, old: Json | None, rules: ApiRules) -> Iterator[FieldError]:
    for name in ("kind", "name"):
        for problem in validate_path_segment(reference[name], f"spec.scaleTargetRef.{name}"):
            yield _covered(problem) if rules.reference_declared and not reference[name] else problem
    if not rules.group_required:
        return
    version = reference.get("apiVersion", "")
    if old is not None and (old["kind"], old.get("apiVersion", "")) == (reference["kind"], version):
        return
    group, error = parse_group_version(version)
    if error:
        yield invalid("spec.scaleTargetRef.apiVersion", version, error)
    elif not group and reference["kind"] != "ReplicationController":
        yield invalid("spec.scaleTargetRef.apiVersion", version, "apiVersion must specify API group")


def _metrics(spec: Json, old: Json | None, rules: ApiRules) -> Iterator[FieldError]:
    held = old is not None and any(_bad_object_version(metric) for metric in old["metrics"])
    tolerant = held or not rules.group_required
    for index, metric in enumerate(spec["metrics"]):
        yield from validate_metric(metric, f"spec.metrics[{index}]", any_version=tolerant)
    if spec["minReplicas"] == 0 and not any(metric["type"] in ("Object", "External") for metric in spec["metrics"]):
        detail = "must specify at least one Object or External metric to support scaling to zero replicas"
        yield forbidden("spec.metrics", detail)


def _bad_object_version(metric: Json) -> bool:
    described = metric.get("object", {}).get("describedObject", {})
    return metric["type"] == "Object" and bool(parse_group_version(described.get("apiVersion", ""))[1])


def _rules(rules: Json, path: str) -> Iterator[FieldError]:
    window = rules.get("stabilizationWindowSeconds")
    if window is not None and window < 0:
        yield invalid(f"{path}.stabilizationWindowSeconds", window, "must be greater than or equal to zero")
    if window is not None and window > MAX_STABILIZATION_WINDOW_S:
        detail = f"must be less than or equal to {MAX_STABILIZATION_WINDOW_S}"
        yield invalid(f"{path}.stabilizationWindowSeconds", window, detail)
    select = rules.get("selectPolicy")
    if select is not None and select not in ("Disabled", "Max", "Min"):
        yield not_supported(f"{path}.selectPolicy", select, ("Disabled", "Max", "Min"))
    policies = rules.get("policies") or ()
    if not policies:
        yield required(f"{path}.policies", "must specify at least one Policy")
    for index, policy in enumerate(policies):
        yield from _policy(policy, f"{path}.policies[{index}]")
    tolerance = rules.get("tolerance")
    if tolerance is not None and parse_quantity(tolerance).sign() < 0:
        yield invalid(f"{path}.tolerance", tolerance, NOT_NEGATIVE)


def _policy(policy: Json, path: str) -> Iterator[FieldError]:
    if policy["type"] not in ("Percent", "Pods"):
        yield not_supported(f"{path}.type", policy["type"], ("Percent", "Pods"))
    if policy["value"] <= 0:
        yield invalid(f"{path}.value", policy["value"], "must be greater than zero")
    period = policy["periodSeconds"]
    if period <= 0:
        yield invalid(f"{path}.periodSeconds", period, "must be greater than zero")
    if period > MAX_POLICY_PERIOD_S:
        yield invalid(f"{path}.periodSeconds", period, f"must be less than or equal to {MAX_POLICY_PERIOD_S}")
