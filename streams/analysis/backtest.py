"""Backtest of one HPA: the recording against a candidate, in the open or the closed loop.

Open loop: the candidate is asked at every recorded evaluation with the recorded samples, pods and scale; only its
memory is its own, and nothing that it wants has an effect. The closed loop is in `closedloop`. A long recording is
condensed to what both read: time, scale, pods, settings, guards and the load of each metric, which is the same for a
condensed evaluation as for the whole one.
"""

from collections.abc import Container, Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct, structs

from schemas.keys import HpaId
from streams.analysis.answer import Answer, DecisionBounds, SpecDifference, answer, difference
from streams.analysis.candidate import CandidateError, Tried, check_metrics
from streams.analysis.closedloop import ClosedLoop, StartUp, StartUpClock, start_up
from streams.analysis.ideal import recorded_ideal
from streams.analysis.load import load_samples, need, serving_at
from streams.analysis.measures import Measures, Moment, Scores, measure, scores
from streams.analysis.podbase import base_per_pod
from streams.history.evaluations import Evaluated, HpaEvent
from streams.hpa.evaluation import EMPTY_HISTORY
from streams.hpa.metrics import tolerance_band
from streams.hpa.normalize import with_rescale
from streams.hpa.observation import NO_PODS, MetricReading, Observation, PodSamples, Scale, TargetPods
from streams.state.inputs import EvaluationInputs, WriteEnded


class Condensed:
    """The evaluations of one HPA, oldest first, those with an unknown scale left out; only the first keeps the ID of
    its decision.
    """

    def __init__(self, hpa: HpaId) -> None:
        self.hpa = hpa
        self.inputs: list[EvaluationInputs] = []
        self._clock = StartUpClock()
        self._pods: TargetPods = NO_PODS
        self._known: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self.inputs)

    def add(self, inputs: EvaluationInputs) -> None:
        seen = inputs.observation
        if not isinstance(seen.scale, Scale):
            return
        if seen.pods is not self._pods:
            if seen.pods.rows != self._pods.rows:
                self._clock.see(inputs)
                self._pods = seen.pods
            seen = structs.replace(seen, pods=self._pods)
        if not self.inputs:
            self._clock.see(inputs)
            self.inputs.append(structs.replace(inputs, observation=self._reduced(inputs, seen), moves=()))
            return
        self.inputs.append(
            structs.replace(
                inputs,
                decision="",
                observation=self._reduced(inputs, seen),
                status={},
                history=EMPTY_HISTORY,
                limits=self._same(inputs.limits),
                settings=self._same(inputs.settings),
                moves=(),
                native_moves=(),
            )
        )

    def start_up(self) -> StartUp:
        """How long new pods took until they took load."""
        return self._clock.start_up()

    def _same(self, value: Any) -> Any:
        """The first object that equals this one: equal settings and limits are kept once."""
        return self._known.setdefault(value, value)

    def _reduced(self, inputs: EvaluationInputs, seen: Observation) -> Observation:
        answers: list[MetricReading | None] = []
        for spec, given in zip(inputs.autoscaler.metrics, seen.answers, strict=False):
            answers.append(load_samples(spec, given, seen.pods) if isinstance(given, PodSamples) else given)
        return structs.replace(seen, scale=self._same(seen.scale), answers=tuple(answers))


def condensed(hpa: HpaId, recorded: Iterable[EvaluationInputs]) -> Condensed:
    """A recording that is in memory already."""
    condensed = Condensed(hpa)
    for each in recorded:
        condensed.add(each)
    return condensed


class Compared(Struct, frozen=True):
    """One recorded evaluation and the candidate's answer."""

    inputs: EvaluationInputs
    recorded: Answer
    candidate: Answer

    @property
    def agrees(self) -> bool:
        """Same number from each metric, same result, held by the same limits: more than the same replicas."""
        one, other = self.recorded, self.candidate
        same = (one.final, one.evaluation.proposal, one.constraints) == (
            other.final,
            other.evaluation.proposal,
            other.constraints,
        )
        return same and _proposals(one) == _proposals(other)


