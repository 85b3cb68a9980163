"""The recording of one HPA, read once for a search (its load, what a pod carries, what it cannot show), and what a
search is asked and found.

A recording that cannot carry a proposal is refused; one that carries it only in part bounds it.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any, Literal

from msgspec import Struct

from schemas.keys import HpaId
from streams.analysis.backtest import Condensed, condensed
from streams.analysis.candidate import Candidate, CandidateError, candidate
from streams.analysis.closedloop import StartUp
from streams.analysis.ideal import recorded_ideal
from streams.analysis.load import MetricNeed, capacity_of, cycle_ms, needs
from streams.analysis.measures import Scores, spans_ms
from streams.analysis.podbase import base_per_pod
from streams.analysis.tuning.surrogate import Knobs, LoadSeries, SpecOutcome, block_ms, play
from streams.hpa import autoscaler as kinds
from streams.hpa.metrics import tolerance_band
from streams.hpa.observation import ExternalSamples, PodSamples, Scale
from streams.state.inputs import EvaluationInputs

LEAST_GAIN = 0.02
"""Share of the replica-hours that a proposal must save to be worth a change."""
WORTH_RELIEF = 0.0005
"""Share of the time in overload from which it is worth paying for less: three quarters of a minute a day."""
COST_EVEN = 0.001
"""Differences in replica-hours up to this share are none."""
Objective = Literal["cost", "safety", "balanced"]


class RefusedError(Exception):
    """The recording cannot carry a proposal; says why and what to do."""


class Within(Struct, frozen=True, kw_only=True):
    """What a proposal must keep to, both ends included; None: open. Targets are percent of the request, or of the
    deployed target for a metric that is no utilization. Windows are those of scaleDown, in seconds. Tolerances, and
    the percentage of a scale-up policy, are those that a proposal adds.
    """

    target: tuple[float | None, float | None] = (None, None)
    min_replicas: tuple[float | None, float | None] = (None, None)
    max_replicas: tuple[float | None, float | None] = (None, None)
    window: tuple[float | None, float | None] = (None, None)
    tolerance: tuple[float | None, float | None] = (None, None)
    scale_up_percent: tuple[float | None, float | None] = (None, None)


class Side(Struct, frozen=True, kw_only=True, rename="camel"):
    """One spec over one part of the recording, in the closed loop."""

    replica_hours: float
    overload_share: float
    overload: float
    worst: float
    scale_events: int
    scores: Scores


class CurvePoint(Struct, frozen=True, kw_only=True, rename="camel"):
    """One spec that was tried, on the first part, in the compact loop. Targets as in `Within`."""

    target: float
    min_replicas: int
    window_seconds: int
    replica_hours: float
    overload_share: float


class Tuning(Struct, frozen=True, kw_only=True):
    """What was found for one HPA. `spec`: the proposal, the deployed spec where none is better (`changed` False)."""

    hpa: HpaId
    objective: Objective
    since_ms: int
    until_ms: int
    split_ms: int
    evaluations: int
    deployed: dict[str, Any]
    spec: dict[str, Any]
    changed: bool
    why: str
    metric: str
    capacity: str
    cycle_ms: int | None
    start_up: StartUp
    chosen_on: tuple[Side, Side]
    """Deployed and proposed on the first part."""
    unseen: tuple[Side, Side]
    """Deployed and proposed on the rest."""
    curve: list[CurvePoint]
    deployed_point: CurvePoint
    proposed_point: CurvePoint
    bounds: list[str]
    tried: int
    withdrawn: int
    """Proposals that the closed loop did not confirm, on the part they were chosen on or on the rest."""

    @property
    def saved(self) -> float:
        """Replica-hours that the proposal saves on the unseen part."""
        return self.unseen[0].replica_hours - self.unseen[1].replica_hours

    @property
    def more_cost(self) -> float:
        """What the proposal costs more than the deployed spec over both parts, as a share; below 0: less."""
        was, own = (self.chosen_on[at].replica_hours + self.unseen[at].replica_hours for at in (0, 1))
        return own / was - 1 if was else 0.0

    @property
    def costs_more(self) -> bool:
        """Whether the proposal spares overload at more cost: objective safety only."""
        return self.changed and self.more_cost > COST_EVEN

    def overload_share(self, at: Literal[0, 1]) -> float:
        """Share of the time in overload over both parts: 0: deployed, 1: proposed."""
        seen, rest = self.split_ms - self.since_ms, self.until_ms - self.split_ms
        lacking = self.chosen_on[at].overload_share * seen + self.unseen[at].overload_share * rest
        return lacking / ((seen + rest) or 1)


FIRST_PART = 2 / 3
"""Share of the evaluations on which the spec is chosen."""
FEWEST = 120
"""Evaluations with known load below which nothing is proposed."""
MARGIN = 1.1
"""A proposal must also hold under this multiple of the recorded load."""
MARGIN_UNKNOWN = 1.25
"""The same where the recording does not show two periods of a cycle."""
DAY_MS = 86_400_000
_HIDDEN_SHARE = 0.05
_SETTLE_MS = 120_000
"""How long the begin of a recording is; a few rounds of starting pods come on top. At most a twentieth of the whole."""


class TunedPast(Struct):
    """The recording of one HPA, read once.

    `inputs`: the evaluations, the first `split` of which the spec is chosen on. `index`: the metric whose target is
    searched. `series`: the load of all of them, `first` of those to choose on. `capacity`: what a pod carries, as a
    multiple of the deployed target. `margin`: a proposal must also hold under this multiple of the load. `bounds`: what
    the recording cannot show, as text.
    """

    hpa: HpaId
    inputs: list[EvaluationInputs]
    deployed: Candidate
    index: int
    series: LoadSeries
    first: LoadSeries
    split: int
    start_up: StartUp
    capacity: float
    margin: float
    bounds: list[str]
    may_raise_target: bool
    may_lower_min: bool
    ideal: list[int | None]
    """Replicas of the ideal autoscaler at each evaluation."""

    @property
    def utilization(self) -> bool:
        """Whether the tuned metric has a target in percent of the request."""
        return self.deployed.autoscaler.metrics[self.index].calculation == kinds.UTILIZATION

    @property
    def deployed_target(self) -> float:
        """Percent of the request, or 100 for a metric that is no utilization: as in `Within`."""
        return float(self.deployed.autoscaler.metrics[self.index].target) if self.utilization else 100.0

    @property
    def window_s(self) -> int:
        """The deployed window of scaleDown."""
        down = self.deployed.autoscaler.scale_down
        default_ms = self.inputs[-1].settings.downscale_stabilization_ms
        return (default_ms if down is None or down.window_ms is None else down.window_ms) // 1000


def tuned_past(hpa: HpaId, recorded: Sequence[EvaluationInputs] | Condensed) -> TunedPast:
    """Read a recording for a search. Raises RefusedError: it cannot carry a proposal."""
    reduced = recorded if isinstance(recorded, Condensed) else condensed(hpa, recorded)
    inputs = reduced.inputs
    if not inputs:
        raise RefusedError("there is no evaluation with a known scale in this period: choose an earlier --since")
    last = inputs[-1]
    try:
        deployed = candidate(hpa, last.spec)
    except CandidateError as error:
        raise RefusedError(str(error)) from error
    if (base := base_per_pod(inputs)) is not None:
        raise RefusedError(base.text)
    begin = reduced.start_up()
    asked = [needs(deployed.autoscaler, deployed.answers(each), each.observation.pods) for each in inputs]
    index = _tuned_metric(asked)
    series = _series(inputs, deployed, asked, index, begin.ms)
    _check_known(series, last)
    split = round(len(inputs) * FIRST_PART)
    high = tolerance_band(last.autoscaler, last.settings)[1]
    ratios = [next((each.ratio for each in row if each.index == index), None) for row in asked]
    carried = [ratio for ratio in ratios if ratio is not None]
    world = TunedPast(
        hpa=hpa,
        inputs=inputs,
        deployed=deployed,
        index=index,
        series=series,
        first=series.part(0, split),
        split=split,
        start_up=begin,
        capacity=capacity_of(deployed.autoscaler.metrics[index], carried, high),
        margin=MARGIN,
        bounds=[],
        may_raise_target=True,
        may_lower_min=True,
        ideal=recorded_ideal(inputs),
    )
    _check_hidden(world, ratios, high)
    _check_saturated(world, sorted(carried), high)
    _check_cycle(world)
    return world


def _check_known(series: LoadSeries, last: EvaluationInputs) -> None:
    known = sum(each is not None for each in series.tuned)
    if known < FEWEST:
        raise RefusedError(
            f"the load is known at {known} evaluations only; at least {FEWEST} are needed (half an hour of one "
            "every 15 s): tune again when more has been recorded, or choose an earlier --since"
        )
    if last.autoscaler.min_replicas == 0:
        raise RefusedError(
            "minReplicas is 0: what starting from nothing costs is not in the recording; set minReplicas to 1, "
            "and tune when that has been recorded"
        )


def _tuned_metric(asked: Sequence[Sequence[MetricNeed]]) -> int:
    """Which metric is tuned: the one that is the most demanding most often."""
    leads = Counter(max(row, key=lambda each: each.pods).index for row in asked if row)
    return leads.most_common(1)[0][0] if leads else 0


def _series(
    inputs: Sequence[EvaluationInputs],
    deployed: Candidate,
    asked: Sequence[Sequence[MetricNeed]],
    index: int,
    start_up_ms: int,
) -> LoadSeries:
    """The load at the deployed targets.

    What is lacking at the begin is no spec's fault, as pods that it asks for are not ready yet: overload does
    not count for that time.
    """
    scale = inputs[0].observation.scale
    assert isinstance(scale, Scale)
    lags = [
        max(0, each.now_ms - given.newest_ms)
        for each in inputs
        for given in deployed.answers(each)
        if isinstance(given, PodSamples | ExternalSamples) and given.newest_ms is not None
    ]
    times = [each.now_ms for each in inputs]
    settled_ms = times[0] + min(3 * start_up_ms + _SETTLE_MS, (times[-1] - times[0]) // 20)
    return LoadSeries(
        times_ms=times,
        spans_ms=spans_ms(times, inputs[-1].period_ms),
        tuned=[next((each.pods for each in row if each.index == index), None) for row in asked],
        others=[max((each.pods for each in row if each.index != index), default=0.0) for row in asked],
        replicas=scale.spec_replicas,
        lag_ms=round(median(lags)) if lags else 0,
        settled_ms=settled_ms,
    )


def capacity_text(world: TunedPast) -> str:
    """What overload is counted beyond."""
    spec = world.deployed.autoscaler.metrics[world.index]
    if spec.calculation == kinds.UTILIZATION and world.capacity == 100 / spec.target:
        return "100 % of the request"
    return f"{world.capacity * 100:.0f} % of the deployed target, which the recording shows to be carried"


def _check_hidden(world: TunedPast, ratios: Sequence[float | None], high: float) -> None:
    """At maxReplicas and above target: pods may have been asked for more than they took."""
    rows = [
        (span_ms, ratio, _is_at_max(each))
        for each, span_ms, ratio in zip(world.inputs, world.series.spans_ms, ratios, strict=True)
        if ratio is not None
    ]
    total = sum(span for span, _, _ in rows) or 1
    hidden = sum(span for span, ratio, at_max in rows if at_max and ratio > high) / total
    if hidden > _HIDDEN_SHARE:
        raise RefusedError(
            f"the recording was at maxReplicas and above its target for {hidden * 100:.0f} % of the time, so its true "
            "demand is not known; raise maxReplicas, and tune again when that has been recorded"
        )
    if hidden:
        world.bounds.append(
            f"the recording was at maxReplicas and above its target for {hidden * 100:.1f} % of the time: its true "
            "demand is not known there, so no higher target is proposed; raise maxReplicas, and tune again when "
            "that has been recorded"
        )
        world.may_raise_target = False


def _is_at_max(inputs: EvaluationInputs) -> bool:
    scale = inputs.observation.scale
    return isinstance(scale, Scale) and scale.spec_replicas >= inputs.autoscaler.max_replicas


def _check_saturated(world: TunedPast, ratios: Sequence[float], high: float) -> None:
    """Pods at a limit show the same highest use again and again. `ratios`: rising."""
    if not ratios or ratios[-1] <= 1.15 * high:
        return
    top = len(ratios) - bisect_left(ratios, ratios[-1] * 0.99)
    above = len(ratios) - bisect_left(ratios, high)
    if top >= max(8, 0.25 * above):
        world.bounds.append(
            f"{top} evaluations show the same highest load per pod, {ratios[-1]:.2f} times the target: pods were "
            "probably at their limit there, so no higher target is proposed; raise the limit of the container or lower "
            "the target, and tune again when that has been recorded"
        )
        world.may_raise_target = False


def _check_cycle(world: TunedPast) -> None:
    series = world.series
    length_ms = series.times_ms[-1] - series.times_ms[0]
    period_ms = cycle_ms(series.times_ms, series.tuned)
    if period_ms is not None and length_ms >= 2 * period_ms:
        if length_ms < 2 * DAY_MS:
            world.bounds.append("less than two days were recorded: what differs between days is not known")
        return
    if length_ms >= 14 * DAY_MS:
        return  # two weeks hold two of any cycle that people's lives give; this load has none
    world.bounds.append(
        "the recording does not show two periods of a cycle of the load: the proposal must hold under "
        f"{round((MARGIN_UNKNOWN - 1) * 100)} % more load than was recorded, and keeps minReplicas; "
        "an earlier --since, or tuning again later, may show them"
    )
    world.margin = MARGIN_UNKNOWN
    world.may_lower_min = False


class TriedSpec(Struct):
    """A spec in the compact loop. `changes`: rules of scale-up and tolerances that it sets. `grown`: under more load;
    None: it was not asked for, as the load that was recorded is too much already.
    """

    spec: dict[str, Any]
    target: float
    window_s: int
    changes: int
    plain: SpecOutcome
    grown: SpecOutcome | None = None
    allowed: bool | None = None


def tried_spec(world: TunedPast, spec: dict[str, Any], target: float, window_s: int, changes: int = 0) -> TriedSpec:
    """Let a spec live through the recorded load."""
    return TriedSpec(spec, target, window_s, changes, _play(world, spec, target, 1.0))


def grown(world: TunedPast, tried: TriedSpec) -> SpecOutcome:
    """The spec under more load than was recorded."""
    if tried.grown is None:
        tried.grown = _play(world, tried.spec, tried.target, world.margin)
    return tried.grown


def _play(world: TunedPast, spec: dict[str, Any], target: float, growth: float) -> SpecOutcome:
    tried = candidate(world.hpa, spec)
    knobs = Knobs(tried.autoscaler, world.inputs[-1].settings, target / world.deployed_target)
    length_ms = block_ms(world.first.times_ms)
    return play(world.first, knobs, world.start_up.ms, world.capacity, growth, block_ms=length_ms)


def curve_point(tried: TriedSpec) -> CurvePoint:
    """The rank of a spec among the others."""
    return CurvePoint(
        target=tried.target,
        min_replicas=1 if tried.spec.get("minReplicas") is None else tried.spec["minReplicas"],
        window_seconds=tried.window_s,
        replica_hours=tried.plain.replica_hours,
        overload_share=tried.plain.overload_share,
    )
