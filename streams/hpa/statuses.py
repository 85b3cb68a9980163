"""An HPA's status in the API's JSON form: how it is built, and when it counts as changed."""

from typing import Any

from schemas.kubernetes.hpa import semantically_equal_status

Status = dict[str, Any]


def new_status(
    generation: int,
    last_scale_time: str | None,
    current: int,
    desired: int,
    metrics: list[dict[str, Any]] | None,
    conditions: list[dict[str, Any]],
) -> Status:
    """Build a status as the API's JSON has it: zero currentReplicas left out, currentMetrics null without metrics."""
    status: Status = {"observedGeneration": generation}
    if last_scale_time is not None:
        status["lastScaleTime"] = last_scale_time
    if current:
        status["currentReplicas"] = current
    status["desiredReplicas"] = desired
    status["currentMetrics"] = metrics
    if conditions:
        status["conditions"] = conditions
    return status


def same_status(old: Status, new: Status) -> bool:
    """Tell whether a write would change nothing: quantities by value, times by instant, null equal to empty."""
    if old == new:
        return True
    if old.get("desiredReplicas", 0) != new.get("desiredReplicas", 0):
        return False
    return semantically_equal_status(old, new)
