"""Usage that each pod has whether it carries load or not: where a model that divides the load over the pods fails.

Backtests, tunings and the ideal autoscaler take a metric's total to be a load that more pods share. The recording tests
that: when pods are added or removed, the total of a shared load stays, and that of a base per pod grows or falls with
them. A load that changes meanwhile is told apart by how it moved just before and just after, and by pods that are
removed: that happens long after the load has fallen.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise
from statistics import median
from typing import Final, NamedTuple

from streams.analysis.load import MetricNeed, needs
from streams.hpa import autoscaler as kinds
from streams.hpa.metrics import tolerance_band
from streams.state.inputs import EvaluationInputs

_FEWEST_CHANGES: Final = 2
"""One change of the count at which the total moved with it may be chance."""
_APART: Final = 1.5
"""How much larger the largest count has to be than the smallest: one pod more or less is lost in the noise."""
_STAYS: Final = 0.5
"""Share of a pod's usage that comes and goes with the pod, from which on the model is not used."""
_FILLS: Final = 0.8
"""The same over the target: with that much no number of pods comes far below it."""
_ALIKE: Final = 0.25
"""By how much what came with each pod may differ from change to change where pods were only added."""
_LEADS: Final = 0.2
"""Share of the evaluations in which a metric has to be the most demanding one to matter."""
_NEAR: Final = 4
"""Samples before and after a change of the count that are compared."""
_PER_POD: Final = kinds.OF_PODS
_FEWEST_REMOVALS: Final = 4
_SPREAD: Final = 4.6
"""Two and a half standard errors of a median, from the median deviation: 2.5 times 1.25 times 1.48."""


class PodBase(NamedTuple):
    """A metric whose total grows with the pods. `base`: what comes and goes with each pod, over the target.

    `few`, `many`: the smallest and the largest count beside a change, and usage per pod over the target there.
    """

    metric: str
    base: float
    changes: int
    few: tuple[int, float]
    many: tuple[int, float]

    @property
    def text(self) -> str:
        """What was seen, and what to do."""
        (few, low), (many, high) = self.few, self.many
        return (
            f"the total of {self.metric} grows with the pods: about {self.base:.0%} of the target came or went with "
            f"each pod, over {self.changes} changes of the count (each uses {low:.0%} of it with {_pods(few)}, "
            f"{high:.0%} with {_pods(many)}), so what more or fewer pods would do cannot be told by dividing a load "
            "over them. Scale on what the load causes, such as requests per second, or set the target above what a "
            "pod uses without load; then ask again with --since from there on"
        )


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


class _Sample(NamedTuple):
    """One sample of a metric. `pods`: that took load; `total`: in pods at target."""

    time_ms: int
    pods: int
    total: float

    @property
    def each(self) -> float:
        return self.total / self.pods


class _Change(NamedTuple):
    """The count changed. `base`: what came or went with each pod, over the target."""

    before: _Sample
    after: _Sample
    base: float

    @property
    def part(self) -> float:
        """The same as a part of what each pod used."""
        return self.base / self.before.each

    @property
    def by(self) -> int:
        """Pods that came or went."""
        return abs(self.after.pods - self.before.pods)

    @property
    def is_up(self) -> bool:
        return self.after.pods > self.before.pods


def base_per_pod(inputs: Sequence[EvaluationInputs]) -> PodBase | None:
    """Return the metric that matters and whose usage per pod does not fall with the count; None: no metric is known to.

    Args:
        inputs: evaluations of one HPA, oldest first, also condensed ones.
    """
    needed = [needs(each.autoscaler, each.observation.answers, each.observation.pods) for each in inputs]
    return base_of(needed, tolerance_band(inputs[-1].autoscaler, inputs[-1].settings)[1] if inputs else 1.0)


def base_of(asked: Sequence[Sequence[MetricNeed]], high: float) -> PodBase | None:
    """Return the same from what the metrics asked for at each evaluation. `high`: the upper end of the tolerance."""
    leads = [max(row, key=lambda need: need.pods) for row in asked if row]
    by_spec: dict[tuple[str, str, int], list[MetricNeed]] = {}
    for row in asked:
        for need in row:
            by_spec.setdefault((need.spec.type, need.spec.name, need.spec.target), []).append(need)
    for (_, _, target), of_spec in by_spec.items():
        spec = of_spec[0].spec
        leading = sum((each.spec.type, each.spec.name, each.spec.target) == _key(of_spec[0]) for each in leads)
        if spec.calculation not in _PER_POD or not target or leading < _LEADS * len(leads):
            continue
        base = _base(
            spec.name.split(" ")[0],
            [_sample(each) for each in of_spec if each.ratio and each.time_ms is not None],
            high,
        )
        if base is not None:
            return base
    return None


class BaseRange(NamedTuple):
    """The usage that a pod may have whether it carries load or not, over the target.

    `high`: by the removals of pods, of which there are `changes`; with none it is `least`, which is what a pod used
    when it used least.
    """

    high: float
    least: float
    changes: int


