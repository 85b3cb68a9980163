"""Defaults that the API server writes into autoscaling/v2 and v1 objects.

Source: pkg/apis/autoscaling/v2/defaults.go and v1/defaults.go v1.37.1.
"""

from schemas.kubernetes.jsontypes import Json


def set_defaults_v2(hpa: Json) -> None:
    """Complete a decoded autoscaling/v2 object in place."""
    spec = hpa["spec"]
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        spec["metrics"] = [cpu_metric(80)]
    if spec.get("behavior") is not None:
        complete_behavior(spec["behavior"])


def set_defaults_v1(hpa: Json) -> None:
    """Complete a decoded autoscaling/v1 object in place. Its default metric comes with the conversion."""
    hpa["spec"].setdefault("minReplicas", 1)


def complete_behavior(behavior: Json) -> None:
    """Give both directions every default that the user did not set, field by field; a policy list counts as one."""
    behavior["scaleUp"] = _rules_up() | behavior.get("scaleUp", {})
    behavior["scaleDown"] = _rules_down() | behavior.get("scaleDown", {})


def cpu_metric(utilization: int) -> Json:
    """Give the metric that autoscaling/v1 knows: average CPU utilization in percent of the requests."""
    target = {"type": "Utilization", "averageUtilization": utilization}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _rules_up() -> Json:
    pods = {"type": "Pods", "value": 4, "periodSeconds": 15}
    percent = {"type": "Percent", "value": 100, "periodSeconds": 15}
    return {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [pods, percent]}


def _rules_down() -> Json:
    # No stabilization window: its absence selects the controller's own setting at every reconcile.
    return {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
