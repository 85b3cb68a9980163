"""The results of evaluations whose write is not made: held, or refused.

A refusal is shown in the HPA's own status and Events. Upstream has no such condition.
"""

from typing import Any

from msgspec import structs

from schemas.decisions import REFUSAL_REASON
from streams.hpa.conditions import Conditions
from streams.hpa.evaluation import History, Pending, ReconcileResult
from streams.hpa.statuses import new_status


def show_refusal(result: ReconcileResult, before: dict[str, Any], text: str, now_ms: int) -> ReconcileResult:
    """Give a result whose condition AbleToScale is False, with an Event; `before` is the status so far.

    The condition's transition time stays while it is False for the same HPA: the evaluation has set it True in between.
    """
    own = [condition for condition in before.get("conditions") or () if condition["type"] == "AbleToScale"]
    conditions = Conditions(result.status.get("conditions"), now_ms)
    if own:
        conditions.items = [own[0] if each["type"] == "AbleToScale" else each for each in conditions.items]
    conditions.set("AbleToScale", "False", REFUSAL_REASON, text)
    return structs.replace(
        result,
        status={**result.status, "conditions": conditions.items},
        before=None,
        events=(*result.events, ("Warning", REFUSAL_REASON, text)),
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
