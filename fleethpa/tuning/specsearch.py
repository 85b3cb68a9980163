"""A better spec for one HPA from its own past: a plain search over backtests in the closed loop.

Every spec runs through the recording and is scored against the ideal autoscaler (`streams.analysis.ideal`), each half
of the recording by itself: a proposal is worse in neither. What changes is the window of scale-down, minReplicas and
the target of the metric that is most often the most demanding one. Nothing is random: the same recording gives the same
proposal.
"""

import copy
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from functools import partial
from math import ceil
from operator import ne
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from fleethpa.show.words import percent
from schemas.keys import HpaId
from schemas.kubernetes.metricspecs import metric_source
from schemas.kubernetes.versions import set_defaults_v2
from streams.analysis.backtest import Condensed, condensed, recorded_moments
from streams.analysis.candidate import Candidate, CandidateError, candidate
from streams.analysis.closedloop import ClosedLoop, StartUp
from streams.analysis.ideal import ideal, recorded_loads
from streams.analysis.load import MetricNeed, capacity_of, cycle_ms, needs
from streams.analysis.measures import Scores, by_hours, scores
from streams.analysis.podbase import base_per_pod
from streams.hpa import autoscaler as kinds
from streams.hpa.metrics import tolerance_band
from streams.hpa.observation import Scale
from streams.state.inputs import EvaluationInputs

Objective = Literal["cost", "safety", "balanced"]
LEAST_GAIN = 0.02
"""Share of the replica-hours that a proposal must save to be worth a change."""
WORTH_RELIEF = 0.0005
"""Share of the time with too few pods from which it is worth paying for less: three quarters of a minute a day."""
RELIEF = 0.5
"""Share of what was missing that a proposal for safety may keep."""
MOST_DEARER = 1.5
"""What such a proposal may cost at most, as a multiple of the deployed spec."""
FEWEST = 120
"""Evaluations with known load below which nothing is proposed."""
RESERVE = 1.1
"""A proposal must also carry this multiple of the recorded load."""
RESERVE_UNKNOWN = 1.25
"""The same where the recording does not show two periods of a cycle."""
MOST_OTHERS = 3
"""Specs that are reported where nothing is proposed: they save something and have too few pods more often."""
NO_BETTER = "no spec that was tried is better within the objective in both halves of the recording"
NOTHING_TO_SPARE = "the deployed spec hardly ever had too few pods"
_COST_SHARE, _COST_MISSING = 0.005, 0.001
_HIDDEN_SHARE = 0.05
_DAY_MS = 86_400_000
_EVEN = 1e-9
_RESERVE_SHARE = 0.001
"""By how much more of the time than the deployed spec a proposal may have too few pods for the load with the reserve:
an evaluation or two of a day."""
_WINDOWS_S = (60, 300)
_TARGETS = tuple(range(10, 101, 5))
_FACTORS = tuple(range(50, 161, 10))


class RefusedError(Exception):
    """The recording cannot carry a proposal; says why and what to do."""


class Within(Struct, frozen=True, kw_only=True):
    """What a proposal must keep to, both ends included; None: open. Targets are percent of the request, or of the
    deployed target for a metric that is no utilization. Windows are those of scaleDown, in seconds.
    """

    target: tuple[float | None, float | None] = (None, None)
    min_replicas: tuple[float | None, float | None] = (None, None)
    window: tuple[float | None, float | None] = (None, None)


class SpecValues(NamedTuple):
    """What a search changes in a spec: target (as in `Within`), window of scaleDown in seconds, minReplicas."""

    target: float
    window_s: int
    min_replicas: int


class TriedSpec(Struct, frozen=True):
    """A spec in the closed loop. `halves`: its scores over each half of the recording. `without_reserve`: for each half
    the share of the time in which it had too few pods for the load with the reserve.
    """

    values: SpecValues
    spec: dict[str, Any]
    halves: tuple[Scores, Scores]
    without_reserve: tuple[float, float]

    @property
    def total(self) -> Scores:
        """Its scores over the recording."""
        return by_hours(self.halves)


