"""Replicas in place of what the metrics ask for: a person's override for a while, or the fallback for lost metrics.

An override is kept with the pauses of the HPA, ends by log time, by a command, or when the HPA's own mode is no longer
enforce, and stays within minReplicas and maxReplicas. fleethpa's other limits hold or cut its write as any other. The
metrics are evaluated on, so that windows are right when it ends. It does not apply where upstream scales nothing at
all: at 0 replicas, or while the scale cannot be read. The fallback is what the annotation `fleethpa.io/fallback` names,
as KEDA's.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct, structs

from schemas.decisions import Step
from schemas.inforce import OVERRIDE, is_in_force
from schemas.kubernetes.gotimes import rfc3339_seconds
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import Evaluation, History, Pending, ReconcileResult, new_status
from streams.state.rows import Pause

FALLBACK_ANNOTATION: Final = "fleethpa.io/fallback"
FALLBACK: Final = "Fallback"
_FORM: Final = re.compile(r"failureThreshold=([1-9][0-9]{0,5}),\s*replicas=([0-9]{1,9})", re.ASCII)
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
        events=pending.events,
        error=pending.error,
        error_label=pending.error_label,
        metric_results=pending.metric_results,
        history=history,
    )


# --- the fallback -----------------------------------------------------------------------------------------------------


class Fallback(Struct, frozen=True, gc=False):
    """`failure_threshold`: failed evaluations in a row (one per sync period); `replicas`: what to scale to then."""

    failure_threshold: int
    replicas: int


@lru_cache(maxsize=1024)
def parse_fallback(text: str) -> Fallback | None:
    """Read the annotation; None: it is empty or cannot be read, and there is no fallback then."""
    form = _FORM.fullmatch(text.strip())
    return Fallback(int(form[1]), int(form[2])) if form is not None else None


def is_lost(evaluation: Evaluation) -> bool:
    """Tell whether no metric gave a number, or one is missing and the others would scale down."""
    return evaluation.path == "metricsFailed"


def with_fallback(
    evaluation: Evaluation, autoscaler: Autoscaler, fallback: Fallback | None, failures: int
) -> tuple[Evaluation, Step | None]:
    """Give the evaluation with a write to the fallback's replicas, and its step; unchanged where it does not apply.

    Args:
        failures: evaluations in a row that failed, this one included.
    """
    result = evaluation.result
    if fallback is None or result is None or not is_lost(evaluation) or failures < fallback.failure_threshold:
        return evaluation, None
    current = evaluation.current_replicas or 0
    wanted = max(autoscaler.min_replicas, min(autoscaler.max_replicas, fallback.replicas))
    detail = {"failures": failures, "failureThreshold": fallback.failure_threshold}
    step = Step(step="fallback", in_=current, out=wanted, detail=detail)
    if wanted == current or not current:
        return evaluation, step if current else None
    reason = f"fallback, as the metrics have failed {fallback.failure_threshold} times in a row"
    pending = write_to(wanted, reason, evaluation, autoscaler)
    changed = structs.replace(evaluation, desired_replicas=wanted, reason=reason, result=None, pending=pending)
    return changed, step
