"""The second step of a reconcile: what a wanted write of /scale became, and what the HPA shows then.

Source: upstream `reconcileAutoscaler` from the scale update on, and `updateStatus`, v1.37.1.
"""

from typing import Any

from schemas.kubernetes.gotimes import rfc3339_seconds
from streams.hpa.evaluation import History, Pending, ReconcileResult, ScaleFailed, ScaleOutcome, new_status
from streams.hpa.metrics import action
from streams.hpa.normalize import store_scale_event
from streams.hpa.rules import CURRENT, Rules
from streams.hpa.status import Conditions


def complete(
    pending: Pending,
    status: dict[str, Any],
    history: History,
    outcome: ScaleOutcome,
    now_ms: int,
    event_ms: int | None = None,
    rules: Rules = CURRENT,
) -> ReconcileResult:
    """End a reconcile whose write was wanted.

    Args:
        pending: what `decide` asked for.
        status: the stored status that `decide` was given.
        history: the evaluation's history.
        outcome: what became of the write.
        now_ms: when that is known: the time of lastScaleTime and of the conditions' transitions.
        event_ms: time of the scale event; None: `now_ms`, as upstream, where evaluation and write are one moment.
        rules: those of the evaluation.
    """
    conditions = Conditions(pending.conditions, now_ms)
    if isinstance(outcome, ScaleFailed):
        return _failed(pending, status, history, conditions, outcome.error, rules)
    desired = pending.desired_replicas
    _set_rescaled(conditions, desired)
    if rules.zero_is_pause:
        _set_scaled_to_zero(conditions, pending.to_zero, rules)
    new = new_status(
        pending.generation,
        rfc3339_seconds(now_ms),
        pending.current_replicas,
        desired,
        pending.current_metrics,
        conditions.items,
    )
    rescaled = ("Normal", "SuccessfulRescale", f"New size: {desired}; reason: {pending.reason}")
    return ReconcileResult(
        status=new,
        before=status,
        events=(*pending.events, rescaled),
        error=pending.error,
        error_label=pending.error_label,
        action=action(desired, pending.current_replicas),
        metric_results=pending.metric_results,
        desired_gauge=desired if rules.desired_gauge else None,
        history=_with_change(history, pending, now_ms if event_ms is None else event_ms),
        final=True,
    )


def _with_change(history: History, pending: Pending, now_ms: int) -> History:
    """Store the scale event; an HPA without `behavior` needs none."""
    if pending.longest_period_ms is None:
        return history
    change = pending.desired_replicas - pending.current_replicas
    return store_scale_event(history, change, pending.longest_period_ms, now_ms)


def _failed(
    pending: Pending, status: dict[str, Any], history: History, conditions: Conditions, error: str, rules: Rules
) -> ReconcileResult:
    """Nothing was scaled: no scale event, lastScaleTime and desiredReplicas stay."""
    message = f"the HPA controller was unable to update the target scale: {error}"
    conditions.set("AbleToScale", "False", "FailedUpdateScale", message)
    new = new_status(
        pending.generation,
        status.get("lastScaleTime"),
        pending.current_replicas,
        status.get("desiredReplicas", 0),
        pending.current_metrics if rules.failure_shows_metrics else status.get("currentMetrics"),
        conditions.items,
    )
    text = f"New size: {pending.desired_replicas}; reason: {pending.reason}; error: {error}"
    return ReconcileResult(
        status=new,
        before=status,
        events=(*pending.events, ("Warning", "FailedRescale", text)),
        error=f"failed to rescale {pending.reference}: {error}",
        error_label="internal",
        metric_results=pending.metric_results,
        history=history,
    )


def _set_rescaled(conditions: Conditions, desired: int) -> None:
    message = f"the HPA controller was able to update the target scale to {desired}"
    conditions.set("AbleToScale", "True", "SucceededRescale", message)


def _set_scaled_to_zero(conditions: Conditions, to_zero: bool, rules: Rules) -> None:
    if not rules.scale_to_zero:
        conditions.remove("ScaledToZero")
    elif to_zero:
        message = "the HPA controller scaled the workload to zero"
        conditions.set("ScaledToZero", "True", "ScaledToZero", message)
    else:
        message = "the HPA controller did not scale the workload to zero"
        conditions.set("ScaledToZero", "False", "NotScaledToZero", message)
