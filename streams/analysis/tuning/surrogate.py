"""What a spec would have run and lacked: in a compact closed loop over a load series, and at peaks beyond the series.

The loop is for a search over many specs: it works on numbers alone (pods that the load needs) where `closedloop.py`
gives whole evaluations to the core. Windows, policies, bounds and tolerances are of upstream; metrics are as old as
`lag_ms` says, new pods take load after a start-up time. What it leaves out: pauses and the other guards, failed metrics
other than those that failed in the recording, differences between pods.

For the peaks a recording is cut into blocks of time. The highest loads per pod of the blocks lie close together where a
load has no spikes, and far apart where it has: how far says how much higher the next ones may be. Two estimates:

- by Weissman with the tail index of Hill (Estimation of Parameters and Large Quantiles Based on the k Largest
  Observations, JASA 1978), for tails without an end. It overstates peaks that have one, as spikes of one height.
- by moments (Dekkers, Einmahl and de Haan, A Moment Estimator for the Index of an Extreme-Value Distribution,
  Annals of Statistics 1989), which finds such an end, and errs more where there are few spikes. It is believed only
  with a reserve.
"""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from math import ceil, log
from statistics import fmean as mean
from statistics import pstdev

from msgspec import Struct, structs

from streams.analysis.measures import Moment
from streams.hpa.autoscaler import Autoscaler, ControllerSettings
from streams.hpa.evaluation import EMPTY_HISTORY, History
from streams.hpa.metrics import tolerance_band
from streams.hpa.normalize import legacy_limits, scale_down_limit, scale_up_limit, with_rescale

# --- the loop ---------------------------------------------------------------------------------------------------------

_NEAR = 1e-9
_NEVER_MS = 1 << 62


class LoadSeries(Struct, frozen=True):
    """The load of one HPA, one entry per evaluation.

    `tuned`: pods that the load needs at the deployed target of the metric that is tuned. `others`: the same for the
    most demanding of the other metrics, 0.0 without any. None: not known then. `spans_ms`: how long each entry holds.
    `replicas`: what ran at the begin. `lag_ms`: how old metrics are when they are evaluated. `settled_ms`: when
    overload begins to count; before it pods that a spec asks for are not ready yet.
    """

    times_ms: list[int]
    spans_ms: list[int]
    tuned: list[float | None]
    others: list[float | None]
    replicas: int
    lag_ms: int
    settled_ms: int = 0

    def part(self, begin: int, end: int) -> "LoadSeries":
        """The entries from `begin` to before `end`."""
        names = ("times_ms", "spans_ms", "tuned", "others")
        return structs.replace(self, **{name: getattr(self, name)[begin:end] for name in names})

    def __len__(self) -> int:
        return len(self.times_ms)


class Knobs(Struct, frozen=True):
    """What decides: a compiled spec, the controller's settings, and the tuned target as a multiple of the deployed."""

    autoscaler: Autoscaler
    settings: ControllerSettings
    factor: float = 1.0


class SpecOutcome(Struct, frozen=True, kw_only=True):
    """What a spec would have cost and lacked, over the time in which the load is known.

    `overload_share`: share of that time in which the ready pods were beyond their capacity. `overload`: mean of what
    was missing, in units of the demand (under-provisioning accuracy on undivided pods). `worst`: highest ratio of the
    load to the capacity of the ready pods. `blocks`: that and the overload of equal stretches of time, where asked for.
    """

    replica_hours: float
    overload_share: float
    overload: float
    worst: float
    scale_events: int
    at_max_share: float
    hours: float
    blocks: tuple["Block", ...] = ()


class Block(Struct, frozen=True):
    """A stretch of time: how long pods were beyond their capacity, and the highest ratio of the load to it."""

    over_ms: float
    worst: float


def play(
    series: LoadSeries, knobs: Knobs, start_up_ms: int, capacity: float, growth: float = 1.0, block_ms: int = 0
) -> SpecOutcome:
    """Let a spec live through a load, and sum up.

    Args:
        series: the load.
        knobs: the spec.
        start_up_ms: until a new pod takes load.
        capacity: what a pod carries, as a multiple of the deployed target.
        growth: the load is multiplied with this.
        block_ms: how long each of the outcome's blocks is; 0: none are made.
    """
    return outcome_of(series, lived(series, knobs, start_up_ms, growth), capacity, growth, block_ms)


def lived(series: LoadSeries, knobs: Knobs, start_up_ms: int, growth: float = 1.0) -> list[Moment]:
    """Let a spec live through a load: what runs and is ready at each entry; `need` is at the deployed target.

    Arguments as for `play`. A search spends its time in this loop.
    """
    spec, lag_ms, factor = knobs.autoscaler, series.lag_ms, knobs.factor
    least, most = spec.min_replicas, spec.max_replicas
    low, high = tolerance_band(spec, knobs.settings)
    stabilized = _Windows(knobs).stabilized
    replicas = ready = series.replicas
    starting: deque[tuple[int, int]] = deque()
    history: History = EMPTY_HISTORY
    moments: list[Moment] = []
    for now_ms, tuned, other in zip(series.times_ms, series.tuned, series.others, strict=True):
        while starting and starting[0][0] <= now_ms - lag_ms:
            ready += starting.popleft()[1]
        if tuned is None:
            moments.append(Moment(now_ms, replicas, ready, None, replicas >= most))
            continue
        own, rest = tuned * growth, (other or 0.0) * growth
        moments.append(Moment(now_ms, replicas, ready, own if own > rest else rest, replicas >= most))
        if replicas == 0 and least > 0:
            continue
        # Source: upstream `reconcileAutoscaler`: outside of its bounds the count is set, and no metric is asked.
        wanted = most if replicas > most else least if replicas < least else replicas
        if wanted == replicas:
            own /= factor
            proposal = _proposal(own if own > rest else rest, ready, replicas, low, high)
            wanted = stabilized(replicas, proposal, now_ms)
            if wanted != replicas:
                wanted = _limited(spec, replicas, wanted, history, now_ms)
        change = wanted - replicas
        if not change:
            continue
        history = with_rescale(history, spec, change, now_ms)
        if change > 0:
            starting.append((now_ms + start_up_ms, change))
        else:
            ready -= _stopped(starting, -change)
        replicas = wanted
    return moments


