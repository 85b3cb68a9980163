"""What an HPA's row shows readers: what its metrics asked for, whether it may have that, and whether it flaps."""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from streams.state.moves import KEPT_MOVES, Move
from streams.state.rows import HpaRow

FLAPPING_WINDOW_MS = 3_600_000
"""An HPA flaps whose last `KEPT_MOVES` changes all happened within this time, if enough of them go back."""
FLAPPING_TURNS = 4
"""How many of these changes must go in the other direction than the one before."""


class Flapping(NamedTuple):
    """An HPA that goes up and down: so many changes within so long, and how many of them undo the one before."""

    changes: int
    turns: int
    span_ms: int

    @property
    def per_hour(self) -> int:
        """At this pace."""
        return round((self.changes - 1) * 3_600_000 / max(1, self.span_ms))


def wants_of(row: HpaRow) -> int | None:
    """Return the replicas that the metrics asked for at the last evaluation, before any limit; None: it had no answer.

    It is the recommendation of that evaluation: upstream keeps them for the stabilization windows.
    """
    known = row.history.recommendations
    # The first evaluation of an HPA begins with the replicas that the scale shows; what its metrics ask for follows.
    found = [replicas for replicas, time_ms in known if time_ms == row.evaluated_ms]
    return found[-1] if found and len(known) > 1 else None


def is_saturated(wants: int | None, has: int | None, most: int) -> bool:
    """Whether an HPA has all that maxReplicas allows, and its metrics ask for more."""
    return wants is not None and has is not None and has >= most < wants


def is_disabled(spec: Mapping[str, Any], wants: int | None, has: int | None) -> str:
    """Return the field of `spec.behavior` that forbids the change which the metrics ask for; empty: none does."""
    if wants is None or has is None or wants == has:
        return ""
    direction = "scaleUp" if wants > has else "scaleDown"
    rules = (spec.get("behavior") or {}).get(direction) or {}
    return direction if rules.get("selectPolicy") == "Disabled" else ""


def flapping(moves: Iterable[tuple[int, int, int, str]], now_ms: int) -> Flapping | None:
    """Return how an HPA goes up and down now; None: it does not."""
    recent = [move for each in moves if now_ms - (move := Move(*each)).time_ms <= FLAPPING_WINDOW_MS]
    steps = [move.after - move.before for move in recent]
    turns = sum(before * after < 0 for before, after in pairwise(steps))
    if len(recent) < KEPT_MOVES or turns < FLAPPING_TURNS:
        return None
    return Flapping(len(recent), turns, recent[-1].time_ms - recent[0].time_ms)
