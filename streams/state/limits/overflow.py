"""A count that comes of an overflow is not written (setting `hold-on-overflow`), although upstream scales by it."""

from typing import Literal

from streams.hpa.evaluation import Calculation, Evaluation
from streams.state.limits.limit import LimitedWrite, WriteLimit
from streams.state.subject import Observed, Subject


class Overflow(WriteLimit):
    name = "Overflow"
    settings = ("hold_on_overflow",)

    def inputs(self, subject: Subject, observed: Observed) -> Literal[True] | None:
        return None if subject.settings.stated.hold_on_overflow is False else True

    def apply(self, inputs: Literal[True], write: LimitedWrite) -> LimitedWrite:
        wrapped = overflow(write.evaluation)
        return write.blocked(self.name, f"held: {wrapped}") if wrapped else write


def overflow(evaluation: Evaluation) -> str:
    """Name the metric whose calculation overflowed, where upstream scales by a wrapped number; empty if none."""
    for metric in evaluation.metrics:
        calculation = metric.calculation
        if calculation is not None and left_its_type(calculation):
            return f"{metric.spec.name} overflowed to a proposal of {calculation.proposal} replicas"
    return ""


def left_its_type(calculation: Calculation | None) -> bool:
    """Return whether a metric's calculation overflowed its integer type."""
    return calculation is not None and (calculation.proposal < 0 or calculation.wrapped)
