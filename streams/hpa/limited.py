"""How normalization shows in the conditions AbleToScale and ScalingLimited."""

from typing import Final

from streams.hpa.conditions import Conditions
from streams.hpa.evaluation import Normalization
from streams.hpa.normalize import WITHIN_RANGE

_LIMITED_MESSAGES: Final = {
    WITHIN_RANGE: "the desired count is within the acceptable range",
    "TooManyReplicas": "the desired replica count is more than the maximum replica count",
    "TooFewReplicas": "the desired replica count is less than the minimum replica count",
    "ScaleUpLimit": "the desired replica count is increasing faster than the maximum scale rate",
    "ScaleDownLimit": "the desired replica count is decreasing faster than the maximum scale rate",
}
_STABILIZED_MESSAGES: Final = {
    "ScaleUpStabilized": "recent recommendations were lower than current one,"
    " applying the lowest recent recommendation",
    "ScaleDownStabilized": "recent recommendations were higher than current one,"
    " applying the highest recent recommendation",
}


def set_stabilized(conditions: Conditions, current: int, normalization: Normalization) -> None:
    """Say in AbleToScale whether recent recommendations changed the number, and in which direction.

    Upstream has set it before, when it read the scale; that text shows only where no number is found.
    """
    proposal = normalization.desired
    if normalization.stabilized == proposal:
        conditions.set_anew("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size")
        return
    up = not normalization.legacy and proposal >= current
    why = "ScaleUpStabilized" if up else "ScaleDownStabilized"
    conditions.set_anew("AbleToScale", "True", why, _STABILIZED_MESSAGES[why])


def set_limited(conditions: Conditions, normalization: Normalization) -> None:
    """Say in ScalingLimited which limit changed the stabilized number, if any did."""
    if normalization.limited == normalization.stabilized:
        conditions.set("ScalingLimited", "False", WITHIN_RANGE, _LIMITED_MESSAGES[WITHIN_RANGE])
        return
    conditions.set("ScalingLimited", "True", normalization.bound, _LIMITED_MESSAGES[normalization.bound])
