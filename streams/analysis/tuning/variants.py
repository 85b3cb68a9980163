"""The specs that a search may try for one HPA: which values each part of a spec can have, and the spec with them."""

import copy
from math import ceil
from typing import Any, NamedTuple, TypeVar

from schemas.kubernetes.hpa import metric_source
from schemas.kubernetes.versions import set_defaults_v2
from streams.analysis.tuning.recording import Objective, TunedPast, Within

DEFAULT_DOWN = [{"type": "Percent", "value": 100, "periodSeconds": 15}]
SLOW_DOWN = [{"type": "Percent", "value": 10, "periodSeconds": 60}]
_WINDOWS_S = (60, 300, 900)
_TARGETS = (*range(10, 40, 5), *range(40, 70, 2), *range(70, 101, 3), 80)
_FACTORS = tuple(round(0.5 + 0.05 * step, 2) for step in range(23))
_SLOW_UP_S = 60
_FAST_UP_PERCENT = 300
_FAST_UP = {"type": "Percent", "value": _FAST_UP_PERCENT, "periodSeconds": 15}


class Variation(NamedTuple):
    """Rules of scale-up, and tolerances in thousandths. None, False: as deployed."""

    up_window_s: int | None = None
    faster_up: bool = False
    up_tolerance: int | None = None
    down_tolerance: int | None = None

    @property
    def changes(self) -> int:
        """How many of them are not as deployed."""
        return sum(each is not None and each is not False for each in self)


class SearchLine(NamedTuple):
    """All of a spec that is searched but its target. `policies`: of scaleDown; None: the deployed ones."""

    window_s: int
    fewest: int
    largest: int
    policies: list[dict[str, Any]] | None
    varied: Variation


class Variants:
    """What may be tried for one HPA."""

    def __init__(self, world: TunedPast, objective: Objective, within: Within) -> None:
        self.world, self.objective, self.within = world, objective, within
        self.least, self.most = world.deployed.autoscaler.min_replicas, world.deployed.autoscaler.max_replicas

    def targets(self) -> list[float]:
        """Rising; percent as in `Within`."""
        highest = 100.0 if self.world.utilization else self.world.capacity * 100
        if not self.world.may_raise_target:
            highest = min(highest, self.world.deployed_target)
        found = {float(each) for each in _TARGETS} if self.world.utilization else {each * 100 for each in _FACTORS}
        found = {each for each in found if each <= highest} | {self.world.deployed_target}
        return _inside(sorted(found), self.within.target)

    def windows(self) -> list[int]:
        """Of scaleDown, in seconds."""
        return _inside(sorted({*_WINDOWS_S, self.world.window_s}), self.within.window)

    def least_replicas(self) -> list[int]:
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

    def most_replicas(self, *, bound: bool) -> list[int]:
        """The maximum protects what the log does not know, a budget or a quota: it is only ever raised, where it bound
        while the load was known (`bound`).
        """
        found = {self.most}
        if bound and self.world.may_raise_target:
            peak = max(each for each in self.world.first.tuned if each is not None)
            found.add(max(self.most, ceil(1.2 * peak)))
        return _inside(sorted(found), self.within.max_replicas)

    def own_policies(self) -> Any:
        """The deployed policies of scaleDown; None: it has none of its own."""
        behavior = self.world.deployed.spec.get("behavior") or {}
        return (behavior.get("scaleDown") or {}).get("policies")

    def variations(self) -> list[Variation]:
        """Scale-up is never slower than deployed, but for the objective cost."""
        eager = [Variation(up_tolerance=0), Variation(down_tolerance=50), Variation(up_tolerance=0, down_tolerance=50)]
        found = [
            each
            for each in eager
            if _inside([t / 1000 for t in each[2:] if t is not None], self.within.tolerance)
            == [t / 1000 for t in each[2:] if t is not None]
        ]
        up = self.world.deployed.autoscaler.scale_up
        window_ms = (up.window_ms or 0) if up is not None else 0
        if window_ms:
            found.append(Variation(up_window_s=0))
        if self.objective == "cost" and window_ms < _SLOW_UP_S * 1_000:
            found.append(Variation(up_window_s=_SLOW_UP_S))
        rules = (self.world.deployed.spec.get("behavior") or {}).get("scaleUp") or {}
        most = rules.get("selectPolicy", "Max") == "Max" and _FAST_UP not in (rules.get("policies") or [])
        if most and _inside([_FAST_UP_PERCENT], self.within.scale_up_percent):
            found += [each._replace(faster_up=True) for each in (Variation(), *found)]
        return found

    def spec(self, target: float, line: SearchLine) -> dict[str, Any]:
        """The deployed spec with these values; what stays the same is not touched."""
        spec = copy.deepcopy(self.world.deployed.spec)
        if target != self.world.deployed_target:
            _set_target(spec["metrics"][self.world.index], self._milli(target), utilization=self.world.utilization)
        spec["minReplicas"], spec["maxReplicas"] = line.fewest, line.largest
        if line.window_s != self.world.window_s:
            spec.setdefault("behavior", {}).setdefault("scaleDown", {})["stabilizationWindowSeconds"] = line.window_s
        if line.policies is not None:
            spec.setdefault("behavior", {}).setdefault("scaleDown", {})["policies"] = copy.deepcopy(line.policies)
        varied = line.varied
        if varied.changes:
            behavior = spec.setdefault("behavior", {})
            set_defaults_v2({"spec": spec})  # an HPA without `behavior`, the most common kind, has no policies yet
            up, down = behavior["scaleUp"], behavior["scaleDown"]
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
        if self.world.utilization:
            return round(target)
        return max(1, round(self.world.deployed.autoscaler.metrics[self.world.index].target * target / 100))


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
