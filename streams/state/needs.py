"""What an HPA needs and does not get, and whether it goes up and down: its row and its decisions show it to readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streams.state.moves import KEPT_MOVES, Move, Stored

if TYPE_CHECKING:
    from streams.hpa.autoscaler import Autoscaler
    from streams.hpa.evaluation import Evaluation, MetricEvaluation

SATURATED, CONTENT, BLOCKED, DISABLED, FLAPPING = "saturated", "content", "blocked", "disabled", "flapping"
STATES: Final = (SATURATED, CONTENT, BLOCKED, DISABLED, FLAPPING)
"""At maxReplicas, and the metrics ask for more, or do not; the change that they ask for is blocked by pods without
metrics, or disabled by the spec; the replicas go up and down.
"""
FLAPPING_WINDOW_MS = 3_600_000
"""An HPA flaps whose last `KEPT_MOVES` changes all happened within this time, if enough of them go back."""
FLAPPING_TURNS = 4
"""How many of these changes must go in the other direction than the one before."""


class Blocked(NamedTuple):
    """A metric outside its tolerance that changes nothing, since pods without metrics could reverse the result.

    `metric`: its place in the spec. `percent`: usage over target as measured, in percent. `missing` and `not_ready`:
    pods without a metric and pods that are not ready, as many as counted.
    """

    metric: int
    percent: int
    missing: int
    not_ready: int


def blocked(
    metrics: Iterable[MetricEvaluation], current: int, band: Callable[[], tuple[float, float]]
) -> tuple[int, ...]:
    """Return the `Blocked` metric that is furthest from its target, as a row keeps it; () if there is none.

    Where another metric changes the count, none is. `band`: the ratios that are within tolerance.
    """
    metrics_blocked: list[Blocked] = []
    for place, each in enumerate(metrics):
        calculation = each.calculation
        if calculation is None:
            continue
        if calculation.proposal > current:
            return ()
        if calculation.kept and calculation.missing:
            low, high = band()
            if not low <= calculation.ratio <= high:
                metrics_blocked.append(
                    Blocked(place, _whole_percent(calculation.ratio), calculation.missing, calculation.not_ready)
                )
    metrics_blocked.sort(key=lambda each: abs(each.percent - 100))
    return tuple(metrics_blocked[-1]) if metrics_blocked else ()


def _whole_percent(ratio: float) -> int:
    return round(100 * min(max(ratio, -1e6), 1e6))


class Flapping(NamedTuple):
    """An HPA that goes up and down: so many changes within so long, and how many of them undo the one before."""

    changes: int
    turns: int
    span_ms: int


def is_saturated(wants: int | None, has: int | None, most: int) -> bool:
    """Whether an HPA has all that maxReplicas allows, and its metrics ask for more."""
    return wants is not None and has is not None and has >= most < wants


def is_content(wants: int | None, has: int | None, most: int) -> bool:
    """Whether an HPA has all that maxReplicas allows, and its metrics do not ask for more."""
    return wants is not None and has is not None and has >= most >= wants


def is_disabled(spec: Mapping[str, Any], wants: int | None, has: int | None) -> str:
    """Return the field of `spec.behavior` that forbids the change which the metrics ask for; empty: none does."""
    if wants is None or has is None or wants == has:
        return ""
    direction = "scaleUp" if wants > has else "scaleDown"
    rules = (spec.get("behavior") or {}).get(direction) or {}
    return direction if rules.get("selectPolicy") == "Disabled" else ""


def flapping(moves: Iterable[Stored], now_ms: int) -> Flapping | None:
    """Return how an HPA goes up and down now; None: it does not."""
    recent = [move for each in moves if now_ms - (move := Move(*each)).time_ms <= FLAPPING_WINDOW_MS]
    steps = [move.after - move.before for move in recent]
    turns = sum(before * after < 0 for before, after in pairwise(steps))
    if len(recent) < KEPT_MOVES or turns < FLAPPING_TURNS:
        return None
    return Flapping(len(recent), turns, recent[-1].time_ms - recent[0].time_ms)


def states(
    autoscaler: Autoscaler,
    evaluation: Evaluation,
    has: int | None,
    moves: Iterable[Stored],
    now_ms: int,
    *,
    is_asked: bool,
    is_blocked: bool,
) -> list[str]:
    """Return the `STATES` that an evaluation finds an HPA in.

    Args:
        has: the replicas that the scale shows.
        is_asked: the proposal is what the metrics ask for; nothing has taken its place.
        is_blocked: pods without metrics keep a metric from changing the count (`blocked`).
    """
    wants, most = evaluation.proposal if is_asked else None, autoscaler.max_replicas
    names = [SATURATED] if is_saturated(wants, has, most) else []
    names += [CONTENT] if is_content(wants, has, most) else []
    names += [BLOCKED] if is_blocked else []
    if wants is not None and has is not None and wants != has:
        rules = autoscaler.scale_up if wants > has else autoscaler.scale_down
        names += [DISABLED] if rules is not None and rules.select == "Disabled" else []
    return [*names, FLAPPING] if flapping(moves, now_ms) is not None else names
