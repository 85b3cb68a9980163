"""Backtest of one HPA: the recording against a candidate, in the open or the closed loop."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct, structs

from schemas.keys import HpaId
from streams.analysis.candidate import CandidateError, Tried, check_metrics
from streams.analysis.closedloop import ClosedLoop
from streams.analysis.measures import Measures, Moment, measure
from streams.analysis.openloop import open_loop
from streams.analysis.podstartup import StartUp, start_up
from streams.analysis.recordedload import need, serving_at
from streams.analysis.scores import Scores, scores
from streams.history.evaluationinputs import Evaluated, HpaEvent
from streams.hpa.metrics import tolerance_band
from streams.hpa.observation import Scale
from streams.state.probe import EvaluationInputs

Model = Literal["open", "closed"]


class Backtest(Struct, frozen=True, kw_only=True):
    """What a candidate would have done for one HPA.

    `recorded`, `candidate`: each measured against its own targets. `candidate_at_recorded_target`: the candidate's
    replicas against the deployed targets; None where these are the same. `…_scores`: the same with the scores of the
    literature. `agreed`: evaluations with the recorded answer (open loop). `deployed`: the deployed spec in the closed
    loop, which shows the model's own error.
    """

    hpa: HpaId
    model: Model
    evaluations: int
    since_ms: int
    until_ms: int
    recorded: Measures
    candidate: Measures
    recorded_scores: Scores
    candidate_scores: Scores
    recorded_moments: list[Moment]
    candidate_moments: list[Moment]
    candidate_at_recorded_target: Measures | None = None
    candidate_scores_at_recorded_target: Scores | None = None
    agreed: int = 0
    deployed: Measures | None = None
    start_up: StartUp | None = None
    edits: int = 0
    """Other generations of the spec that were in force meanwhile."""


def backtest(events: Sequence[HpaEvent], tried: Tried, model: Model) -> Backtest:
    """Try a candidate on the events of one HPA.

    Raises:
        CandidateError: it cannot be tried on this recording.
    """
    inputs = [event.inputs for event in events if isinstance(event, Evaluated)]
    inputs = [each for each in inputs if isinstance(each.observation.scale, Scale)]
    if not inputs:
        raise CandidateError(f"{tried.hpa}: no evaluation with a known scale in this period")
    check_metrics(tried, inputs)
    made = _open(events, tried) if model == "open" else _closed(inputs, tried)
    return structs.replace(made, edits=len({each.generation for each in inputs}) - 1)


def _tolerance(inputs: EvaluationInputs) -> float:
    return tolerance_band(inputs.autoscaler, inputs.settings)[1] - 1.0


def recorded_moments(inputs: Sequence[EvaluationInputs]) -> list[Moment]:
    """What ran, and the load on it."""
    found = []
    for each in inputs:
        scale, pods, answers = each.observation.scale, each.observation.pods, each.observation.answers
        if isinstance(scale, Scale):
            ready, count = serving_at(answers, pods), scale.spec_replicas
            load = need(each.autoscaler, answers, pods)
            found.append(Moment(each.now_ms, count, ready, load, count >= each.autoscaler.max_replicas))
    return found


def _closed(inputs: Sequence[EvaluationInputs], tried: Tried) -> Backtest:
    begin = start_up(inputs)
    recorded = recorded_moments(inputs)
    deployed = ClosedLoop(None, begin.ms).run(inputs)
    made = _compared("closed", inputs, tried, recorded, ClosedLoop(tried, begin.ms).run(inputs), begin.ms)
    last = inputs[-1]
    return structs.replace(made, deployed=measure(deployed, _tolerance(last), last.period_ms), start_up=begin)


def _open(events: Sequence[HpaEvent], tried: Tried) -> Backtest:
    compared = [each for each in open_loop(events, tried) if isinstance(each.inputs.observation.scale, Scale)]
    recorded, moments = [], []
    for each in compared:
        inputs, changed = each.inputs, tried.on(each.inputs)
        pods, now_ms = inputs.observation.pods, inputs.now_ms
        load = need(inputs.autoscaler, inputs.observation.answers, pods)
        own = need(changed.autoscaler, changed.observation.answers, pods)
        final, wanted = each.recorded.final, each.candidate.final
        recorded.append(Moment(now_ms, final, final, load, final >= inputs.autoscaler.max_replicas))
        moments.append(Moment(now_ms, wanted, wanted, own, wanted >= changed.autoscaler.max_replicas))
    made = _compared("open", [each.inputs for each in compared], tried, recorded, moments, 0)
    return structs.replace(made, agreed=sum(each.agrees for each in compared))


def _compared(
    model: Model,
    inputs: Sequence[EvaluationInputs],
    tried: Tried,
    recorded: list[Moment],
    moments: list[Moment],
    start_up_ms: int,
) -> Backtest:
    """What both models have in common: measures and scores of two series."""
    last = inputs[-1]
    own, was = tried.autoscaler, last.autoscaler
    at_recorded = _at_recorded(last, tried, recorded, moments)
    return Backtest(
        hpa=tried.hpa,
        model=model,
        evaluations=len(recorded),
        since_ms=inputs[0].now_ms,
        until_ms=last.now_ms,
        recorded=measure(recorded, _tolerance(last), last.period_ms),
        candidate=measure(moments, _tolerance(tried.on(last)), last.period_ms),
        recorded_scores=scores(recorded, last.period_ms, was.min_replicas, was.max_replicas, start_up_ms),
        candidate_scores=scores(moments, last.period_ms, own.min_replicas, own.max_replicas, start_up_ms),
        recorded_moments=recorded,
        candidate_moments=moments,
        candidate_at_recorded_target=measure(at_recorded, _tolerance(last), last.period_ms) if at_recorded else None,
        candidate_scores_at_recorded_target=(
            scores(at_recorded, last.period_ms, own.min_replicas, own.max_replicas, start_up_ms)
            if at_recorded
            else None
        ),
    )


def _at_recorded(
    last: EvaluationInputs, tried: Tried, recorded: Sequence[Moment], moments: Sequence[Moment]
) -> list[Moment] | None:
    """The candidate's replicas under the load as the deployed targets count it; None: the targets are the same."""
    if frozenset((m.name, m.target) for m in last.autoscaler.metrics) == tried.targets:
        return None
    return [structs.replace(own, need=was.need) for own, was in zip(moments, recorded, strict=True)]
