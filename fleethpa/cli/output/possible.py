"""Current values that cannot be: what upstream's arithmetic leaves where there was nothing to divide by.

An average over 0 pods is the smallest integer. The status keeps it, as upstream's does; tables say `<unknown>`.
"""

from __future__ import annotations

from typing import Any, Final

from schemas.kubernetes.jsontypes import Json

_IMPOSSIBLE: Final = {
    "averageValue": f"{-(2**63)}m",
    "value": f"{-(2**63)}m",
    "averageUtilization": -(2**31),
}


def possible(hpa: Json) -> Json:
    """The HPA for people to read: a current metric with a value that cannot be has none."""
    status = hpa.get("status") or {}
    metrics = status.get("currentMetrics") or []
    if not any(_is_impossible(source) for metric in metrics for source in metric.values()):
        return hpa
    shown = [{name: source for name, source in metric.items() if not _is_impossible(source)} for metric in metrics]
    return hpa | {"status": status | {"currentMetrics": shown}}


def _is_impossible(source: Any) -> bool:
    current = source.get("current") if isinstance(source, dict) else None
    return current is not None and any(current.get(name) == value for name, value in _IMPOSSIBLE.items())
