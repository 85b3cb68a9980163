"""`--fail-if`: a condition on a measure of a backtest, such as `time_above_target>+10%` or `worst_overload>1.5`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fleethpa.cli.common.failures import usage

if TYPE_CHECKING:
    from streams.analysis.measures import Measures

MEASURES: Final = {
    "replica_hours": "replica_hours",
    "time_above_target": "above_target_minutes",
    "worst_overload": "worst_overload",
    "time_at_max": "at_max_minutes",
    "scale_events": "scale_events",
    "direction_flips": "direction_flips",
}
"""Name on the command line: field. Times are in minutes."""
_TEST: Final = re.compile(r"\s*(\w+)\s*(>=|<=|>|<)\s*([+-]?)(\d+(?:\.\d+)?)\s*(%|s|m|h)?\s*")
_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_MINUTES: Final = {"s": 1 / 60, "m": 1.0, "h": 60.0, "": 1.0}


@dataclass(frozen=True)
class FailIf:
    """With a sign the change against the recording counts (`%`: relative), without one the candidate's own value."""

    text: str
    measure: str
    compare: str
    sign: str
    number: float
    percent: bool

    def holds(self, recorded: Measures, candidate: Measures) -> bool:
        """Whether the condition is met, so that the gate fails."""
        before, after = (float(getattr(side, MEASURES[self.measure])) for side in (recorded, candidate))
        limit = -self.number if self.sign == "-" else self.number
        if not self.sign:
            return _COMPARE[self.compare](after, limit)
        if not self.percent:
            return _COMPARE[self.compare](after - before, limit)
        # Of nothing, any growth is beyond every percentage.
        change = (after / before - 1) * 100 if before else (float("inf") if after else 0.0)
        return _COMPARE[self.compare](change, limit)


def parse_fail_if(text: str) -> FailIf:
    """Read a condition.

    Raises:
        CommandError: it cannot be read, or names no measure (exit 2).
    """
    match = _TEST.fullmatch(text)
    if match is None:
        raise usage(
            f"--fail-if {text!r} cannot be read",
            cause="Write MEASURE, > or <, and a value: 'time_above_target>+10%', 'worst_overload>1.5'.",
        )
    name, compare, sign, number, unit = (group or "" for group in match.groups())
    if name not in MEASURES:
        raise usage(f"--fail-if {text!r}: {name!r} is not a measure", cause=f"Measures are {', '.join(MEASURES)}.")
    if unit == "%" and not sign:
        raise usage(
            f"--fail-if {text!r}: a percentage is relative to the recording", cause=f"Write +{number}% or -{number}%."
        )
    timed = name.startswith("time_")
    if unit in ("s", "m", "h") and not timed:
        raise usage(f"--fail-if {text!r}: {name} is not a time")
    scale = _MINUTES[unit] if timed and unit != "%" else 1.0
    return FailIf(text.strip(), name, compare, sign, float(number) * scale, unit == "%")
