"""Two specs of one HPA on the load that was recorded, both in the closed loop: what changing one into the other does.

Neither need be the one that ran. What ran, in the same model, is the model's own error.
"""

from collections.abc import Sequence

from msgspec import Struct

from schemas.keys import HpaId
from streams.analysis.answer import Answer, SpecDifference, difference
from streams.analysis.backtest import recorded_moments, tolerance_above, under_load_of
from streams.analysis.candidate import CandidateError, Tried, check_metrics
from streams.analysis.closedloop import ClosedLoop, StartUp, start_up
from streams.analysis.measures import Measures, Moment, measure, spans_ms
from streams.analysis.podbase import base_per_pod
from streams.hpa.observation import Scale
from streams.state.inputs import EvaluationInputs


class SpecPair(Struct, frozen=True, kw_only=True):
    """The effect of a change of a spec on one HPA, on the recorded load.

    `first`: the first evaluation at which they differ. `recorded`: what ran; `deployed`: the specs that ran, in the
    model. `base_limits`, `changed_limits`: constraint → minutes for which it acted.
    """

    hpa: HpaId
    evaluations: int
    since_ms: int
    until_ms: int
    recorded: Measures
    deployed: Measures
    base: Measures
    changed: Measures
    base_limits: dict[str, float]
    changed_limits: dict[str, float]
    first: SpecDifference | None
    start_up: StartUp

    @property
    def model_error(self) -> float:
        """By which share the model misses the replica-hours that ran, when it is given the specs that ran."""
        was = self.recorded.replica_hours
        return self.deployed.replica_hours / was - 1 if was else 0.0


class _Run:
    """One spec in the closed loop: its moments, and what acted at each."""

    def __init__(self, tried: Tried | None, start_up_ms: int) -> None:
        self.loop = ClosedLoop(tried, start_up_ms)
        self.moments: list[Moment] = []
        self.held: list[list[str]] = []

    def step(self, inputs: EvaluationInputs) -> Answer:
        self.moments.append(self.loop.step(inputs))
        answered = self.loop.answered
        assert answered is not None
        self.held.append(answered.acting)
        return answered

    def limits(self, period_ms: int) -> dict[str, float]:
        """Constraint → minutes."""
        by_limit: dict[str, float] = {}
        spans = spans_ms([moment.time_ms for moment in self.moments], period_ms)
        for names, span_ms in zip(self.held, spans, strict=True):
            for name in names:
                by_limit[name] = by_limit.get(name, 0.0) + span_ms / 60_000
        return dict(sorted(by_limit.items()))


def spec_pair(hpa: HpaId, recorded: Sequence[EvaluationInputs], base: Tried, changed: Tried) -> SpecPair:
    """Compare two specs on the evaluations of one HPA, oldest first.

    Raises CandidateError: one cannot be tried on this recording, or what a pod uses does not fall with their number.
    """
    inputs = [each for each in recorded if isinstance(each.observation.scale, Scale)]
    if not inputs:
        raise CandidateError(f"{hpa}: no evaluation with a known scale in this period")
    check_metrics(base, inputs)
    check_metrics(changed, inputs)
    if (grows := base_per_pod(inputs)) is not None:
        raise CandidateError(f"{hpa}: {grows.text}")
    begin, last = start_up(inputs), inputs[-1]
    ran, one, other = (_Run(tried, begin.ms) for tried in (None, base, changed))
    first = None
    for each in inputs:
        ran.step(each)
        was, now = one.step(each), other.step(each)
        first = first or difference(each, was, now)
    was_seen, tolerance, period_ms = recorded_moments(inputs), tolerance_above(last), last.period_ms
    return SpecPair(
        hpa=hpa,
        evaluations=len(inputs),
        since_ms=inputs[0].now_ms,
        until_ms=last.now_ms,
        recorded=measure(was_seen, tolerance, period_ms),
        deployed=measure(under_load_of(was_seen, ran.moments), tolerance, period_ms),
        base=measure(under_load_of(was_seen, one.moments), tolerance, period_ms),
        changed=measure(under_load_of(was_seen, other.moments), tolerance, period_ms),
        base_limits=one.limits(period_ms),
        changed_limits=other.limits(period_ms),
        first=first,
        start_up=begin,
    )