class _Windows:
    """The stabilization windows: the highest and the lowest proposals within them, newest last."""

    def __init__(self, knobs: Knobs) -> None:
        up, down = knobs.autoscaler.scale_up, knobs.autoscaler.scale_down
        down_ms = knobs.settings.downscale_stabilization_ms
        if down is not None and down.window_ms is not None:
            down_ms = down.window_ms
        self._has_rules = up is not None and down is not None
        self._up_ms = (up.window_ms or 0) if up is not None else 0
        # One more millisecond: without `behavior`, an entry exactly at the cutoff still counts.
        self._down_ms = down_ms + (1 if down is None else 0)
        self._highest: deque[tuple[int, int]] = deque()
        self._lowest: deque[tuple[int, int]] = deque()

    def stabilized(self, replicas: int, proposal: int, now_ms: int) -> int:
        """Note a proposal, and give what the windows make of it."""
        highest = self._highest
        while highest and highest[-1][1] <= proposal:
            highest.pop()
        highest.append((now_ms, proposal))
        while highest[0][0] <= now_ms - self._down_ms and len(highest) > 1:
            highest.popleft()
        if not self._has_rules:
            return highest[0][1]
        lowest = self._lowest
        while lowest and lowest[-1][1] >= proposal:
            lowest.pop()
        lowest.append((now_ms, proposal))
        while lowest[0][0] <= now_ms - self._up_ms and len(lowest) > 1:
            lowest.popleft()
        return min(max(replicas, lowest[0][1]), highest[0][1])


def _limited(spec: Autoscaler, replicas: int, wanted: int, history: History, now_ms: int) -> int:
    """Keep a change within the policies (without `behavior`: at most double, or 4) and the bounds."""
    up, down = spec.scale_up, spec.scale_down
    if up is None or down is None:
        return legacy_limits(wanted, max(2 * replicas, 4), spec.min_replicas, spec.max_replicas)[0]
    if wanted > replicas:
        limit, _ = scale_up_limit(up, replicas, history, now_ms)
        return min(wanted, max(limit, replicas), spec.max_replicas)
    limit, _ = scale_down_limit(down, replicas, history, now_ms)
    return max(wanted, min(limit, replicas), spec.min_replicas)


def _proposal(need: float, ready: int, replicas: int, low: float, high: float) -> int:
    """Replicas that the metric asks for. Source: upstream `GetResourceReplicas`: pods that start count as unused ones
    where the ready ones are above target, and not at all where they are below.
    """
    if not ready:
        return replicas
    ratio = need / ready
    if low <= ratio <= high:
        return replicas
    if ratio < 1.0:
        return min(ceil(need - _NEAR), replicas)
    if ready < replicas:
        ratio = need / replicas
        if ratio <= high:
            return replicas
    return max(ceil(need - _NEAR), replicas)


def _stopped(starting: deque[tuple[int, int]], count: int) -> int:
    """Stop pods, those that start first, the youngest of them before the others; give how many ready ones must go."""
    while count and starting:
        ready_ms, pods = starting.pop()
        gone = min(pods, count)
        count -= gone
        if gone < pods:
            starting.append((ready_ms, pods - gone))
    return count


def outcome_of(
    series: LoadSeries, moments: Sequence[Moment], capacity: float, growth: float = 1.0, block_ms: int = 0
) -> SpecOutcome:
    """Sum up the moments that a model gave for this load; arguments as for `play`."""
    ran = known = over = lacking = at_max = worst = block_over = block_worst = 0.0
    blocks: list[Block] = []
    block_end_ms = series.times_ms[0] + block_ms if block_ms and series.times_ms else _NEVER_MS
    for moment, span_ms, tuned, other in zip(moments, series.spans_ms, series.tuned, series.others, strict=True):
        if tuned is None:
            continue
        asked = max(tuned * growth, (other or 0.0) * growth) / capacity
        known += span_ms
        ran += moment.replicas * span_ms
        at_max += span_ms if moment.at_max else 0
        if moment.time_ms < series.settled_ms:
            continue
        if moment.time_ms >= block_end_ms:
            blocks.append(Block(over - block_over, block_worst))
            block_over, block_worst = over, 0.0
            block_end_ms += block_ms * ((moment.time_ms - block_end_ms) // block_ms + 1)
        if asked > moment.ready + _NEAR:
            over += span_ms
            lacking += (asked - moment.ready) / asked * span_ms
        if moment.ready:
            block_worst = max(block_worst, asked / moment.ready)
            worst = max(worst, block_worst)
    if block_ms:
        blocks.append(Block(over - block_over, block_worst))
    time_ms = known or 1.0
    return SpecOutcome(
        replica_hours=ran / 3_600_000,
        overload_share=over / time_ms,
        overload=lacking / time_ms,
        worst=worst,
        scale_events=sum(a.replicas != b.replicas for a, b in pairwise(moments)),
        at_max_share=at_max / time_ms,
        hours=known / 3_600_000,
        blocks=tuple(blocks),
    )


# --- peaks beyond the recording ---------------------------------------------------------------------------------------

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
