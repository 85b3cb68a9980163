"""The metrics of a spec or a status of autoscaling/v2, as plain JSON."""

from collections.abc import Mapping
from typing import Any

from schemas.kubernetes.shape import Json, JsonView
from schemas.limits import TEXT, shortened


def metric_source(metric: Mapping[str, Any]) -> Json:
    """Return the member of a metric (of a spec or a status) that its type names; empty where there is none."""
    kind = metric.get("type") or ""
    source: Json = metric.get(kind[:1].lower() + kind[1:]) or {}
    return source


def metric_name(metric: Mapping[str, Any]) -> str:
    """Return the name of a metric (of a spec or a status): its resource's, else its own; empty for one that failed."""
    source = metric_source(metric)
    return str(source.get("name") or (source.get("metric") or {}).get("name", ""))


def no_such_metric(name: str, spec: JsonView) -> str:
    """Return that a spec has no metric of this name, and which it has; empty: it has one."""
    names = sorted({known for each in spec.get("metrics") or () if (known := metric_name(each))})
    if name in names:
        return ""
    return f"the spec has no metric {shortened(name, TEXT)}; it has {', '.join(names) or 'none'}"
