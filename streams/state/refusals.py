"""How an HPA's own status and Events say that enforcing it is refused. Upstream has no such condition."""

from typing import Any

from msgspec import structs

from schemas.decisions import REFUSAL_REASON
from streams.hpa.conditions import Conditions
from streams.hpa.evaluation import ReconcileResult


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
