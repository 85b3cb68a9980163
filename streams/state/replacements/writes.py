"""A write that the metrics did not ask for, and an evaluation without the write that it wants."""

from typing import Any

from msgspec import structs

from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import Evaluation, History, Pending, ReconcileResult, new_status


def replaced_by(
    wanted: int, reason: str, evaluation: Evaluation, autoscaler: Autoscaler, status: dict[str, Any]
) -> Evaluation:
    """Return the evaluation with other replicas in place of what the metrics ask for. `status`: before it."""
    pending, result = evaluation.pending, evaluation.result
    if wanted == evaluation.current_replicas:
        if pending is not None:
            result = without_write(pending, status, evaluation.history)
        pending = None
    else:
        pending, result = write_to(wanted, reason, evaluation, autoscaler), None
    return structs.replace(
        evaluation, desired_replicas=wanted, reason=reason, pending=pending, result=result, raised_to_min=False
    )


def write_to(wanted: int, reason: str, evaluation: Evaluation, autoscaler: Autoscaler) -> Pending | None:
    """Return a write of replicas that the metrics did not ask for; None: the evaluation is of no scale."""
    current, pending, result = evaluation.current_replicas, evaluation.pending, evaluation.result
    rules = autoscaler.scale_up if wanted > (current or 0) else autoscaler.scale_down
    longest_ms = rules.longest_ms if rules is not None else None
    if pending is not None:
        return structs.replace(
            pending, desired_replicas=wanted, reason=reason, to_zero=False, longest_period_ms=longest_ms
        )
    if result is None or current is None:
        return None
    return Pending(
        current_replicas=current,
        desired_replicas=wanted,
        reason=reason,
        name=autoscaler.name,
        reference=autoscaler.reference,
        generation=autoscaler.generation,
        to_zero=False,
        conditions=list(result.status.get("conditions") or []),
        current_metrics=result.status.get("currentMetrics"),
        events=(*result.events, *result.events_after_write),
        error=result.error,
        error_label=result.error_label,
        metric_results=result.metric_results,
        longest_period_ms=longest_ms,
    )


def without_write(pending: Pending, status: dict[str, Any], history: History) -> ReconcileResult:
    """Show an evaluation without the write that it wants: the replicas stay. `status`: so far; `history`: to keep."""
    current = pending.current_replicas
    shown = new_status(
        pending.generation, status.get("lastScaleTime"), current, current, pending.current_metrics, pending.conditions
    )
    return ReconcileResult(
        status=shown,
        events=pending.events,
        error=pending.error,
        error_label=pending.error_label,
        metric_results=pending.metric_results,
        history=history,
    )
