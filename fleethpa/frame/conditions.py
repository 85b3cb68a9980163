"""`--fail-if`: a condition on a measure, such as `time_above_target>+10%` or `worst_overload>1.5`.

`backtest` and `rollout` have measures of their own; how a condition is written and read is the same.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from fleethpa.frame.errors import usage


class ConditionMeasure(NamedTuple):
    """A measure that a condition can name: the field that holds it, and its unit."""

    field: str
    unit: Literal["number", "minutes", "percent"] = "number"


MEASURES: Final[Mapping[str, ConditionMeasure]] = {
    "replica_hours": ConditionMeasure("replica_hours"),
    "time_above_target": ConditionMeasure("above_target_minutes", "minutes"),
    "worst_overload": ConditionMeasure("worst_overload"),
    "time_at_max": ConditionMeasure("at_max_minutes", "minutes"),
    "scale_events": ConditionMeasure("scale_events"),
    "direction_flips": ConditionMeasure("direction_flips"),
}
"""Those of a backtest."""
WAVE_MEASURES: Final[Mapping[str, ConditionMeasure]] = {
    "replicas_removed": ConditionMeasure("replicas_removed", "percent"),
    "recommended_removal": ConditionMeasure("recommended_removal", "percent"),
    "at_max": ConditionMeasure("at_max", "percent"),
    "failing": ConditionMeasure("failing", "percent"),
    "scale_events": ConditionMeasure("scale_events"),
    "direction_flips": ConditionMeasure("direction_flips"),
}
"""Those of a wave of a rollout."""
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
    """With a sign the change against the recording counts (`%`: relative), without one the candidate's own value.

    A measure that is a percentage itself changes by percentage points.
    """

    text: str
    measure: str
    field: str
    compare: str
    sign: str
    number: float
    percent: bool

    @property
    def compares(self) -> bool:
        """Whether what was before counts."""
        return bool(self.sign)

    def value(self, measures: Any) -> float:
        """The measure's value in a struct of measures."""
        return float(getattr(measures, self.field))

    def holds(self, recorded: Any, candidate: Any) -> bool:
        """Whether the condition is met, so that the gate fails; both are structs of measures."""
        before, after = self.value(recorded), self.value(candidate)
        limit = -self.number if self.sign == "-" else self.number
        if not self.sign:
            return _COMPARE[self.compare](after, limit)
        if not self.percent:
            return _COMPARE[self.compare](after - before, limit)
        # Of nothing, any growth is beyond every percentage.
        change = (after / before - 1) * 100 if before else (float("inf") if after else 0.0)
        return _COMPARE[self.compare](change, limit)


def parse_fail_if(text: str, measures: Mapping[str, ConditionMeasure] = MEASURES) -> FailIf:
    """Read a condition on one of some measures.

    Raises CommandError: it cannot be read, or names no measure (exit 2).
    """
    match = _TEST.fullmatch(text)
    if match is None:
        examples = "'time_above_target>+10%', 'worst_overload>1.5'"
        if measures is not MEASURES:
            examples = "'replicas_removed>30%', 'scale_events>+2'"
        raise usage(f"--fail-if {text!r} cannot be read", cause=f"Write MEASURE, > or <, and a value: {examples}.")
    name, compare, sign, number, unit = (group or "" for group in match.groups())
    if name not in measures:
        raise usage(f"--fail-if {text!r}: {name!r} is not a measure", cause=f"Measures are {', '.join(measures)}.")
    measure = measures[name]
    if unit == "%" and not sign and measure.unit != "percent":
        raise usage(
            f"--fail-if {text!r}: a percentage is relative to the recording", cause=f"Write +{number}% or -{number}%."
        )
    if unit in ("s", "m", "h") and measure.unit != "minutes":
        raise usage(f"--fail-if {text!r}: {name} is not a time")
    if measure.unit == "percent" and unit != "%":
        raise usage(f"--fail-if {text!r}: {name} is a percentage", cause=f"Write {sign}{number}%.")
    scale = _MINUTES[unit] if measure.unit == "minutes" and unit != "%" else 1.0
    relative = unit == "%" and measure.unit != "percent"
    return FailIf(text.strip(), name, measure.field, compare, sign, float(number) * scale, relative)
