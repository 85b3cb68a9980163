"""Peaks that a recording does not show: what it says about them, and whether one spec is as safe from them as another.

A recording is cut into blocks of time. The highest loads per pod of the blocks lie close together where a load has no
spikes, and far apart where it has: how far says how much higher the next ones may be. There are two estimates of that:

- Weissman's with Hill's tail index (Estimation of Parameters and Large Quantiles Based on the k Largest Observations,
  JASA 1978), for tails without an end. It overstates peaks that have one, such as spikes of about the same height.
- the one of moments (Dekkers, Einmahl and de Haan, A Moment Estimator for the Index of an Extreme-Value Distribution,
  Annals of Statistics 1989), which finds such an end, and errs more where there are few spikes. It is believed only
  with a reserve.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import log
from statistics import fmean as mean
from statistics import pstdev

from streams.analysis.tuning.surrogate import Block, SpecOutcome

BLOCKS = 120
"""Blocks that a recording is cut into."""
FOLDS = 12
"""Parts of a recording, in none of which a spec may have more overload than the deployed one."""
CARRIED = 0.8
"""Load per pod, as a multiple of what a pod carries, up to which a block is calm."""
CHANCE = 0.01
"""Chance that a time as long as the recording has a higher peak than `reach` says."""
RESERVED_LITTLE, RESERVED = 0.95, 0.9
"""Highest recorded load per pod, as a multiple of what a pod carries, that leaves a reserve: a little one for the
estimate of moments, a larger one for a larger chance."""
CHANCE_WITH_RESERVE = 0.4
"""The chance that is taken where the larger reserve is kept."""
_TOP_SHARE = 0.1
_FEWEST_TOP = 6
_EVEN = 1e-9
_ONE_SIDED = 1.645
"""Standard errors of a one-sided confidence of 95 %."""


def reach(peaks: Sequence[float], chance: float = CHANCE) -> float:
    """The peak that a time as long as the recorded one passes with this chance only; at least the highest of `peaks`.

    Args:
        peaks: the highest value of each block; 0.0: it has none, and does not count.
        chance: above 0, at most 1.
    """
    ordered = sorted((each for each in peaks if each > 0), reverse=True)
    top = max(_FEWEST_TOP, round(len(ordered) * _TOP_SHARE))
    if len(ordered) <= top:
        return ordered[0] / chance if ordered else 0.0
    begin = ordered[top]
    tail = sum(log(each / begin) for each in ordered[:top]) / top
    expected: float = begin * (top / chance) ** tail
    return max(ordered[0], expected)


def bounded_reach(peaks: Sequence[float], chance: float = CHANCE) -> float:
    """The same by the estimate of moments: lower where peaks seem to have an end. Arguments as for `reach`."""
    ordered = sorted((each for each in peaks if each > 0), reverse=True)
    top = max(_FEWEST_TOP, round(len(ordered) * _TOP_SHARE))
    if len(ordered) <= top:
        return ordered[0] / chance if ordered else 0.0
    begin = ordered[top]
    logs = [log(each / begin) for each in ordered[:top]]
    first, second = mean(logs), mean([each * each for each in logs])
    if second <= _EVEN * _EVEN:
        return ordered[0]
    negative = 1 - 0.5 / max(_EVEN, 1 - first * first / second)
    index, scale = first + negative, begin * first * (1 - negative)
    times = top / chance
    above = log(times) if abs(index) < _EVEN else (times**index - 1) / index
    return max(ordered[0], begin + scale * above)


def block_ms(times_ms: Sequence[int]) -> int:
    """How long the blocks of a recording are."""
    return (times_ms[-1] - times_ms[0]) // BLOCKS + 1


def worst_reach(outcome: SpecOutcome) -> float:
    """The load per pod, as a multiple of what a pod carries, that a spec has to expect."""
    return reach([each.worst for each in outcome.blocks])


def as_safe(own: SpecOutcome, was: SpecOutcome) -> bool:
    """Whether a spec is as safe from peaks as the deployed one (`was`).

    In no part of the recording may it have more overload. Then the peaks that it has to expect must be carried: with a
    chance of 1 % that they are not, for the estimate of moments with a reserve above the highest that was recorded, or
    with a chance of 40 % and a larger reserve. Where they are not, they must be no higher than those of the deployed
    spec, in no block may pods have more load than under the deployed spec, but for calm blocks, and overload must be no
    more with 95 % confidence: where it is more in some blocks and less in others, the whole must be clearly less.
    """
    if any(mine > its + _EVEN for mine, its in zip(_folds(own.blocks), _folds(was.blocks), strict=True)):
        return False
    if carries_peaks(own):
        return True
    pairs = list(zip(own.blocks, was.blocks, strict=True))
    if any(mine.worst > max(its.worst, CARRIED) + _EVEN for mine, its in pairs):
        return False
    more = [mine.over_ms - its.over_ms for mine, its in pairs]
    if mean(more) + _ONE_SIDED * pstdev(more) / len(more) ** 0.5 > _EVEN:
        return False
    return worst_reach(own) <= worst_reach(was) * (1 + _EVEN)


def carries_peaks(outcome: SpecOutcome) -> bool:
    """Whether the peaks that a spec has to expect are carried, by the estimates and reserves above."""
    peaks = [each.worst for each in outcome.blocks]
    if reach(peaks) <= 1.0 or (outcome.worst <= RESERVED_LITTLE and bounded_reach(peaks) <= 1.0):
        return True
    expected = min(estimate(peaks, CHANCE_WITH_RESERVE) for estimate in (reach, bounded_reach))
    return outcome.worst <= RESERVED and expected <= 1.0


def _folds(blocks: Sequence[Block]) -> list[float]:
    """Milliseconds of overload in each part."""
    ends = [len(blocks) * number // FOLDS for number in range(FOLDS + 1)]
    return [sum(each.over_ms for each in blocks[begin:end]) for begin, end in pairwise(ends)]
