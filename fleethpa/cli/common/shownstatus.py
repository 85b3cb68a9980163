"""The status that an HPA shows: its newest decision's or, where that says none, its row's."""

from __future__ import annotations

import copy
from typing import Any

from msgspec import structs

from schemas.decisions import Decision, MetricDecision
from schemas.kubernetes.gotimes import parse_time_ms
from schemas.kubernetes.quantity import format_milli, parse_quantity
from streams.state.rows import HpaRow


def with_ending(decision: Decision, ending: Decision) -> Decision:
    """A decision with what became of its write."""
    return structs.replace(decision, status=ending.status, outcome=ending.outcome)


def status_of(row: HpaRow | None, decision: Decision | None) -> dict[str, Any]:
    """The status to show: empty where nothing is known."""
    if decision is not None and decision.status:
        return _refreshed(decision.status, decision.metrics)
    if row is None:
        return {}
    if (
        decision is not None
        and decision.id != row.last_decision
        and parse_time_ms(decision.time) < row.last_decision_ms
    ):
        return dict(row.native_status)
    return dict(row.status if row.status is not None else row.native_status)


def _refreshed(status: dict[str, Any], metrics: list[MetricDecision]) -> dict[str, Any]:
    """The status with the values of the newest evaluation: a short record repeats the status of a full one."""
    fresh = copy.deepcopy(status)
    for shown, metric in zip(fresh.get("currentMetrics") or [], metrics, strict=False):
        for part in shown.values():
            current = part.get("current") if isinstance(part, dict) else None
            if isinstance(current, dict):
                _refresh(current, metric)
    return fresh


def _refresh(current: dict[str, Any], metric: MetricDecision) -> None:
    if metric.utilization is not None and "averageUtilization" in current:
        current["averageUtilization"] = metric.utilization
    if metric.value is not None:
        for name in ("averageValue", "value"):
            if name in current:
                current[name] = _like(current[name], metric.value)


def _like(before: str, milli: int) -> str:
    """A milli value as a quantity in the format of the one that it replaces."""
    old = parse_quantity(before)
    return before if old.milli_value() == milli else format_milli(milli, old.format)


def object_of(decision: Decision) -> dict[str, Any]:
    """What a decision alone says of an HPA whose row has not been written yet."""
    return {
        "metadata": {"name": decision.name, "namespace": decision.namespace, "uid": decision.uid},
        "spec": {
            "scaleTargetRef": dict(decision.scale_target_ref),
            "minReplicas": decision.min_replicas,
            "maxReplicas": decision.max_replicas,
        },
    }
