"""An override: replicas that a person wants for a while, in place of what the metrics ask for.

It is kept with the pauses of the HPA, ends by log time, by a command, or when the HPA's own mode is no longer enforce,
and stays within minReplicas and maxReplicas. fleethpa's other limits hold or cut its write as any other. The metrics
are evaluated on, so that windows are right when it ends. It does not apply where upstream scales nothing at all: at 0
replicas, or while the scale cannot be read.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, structs

from schemas.decisions import Step
from schemas.inforce import OVERRIDE, is_in_force
from schemas.kubernetes.gotimes import rfc3339_seconds
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import Evaluation, History, Pending, ReconcileResult, new_status
from streams.state.rows import Pause

CONSTRAINT: Final = "Override"


class Override(Struct, frozen=True, gc=False):
    """What is wanted, until when (Unix milliseconds), by whom and why."""

    replicas: int
    until_ms: int
    author: str = ""
    reason: str = ""

    @property
    def text(self) -> str:
        """It in words."""
        by = f" by {self.author}" if self.author else ""
        why = f": {self.reason}" if self.reason else ""
        return f"override to {self.replicas} replicas{by} until {rfc3339_seconds(self.until_ms)}{why}"


def override_in_force(pauses: Mapping[str, Pause], now_ms: int) -> Override | None:
    """Give the override among the pauses of an HPA; None: there is none now."""
    found = pauses.get(OVERRIDE)
    if found is None or not is_in_force(found.until_ms, now_ms):
        return None
    return Override(found.replicas, found.until_ms, found.author, found.reason)


def with_override(
    evaluation: Evaluation, autoscaler: Autoscaler, override: Override | None, status: dict[str, Any]
) -> tuple[Evaluation, Step | None]:
    """Give the evaluation with the override's replicas in place of its own, and the step that says so.

    Args:
        status: the HPA's status before the evaluation.
    """
    current = evaluation.current_replicas or 0
    if override is None or not current:
        return evaluation, None
    wanted = max(autoscaler.min_replicas, min(autoscaler.max_replicas, override.replicas))
    asked = current if evaluation.desired_replicas is None else evaluation.desired_replicas
    detail = {"replicas": override.replicas, "author": override.author}
    step = Step(step="override", in_=asked, out=wanted, detail=detail, until=override.until_ms)
    return replaced_by(wanted, override.text, evaluation, autoscaler, status), step


def replaced_by(
    wanted: int, reason: str, evaluation: Evaluation, autoscaler: Autoscaler, status: dict[str, Any]
) -> Evaluation:
    """Give the evaluation with other replicas in place of what the metrics ask for. `status`: before the evaluation."""
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
    """Give a write of replicas that the metrics did not ask for; None: the evaluation is of no scale."""
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
        before=None,
        events=pending.events,
        error=pending.error,
        error_label=pending.error_label,
        metric_results=pending.metric_results,
        history=history,
    )
