"""The saving of a change of a spec: the former spec on the load that came, against what ran, and how sure that is.

The former spec runs in the closed loop over the recording under the spec that took its place. That model reproduces
what ran almost exactly, since it divides the recorded load by the recorded pods again; how far it is off for another
number of pods is not seen there. It is off mostly where pods use something without load: that comes and goes with their
number. So the interval has both ends of what the recording allows (`base_range`), and beside it the
model's error on what ran, and a share of the replica-hours for what no recording shows.
"""

from collections.abc import Sequence

from msgspec import Struct

from schemas.keys import HpaId
from streams.analysis.backtest import recorded_moments
from streams.analysis.candidate import Tried, check_metrics
from streams.analysis.closedloop import ClosedLoop
from streams.analysis.load import needs
from streams.analysis.measures import Moment, spans_ms
from streams.analysis.podbase import BaseRange, base_range
from streams.state.inputs import EvaluationInputs

LEAST_MS = 2 * 86_400_000
"""The least that has to be recorded since a change: how days differ is not known from less."""
LEAST_BASE = 0.1
"""Over the target: what a pod may use without load, however little the removals of pods show, unless some pod used less
at some time.
"""
UNSEEN = 0.015
"""Share of the replica-hours by which the former spec may have cost more or less for what no recording shows: the noise
of other pods' samples, and at which of two counts within the tolerance it would have rested.
"""


class Saving(Struct, frozen=True, kw_only=True, rename="camel"):
    """The saving of a change for one HPA, in replica-hours; below 0: it cost more.

    `ran`: what really ran. `former`: what the former spec would have run, in the model; `low`, `high`: the ends of the
    interval of what was saved. `model_error`: by which share the model misses what ran. `base`: what each pod may use
    without load, over the target: the most that is counted with. `changes`: removals that it is known from.
    """

    hpa: HpaId
    since_ms: int
    until_ms: int
    evaluations: int
    ran: float
    former: float
    low: float
    high: float
    model_error: float
    base: float
    changes: int

    @property
    def saved(self) -> float:
        return self.former - self.ran


def saving(hpa: HpaId, inputs: Sequence[EvaluationInputs], former: Tried, start_up_ms: int) -> Saving:
    """Compare the evaluations since a change, oldest first and all with a known scale, with the former spec.

    Raises CandidateError: the former spec asks for what the recording does not hold.
    """
    check_metrics(former, inputs)
    period_ms = inputs[-1].period_ms

    def hours(moments: Sequence[Moment]) -> float:
        spans = spans_ms([each.time_ms for each in moments], period_ms)
        return sum(each.replicas * span_ms for each, span_ms in zip(moments, spans, strict=True)) / 3_600_000

    ran = hours(recorded_moments(inputs))
    error = hours(ClosedLoop(None, start_up_ms).run(inputs)) / ran - 1 if ran else 0.0
    needed = [needs(each.autoscaler, each.observation.answers, each.observation.pods) for each in inputs]
    base_usage = base_range(needed)
    bases = _bases(base_usage)
    own = _over(former, inputs)
    tried = [hours(ClosedLoop(former, start_up_ms, base * own).run(inputs)) for base in bases]
    margin = (UNSEEN + abs(error)) * max(tried)
    return Saving(
        hpa=hpa,
        since_ms=inputs[0].now_ms,
        until_ms=inputs[-1].now_ms,
        evaluations=len(inputs),
        ran=ran,
        former=tried[0],
        low=min(tried) - margin - ran,
        high=max(tried) + margin - ran,
        model_error=error,
        base=bases[-1],
        changes=base_usage.changes,
    )


def _bases(bases: BaseRange) -> list[float]:
    """The usage without load that is tried: nothing, the middle and the most that is possible."""
    most = min(bases.least, max(bases.high, LEAST_BASE))
    return [0.0, most / 2, most] if most > 0 else [0.0]


def _over(former: Tried, inputs: Sequence[EvaluationInputs]) -> float:
    """The target that ran over that of the former spec, by which a share of the one becomes one of the other."""
    ran = {metric.name: metric.target for metric in inputs[-1].autoscaler.metrics}
    ratios = [ran[each.name] / each.target for each in former.autoscaler.metrics if each.name in ran and each.target]
    return max(ratios, default=1.0)
