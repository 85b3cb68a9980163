"""Current values that cannot be: what upstream's arithmetic leaves where there was nothing to divide by.

An average over 0 pods is the smallest integer. The status keeps it, as upstream's does; tables say `<unknown>`.
"""

from __future__ import annotations

from typing import Final

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
    shown = [_known(metric) for metric in metrics]
    return hpa if shown == metrics else hpa | {"status": status | {"currentMetrics": shown}}


def _known(metric: Json) -> Json:
    sources = {name: value for name, value in metric.items() if isinstance(value, dict)}
    wrong = [name for name, source in sources.items() if _is_impossible(source.get("current") or {})]
    return {name: value for name, value in metric.items() if name not in wrong}


def _is_impossible(current: Json) -> bool:
    return any(current.get(name) == value for name, value in _IMPOSSIBLE.items())
