"""A better spec for one HPA from its own past: chosen on the first part of a recording, scored on the rest.

The search runs on a compact loop over the load (`surrogate.py`); what is reported comes from the closed loop, which
gives whole evaluations to the core. Overload is measured against the same capacity for every spec: 100 % of the request
for a utilization, else the highest load per pod that the recording shows to be usual. Nothing here is random: the same
recording gives the same proposal.
"""

import copy
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil
from statistics import median
from typing import Any, Literal, NamedTuple, TypeVar

from msgspec import Struct, structs

from schemas.keys import HpaId
from schemas.kubernetes.defaulting import set_defaults_v2
from schemas.kubernetes.hpa import metric_source
from streams.analysis.candidate import Candidate, CandidateError, candidate
from streams.analysis.capacity import capacity_of
from streams.analysis.closedloop import ClosedLoop
from streams.analysis.condensing import Condensed, condensed
from streams.analysis.loadcycle import cycle_ms
from streams.analysis.measures import Moment
from streams.analysis.podstartup import StartUp
from streams.analysis.recordedload import metric_load, needed
from streams.analysis.scores import Scores, scores
from streams.analysis.surrogate import Knobs, LoadSeries, SpecOutcome, outcome_of, play, series_spans_ms
from streams.analysis.tailrisk import as_safe, block_ms, worst_reach
from streams.hpa import autoscaler as kinds
from streams.hpa.metrics import tolerance_band
from streams.hpa.observation import ExternalSamples, PodSamples, Scale
from streams.state.probe import EvaluationInputs

Objective = Literal["cost", "safety", "balanced"]
FIRST_PART = 2 / 3
"""Share of the evaluations on which the spec is chosen."""
FEWEST = 120
"""Evaluations with known load below which nothing is proposed."""
MARGIN = 1.1
"""A proposal must also hold under this multiple of the recorded load."""
MARGIN_UNKNOWN = 1.25
"""The same where the recording does not show two periods of a cycle."""
LEAST_GAIN = 0.02
"""Share of the replica-hours that a proposal must save to be worth a change."""
DAY_MS = 86_400_000
_HIDDEN_SHARE = 0.05
_WINDOWS_S = (60, 300, 900)
_TARGETS = (*range(10, 40, 5), *range(40, 70, 2), *range(70, 101, 3))
_FACTORS = tuple(round(0.5 + 0.05 * step, 2) for step in range(23))
_COST_SHARE, _COST_OVERLOAD = 0.005, 0.001
_EVEN = 1e-9
_FINALISTS = 6
_SETTLE_MS = 120_000
"""How long the begin of a recording is; a few rounds of starting pods come on top. At most a twentieth of the whole."""
_MORE_RESERVE = 0.97
"""Highest load per pod that a finalist may have, as a share of that of the one before it."""
_STEPS_BACK = (1, 2, 4, 7)
_LINES_REFINED = 4
_LINES_VARIED = 2
_PRICE_OF_CHANGE = 0.005
"""What each rule of scale-up or tolerance that a spec changes must save at least, as a share of the replica-hours."""
_STEPS_WALKED = 4
_SLOW_UP_S = 60
_FAST_UP_PERCENT = 300
_FAST_UP = {"type": "Percent", "value": _FAST_UP_PERCENT, "periodSeconds": 15}
_SLOW_DOWN = [{"type": "Percent", "value": 10, "periodSeconds": 60}]
_DEFAULT_DOWN = [{"type": "Percent", "value": 100, "periodSeconds": 15}]


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


class _World(Struct):
    """The recording, read once."""

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


class _Tried(Struct):
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


class _Evidence(NamedTuple):
    """A spec in the closed loop: on the first part, on the rest, and on both with their blocks."""

    first: Side
    rest: Side
    whole: SpecOutcome


