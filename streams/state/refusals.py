"""The results of evaluations whose write is not made: held, refused, or of an HPA that is ignored.

A refusal is shown in the HPA's own status and Events. Upstream has no such condition.
"""

from typing import Any

from msgspec import structs

from schemas import limits
from schemas.codec import encode
from schemas.decisions import REFUSAL_REASON
from streams.hpa.conditions import Conditions
from streams.hpa.evaluation import Evaluation, History, Pending, ReconcileResult
from streams.hpa.statuses import new_status

_LARGE_CONDITIONS = limits.DECISION.most // 4
"""JSON of conditions that an ignored HPA does not keep: the decision that shows it as ignored must be small."""


def ignored_evaluation(
    status: dict[str, Any], history: History, generation: int, current: int | None, reason: str
) -> Evaluation:
    """Give an evaluation that decides nothing. `status`: so far; `current`: replicas, None: the scale is not known."""
    conditions = status.get("conditions") or []
    kept = conditions if len(encode(conditions)) <= _LARGE_CONDITIONS else []
    replicas = status.get("currentReplicas", 0) if current is None else current
    shown = new_status(generation, status.get("lastScaleTime"), replicas, replicas, None, kept)
    result = ReconcileResult(status=shown, before=None, history=history)
    return Evaluation(path="ignored", history=history, current_replicas=current, reason=reason, result=result)


def show_refusal(
    result: ReconcileResult, before: dict[str, Any], text: str, now_ms: int, reason: str = REFUSAL_REASON
) -> ReconcileResult:
    """Give a result whose condition AbleToScale is False, with an Event; `before` is the status so far.

    The condition's transition time stays while it is False for the same HPA: the evaluation has set it True in between.
    """
    own = [condition for condition in before.get("conditions") or () if condition["type"] == "AbleToScale"]
    conditions = Conditions(result.status.get("conditions"), now_ms)
    if own:
        conditions.items = [own[0] if each["type"] == "AbleToScale" else each for each in conditions.items]
    conditions.set("AbleToScale", "False", reason, text)
    return structs.replace(
        result,
        status={**result.status, "conditions": conditions.items},
        before=None,
        events=(*result.events, ("Warning", reason, text)),
    )


def without_write(pending: Pending, status: dict[str, Any], history: History) -> ReconcileResult:
    """Show an evaluation without the write that it wants: the replicas stay. `status`: so far; `history`: to keep."""
    current = pending.current_replicas
    shown = new_status(
        pending.generation,
        status.get("lastScaleTime"),
        current,
        current,
        pending.current_metrics,
        pending.conditions,
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
