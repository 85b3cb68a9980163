"""Scale-downs of an HPA are not made while one of its own metrics is above a value (annotation
`fleethpa.io/scale-down-block`).
"""

import re
from typing import Final, NamedTuple

from schemas.decisions import Step
from schemas.kubernetes.metricspecs import no_such_metric
from schemas.kubernetes.quantity import Quantity, QuantityError, format_milli, parse_quantity
from schemas.kubernetes.shape import JsonView
from schemas.limits import TEXT, shortened
from streams.hpa.autoscaler import UTILIZATION, MetricSpec
from streams.hpa.evaluation import Calculation, MetricEvaluation
from streams.state.limits.limit import AnnotatedLimit, LimitedWrite

_ANNOTATION: Final = "fleethpa.io/scale-down-block"
_EXAMPLE: Final = "metric=queue_depth,above=0"
_FORM: Final = re.compile(r"metric=(.+),\s*above=([^,=]*)", re.ASCII)
"""The name of a metric may have a comma, a quantity has none."""


class Block(NamedTuple):
    """`metric`: its name in the spec. `above`: a quantity, as it was written; of a utilization, percent. `fault`: why
    the annotation cannot be read; empty: it can.
    """

    metric: str
    above: str
    fault: str = ""


def parse_block(text: str) -> Block:
    """Read the annotation. One that cannot be read is a block all the same, with its fault: somebody wanted one."""
    form = _FORM.fullmatch(text.strip())
    if form is None:
        return Block("", "", f"{shortened(text, TEXT)!r} must be such as {_EXAMPLE}")
    metric, above = form[1], form[2].strip()
    try:
        parse_quantity(above)
    except QuantityError as error:
        return Block("", "", f"above={shortened(above, TEXT)!r} is not a quantity, such as 0, 0.5 or 10k: {error}")
    return Block(metric, above)


class ScaleDownBlock(AnnotatedLimit):
    """It blocks every removal but the one towards a maxReplicas that was lowered: above maxReplicas no metric is
    evaluated, so that a block would never end.
    """

    name = "ScaleDownBlock"
    annotation = _ANNOTATION

    def refuses(self, text: str, spec: JsonView | None) -> str:
        block = parse_block(text)
        return block.fault or ("" if spec is None else no_such_metric(block.metric, spec))

    def stated(self, text: str) -> Block:
        return parse_block(text)

    def apply(self, inputs: Block, write: LimitedWrite) -> LimitedWrite:
        if write.is_up or write.evaluation.path == "aboveMax":
            return write
        why = _why(inputs, write.evaluation.metrics)
        return write.blocked(self.name, why, _step(inputs, write)) if why else write

    def stops(self, inputs: Block) -> str:
        if not inputs.fault:
            return ""
        return f"{_unreadable(inputs)}; what the metrics ask for is recorded, and scale-downs are not written"


def _why(block: Block, metrics: tuple[MetricEvaluation, ...]) -> str:
    """Return why removals are blocked; empty: they are not. Of several metrics with the name each must be low
    enough.
    """
    if block.fault:
        return f"no scale-down: {_unreadable(block)}"
    named = [each for each in metrics if each.spec.own_name == block.metric]
    percent = "%" if any(each.spec.calculation == UTILIZATION for each in named) else ""
    rule = f"no scale-down while {shortened(block.metric, TEXT)} is above {block.above}{percent}"
    if not named:
        what = "the spec has no such metric" if metrics else "no metric could be evaluated"
        return f"{rule}: its value is not known, as {what}"
    for each in named:
        if each.calculation is None:
            return f"{rule}: its value is not known: {shortened(each.error, TEXT)}"
        if _value(each.spec, each.calculation).cmp(parse_quantity(block.above)) > 0:
            return f"{rule}: it is {_shown(each.spec, each.calculation)}"
    return ""


def _unreadable(block: Block) -> str:
    return f"annotation {_ANNOTATION} cannot be read: {block.fault}"


def _value(spec: MetricSpec, made: Calculation) -> Quantity:
    """The value as the HPA's status shows it: percent of a utilization, else the average or the total."""
    return Quantity(made.value, 0 if spec.calculation == UTILIZATION else -3, "DecimalSI")


def _shown(spec: MetricSpec, made: Calculation) -> str:
    return f"{made.value}%" if spec.calculation == UTILIZATION else format_milli(made.value)


def _step(block: Block, write: LimitedWrite) -> Step:
    detail = {"metric": shortened(block.metric, TEXT), "above": block.above} if not block.fault else {}
    pending = write.pending
    return Step(step="scaleDownBlock", in_=pending.desired_replicas, out=pending.current_replicas, detail=detail)