def tune(
    hpa: HpaId,
    recorded: Sequence[EvaluationInputs] | Condensed,
    objective: Objective = "balanced",
    within: Within | None = None,
) -> Tuning:
    """Search a spec for one HPA on its recorded evaluations, oldest first.

    Raises:
        RefusedError: the recording cannot carry a proposal.
    """
    world = _world(hpa, recorded)
    search = _Search(world, objective, within or Within())
    finalists = search.finalists()
    sides = _evidence(world, world.deployed)
    expected = worst_reach(sides.whole)
    if expected > 1.0 and objective != "cost":
        world.bounds.append(
            f"the recorded peaks differ so much that peaks of {expected:.2f} times what the pods carry have to be "
            "expected under the deployed spec: nothing is proposed that has to expect higher ones"
        )
    found, why = search.base, search.no_better
    withdrawn = 0
    proposed = sides
    for tried in finalists:
        own = _evidence(world, candidate(hpa, tried.spec))
        if not search.holds(own.first, sides.first):
            why = "what the search found did not hold in the closed loop on the part that it was chosen on"
        elif not search.holds(own.rest, sides.rest):
            why = "what the search found was worse than the deployed spec on the part that it had not seen"
        elif objective != "cost" and not as_safe(own.whole, sides.whole):
            why = "what the search found has to expect higher peaks of load per pod than the deployed spec"
        else:
            found, proposed, why = tried, own, ""
            break
        withdrawn += 1
    last = world.inputs[-1]
    return Tuning(
        hpa=hpa,
        objective=objective,
        since_ms=world.inputs[0].now_ms,
        until_ms=last.now_ms,
        split_ms=world.inputs[world.split].now_ms,
        evaluations=len(world.inputs),
        deployed=world.deployed.spec,
        spec=found.spec,
        changed=found is not search.base,
        why=why,
        metric=world.deployed.autoscaler.metrics[world.index].name,
        capacity=_capacity_text(world),
        cycle_ms=cycle_ms(world.series.times_ms, world.series.tuned),
        start_up=world.start_up,
        chosen_on=(sides.first, proposed.first),
        unseen=(sides.rest, proposed.rest),
        curve=search.curve(),
        deployed_point=_point(search.base),
        proposed_point=_point(found),
        bounds=world.bounds,
        tried=len(search.tried),
        withdrawn=withdrawn,
    )


# --- the recording ----------------------------------------------------------------------------------------------------


def _world(hpa: HpaId, recorded: Sequence[EvaluationInputs] | Condensed) -> _World:
    reduced = recorded if isinstance(recorded, Condensed) else condensed(hpa, recorded)
    inputs = reduced.inputs
    if not inputs:
        raise RefusedError("there is no evaluation with a known scale in this period")
    last = inputs[-1]
    try:
        deployed = candidate(hpa, last.spec)
    except CandidateError as error:
        raise RefusedError(str(error)) from error
    begin = reduced.start_up()
    index, series = _series(inputs, deployed, begin.ms)
    known = [each for each in series.tuned if each is not None]
    if len(known) < FEWEST:
        raise RefusedError(f"the load is known at {len(known)} evaluations only; at least {FEWEST} are needed")
    if last.autoscaler.min_replicas == 0:
        raise RefusedError("minReplicas is 0: what starting from nothing costs is not in the recording")
    split = round(len(inputs) * FIRST_PART)
    high = tolerance_band(last.autoscaler, last.settings)[1]
    world = _World(
        hpa=hpa,
        inputs=inputs,
        deployed=deployed,
        index=index,
        series=series,
        first=series.part(0, split),
        split=split,
        start_up=begin,
        capacity=_capacity(deployed, index, inputs, high),
        margin=MARGIN,
        bounds=[],
        may_raise_target=True,
        may_lower_min=True,
    )
    _check_hidden(world, high)
    _check_saturated(world, high)
    _check_cycle(world)
    return world


