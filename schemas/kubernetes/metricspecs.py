"""The metrics of a spec or a status of autoscaling/v2, as plain JSON."""

from collections.abc import Mapping
from typing import Any

from schemas.kubernetes.shape import Json


def metric_source(metric: Mapping[str, Any]) -> Json:
    """Return the member of a metric (of a spec or a status) that its type names; empty where there is none."""
    kind = metric.get("type") or ""
    found: Json = metric.get(kind[:1].lower() + kind[1:]) or {}
    return found


def metric_name(metric: Mapping[str, Any]) -> str:
    """Return the name of a metric (of a spec or a status): its resource's, else its own; empty for one that failed."""
    source = metric_source(metric)
    return str(source.get("name") or (source.get("metric") or {}).get("name", ""))