class Tuning(Struct, frozen=True, kw_only=True):
    """What an HPA costs against the ideal autoscaler, and what was found for it.

    `recorded`: what ran. `proposed`: None: no spec is better, which `why` explains; `others` are then specs that save
    something at the price of too few pods, most saving first. `metric`: whose target was searched; `capacity`: what a
    pod carries of it, as text. `tried`: how many specs.
    """

    hpa: HpaId
    objective: Objective
    since_ms: int
    until_ms: int
    split_ms: int
    evaluations: int
    recorded: Scores
    deployed: TriedSpec
    proposed: TriedSpec | None
    others: list[TriedSpec]
    why: str
    metric: str
    capacity: str
    start_up: StartUp
    bounds: list[str]
    tried: int

    @property
    def saved(self) -> float:
        """Replica-hours that the proposal saves; below 0: it costs more, for the objective safety only."""
        return 0.0 if self.proposed is None else self.deployed.total.replica_hours - self.proposed.total.replica_hours


# --- the recording ----------------------------------------------------------------------------------------------------


class TunedPast:
    """The recording of one HPA, read once for a search.

    `index`: the metric whose target is searched. `loads`: pods that the ideal autoscaler's pods carry, None: not known.
    `reserve`: multiple of the load that a proposal must carry. `bounds`: what the recording cannot show, as text.
    """

    def __init__(self, hpa: HpaId, recorded: Condensed) -> None:
        """Raises RefusedError: the recording cannot carry a proposal."""
        self.hpa, self.inputs = hpa, recorded.inputs
        if not self.inputs:
            raise RefusedError("there is no evaluation with a known scale in this period: choose an earlier --since")
        last = self.inputs[-1]
        self.period_ms, self.start_up = last.period_ms, recorded.start_up()
        try:
            self.deployed = candidate(hpa, last.spec)
        except CandidateError as error:
            raise RefusedError(str(error)) from error
        if (base := base_per_pod(self.inputs)) is not None:
            raise RefusedError(base.text)
        rows = [needs(self.deployed.autoscaler, self.deployed.answers(e), e.observation.pods) for e in self.inputs]
        self.index = _tuned_metric(rows)
        self.loads = recorded_loads(self.inputs)
        self._check_known()
        self.high = tolerance_band(last.autoscaler, last.settings)[1]
        ratios = [next((each.ratio for each in row if each.index == self.index), None) for row in rows]
        carried = sorted(ratio for ratio in ratios if ratio is not None)
        self.capacity = capacity_of(self.deployed.autoscaler.metrics[self.index], carried, self.high)
        self.bounds: list[str] = []
        self.may_raise_target = True
        self.reserve = RESERVE
        self._check_hidden(ratios)
        self._check_saturated(carried)
        self._check_cycle()

    @property
    def utilization(self) -> bool:
        """Return whether the tuned metric has a target in percent of the request."""
        return self.deployed.autoscaler.metrics[self.index].calculation == kinds.UTILIZATION

    @property
    def values(self) -> SpecValues:
        """Return what is deployed."""
        spec = self.deployed.autoscaler
        down_ms = self.inputs[-1].settings.downscale_stabilization_ms
        if spec.scale_down is not None and spec.scale_down.window_ms is not None:
            down_ms = spec.scale_down.window_ms
        target = float(spec.metrics[self.index].target) if self.utilization else 100.0
        return SpecValues(target, down_ms // 1000, spec.min_replicas)

    @property
    def capacity_text(self) -> str:
        """Return what a pod carries."""
        if self.utilization and self.capacity == 100 / self.deployed.autoscaler.metrics[self.index].target:
            return "100% of the request"
        return f"{percent(self.capacity, 0)} of the deployed target, which the recording shows to be carried"

    def spec(self, values: SpecValues) -> dict[str, Any]:
        """The deployed spec with these values; what stays the same is not touched."""
        spec, now = copy.deepcopy(self.deployed.spec), self.values
        if values.target != now.target:
            target = metric_source(spec["metrics"][self.index])["target"]
            if self.utilization:
                target["averageUtilization"] = round(values.target)
            else:
                milli = max(1, round(self.deployed.autoscaler.metrics[self.index].target * values.target / 100))
                field = "value" if target.get("type") == "Value" else "averageValue"
                target[field] = f"{milli}m" if milli % 1000 else str(milli // 1000)
        spec["minReplicas"] = values.min_replicas
        if values.window_s != now.window_s:
            down = spec.setdefault("behavior", {}).setdefault("scaleDown", {})
            down["stabilizationWindowSeconds"] = values.window_s
        set_defaults_v2({"spec": spec})
        return spec

    def _check_known(self) -> None:
        known = sum(each is not None for each in self.loads)
        if known < FEWEST:
            raise RefusedError(
                f"the load is known at {known} evaluations only; at least {FEWEST} are needed (half an hour of one "
                "every 15 s): tune again when more has been recorded, or choose an earlier --since"
            )
        if self.deployed.autoscaler.min_replicas == 0:
            raise RefusedError(
                "minReplicas is 0: what starting from nothing costs is not in the recording; set minReplicas to 1, "
                "and tune when that has been recorded"
            )

    def _check_hidden(self, ratios: Sequence[float | None]) -> None:
        """At maxReplicas and above target: pods may have been asked for more than they took."""
        known = [(each, ratio) for each, ratio in zip(self.inputs, ratios, strict=True) if ratio is not None]
        hidden = sum(ratio > self.high and _is_at_max(each) for each, ratio in known) / (len(known) or 1)
        text = f"the recording was at maxReplicas and above its target for {percent(hidden)} of the time, so "
        next_step = "raise maxReplicas, and tune again when that has been recorded"
        if hidden > _HIDDEN_SHARE:
            raise RefusedError(f"{text}its true demand is not known; {next_step}")
        if hidden:
            self.bounds.append(f"{text}no higher target is proposed; {next_step}")
            self.may_raise_target = False

    def _check_saturated(self, ratios: Sequence[float]) -> None:
        """Pods at a limit show the same highest use again and again. `ratios`: rising."""
        if not ratios or ratios[-1] <= 1.15 * self.high:
            return
        top = len(ratios) - bisect_left(ratios, ratios[-1] * 0.99)
        above = len(ratios) - bisect_left(ratios, self.high)
        if top >= max(8, 0.25 * above):
            self.bounds.append(
                f"{top} evaluations show the same highest load per pod, {ratios[-1]:.2f} times the target: pods were "
                "probably at their limit there, so no higher target is proposed; raise the limit of the container or "
                "lower the target, and tune again when that has been recorded"
            )
            self.may_raise_target = False

    def _check_cycle(self) -> None:
        times_ms = [each.now_ms for each in self.inputs]
        length_ms = times_ms[-1] - times_ms[0]
        period_ms = cycle_ms(times_ms, self.loads)
        if period_ms is not None and length_ms >= 2 * period_ms:
            if length_ms < 2 * _DAY_MS:
                self.bounds.append("less than two days were recorded: what differs between days is not known")
        elif length_ms < 14 * _DAY_MS:  # two weeks hold two of any cycle that people's lives give
            self.bounds.append(
                "the recording does not show two periods of a cycle of the load: a proposal must carry "
                f"{round((RESERVE_UNKNOWN - 1) * 100)}% more load than was recorded; an earlier --since, or tuning "
                "again later, may show them"
            )
            self.reserve = RESERVE_UNKNOWN


def _is_at_max(inputs: EvaluationInputs) -> bool:
    scale = inputs.observation.scale
    return isinstance(scale, Scale) and scale.spec_replicas >= inputs.autoscaler.max_replicas


def _tuned_metric(asked: Sequence[Sequence[MetricNeed]]) -> int:
    """The metric that is the most demanding one most often."""
    leads = Counter(max(row, key=lambda each: each.pods).index for row in asked if row)
    return leads.most_common(1)[0][0] if leads else 0


# --- the search -------------------------------------------------------------------------------------------------------


class SpecSearch:
    """Tries specs on one recording and compares them with the deployed one."""

    def __init__(self, past: TunedPast, objective: Objective, within: Within) -> None:
        self.past, self.objective, self.within = past, objective, within
        self.split = len(past.inputs) // 2
        self.ideal = ideal(past.loads)
        self.with_reserve = ideal(None if load is None else load * past.reserve for load in past.loads)
        self.tried: dict[SpecValues, TriedSpec] = {}
        self.deployed = self._run(past.values, past.deployed)

    def run(self) -> TriedSpec | None:
        """Return the best spec; None: none is better.

        minReplicas is chosen at the deployed target and window, then for each window the highest target that is calm.
        """
        line = self._with_least(self.past.values)
        targets = self._targets()
        for window_s in self._windows():
            bisect_left(targets, True, key=partial(self._is_too_high, line._replace(window_s=window_s)))
        return min(filter(self.is_better, self.tried.values()), key=self._price, default=None)

    def try_spec(self, values: SpecValues) -> TriedSpec:
        """Run a spec through the recording; one that was tried before is known."""
        if values not in self.tried:
            self._run(values, candidate(self.past.hpa, self.past.spec(values)))
        return self.tried[values]

    def is_better(self, tried: TriedSpec) -> bool:
        """Return whether it may be proposed: it is calm and, but for safety, saves enough and is never dearer."""
        own, was = tried.total.replica_hours, self.deployed.total.replica_hours
        if not self._is_within(tried.values) or not self._is_calm(tried):
            return False
        if self.objective == "safety":
            return own <= was * MOST_DEARER
        pairs = zip(tried.halves, self.deployed.halves, strict=True)
        is_dearer = any(mine.replica_hours > deployed.replica_hours * (1 + _EVEN) for mine, deployed in pairs)
        return own < was * (1 - LEAST_GAIN) and not is_dearer

    def cheaper(self) -> list[TriedSpec]:
        """Specs that save something and have too few pods more often: the most saving first, each next one with fewer
        moments of too few.
        """
        specs: list[TriedSpec] = []
        most = self.deployed.total.replica_hours * (1 - LEAST_GAIN)
        for each in sorted(self.tried.values(), key=self._price):
            is_one = each.total.replica_hours < most and self._is_within(each.values)
            if is_one and (not specs or each.total.too_few_share < specs[-1].total.too_few_share):
                specs.append(each)
        return specs[-MOST_OTHERS:]

    def _run(self, values: SpecValues, tried: Candidate) -> TriedSpec:
        moments = ClosedLoop(tried, self.past.start_up.ms).run(self.past.inputs)
        cut, period_ms = (slice(0, self.split), slice(self.split, len(moments))), self.past.period_ms
        first, other = (scores(moments[half], period_ms, self.ideal[half]) for half in cut)
        short = [scores(moments[half], period_ms, self.with_reserve[half]).too_few_share for half in cut]
        tried_spec = TriedSpec(values, tried.spec, (first, other), (short[0], short[1]))
        self.tried[values] = tried_spec
        return tried_spec

    def _is_calm(self, tried: TriedSpec) -> bool:
        """Return whether it has too few pods seldom enough.

        For safety: half as often as the deployed spec. Else in each half of the recording no more often than that (for
        the objective cost: hardly more), and hardly more with the reserve.
        """
        if self.objective == "safety":
            mine, deployed = tried.total, self.deployed.total
            less = mine.too_few_share <= deployed.too_few_share * RELIEF
            return less and mine.too_few_replica_hours <= deployed.too_few_replica_hours * RELIEF
        share, missing = (_COST_SHARE, _COST_MISSING) if self.objective == "cost" else (_EVEN, 0.0)
        pairs = zip(tried.halves, self.deployed.halves, strict=True)
        reserves = zip(tried.without_reserve, self.deployed.without_reserve, strict=True)
        return all(
            mine.too_few_share <= deployed.too_few_share + share
            and mine.too_few_replica_hours <= deployed.too_few_replica_hours + deployed.replica_hours * missing + _EVEN
            for mine, deployed in pairs
        ) and all(mine <= deployed + max(share, _RESERVE_SHARE) for mine, deployed in reserves)

    def _is_too_high(self, line: SpecValues, target: float) -> bool:
        """Return whether a target is beyond those that are calm: time with too few pods rises with the target."""
        return not self._is_calm(self.try_spec(line._replace(target=target)))

    def _price(self, tried: TriedSpec) -> tuple[float, ...]:
        """Return what a spec costs; of equal ones the steadier, then what changes less, then the more careful one."""
        whole, changed = tried.total, sum(map(ne, tried.values, self.past.values))
        return (whole.replica_hours, whole.adaptations_per_hour, changed, tried.values.target, tried.values.window_s)

    # what is tried

    def _is_within(self, values: SpecValues) -> bool:
        pairs = (
            (values.target, self.within.target),
            (values.window_s, self.within.window),
            (values.min_replicas, self.within.min_replicas),
        )
        return all(_is_inside(value, bounds) for value, bounds in pairs)

    def _windows(self) -> list[int]:
        windows = sorted({*_WINDOWS_S, self.past.values.window_s})
        return [each for each in windows if _is_inside(each, self.within.window)]

    def _with_least(self, line: SpecValues) -> SpecValues:
        """The cheapest minReplicas that is calm. It falls by half at a time, and never below 2 or what is deployed."""
        now = line.min_replicas
        counts = {now, max(min(now, 2), ceil(now / 2))}
        counts |= {ceil(end) for end in self.within.min_replicas if end is not None}
        most = self.past.deployed.autoscaler.max_replicas
        allowed = [each for each in sorted(counts) if 1 <= each <= most and _is_inside(each, self.within.min_replicas)]
        tried = [self.try_spec(line._replace(min_replicas=each)) for each in allowed]
        calm = [each for each in tried if self._is_calm(each)] or tried[:1] or [self.deployed]
        return min(calm, key=self._price).values

    def _targets(self) -> list[float]:
        """Rising; as in `Within`. A pod that is at its target can carry the reserve, but for the deployed one."""
        now = self.past.values.target
        highest = (100.0 if self.past.utilization else self.past.capacity * 100) / self.past.reserve
        if not self.past.may_raise_target:
            highest = min(highest, now)
        targets = {float(each) for each in (_TARGETS if self.past.utilization else _FACTORS) if each <= highest} | {now}
        return [each for each in sorted(targets) if _is_inside(each, self.within.target)]


def _is_inside(value: float, bounds: tuple[float | None, float | None]) -> bool:
    low, high = bounds
    return (low is None or value >= low) and (high is None or value <= high)


def tune(
    hpa: HpaId,
    recorded: Sequence[EvaluationInputs] | Condensed,
    objective: Objective = "balanced",
    within: Within | None = None,
) -> Tuning:
    """Search a spec for one HPA on its recorded evaluations, oldest first.

    Raises RefusedError: the recording cannot carry a proposal.
    """
    past = TunedPast(hpa, recorded if isinstance(recorded, Condensed) else condensed(hpa, recorded))
    search = SpecSearch(past, objective, within or Within())
    is_worth = objective != "safety" or search.deployed.total.too_few_share >= WORTH_RELIEF
    proposed = search.run() if is_worth else None
    return Tuning(
        hpa=hpa,
        objective=objective,
        since_ms=past.inputs[0].now_ms,
        until_ms=past.inputs[-1].now_ms,
        split_ms=past.inputs[search.split].now_ms,
        evaluations=len(past.inputs),
        recorded=scores(recorded_moments(past.inputs), past.period_ms, search.ideal),
        deployed=search.deployed,
        proposed=proposed,
        others=[] if proposed is not None else search.cheaper(),
        why="" if proposed is not None else NO_BETTER if is_worth else NOTHING_TO_SPARE,
        metric=past.deployed.autoscaler.metrics[past.index].name,
        capacity=past.capacity_text,
        start_up=past.start_up,
        bounds=past.bounds,
        tried=len(search.tried),
    )