def _series(inputs: list[EvaluationInputs], deployed: Candidate, start_up_ms: int) -> tuple[int, LoadSeries]:
    """The load at the deployed targets, and which metric is tuned: the one that is the most demanding most often.

    What is lacking at the begin is no spec's fault, as pods that it asks for are not ready yet: overload does
    not count for that time.
    """
    rows: list[list[float | None]] = []
    lags: list[int] = []
    leads: Counter[int] = Counter()
    for each in inputs:
        pods = each.observation.pods
        answers = deployed.answers(each)
        row: list[float | None] = [None] * len(deployed.autoscaler.metrics)
        for at, (spec, given) in enumerate(zip(deployed.autoscaler.metrics, answers, strict=False)):
            load = metric_load(spec, given, pods)
            row[at] = needed(spec, load) if load is not None else None
            if isinstance(given, PodSamples | ExternalSamples) and given.newest_ms is not None:
                lags.append(max(0, each.now_ms - given.newest_ms))
        rows.append(row)
        values = [(value, -at) for at, value in enumerate(row) if value is not None]
        if values:
            leads[-max(values)[1]] += 1
    index = leads.most_common(1)[0][0] if leads else 0
    scale = inputs[0].observation.scale
    assert isinstance(scale, Scale)
    times = [each.now_ms for each in inputs]
    settled_ms = times[0] + min(3 * start_up_ms + _SETTLE_MS, (times[-1] - times[0]) // 20)
    return index, LoadSeries(
        times_ms=times,
        spans_ms=series_spans_ms(times, inputs[-1].period_ms),
        tuned=[row[index] if row else None for row in rows],
        others=[max((v for at, v in enumerate(row) if at != index and v is not None), default=0.0) for row in rows],
        replicas=scale.spec_replicas,
        lag_ms=round(median(lags)) if lags else 0,
        settled_ms=settled_ms,
    )


def _capacity(deployed: Candidate, index: int, inputs: list[EvaluationInputs], high: float) -> float:
    """What a pod carries, as a multiple of the deployed target."""
    spec = deployed.autoscaler.metrics[index]
    ratios: list[float] = []
    for each in inputs if spec.calculation != kinds.UTILIZATION else ():
        given = deployed.answers(each)
        load = metric_load(spec, given[index], each.observation.pods) if index < len(given) else None
        pods_needed = needed(spec, load) if load is not None else None
        if load is not None and pods_needed is not None and load.pods:
            ratios.append(pods_needed / load.pods)
    return capacity_of(spec, ratios, high)


def _capacity_text(world: _World) -> str:
    spec = world.deployed.autoscaler.metrics[world.index]
    if spec.calculation == kinds.UTILIZATION and world.capacity == 100 / spec.target:
        return "100 % of the request"
    return f"{world.capacity * 100:.0f} % of the deployed target, which the recording shows to be carried"


def _ratios(world: _World) -> Iterator[tuple[int, float, bool]]:
    """(milliseconds, recorded load over what the ready pods carry at target, was at maxReplicas)."""
    spec = world.deployed.autoscaler.metrics[world.index]
    for each, span_ms in zip(world.inputs, world.series.spans_ms, strict=True):
        given, scale = world.deployed.answers(each), each.observation.scale
        load = metric_load(spec, given[world.index], each.observation.pods) if world.index < len(given) else None
        pods_needed = needed(spec, load) if load is not None else None
        if load is not None and pods_needed is not None and load.pods and isinstance(scale, Scale):
            yield span_ms, pods_needed / load.pods, scale.spec_replicas >= each.autoscaler.max_replicas


def _check_hidden(world: _World, high: float) -> None:
    """At maxReplicas and above target: pods may have been asked for more than they took."""
    rows = list(_ratios(world))
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
            "demand is not known there, so no higher target is proposed"
        )
        world.may_raise_target = False


def _check_saturated(world: _World, high: float) -> None:
    """Pods at a limit show the same highest use again and again."""
    ratios = sorted(ratio for _, ratio, _ in _ratios(world))
    if not ratios or ratios[-1] <= 1.15 * high:
        return
    top = len(ratios) - bisect_left(ratios, ratios[-1] * 0.99)
    above = len(ratios) - bisect_left(ratios, high)
    if top >= max(8, 0.25 * above):
        world.bounds.append(
            f"{top} evaluations show the same highest load per pod, {ratios[-1]:.2f} times the target: pods were "
            "probably at their limit there, so no higher target is proposed"
        )
        world.may_raise_target = False


