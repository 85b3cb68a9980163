"""A better spec for one HPA from its own past: chosen on the first part of a recording, scored on the rest.

The search tries specs on a compact loop over the load (`surrogate.py`) and compares them by objective and safety; what
is reported comes from the closed loop, which gives whole evaluations to the core. Overload is measured against the same
capacity for every spec: 100 % of the request for a utilization, else the highest load per pod that the recording shows
to be usual. Nothing is random: the same recording gives the same proposal.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from msgspec import Struct, structs

from schemas.keys import HpaId
from streams.analysis.backtest import Condensed
from streams.analysis.candidate import Candidate, candidate
from streams.analysis.closedloop import ClosedLoop
from streams.analysis.load import cycle_ms
from streams.analysis.measures import Moment, scores
from streams.analysis.tuning.recording import (
    LEAST_GAIN,
    WORTH_RELIEF,
    CurvePoint,
    Objective,
    Side,
    TriedSpec,
    TunedPast,
    Tuning,
    Within,
    capacity_text,
    curve_point,
    grown,
    tried_spec,
    tuned_past,
)
from streams.analysis.tuning.surrogate import SpecOutcome, as_safe, block_ms, carries_peaks, outcome_of, worst_reach
from streams.analysis.tuning.variants import DEFAULT_DOWN, SLOW_DOWN, SearchLine, Variants, Variation
from streams.state.inputs import EvaluationInputs

_COST_SHARE, _COST_OVERLOAD = 0.005, 0.001
RELIEF = 0.5
"""Share of the deployed spec's overload that a proposal for safety may keep where it costs more."""
MOST_DEARER = 1.5
"""What such a proposal may cost at most, as a multiple of the deployed spec."""
_EVEN = 1e-9
_PRICE_OF_CHANGE = 0.005
"""What each rule of scale-up or tolerance that a spec changes must save at least, as a share of the replica-hours."""


class SpecJudge(Struct, frozen=True):
    """Compares specs with the deployed one, `base`."""

    world: TunedPast
    objective: Objective
    base: TriedSpec

    def allowed(self, tried: TriedSpec) -> bool:
        """Not more overload than the deployed spec has, as recorded and with the margin."""
        base = self.base
        if tried.allowed is None:
            as_safe_as = self.objective == "cost" or as_safe(tried.plain, base.plain)
            calm = as_safe_as and self._calm(tried.plain, base.plain)
            tried.allowed = calm and self._calm(grown(self.world, tried), grown(self.world, base))
        return tried.allowed

    def is_better(self, tried: TriedSpec) -> bool:
        """Whether it may be proposed, as far as the compact loop knows."""
        own, was = tried.plain, self.base.plain
        if self.objective == "safety":
            before = was.overload + grown(self.world, self.base).overload
            fewer = own.overload + grown(self.world, tried).overload < before * 0.95 - _EVEN
            return fewer and self.allowed(tried) and own.replica_hours <= was.replica_hours
        return self.allowed(tried) and own.replica_hours < was.replica_hours * (1 - LEAST_GAIN)

    def suffers(self) -> bool:
        """Whether the deployed spec was in overload long enough to justify a dearer spec with less overload."""
        return self.objective == "safety" and self.base.plain.overload_share >= WORTH_RELIEF

    def relieves(self, own: SpecOutcome | Side, was: SpecOutcome | Side) -> bool:
        """Whether a spec spares at least half of the overload."""
        return own.overload_share <= was.overload_share * RELIEF and own.overload <= was.overload * RELIEF

    def is_relief(self, tried: TriedSpec) -> bool:
        """Whether it may be proposed for safety though it may cost more: not without limit."""
        own, was = tried.plain, self.base.plain
        affordable = own.replica_hours <= was.replica_hours * MOST_DEARER
        return self.suffers() and affordable and self.relieves(own, was) and self.allowed(tried)

    def price(self, tried: TriedSpec) -> tuple[float, ...]:
        """What a spec costs, what changes count for; lower is better."""
        hours = tried.plain.replica_hours * (1 + _PRICE_OF_CHANGE * tried.changes)
        return (hours, float(tried.plain.scale_events), tried.target, float(tried.window_s))

    def rank(self, tried: TriedSpec) -> tuple[float, ...]:
        """Lower is better."""
        if self.objective == "safety":
            return (tried.plain.overload + grown(self.world, tried).overload, *self.price(tried))
        return self.price(tried)

    def holds(self, own: Side, was: Side, *, dearer: bool = False) -> bool:
        """Whether the closed loop confirms, on some part: no more overload and, in hours, no more cost.

        Args:
            own: the spec.
            was: the deployed one.
            dearer: it may cost more, within the limit for relief.
        """
        limit = MOST_DEARER if dearer else 1 + _EVEN
        return self._calm(own, was) and own.replica_hours <= was.replica_hours * limit

    def _calm(self, own: SpecOutcome | Side, was: SpecOutcome | Side) -> bool:
        share = _COST_SHARE if self.objective == "cost" else _EVEN
        overload = _COST_OVERLOAD if self.objective == "cost" else _EVEN
        return own.overload_share <= was.overload_share + share and own.overload <= was.overload + overload