def _proposals(answered: Answer) -> list[int | None]:
    metrics = answered.evaluation.metrics
    return sorted(
        [metric.calculation.proposal if metric.calculation else None for metric in metrics],
        key=lambda p: (p is None, p),
    )


def open_loop(events: Iterable[HpaEvent], tried: Tried | None) -> list[Compared]:
    """Ask a candidate (None: whatever spec was deployed) at each evaluation of one HPA.

    The first evaluation hands its memory to the candidate, as an edit of the spec would.
    """
    compared: list[Compared] = []
    history, autoscaler = EMPTY_HISTORY, None
    for event in events:
        if isinstance(event, WriteEnded) and autoscaler is not None:
            history = EMPTY_HISTORY if event.restart else history
            if event.applied:
                change = event.desired_replicas - event.current_replicas
                history = with_rescale(history, autoscaler, change, event.evaluated_ms)
        elif isinstance(event, Evaluated):
            inputs = event.inputs
            changed, is_first = inputs if tried is None else tried.on(inputs), autoscaler is None
            autoscaler = changed.autoscaler
            if is_first or inputs.history.recommended is None:
                # The beginning, or a restart: what was remembered is gone for both.
                history = inputs.history
            else:
                for before, after, at_ms in inputs.native_moves:
                    history = with_rescale(history, autoscaler, after - before, at_ms)
            would = answer(structs.replace(changed, history=history))
            compared.append(Compared(inputs, answer(inputs), would))
            history = would.evaluation.history
    return compared


Model = Literal["open", "closed"]


