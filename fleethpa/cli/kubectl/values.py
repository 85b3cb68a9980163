"""Values of HPAs and of their metrics as both the table and the description show them.

Source: pkg/printers/internalversion/printers.go v1.37.1; k8s.io/kubectl/pkg/describe/describe.go v0.37.1.
"""

from __future__ import annotations

from fleethpa.cli.kubectl.ages import UNKNOWN
from schemas.kubernetes.jsontypes import JsonView

METRIC_TYPES = ("Resource", "ContainerResource", "Pods", "Object", "External")


def reference(hpa: JsonView) -> str:
    """Give the REFERENCE cell: kind and name of the scale target."""
    target = hpa["spec"].get("scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def min_replicas(spec: JsonView) -> str:
    """Give minReplicas, `<unset>` without one."""
    replicas = spec.get("minReplicas")
    return "<unset>" if replicas is None else str(replicas)


def current_metric(hpa: JsonView, index: int) -> JsonView:
    """Give the current metric in a metric's place; upstream pairs them by place alone."""
    metrics = (hpa.get("status") or {}).get("currentMetrics") or ()
    return metrics[index] if index < len(metrics) else {}


def source_of(metric: JsonView, kind: str) -> tuple[JsonView | None, str]:
    """Give the part of a metric (or of its status) that its type names, and the name of that part."""
    name = kind[:1].lower() + kind[1:]
    return metric.get(name), name


def current_of(status: JsonView, name: str) -> JsonView | None:
    """Give the current values of a metric; None: its status is not known."""
    source = status.get(name)
    return None if source is None else source.get("current") or {}


def quantity(current: JsonView | None, name: str) -> str:
    """Show a quantity of a current metric, `<nil>` where the metric is there without it, as upstream prints."""
    return UNKNOWN if current is None else nil(current, name)


def known(current: JsonView | None, name: str) -> str:
    """Show a quantity of a current metric, `<unknown>` where it is not there."""
    value = None if current is None else current.get(name)
    return UNKNOWN if value is None else str(value)


def nil(values: JsonView, name: str) -> str:
    """Show a value, `<nil>` where it is not there."""
    value = values.get(name)
    return "<nil>" if value is None else str(value)


def percent(current: JsonView | None) -> str:
    """Show the current utilization."""
    utilization = None if current is None else current.get("averageUtilization")
    return UNKNOWN if utilization is None else f"{utilization}%"


def target_percent(target: JsonView) -> str:
    """Show the target utilization."""
    utilization = target.get("averageUtilization")
    return "<auto>" if utilization is None else f"{utilization}%"


def escape(text: str) -> str:
    """Make control sequences visible, as kubectl does, so that nothing moves the cursor."""
    return text.replace("\x1b", "^[").replace("\r", "\\r")