_FINALISTS = 8
_MORE_RESERVE = 0.98
"""Highest load per pod that a finalist may have, as a share of that of the one before it."""
_STEPS_BACK = (1, 2, 3, 4, 5, 7)
_LINES_REFINED = 4
_LINES_VARIED = 2
_STEPS_WALKED = 4
DEFAULT_TARGETS = (50.0, 60.0, 70.0, 80.0)
"""Percent of the request: what people set by habit."""


class SpecSearch:
    def __init__(self, world: TunedPast, objective: Objective, within: Within) -> None:
        self.world, self.objective = world, objective
        self.variants = Variants(world, objective, within)
        self.tried: dict[tuple[Any, ...], TriedSpec] = {}
        self.base = tried_spec(world, world.deployed.spec, world.deployed_target, world.window_s)
        self.judge = SpecJudge(world, objective, self.base)
        self.lines: list[tuple[int, SearchLine]] = []

    def finalists(self) -> list[TriedSpec]:
        """What may be proposed, best first; each of them in the compact loop not worse than the deployed spec.

        Where a spec is not confirmed, a larger peak came than it had reserve for: each next one has more reserve.
        """
        self._grid(
            self.variants.targets(),
            self.variants.windows(),
            self.variants.least_replicas(),
            self.variants.most_replicas(bound=self.base.plain.at_max_share > 0),
        )
        self._vary(self.variants.targets())
        self._defaults()
        better = sorted((each for each in self.tried.values() if self.judge.is_better(each)), key=self.judge.rank)
        if not self.judge.suffers():
            return _with_more_reserve(better)[:_FINALISTS]
        self._relieve(self.variants.targets())
        relief = sorted((each for each in self.tried.values() if self.judge.is_relief(each)), key=self.judge.price)
        some = [each for each in better if not self.judge.is_relief(each)]
        return [*_with_more_reserve(relief)[:_FINALISTS], *_with_more_reserve(some)[: _FINALISTS // 2]]

    def _grid(self, targets: list[float], windows: list[int], least: list[int], most: list[int]) -> None:
        ends: list[tuple[TriedSpec, int, SearchLine]] = []
        for window_s, fewest, largest, policies in product(windows, least, most, (None, DEFAULT_DOWN, SLOW_DOWN)):
            if policies is SLOW_DOWN and window_s > 120:
                continue  # a long window already holds what slow steps would
            if policies is not None and policies == self.variants.own_policies():
                continue
            line = SearchLine(window_s, fewest, largest, policies, Variation())
            if (end := self._end(targets, line)) is not None:
                ends.append((self._try(targets[end], line), end, line))
        # The targets before the end of the best lines: what a finalist with more reserve can be taken from.
        ends.sort(key=lambda each: self.judge.rank(each[0]))
        for _, end, line in ends[:_LINES_REFINED]:
            for back in _STEPS_BACK:
                at = end + back if self.objective == "safety" else end - back
                if 0 <= at < len(targets):
                    self._try(targets[at], line)
        self.lines = [(end, line) for _, end, line in ends[:_LINES_VARIED]]

    def _vary(self, targets: list[float]) -> None:
        """The best lines with other rules of scale-up and other tolerances."""
        for near, line in self.lines:
            for varied in self.variants.variations():
                self._walk(targets, line._replace(varied=varied), near)

    def _defaults(self) -> None:
        """What people set by habit, all else as deployed: no proposal is dearer than one of these that would do."""
        if self.world.utilization:
            for target in sorted(set(DEFAULT_TARGETS) & set(self.variants.targets())):
                self._try(target, self._deployed_line())

    def _deployed_line(self) -> SearchLine:
        return SearchLine(self.world.window_s, self.variants.least, self.variants.most, None, Variation())

    def _relieve(self, targets: list[float]) -> None:
        """For safety: the highest targets that spare half of the overload, at more cost where that must be."""
        for window_s, fewest in product(self.variants.windows(), self.variants.least_replicas()):
            line = self._deployed_line()._replace(window_s=window_s, fewest=fewest)
            end = _first(targets, partial(self._spares_too_little, line)) - 1
            for back in _STEPS_BACK:
                if 0 <= end - back < len(targets):
                    self._try(targets[end - back], line)

    def _spares_too_little(self, line: SearchLine, target: float) -> bool:
        return not self.judge.relieves(self._try(target, line).plain, self.base.plain)

    def _walk(self, targets: list[float], line: SearchLine, near: int) -> None:
        """Try targets from `near` on, upwards while they are allowed, else downwards until one is."""
        at = near
        if self._good(targets, at, line):
            while at + 1 < len(targets) and at < near + _STEPS_WALKED and self._good(targets, at + 1, line):
                at += 1
            return
        while at > max(0, near - _STEPS_WALKED) and not self._good(targets, at, line):
            at -= 1

    def _good(self, targets: list[float], at: int, line: SearchLine) -> bool:
        tried = self._try(targets[at], line)
        if self.objective == "safety":  # lower targets cost more
            return tried.plain.replica_hours > self.base.plain.replica_hours
        return self.judge.allowed(tried)

    def _end(self, targets: list[float], line: SearchLine) -> int | None:
        """The end of what is allowed among rising targets, by halving: cost falls and overload rises with them."""
        if self.objective == "safety":
            # Lower targets cost more: the lowest that costs no more than the deployed spec.
            most = self.base.plain.replica_hours
            end = _first(targets, lambda each: self._try(each, line).plain.replica_hours <= most)
        else:
            end = _first(targets, lambda each: not self.judge.allowed(self._try(each, line))) - 1
        return end if 0 <= end < len(targets) else None

    def _try(self, target: float, line: SearchLine) -> TriedSpec:
        key = (target, line._replace(policies=None), None if line.policies is None else repr(line.policies))
        if key not in self.tried:
            self.tried[key] = tried_spec(
                self.world, self.variants.spec(target, line), target, line.window_s, line.varied.changes
            )
        return self.tried[key]

    def curve(self) -> list[CurvePoint]:
        """The specs that no other one beats in both cost and overload, cheapest first."""
        found: list[CurvePoint] = []
        least_overload = float("inf")
        for each in sorted(self.tried.values(), key=lambda t: (t.plain.replica_hours, t.plain.overload_share)):
            if each.plain.overload_share < least_overload:
                least_overload = each.plain.overload_share
                found.append(curve_point(each))
        return found


def _with_more_reserve(ranked: list[TriedSpec]) -> list[TriedSpec]:
    """The best, and of the others each that has clearly more reserve than the one before it."""
    found: list[TriedSpec] = []
    for each in ranked:
        if not found or each.plain.worst <= found[-1].plain.worst * _MORE_RESERVE:
            found.append(each)
    return found


_NO_BETTER = "no spec that was tried is better within the objective"


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

    Raises RefusedError: the recording cannot carry a proposal.
    """
    world = tuned_past(hpa, recorded)
    search = SpecSearch(world, objective, within or Within())
    finalists = search.finalists()
    sides = _evidence(world, world.deployed)
    if objective != "cost" and not carries_peaks(sides.whole):
        world.bounds.append(
            f"the recorded peaks differ much: peaks of {worst_reach(sides.whole):.2f} times what the pods carry have "
            "to be expected under the deployed spec, and nothing is proposed that has to expect higher ones"
        )
    found, why = search.base, _NO_BETTER
    withdrawn = 0
    proposed = sides
    for tried in finalists:
        own = _evidence(world, candidate(hpa, tried.spec))
        why = _fault(search.judge, tried, own, sides)
        if not why:
            found, proposed = tried, own
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
        capacity=capacity_text(world),
        cycle_ms=cycle_ms(world.series.times_ms, world.series.tuned),
        start_up=world.start_up,
        chosen_on=(sides.first, proposed.first),
        unseen=(sides.rest, proposed.rest),
        curve=search.curve(),
        deployed_point=curve_point(search.base),
        proposed_point=curve_point(found),
        bounds=world.bounds,
        tried=len(search.tried),
        withdrawn=withdrawn,
    )


def _fault(judge: SpecJudge, tried: TriedSpec, own: _Evidence, deployed: _Evidence) -> str:
    """Why a finalist is not proposed, after the closed loop; empty: it is."""
    dearer = tried.plain.replica_hours > judge.base.plain.replica_hours
    if not judge.holds(own.first, deployed.first, dearer=dearer):
        return "what the search found did not hold in the closed loop on the part that it was chosen on"
    if not judge.holds(own.rest, deployed.rest, dearer=dearer):
        return "what the search found was worse than the deployed spec on the part that it had not seen"
    if dearer and not judge.relieves(own.first, deployed.first):
        return "what the search found costs more and did not spare half of the overload in the closed loop"
    if judge.objective != "cost" and not as_safe(own.whole, deployed.whole):
        return "what the search found has to expect higher peaks of load per pod than the deployed spec"
    return ""


def _evidence(world: TunedPast, tried: Candidate) -> _Evidence:
    """A spec in the closed loop over the whole recording."""
    moments = ClosedLoop(tried, world.start_up.ms).run(world.inputs)
    return _Evidence(
        first=_side(world, moments, 0, world.split),
        rest=_side(world, moments, world.split, len(moments)),
        whole=outcome_of(world.series, moments, world.capacity, block_ms=block_ms(world.series.times_ms)),
    )


def _side(world: TunedPast, moments: list[Moment], begin: int, end: int) -> Side:
    """Load at the deployed target, capacity the same for every spec."""
    part = world.series.part(begin, end)
    own = moments[begin:end]
    made = outcome_of(part, own, world.capacity)
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
        scores=scores(same, world.inputs[-1].period_ms, world.ideal[begin:end]),
    )


def _first(targets: Sequence[float], holds: Callable[[float], bool]) -> int:
    """The place of the first target for which a condition holds, as it does for all after it; by halving."""
    return bisect_left(targets, True, key=holds)
