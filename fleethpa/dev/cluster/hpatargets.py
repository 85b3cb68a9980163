"""The TARGETS column of `kubectl get hpa`. Pure.

Source: formatHPAMetrics in pkg/printers/internalversion/printers.go v1.37.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

Document = dict[str, Any]

_UNKNOWN: Final = "<unknown>"
_SHOWN: Final = 2
"""Metrics that are spelled out; the others are only counted."""


def targets(hpa: Document) -> str:
    """Return current value and target of each metric, e.g. `cpu: 45%/80%, 12/30 (avg)`."""
    specs = hpa["spec"].get("metrics") or []
    statuses = (hpa.get("status") or {}).get("currentMetrics") or []
    if not specs:
        return "<none>"
    texts = [_metric(spec, statuses[n] if n < len(statuses) else {}) for n, spec in enumerate(specs[:_SHOWN])]
    more = f" + {len(specs) - _SHOWN} more..." if len(specs) > _SHOWN else ""
    return ", ".join(texts) + more


def _metric(spec: Document, status: Document) -> str:
    write = _WRITERS.get(spec["type"])
    if write is None:
        return "<unknown type>"
    member, form = write
    source = spec[member]
    current = (status.get(member) or {}).get("current") or {}
    return form(source, source["target"], current)


def _pods(source: Document, target: Document, current: Document) -> str:
    return f"{current.get('averageValue') or _UNKNOWN}/{target['averageValue']}"


def _total(source: Document, target: Document, current: Document) -> str:
    """External and Object metrics: by pod where an average is the target, else as a whole."""
    if target.get("averageValue") is not None:
        return f"{current.get('averageValue') or _UNKNOWN}/{target['averageValue']} (avg)"
    return f"{current.get('value') or _UNKNOWN}/{target.get('value')}"


def _resource(source: Document, target: Document, current: Document) -> str:
    if target.get("averageValue") is not None:
        return f"{source['name']}: {current.get('averageValue') or _UNKNOWN}/{target['averageValue']}"
    percent = current.get("averageUtilization")
    wanted = target.get("averageUtilization")
    shown = _UNKNOWN if percent is None else f"{percent}%"
    return f"{source['name']}: {shown}/{'<auto>' if wanted is None else f'{wanted}%'}"


_WRITERS: Final[dict[str, tuple[str, Callable[[Document, Document, Document], str]]]] = {
    "External": ("external", _total),
    "Object": ("object", _total),
    "Pods": ("pods", _pods),
    "Resource": ("resource", _resource),
    "ContainerResource": ("containerResource", _resource),
}
