"""Who moved the replicas: the last changes of `spec.replicas` with their writers."""

from typing import Any, NamedTuple

from schemas.kubernetes.gotimes import parse_time_ms
from streams.hpa.normalize import with_rescale
from streams.state.hpastate import Hpa
from streams.state.rows import PendingWrite, ScaleRow

_SKEW_LIMIT_MS = 60_000


def take_native_status(hpa: Hpa, status: dict[str, Any], now_ms: int, follows: bool) -> None:
    """Take over the native object's status.

    Where `follows` (fleethpa writes nothing), a lastScaleTime that moved with the count is a write of the native
    controller and takes the place of an outcome: its scale event is stored. Where fleethpa enforces, the status is
    its own.
    """
    row = hpa.row
    before, after = row.native_status, status.get("lastScaleTime")
    row.see_native(status)
    if not follows or after is None or not shows_a_write(before, status):
        return
    old, new = status.get("currentReplicas", 0), status.get("desiredReplicas", 0)
    if old == new:
        return
    at_ms = _within_its_second(after, now_ms)
    row.native_moves = (*row.native_moves[-7:], (old, new, at_ms))
    if hpa.autoscaler is not None:
        row.history = with_rescale(row.history, hpa.autoscaler, new - old, at_ms)


def shows_a_write(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Return whether lastScaleTime moved or, as its second may hold two writes, only the counts did, by a write."""
    if before.get("lastScaleTime") != after.get("lastScaleTime"):
        return True
    if all(before.get(name, 0) == after.get(name, 0) for name in ("currentReplicas", "desiredReplicas")):
        return False
    conditions = after.get("conditions") or ()
    return any(each["type"] == "AbleToScale" and each.get("reason") == "SucceededRescale" for each in conditions)


def _within_its_second(text: str, now_ms: int) -> int:
    """Return the time of a write: the status has its second, and it is not later than the log record."""
    try:
        second_ms = parse_time_ms(text) // 1000 * 1000
    except ValueError:
        return now_ms
    if not 0 <= now_ms - second_ms <= _SKEW_LIMIT_MS:
        return now_ms
    return min(now_ms, second_ms + 999)


def attribute(hpa: Hpa, scale: ScaleRow | None) -> dict[str, Any]:
    """Return who moved the target since the last evaluation: `decision`, `native`, or `other` with its field
    manager. A decision whose write has no outcome in the log is named with `outcome: lost`.
    """
    row = hpa.row
    if scale is None or scale.error is not None or row.seen_replicas in (None, scale.spec_replicas):
        return {}
    change: dict[str, Any] = {"from": row.seen_replicas, "to": scale.spec_replicas}
    if row.written is not None and row.written[0] == scale.spec_replicas:
        return {**change, "by": "decision", "decision": row.written[1]}
    if lost := _made(row.lost, scale):
        return {**change, "by": "decision", "decision": lost, "outcome": "lost"}
    native = [move for move in row.native_moves if move[1] == scale.spec_replicas]
    if native:
        return {**change, "by": "native", "at": native[-1][2]}
    other: dict[str, Any] = {**change, "by": "other"}
    if scale.manager:
        other["manager"] = scale.manager
        other["at"] = scale.manager_ms
    return other


KEPT_LOST = 4


def with_lost(lost: tuple[tuple[int, str, int], ...], write: PendingWrite) -> tuple[tuple[int, str, int], ...]:
    """Add a write whose outcome never came; the oldest are forgotten."""
    return (*lost[1 - KEPT_LOST :], (write.pending.desired_replicas, write.decision, write.wanted_ms))


def _made(lost: tuple[tuple[int, str, int], ...], scale: ScaleRow) -> str:
    """Return the decision whose write, of which no outcome came, left the scale as it is; empty: none did.

    It asked for these replicas, and fleethpa wrote them about when it was wanted: of several the newest that was wanted
    by then, as the field manager has it, in seconds.
    """
    if scale.manager != FLEETHPA:
        return ""
    near = [
        (wanted_ms, decision)
        for replicas, decision, wanted_ms in lost
        if replicas == scale.spec_replicas and abs(scale.manager_ms - wanted_ms) <= _SKEW_LIMIT_MS
    ]
    if not near:
        return ""
    by_then = [each for each in near if each[0] // 1000 * 1000 <= scale.manager_ms]
    _, decision = by_then[-1] if by_then else near[0]
    return decision


KEPT_MOVES = 8
FLEETHPA, NATIVE, OTHER = "fleethpa", "native HPA", "another hand"
ANOTHER = "another fleethpa"
"""Wrote as field manager `fleethpa` what no decision of this log asked for: a hub with another log, or a write of which
the outcome was lost, and which another one has followed before it was seen.
"""


class Move(NamedTuple):
    """A change of `spec.replicas` that the evaluation at `time_ms` saw. `writer`: fleethpa, the cluster's own HPA
    controller, or another hand, by its field manager where the API showed it.
    """

    time_ms: int
    before: int
    after: int
    writer: str


Stored = tuple[int, int, int, str]
"""A `Move` as a row holds it."""


def moved(time_ms: int, change: dict[str, Any]) -> Move:
    """Read `observed.change` of a decision."""
    by = change["by"]
    writer = FLEETHPA if by == "decision" else NATIVE if by == "native" else _stranger(str(change.get("manager") or ""))
    return Move(time_ms, change["from"], change["to"], writer)


def _stranger(manager: str) -> str:
    """The writer of a change that no decision explains."""
    return ANOTHER if manager == FLEETHPA else manager or OTHER


def with_write(moves: tuple[Stored, ...], time_ms: int, before: int, after: int) -> tuple[Stored, ...]:
    """Add a write of fleethpa's own that was applied; the oldest moves are forgotten."""
    return (*moves[1 - KEPT_MOVES :], Move(time_ms, before, after, FLEETHPA))


def with_observation(
    moves: tuple[Stored, ...], time_ms: int, replicas: int, change: dict[str, Any], written: int | None, manager: str
) -> tuple[Stored, ...]:
    """Add the move that an evaluation sees, where there is one.

    Args:
        replicas: what the scale shows.
        change: `observed.change` of the evaluation, which compares with what the evaluation before saw; may be empty.
        written: what fleethpa wrote since then; that move is known (`with_write`), so that the scale is compared with
            it instead. None: nothing was written.
        manager: who last wrote the scale, where the API shows it.
    """
    if written is None:
        return (*moves[1 - KEPT_MOVES :], moved(time_ms, change)) if change else moves
    if replicas == written:
        return moves
    writer = moved(time_ms, change).writer if change else _stranger(manager)
    return (*moves[1 - KEPT_MOVES :], Move(time_ms, written, replicas, OTHER if writer == FLEETHPA else writer))
