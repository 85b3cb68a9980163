"""Replicas to go to while an HPA's metrics are lost: the annotation `fleethpa.io/fallback`, as KEDA's `fallback`."""

import re
from functools import lru_cache
from typing import Final

from msgspec import Struct, structs

from schemas.decisions import Step
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import Evaluation, Pending

ANNOTATION: Final = "fleethpa.io/fallback"
CONSTRAINT: Final = "Fallback"
_FORM: Final = re.compile(r"failureThreshold=([1-9][0-9]{0,5}),\s*replicas=([0-9]{1,9})", re.ASCII)


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
    rules = autoscaler.scale_up if wanted > current else autoscaler.scale_down
    pending = Pending(
        current_replicas=current,
        desired_replicas=wanted,
        reason=f"fallback, as the metrics have failed {fallback.failure_threshold} times in a row",
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
        longest_period_ms=rules.longest_ms if rules is not None else None,
    )
    changed = structs.replace(evaluation, desired_replicas=wanted, reason=pending.reason, result=None, pending=pending)
    return changed, step