def _check_cycle(world: _World) -> None:
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
        f"{round((MARGIN_UNKNOWN - 1) * 100)} % more load than was recorded, and keeps minReplicas"
    )
    world.margin = MARGIN_UNKNOWN
    world.may_lower_min = False


# --- the search -------------------------------------------------------------------------------------------------------


class _Line(NamedTuple):
    """All of a spec that is searched but its target. `policies`: of scaleDown; None: the deployed ones."""

    window_s: int
    fewest: int
    largest: int
    policies: list[dict[str, Any]] | None
    varied: "_Varied"


class _Varied(NamedTuple):
    """Rules of scale-up, and tolerances in thousandths. None, False: as deployed."""

    up_window_s: int | None = None
    faster_up: bool = False
    up_tolerance: int | None = None
    down_tolerance: int | None = None

    @property
    def changes(self) -> int:
        """How many of them are not as deployed."""
        return sum(each is not None and each is not False for each in self)


class _Search:
    """Every spec that was tried on the first part, and what may be proposed."""

    def __init__(self, world: _World, objective: Objective, within: Within) -> None:
        self.world, self.objective, self.within = world, objective, within
        spec = world.deployed.autoscaler.metrics[world.index]
        self.utilization = spec.calculation == kinds.UTILIZATION
        self.deployed_target = float(spec.target) if self.utilization else 100.0
        self.tried: dict[tuple[Any, ...], _Tried] = {}
        down = world.deployed.autoscaler.scale_down
        stabilization_ms = world.inputs[-1].settings.downscale_stabilization_ms
        own_ms = stabilization_ms if down is None or down.window_ms is None else down.window_ms
        self.window_s = own_ms // 1000
        self.least, self.most = world.deployed.autoscaler.min_replicas, world.deployed.autoscaler.max_replicas
        self.base = self._played(world.deployed.spec, self.deployed_target, self.window_s)
        self.no_better = "no spec that was tried is better within the objective"
        self.lines: list[tuple[int, _Line]] = []

    def finalists(self) -> list[_Tried]:
        """What may be proposed, best first; each of them in the compact loop not worse than the deployed spec.

        Where a spec is not confirmed, a larger peak came than it had reserve for: each next one has more reserve.
        """
        self._grid(self._targets(), self._windows(), self._least(), self._most())
        self._vary(self._targets())
        found: list[_Tried] = []
        for each in sorted((each for each in self.tried.values() if self._is_better(each)), key=self._rank):
            if not found or each.plain.worst <= found[-1].plain.worst * _MORE_RESERVE:
                found.append(each)
        return found[:_FINALISTS]

    def _grid(self, targets: list[float], windows: list[int], least: list[int], most: list[int]) -> None:
        ends: list[tuple[_Tried, int, _Line]] = []
        for window_s in windows:
            for fewest in least:
                for largest in most:
                    for policies in (None, _DEFAULT_DOWN, _SLOW_DOWN):
                        if policies is _SLOW_DOWN and window_s > 120:
                            continue  # a long window already holds what slow steps would
                        if policies is not None and policies == self._own_policies():
                            continue
                        line = _Line(window_s, fewest, largest, policies, _Varied())
                        end = self._end(targets, line)
                        if end is not None:
                            ends.append((self._try(targets[end], line), end, line))
        # The targets before the end of the best lines: what a finalist with more reserve can be taken from.
        ends.sort(key=lambda each: self._rank(each[0]))
        for _, end, line in ends[:_LINES_REFINED]:
            for back in _STEPS_BACK:
                at = end + back if self.objective == "safety" else end - back
                if 0 <= at < len(targets):
                    self._try(targets[at], line)
        self.lines = [(end, line) for _, end, line in ends[:_LINES_VARIED]]

    def _vary(self, targets: list[float]) -> None:
        """The best lines with other rules of scale-up and other tolerances."""
        for near, line in self.lines:
            for varied in self._variations():
                self._walk(targets, line._replace(varied=varied), near)

    def _walk(self, targets: list[float], line: _Line, near: int) -> None:
        """Try targets from `near` on, upwards while they are allowed, else downwards until one is."""
        at = near
        if self._good(targets, at, line):
            while at + 1 < len(targets) and at < near + _STEPS_WALKED and self._good(targets, at + 1, line):
                at += 1
            return
        while at > max(0, near - _STEPS_WALKED) and not self._good(targets, at, line):
            at -= 1

    def _good(self, targets: list[float], at: int, line: _Line) -> bool:
        tried = self._try(targets[at], line)
        if self.objective == "safety":  # lower targets cost more
            return tried.plain.replica_hours > self.base.plain.replica_hours
        return self._allowed(tried)

    def _variations(self) -> list[_Varied]:
        """Scale-up is never slower than deployed, but for the objective cost."""
        eager = [_Varied(up_tolerance=0), _Varied(down_tolerance=50), _Varied(up_tolerance=0, down_tolerance=50)]
        found = [
            each
            for each in eager
            if _inside([t / 1000 for t in each[2:] if t is not None], self.within.tolerance)
            == [t / 1000 for t in each[2:] if t is not None]
        ]
        up = self.world.deployed.autoscaler.scale_up
        window_ms = (up.window_ms or 0) if up is not None else 0
        if window_ms:
            found.append(_Varied(up_window_s=0))
        if self.objective == "cost" and window_ms < _SLOW_UP_S * 1_000:
            found.append(_Varied(up_window_s=_SLOW_UP_S))
        rules = (self.world.deployed.spec.get("behavior") or {}).get("scaleUp") or {}
        most = rules.get("selectPolicy", "Max") == "Max" and _FAST_UP not in (rules.get("policies") or [])
        if most and _inside([_FAST_UP_PERCENT], self.within.scale_up_percent):
            found += [each._replace(faster_up=True) for each in (_Varied(), *found)]
        return found

    def _end(self, targets: list[float], line: _Line) -> int | None:
        """The end of what is allowed among rising targets, by halving: cost falls and overload rises with them."""
        low, high = 0, len(targets)
        while low < high:
            middle = (low + high) // 2
            tried = self._try(targets[middle], line)
            if self.objective == "safety":
                # Lower targets cost more: the lowest that costs no more than the deployed spec.
                if tried.plain.replica_hours <= self.base.plain.replica_hours:
                    high = middle
                else:
                    low = middle + 1
            elif self._allowed(tried):
                low = middle + 1
            else:
                high = middle
        end = low if self.objective == "safety" else low - 1
        return end if 0 <= end < len(targets) else None

    def _own_policies(self) -> Any:
        behavior = self.world.deployed.spec.get("behavior") or {}
        return (behavior.get("scaleDown") or {}).get("policies")

    # what is tried

    def _targets(self) -> list[float]:
        highest = 100.0 if self.utilization else self.world.capacity * 100
        if not self.world.may_raise_target:
            highest = min(highest, self.deployed_target)
        found = {float(each) for each in _TARGETS} if self.utilization else {each * 100 for each in _FACTORS}
        found = {each for each in found if each <= highest} | {self.deployed_target}
        return _inside(sorted(found), self.within.target)

    def _windows(self) -> list[int]:
        return _inside(sorted({*_WINDOWS_S, self.window_s}), self.within.window)

    def _least(self) -> list[int]:
        """From one or two pods, which the deployed minimum decides; for safety also what the load nearly always needs,
        and what it needs half of the time. For cost, a higher minimum would cost too much in quiet times that are not
        recorded.
        """
        floor = min(self.least, 2) if self.world.may_lower_min else self.least
        needs = sorted(each / self.world.capacity for each in self.world.first.tuned if each is not None)
        shares = (0.05, 0.5) if self.objective == "safety" else ()
        quantiles = {max(1, ceil(needs[int(len(needs) * share)])) for share in shares}
        found = {each for each in {floor, self.least, *quantiles} if floor <= each <= self.most}
        return _inside(sorted(found), self.within.min_replicas)

    def _most(self) -> list[int]:
        """The maximum protects what the log does not know, a budget or a quota: it is only ever raised, where it bound
        while the load was known.
        """
        found = {self.most}
        if self.base.plain.at_max_share and self.world.may_raise_target:
            peak = max(each for each in self.world.first.tuned if each is not None)
            found.add(max(self.most, ceil(1.2 * peak)))
        return _inside(sorted(found), self.within.max_replicas)

    def _try(self, target: float, line: _Line) -> _Tried:
        key = (target, line._replace(policies=None), None if line.policies is None else repr(line.policies))
        if key not in self.tried:
            self.tried[key] = self._played(self._spec(target, line), target, line.window_s, line.varied.changes)
        return self.tried[key]

    def _spec(self, target: float, line: _Line) -> dict[str, Any]:
        """The deployed spec with these values; what stays the same is not touched."""
        spec = copy.deepcopy(self.world.deployed.spec)
        if target != self.deployed_target:
            _set_target(spec["metrics"][self.world.index], self._milli(target), utilization=self.utilization)
        spec["minReplicas"], spec["maxReplicas"] = line.fewest, line.largest
        if line.window_s != self.window_s:
            spec.setdefault("behavior", {}).setdefault("scaleDown", {})["stabilizationWindowSeconds"] = line.window_s
        if line.policies is not None:
            spec.setdefault("behavior", {}).setdefault("scaleDown", {})["policies"] = copy.deepcopy(line.policies)
        varied = line.varied
        if varied.changes:
            behavior = spec.setdefault("behavior", {})
            up, down = behavior.setdefault("scaleUp", {}), behavior.setdefault("scaleDown", {})
            set_defaults_v2({"spec": spec})
            if varied.up_window_s is not None:
                up["stabilizationWindowSeconds"] = varied.up_window_s
            if varied.faster_up:
                up["policies"] = [*up["policies"], dict(_FAST_UP)]
            for rules, tolerance in ((up, varied.up_tolerance), (down, varied.down_tolerance)):
                if tolerance is not None:
                    rules["tolerance"] = f"{tolerance}m" if tolerance else "0"
        set_defaults_v2({"spec": spec})
        return spec

    def _milli(self, target: float) -> int:
        """The target as the spec has it: percent, or thousandths."""
        if self.utilization:
            return round(target)
        return max(1, round(self.world.deployed.autoscaler.metrics[self.world.index].target * target / 100))

    def _played(self, spec: dict[str, Any], target: float, window_s: int, changes: int = 0) -> _Tried:
        return _Tried(spec, target, window_s, changes, self._play(spec, target, 1.0))

    def _play(self, spec: dict[str, Any], target: float, growth: float) -> SpecOutcome:
        world = self.world
        tried = candidate(world.hpa, spec)
        knobs = Knobs(tried.autoscaler, world.inputs[-1].settings, target / self.deployed_target)
        length_ms = block_ms(world.first.times_ms)
        return play(world.first, knobs, world.start_up.ms, world.capacity, growth, block_ms=length_ms)

    def _grown(self, tried: _Tried) -> SpecOutcome:
        """The spec under more load than was recorded."""
        if tried.grown is None:
            tried.grown = self._play(tried.spec, tried.target, self.world.margin)
        return tried.grown

    # what is better

    def _allowed(self, tried: _Tried) -> bool:
        """Not more overload than the deployed spec has, as recorded and with the margin."""
        base = self.base
        if tried.allowed is None:
            as_safe_as = self.objective == "cost" or as_safe(tried.plain, base.plain)
            calm = as_safe_as and self._calm(tried.plain, base.plain)
            tried.allowed = calm and self._calm(self._grown(tried), self._grown(base))
        return tried.allowed

    def _calm(self, own: SpecOutcome | Side, was: SpecOutcome | Side) -> bool:
        share = _COST_SHARE if self.objective == "cost" else _EVEN
        overload = _COST_OVERLOAD if self.objective == "cost" else _EVEN
        return own.overload_share <= was.overload_share + share and own.overload <= was.overload + overload

    def _is_better(self, tried: _Tried) -> bool:
        own, was = tried.plain, self.base.plain
        if self.objective == "safety":
            before = was.overload + self._grown(self.base).overload
            fewer = own.overload + self._grown(tried).overload < before * 0.95 - _EVEN
            return fewer and self._allowed(tried) and own.replica_hours <= was.replica_hours
        return self._allowed(tried) and own.replica_hours < was.replica_hours * (1 - LEAST_GAIN)

    def _rank(self, tried: _Tried) -> tuple[float, ...]:
        price = tried.plain.replica_hours * (1 + _PRICE_OF_CHANGE * tried.changes)
        hours = (price, float(tried.plain.scale_events), tried.target, float(tried.window_s))
        if self.objective == "safety":
            return (tried.plain.overload + self._grown(tried).overload, *hours)
        return hours

    def holds(self, own: Side, was: Side) -> bool:
        """Whether the closed loop confirms, on some part: no more overload and, in hours, no more cost."""
        return self._calm(own, was) and own.replica_hours <= was.replica_hours * (1 + _EVEN)

    def curve(self) -> list[CurvePoint]:
        """The specs that no other one beats in both cost and overload, cheapest first."""
        found: list[CurvePoint] = []
        least_overload = float("inf")
        for each in sorted(self.tried.values(), key=lambda t: (t.plain.replica_hours, t.plain.overload_share)):
            if each.plain.overload_share < least_overload:
                least_overload = each.plain.overload_share
                found.append(_point(each))
        return found