class Backtest(Struct, frozen=True, kw_only=True):
    """What a candidate would have done for one HPA.

    `recorded`, `candidate`: each measured against its own targets. `candidate_at_recorded_target`: the candidate's
    replicas against the deployed targets; None where these are the same. `…_scores`: the same with the scores of the
    literature. `agreed`: evaluations with the recorded answer (open loop), which is the same proposal of each metric
    and the same limits beside the same replicas (`Compared.agrees`). `deployed`: the deployed spec in the closed loop,
    which shows the model's own error. `decisions`: the first and the last evaluation, as the log gives them. `first`:
    the first one at which deployed spec and candidate differ.
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
    decisions: DecisionBounds
    first: SpecDifference | None = None
    candidate_at_recorded_target: Measures | None = None
    candidate_scores_at_recorded_target: Scores | None = None
    agreed: int = 0
    deployed: Measures | None = None
    start_up: StartUp | None = None
    edits: int = 0
    """Other generations of the spec that were in force meanwhile."""

    @property
    def named_decisions(self) -> list[str]:
        """The IDs that it names."""
        named = [self.decisions.first, self.decisions.last, "" if self.first is None else self.first.decision]
        return [id_ for id_ in named if id_]

    def among(self, recorded: Container[str]) -> "Backtest":
        """Return the same without IDs that are not among those of recorded decisions."""
        first = None if self.first is None else self.first.among(recorded)
        return structs.replace(self, decisions=self.decisions.among(recorded), first=first)


def backtest(events: Sequence[HpaEvent], tried: Tried, model: Model) -> Backtest:
    """Try a candidate on the events of one HPA.

    Raises CandidateError: it cannot be tried on this recording, or what a pod uses does not depend on how many share.
    """
    inputs = [event.inputs for event in events if isinstance(event, Evaluated)]
    inputs = [each for each in inputs if isinstance(each.observation.scale, Scale)]
    if not inputs:
        raise CandidateError(f"{tried.hpa}: no evaluation with a known scale in this period")
    check_metrics(tried, inputs)
    if (base := base_per_pod(inputs)) is not None:
        raise CandidateError(f"{tried.hpa}: {base.text}")
    result = _open(events, tried) if model == "open" else _closed(inputs, tried)
    return structs.replace(result, edits=len({each.generation for each in inputs}) - 1)


def tolerance_above(inputs: EvaluationInputs) -> float:
    """Return how far above its target a load may be without a change."""
    return tolerance_band(inputs.autoscaler, inputs.settings)[1] - 1.0


def recorded_moments(inputs: Sequence[EvaluationInputs]) -> list[Moment]:
    """Return what ran, and the load on it."""
    moments = []
    for each in inputs:
        scale, pods, answers = each.observation.scale, each.observation.pods, each.observation.answers
        if isinstance(scale, Scale):
            ready, count = serving_at(answers, pods), scale.spec_replicas
            load = need(each.autoscaler, answers, pods)
            moments.append(Moment(each.now_ms, count, ready, load, count >= each.autoscaler.max_replicas))
    return moments


def _closed(inputs: Sequence[EvaluationInputs], tried: Tried) -> Backtest:
    begin = start_up(inputs)
    recorded = recorded_moments(inputs)
    ran, other = ClosedLoop(None, begin.ms), ClosedLoop(tried, begin.ms)
    deployed, moments, first = list[Moment](), list[Moment](), None
    for each in inputs:
        deployed.append(ran.step(each))
        moments.append(other.step(each))
        if first is None and ran.answered is not None and other.answered is not None:
            first = difference(each, ran.answered, other.answered)
    last = inputs[-1]
    return structs.replace(
        _compared("closed", inputs, tried, recorded, moments),
        deployed=measure(deployed, tolerance_above(last), last.period_ms),
        start_up=begin,
        first=first,
    )


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
    compared_all = _compared("open", [each.inputs for each in compared], tried, recorded, moments)
    differences = (difference(each.inputs, each.recorded, each.candidate) for each in compared)
    first = next(filter(None, differences), None)
    return structs.replace(compared_all, agreed=sum(each.agrees for each in compared), first=first)


def _compared(
    model: Model, inputs: Sequence[EvaluationInputs], tried: Tried, recorded: list[Moment], moments: list[Moment]
) -> Backtest:
    """Return what both models have in common: measures and scores of two series."""
    last = inputs[-1]
    ideal = recorded_ideal(inputs)
    at_recorded, tolerance = _at_recorded(last, tried, recorded, moments), tolerance_above(last)
    return Backtest(
        hpa=tried.hpa,
        model=model,
        evaluations=len(recorded),
        since_ms=inputs[0].now_ms,
        until_ms=last.now_ms,
        recorded=measure(recorded, tolerance, last.period_ms),
        candidate=measure(moments, tolerance_above(tried.on(last)), last.period_ms),
        recorded_scores=scores(recorded, last.period_ms, ideal),
        candidate_scores=scores(moments, last.period_ms, ideal),
        recorded_moments=recorded,
        candidate_moments=moments,
        decisions=DecisionBounds(inputs[0].decision, last.decision),
        candidate_at_recorded_target=measure(at_recorded, tolerance, last.period_ms) if at_recorded else None,
        candidate_scores_at_recorded_target=(scores(at_recorded, last.period_ms, ideal) if at_recorded else None),
    )


def _at_recorded(
    last: EvaluationInputs, tried: Tried, recorded: Sequence[Moment], moments: Sequence[Moment]
) -> list[Moment] | None:
    """The candidate's replicas under the load as the deployed targets count it; None: the targets are the same."""
    if frozenset((m.name, m.target) for m in last.autoscaler.metrics) == tried.targets:
        return None
    return under_load_of(recorded, moments)


def under_load_of(recorded: Sequence[Moment], moments: Sequence[Moment]) -> list[Moment]:
    """Return other replicas under the load as the targets that ran count it: one yardstick for several specs."""
    return [structs.replace(own, need=was.need) for own, was in zip(moments, recorded, strict=True)]
