"""Who changed an HPA's target: the native controller, another writer, or fleethpa's own last write."""

from typing import Any

from schemas.kubernetes.gotimes import parse_time_ms
from streams.hpa.scaleevents import store_scale_event
from streams.state.hpastate import Hpa
from streams.state.rows import ScaleRow

_SKEW_LIMIT_MS = 60_000


def take_native_status(hpa: Hpa, status: dict[str, Any], now_ms: int, follows: bool) -> None:
    """Take over the native object's status.

    Where `follows` (fleethpa writes nothing), a lastScaleTime that moved with the count is a write of the native
    controller and takes the place of an outcome: its scale event is stored. Where fleethpa enforces, the status is
    its own.
    """
    row = hpa.row
    before, after = row.native_status, status.get("lastScaleTime")
    row.native_status = status
    if not follows or after is None or not tells_of_a_write(before, status):
        return
    old, new = status.get("currentReplicas", 0), status.get("desiredReplicas", 0)
    if old == new:
        return
    at_ms = _within_its_second(after, now_ms)
    row.native_moves = (*row.native_moves[-7:], (old, new, at_ms))
    autoscaler = hpa.autoscaler
    if autoscaler is None:
        return
    rules = autoscaler.scale_up if new > old else autoscaler.scale_down
    if rules is not None:
        row.history = store_scale_event(row.history, new - old, rules.longest_ms, at_ms)


def tells_of_a_write(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Tell whether lastScaleTime moved or, as its second may hold two writes, only the counts did, by a write."""
    if before.get("lastScaleTime") != after.get("lastScaleTime"):
        return True
    if all(before.get(name, 0) == after.get(name, 0) for name in ("currentReplicas", "desiredReplicas")):
        return False
    conditions = after.get("conditions") or ()
    return any(each["type"] == "AbleToScale" and each.get("reason") == "SucceededRescale" for each in conditions)


def _within_its_second(text: str, now_ms: int) -> int:
    """Give the time of a write: the status has its second, and it is not later than the log record."""
    try:
        second_ms = parse_time_ms(text) // 1000 * 1000
    except ValueError:
        return now_ms
    if not 0 <= now_ms - second_ms <= _SKEW_LIMIT_MS:
        return now_ms
    return min(now_ms, second_ms + 999)


def attribute(hpa: Hpa, scale: ScaleRow | None) -> dict[str, Any]:
    """Say who moved the target since the last evaluation: `decision`, `native`, or `other` with its field manager."""
    row = hpa.row
    if scale is None or scale.error is not None or row.seen_replicas in (None, scale.spec_replicas):
        return {}
    change: dict[str, Any] = {"from": row.seen_replicas, "to": scale.spec_replicas}
    if row.written is not None and row.written[0] == scale.spec_replicas:
        return {**change, "by": "decision", "decision": row.written[1]}
    native = [move for move in row.native_moves if move[1] == scale.spec_replicas]
    if native:
        return {**change, "by": "native", "at": native[-1][2]}
    other: dict[str, Any] = {**change, "by": "other"}
    if scale.manager:
        other["manager"] = scale.manager
        other["at"] = scale.manager_ms
    return other