_Number = TypeVar("_Number", int, float)


def _inside(values: list[_Number], bounds: tuple[float | None, float | None]) -> list[_Number]:
    low, high = bounds
    return [each for each in values if (low is None or each >= low) and (high is None or each <= high)]


def _set_target(metric: dict[str, Any], value: int, *, utilization: bool) -> None:
    target = metric_source(metric)["target"]
    if utilization:
        target["averageUtilization"] = value
        return
    field = "value" if target.get("type") == "Value" else "averageValue"
    target[field] = str(value // 1000) if value % 1000 == 0 else f"{value}m"


def _point(tried: _Tried) -> CurvePoint:
    return CurvePoint(
        target=tried.target,
        min_replicas=1 if tried.spec.get("minReplicas") is None else tried.spec["minReplicas"],
        window_seconds=tried.window_s,
        replica_hours=tried.plain.replica_hours,
        overload_share=tried.plain.overload_share,
    )


# --- the evidence -----------------------------------------------------------------------------------------------------


def _evidence(world: _World, tried: Candidate) -> _Evidence:
    """A spec in the closed loop over the whole recording."""
    moments = ClosedLoop(tried, world.start_up.ms).run(world.inputs)
    return _Evidence(
        first=_side(world, tried, moments, 0, world.split),
        rest=_side(world, tried, moments, world.split, len(moments)),
        whole=outcome_of(world.series, moments, world.capacity, block_ms(world.series.times_ms)),
    )


def _side(world: _World, tried: Candidate, moments: list[Moment], begin: int, end: int) -> Side:
    """Load at the deployed target, capacity the same for every spec."""
    part = world.series.part(begin, end)
    own = moments[begin:end]
    made = outcome_of(part, own, world.capacity)
    least, most = tried.autoscaler.min_replicas, tried.autoscaler.max_replicas
    loads = [
        None if tuned is None else max(tuned, other or 0.0) / world.capacity
        for tuned, other in zip(part.tuned, part.others, strict=True)
    ]
    same = [structs.replace(moment, need=load) for moment, load in zip(own, loads, strict=True)]
    return Side(
        replica_hours=made.replica_hours,
        overload_share=made.overload_share,
        overload=made.overload,
        worst=made.worst,
        scale_events=made.scale_events,
        scores=scores(same, world.inputs[-1].period_ms, least, most, world.start_up.ms),
    )
