"""What an HPA needs and does not get, since pods without metrics could reverse the result."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from streams.hpa.evaluation import MetricEvaluation


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
    found: list[Blocked] = []
    for place, each in enumerate(metrics):
        made = each.calculation
        if made is None:
            continue
        if made.proposal > current:
            return ()
        if made.kept and made.missing:
            low, high = band()
            if not low <= made.ratio <= high:
                found.append(Blocked(place, _percent(made.ratio), made.missing, made.not_ready))
    found.sort(key=lambda each: abs(each.percent - 100))
    return tuple(found[-1]) if found else ()


def _percent(ratio: float) -> int:
    return round(100 * min(max(ratio, -1e6), 1e6))
