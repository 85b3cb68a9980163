"""The HorizontalPodAutoscaler API of a simulated cluster: defaults, validation, and the v1 view of v2 objects."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


def default(hpa: Document) -> Document:
    spec = dict(hpa.get("spec") or {})
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    return hpa | {"spec": spec}


def validate(new: Document, old: Document | None) -> list[tuple[str, str]]:
    spec = new["spec"]
    if spec.get("maxReplicas", 0) < 1:
        return [("spec.maxReplicas", "Required value")]
    if spec["maxReplicas"] < spec["minReplicas"]:
        return [
            (
                "spec.maxReplicas",
                f"Invalid value: {spec['maxReplicas']}: must be greater than or equal to `minReplicas`",
            )
        ]
    return []


def from_v1(hpa: Document) -> Document:
    spec = dict(hpa["spec"])
    percent = spec.pop("targetCPUUtilizationPercentage", None)
    if percent is not None:
        target = {"type": "Utilization", "averageUtilization": percent}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    return hpa | {"apiVersion": "autoscaling/v2", "spec": spec}


def to_v1(hpa: Document) -> Document:
    spec = {k: v for k, v in hpa["spec"].items() if k not in ("metrics", "behavior")}
    for metric in hpa["spec"].get("metrics") or ():
        if metric["type"] == "Resource" and metric["resource"]["name"] == "cpu":
            spec["targetCPUUtilizationPercentage"] = metric["resource"]["target"].get("averageUtilization")
    status = hpa.get("status") or {}
    old = {k: v for k, v in status.items() if k not in ("currentMetrics", "conditions")}
    return hpa | {"apiVersion": "autoscaling/v1", "spec": spec, "status": {"currentReplicas": 0} | old}


ROUND_TRIP = tuple(
    f"autoscaling.alpha.kubernetes.io/{name}"
    for name in ("metrics", "current-metrics", "conditions", "behavior", "scale-up-tolerance", "scale-down-tolerance")
)


def without_round_trip_annotations(hpa: Document) -> Document:
    """Drop the annotations that carry v2 fields through v1; reading or writing v2 drops them upstream as well."""
    annotations = hpa["metadata"].get("annotations") or {}
    kept = {k: v for k, v in annotations.items() if k not in ROUND_TRIP}
    if len(kept) == len(annotations):
        return hpa
    return hpa | {"metadata": {k: v for k, v in hpa["metadata"].items() if k != "annotations"} | {"annotations": kept}}
