"""Figures of `make bench` that do not depend on the machine, and the stored ones that they are compared with."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

STORED: Final = Path(__file__).with_name("bench-baseline.json")
YARDSTICK: Final = "decide, 5 pods, 1 metric(s)"
"""The speed that the others of a run are compared with: upstream's calculation alone."""
SPEEDS: Final = ("evaluations/s", "decisions/s", "evaluations/CPU s", "decisions/s/core")
"""Units by CPU time, or the best of many short runs; what is by wall-clock time depends on what else runs."""
NOISE: Final = {"times": 1.5, "bytes": 1.1}
"""Speeds of one run differ by that much where other processes come and go; bytes by rounding and versions of Python."""


def relative_costs(figures: Iterable[tuple[str, float, str]]) -> dict[str, tuple[float, str]]:
    """What each measure costs: in times of one evaluation of the yardstick, or in bytes. Others are left out, and so
    are speeds in a run without the yardstick.
    """
    known = list(figures)
    yardstick = next((value for what, value, _ in known if what == YARDSTICK), 0.0)
    costs: dict[str, tuple[float, str]] = {}
    for what, value, unit in known:
        if unit in SPEEDS and yardstick and value:
            costs[what] = (round(yardstick / value, 2), "times")
        elif unit == "bytes":
            costs[what] = (round(value), "bytes")
    return costs


def much_dearer(now: Mapping[str, tuple[float, str]], then: Mapping[str, tuple[float, str]]) -> Iterator[str]:
    """Name what costs much more than stored."""
    for what, (cost, unit) in now.items():
        if what in then and cost > NOISE[unit] * then[what][0]:
            yield f"{what}: {cost:,g} {unit}, {then[what][0]:,g} stored"