def base_range(asked: Sequence[Sequence[MetricNeed]]) -> BaseRange:
    """Return what the metric that leads most often says about it.

    No pod used less at any time than it uses without load. Where pods were removed, the total fell by what each used
    without load: the median over many removals, which chance and a falling load move by its error.
    """
    nothing = BaseRange(0.0, 0.0, 0)
    leads = Counter(_key(max(row, key=lambda need: need.pods)) for row in asked if row)
    if not leads:
        return nothing
    key = leads.most_common(1)[0][0]
    needs = [need for row in asked for need in row if _key(need) == key and need.ratio and need.time_ms is not None]
    if not needs or needs[0].spec.calculation not in _PER_POD:
        return nothing
    samples = [next(group) for _, group in groupby(map(_sample, needs), key=lambda each: each.time_ms)]
    least = sorted(each.each for each in samples)[len(samples) // 200]
    removals = [each for each in _changes(samples) if not each.is_up]
    if len(removals) < _FEWEST_REMOVALS:
        return BaseRange(least, least, 0)
    values = [each.base for each in removals for _ in range(each.by)]
    likely = median(values)
    error = _SPREAD * median(abs(each - likely) for each in values) / len(removals) ** 0.5
    return BaseRange(min(least, max(0.0, likely + error)), least, len(removals))


def _key(need: MetricNeed) -> tuple[str, str, int]:
    return need.spec.type, need.spec.name, need.spec.target


def _sample(need: MetricNeed) -> _Sample:
    assert need.ratio
    assert need.time_ms is not None
    return _Sample(need.time_ms, max(1, round(need.pods / need.ratio)), need.pods)


def _base(name: str, samples: Sequence[_Sample], high: float) -> PodBase | None:
    once = [next(group) for _, group in groupby(samples, key=lambda each: each.time_ms)]
    changes = list(_changes(once))
    if len(changes) < _FEWEST_CHANGES or not _comes_with_the_pods(changes, once, high):
        return None
    beside = sorted([side for each in changes for side in (each.before, each.after)], key=lambda side: side.pods)
    if beside[-1].pods < _APART * beside[0].pods:
        return None
    few = [side.each for side in beside if side.pods == beside[0].pods]
    many = [side.each for side in beside if side.pods == beside[-1].pods]
    return PodBase(
        name,
        _typical(changes, [each.base for each in changes]),
        len(changes),
        (beside[0].pods, median(few)),
        (beside[-1].pods, median(many)),
    )


def _comes_with_the_pods(changes: Sequence[_Change], samples: Sequence[_Sample], high: float) -> bool:
    """Whether the totals followed the counts in both directions.

    Pods are added because a load grows, which a slow metric shows while they are added. So additions alone count only
    where each pod brought about the same, and they did not help: at the end the pods are above the target.
    """
    ups = [each for each in changes if each.is_up]
    downs = [each for each in changes if not each.is_up]
    if any(side and not _stays(side) for side in (ups, downs)):
        return False
    if downs:
        return True
    base, last = _typical(ups, [each.base for each in ups]), median(each.each for each in samples[-_NEAR:])
    alike = sum(each.by for each in ups if abs(each.base - base) <= _ALIKE * base)
    return last > high and 3 * alike >= 2 * sum(each.by for each in ups)


def _stays(side: Sequence[_Change]) -> bool:
    share, base = _typical(side, [each.part for each in side]), _typical(side, [each.base for each in side])
    return share >= _STAYS or base >= _FILLS


def _typical(changes: Sequence[_Change], values: Sequence[float]) -> float:
    """The median of values, where each pod that came or went counts once."""
    return median([value for each, value in zip(changes, values, strict=True) for _ in range(each.by)])


def _changes(samples: Sequence[_Sample]) -> list[_Change]:
    """The changes of the count. Samples between which it changes again and again are skipped: both sides stay a while,
    where they do.
    """
    levels = [list(group) for _, group in groupby(samples, key=lambda each: each.pods)]
    changes = []
    for left, right in pairwise(levels):
        before, after = left[-_NEAR:], right[:_NEAR]
        slopes = [slope for slope in (_slope(before), _slope(after)) if slope is not None]
        passed_ms = after[0].time_ms - before[-1].time_ms
        moved = sum(slopes) / len(slopes) * passed_ms if slopes else 0.0
        came = after[0].total - before[-1].total - moved
        changes.append(_Change(before[-1], after[0], came / (after[0].pods - before[-1].pods)))
    return changes


def _slope(samples: Sequence[_Sample]) -> float | None:
    """How the total moves per millisecond while the count stays; None: there is one sample only."""
    first, last = samples[0], samples[-1]
    return (last.total - first.total) / (last.time_ms - first.time_ms) if last.time_ms > first.time_ms else None
