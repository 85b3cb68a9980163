"""The conditions of an HPA's status, and how normalization shows in them. Source: upstream `setConditionInList`."""

from typing import Any, Final

from schemas.kubernetes.gotimes import rfc3339_seconds
from streams.hpa.evaluation import Normalization
from streams.hpa.normalize import WITHIN_RANGE


class Conditions:
    """A working copy of the condition list. Items are shared with the old status and never changed in place."""

    __slots__ = ("_now", "_now_ms", "items")

    def __init__(self, items: list[dict[str, Any]] | None, now_ms: int) -> None:
        self.items = list(items or ())
        self._now_ms = now_ms
        self._now = ""
        """The same as text, once a transition needs it."""

    def set(self, kind: str, status: str, reason: str, message: str, *, again: bool = False) -> None:
        """Set one condition: in its place or at the end; its transition time moves only when `status` changes.

        Args:
            again: upstream has set it before with another reason, so that its members come in the order of a changed
                one.
        """
        for index, old in enumerate(self.items):
            if old["type"] == kind:
                is_same = (
                    old["status"] == status and old.get("reason", "") == reason and old.get("message", "") == message
                )
                if again or not is_same:
                    self.items[index] = self._changed(old, status, reason, message)
                return
        self._add(kind, status, reason, message)

    def _add(self, kind: str, status: str, reason: str, message: str) -> None:
        since = self._now_text() if status else None
        if reason and message:
            self.items.append(
                {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}
            )
        else:
            fresh = {"type": kind, "status": status, "lastTransitionTime": since}
            self.items.append(_explained(fresh, reason, message))

    def remove(self, kind: str) -> None:
        """Remove one condition, if it is there."""
        self.items = [item for item in self.items if item["type"] != kind]

    def is_true(self, kind: str) -> bool:
        """Tell whether the condition exists with status True."""
        return any(item["type"] == kind and item["status"] == "True" for item in self.items)

    def _now_text(self) -> str:
        if not self._now:
            self._now = rfc3339_seconds(self._now_ms)
        return self._now

    def _changed(self, old: dict[str, Any], status: str, reason: str, message: str) -> dict[str, Any]:
        changed = {**old, "status": status}
        if old["status"] != status:
            changed["lastTransitionTime"] = self._now_text()
        changed.pop("reason", None)
        changed.pop("message", None)
        return _explained(changed, reason, message)


def _explained(condition: dict[str, Any], reason: str, message: str) -> dict[str, Any]:
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


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
        conditions.set("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size", again=True)
        return
    up = not normalization.legacy and proposal >= current
    why = "ScaleUpStabilized" if up else "ScaleDownStabilized"
    conditions.set("AbleToScale", "True", why, _STABILIZED_MESSAGES[why], again=True)


def set_limited(conditions: Conditions, normalization: Normalization) -> None:
    """Say in ScalingLimited which limit changed the stabilized number, if any did."""
    if normalization.limited == normalization.stabilized:
        conditions.set("ScalingLimited", "False", WITHIN_RANGE, _LIMITED_MESSAGES[WITHIN_RANGE])
        return
    conditions.set("ScalingLimited", "True", normalization.bound, _LIMITED_MESSAGES[normalization.bound])
