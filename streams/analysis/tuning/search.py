"""The search: every spec that was tried on the first part of a recording, and what of it may be proposed."""

from typing import Any

from streams.analysis.tuning.judgement import SpecJudge
from streams.analysis.tuning.recording import TunedPast
from streams.analysis.tuning.results import CurvePoint, Objective, Within
from streams.analysis.tuning.trials import TriedSpec, curve_point, tried_spec
from streams.analysis.tuning.variants import DEFAULT_DOWN, SLOW_DOWN, SearchLine, Variants, Variation

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
    """A search for one HPA."""

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
        for window_s in windows:
            for fewest in least:
                for largest in most:
                    for policies in (None, DEFAULT_DOWN, SLOW_DOWN):
                        if policies is SLOW_DOWN and window_s > 120:
                            continue  # a long window already holds what slow steps would
                        if policies is not None and policies == self.variants.own_policies():
                            continue
                        line = SearchLine(window_s, fewest, largest, policies, Variation())
                        end = self._end(targets, line)
                        if end is not None:
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
        for window_s in self.variants.windows():
            for fewest in self.variants.least_replicas():
                line = self._deployed_line()._replace(window_s=window_s, fewest=fewest)
                low, high = 0, len(targets)
                while low < high:
                    middle = (low + high) // 2
                    tried = self._try(targets[middle], line)
                    if self.judge.relieves(tried.plain, self.base.plain):
                        low = middle + 1
                    else:
                        high = middle
                for back in _STEPS_BACK:
                    if 0 <= low - 1 - back < len(targets):
                        self._try(targets[low - 1 - back], line)

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
            elif self.judge.allowed(tried):
                low = middle + 1
            else:
                high = middle
        end = low if self.objective == "safety" else low - 1
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
