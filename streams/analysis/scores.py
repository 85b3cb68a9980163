"""Scores of the literature for a series of moments: how demand and supply of replicas fit each other.

Formulas: the elasticity metrics of the SPEC Research Group ("Ready for Rain? A View from SPEC Research on the Future of
Cloud Metrics", arXiv 1604.03470, section 3), as Tamiru et al. use them for Kubernetes (CloudCom 2020); slack as
Autopilot defines it (EuroSys 2020). `docs/backtest.md` writes them out. Nothing here speaks of latency or of
objectives: the log does not know them.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from streams.analysis.measures import Moment, spans_ms

_NEAR = 1e-9
"""What a quotient of doubles may be above a whole number without asking for one replica more."""


class Scores(Struct, frozen=True, kw_only=True, rename="camel"):
    """Scores over the time in which the load is known (`hours`, in log time). Accuracies and shares are fractions.

    `under_accuracy`, `over_accuracy`: mean of what is missing, or too much, in units of the demand. `under_share`,
    `over_share`: share of time with too few, or too many, replicas. `instability`: share of time in which demand and
    supply move in opposite directions. `adaptations_per_hour`: changes of the count. `slack`: 1 minus used over
    allocated, both summed over time. `oracle_replica_hours`: what an oracle that knows the load would have run within
    the spec's bounds; with `…_with_start_up` it also starts pods early enough to be ready. `replica_hours`: what ran,
    over the same time.
    """

    hours: float
    under_accuracy: float
    over_accuracy: float
    under_share: float
    over_share: float
    instability: float
    adaptations_per_hour: float
    slack: float
    replica_hours: float
    oracle_replica_hours: float
    oracle_with_start_up_replica_hours: float

    @property
    def oracle_ratio(self) -> float | None:
        """Replica-hours over those of the oracle with start-up; None where the oracle needs none."""
        return self.replica_hours / self.oracle_with_start_up_replica_hours if self.oracle_replica_hours else None


def demand(need: float) -> int:
    """Replicas that a load asks for: it is divided over whole pods, and one always runs."""
    return max(1, math.ceil(need - _NEAR))


def bounded(replicas: int, least: int, most: int) -> int:
    """Replicas within a spec's bounds."""
    return min(max(replicas, least), most)


def oracle(moments: Sequence[Moment], least: int, most: int, start_up_ms: int = 0) -> list[int | None]:
    """Replicas of an oracle that knows the load, per moment; None where the load is not known.

    With a start-up delay it runs at each moment what any moment until `start_up_ms` later demands, so that its pods
    are ready in time. Each moment costs O(1) on average: a queue holds the falling maxima of the window.
    """
    wanted = [None if m.need is None else bounded(demand(m.need), least, most) for m in moments]
    if not start_up_ms:
        return wanted
    found: list[int | None] = [None] * len(moments)
    ahead: list[int] = []  # indices of the window, demands falling
    head, upto = 0, 0
    for index, moment in enumerate(moments):
        while upto < len(moments) and moments[upto].time_ms <= moment.time_ms + start_up_ms:
            own = wanted[upto]
            if own is not None:
                while len(ahead) > head and (wanted[ahead[-1]] or 0) <= own:
                    ahead.pop()
                ahead.append(upto)
            upto += 1
        while head < len(ahead) and ahead[head] < index:
            head += 1
        if wanted[index] is not None:
            found[index] = wanted[ahead[head]]
    return found


def scores(moments: Sequence[Moment], period_ms: int, least: int, most: int, start_up_ms: int = 0) -> Scores:
    """Score a series of moments, each of which holds until the next.

    Demand is not bounded: replicas that a spec's maximum refuses are missing, those that its minimum keeps are too
    many. The oracle is bounded by `least` and `most`, as the spec is. Supply is what is ready; costs and slack count
    what runs.
    """
    with_start_up = oracle(moments, least, most, start_up_ms)
    without = oracle(moments, least, most)
    sums = dict.fromkeys(("time", "under", "over", "under_time", "over_time", "used", "ran", "oracle", "early"), 0.0)
    for index, (moment, span_ms) in enumerate(zip(moments, spans_ms(moments, period_ms), strict=True)):
        if moment.need is None:
            continue
        asked = demand(moment.need)
        missing, idle = max(0, asked - moment.ready), max(0, moment.ready - asked)
        sums["time"] += span_ms
        sums["under"] += missing / asked * span_ms
        sums["over"] += idle / asked * span_ms
        sums["under_time"] += span_ms if missing else 0
        sums["over_time"] += span_ms if idle else 0
        sums["used"] += min(moment.need, moment.replicas) * span_ms
        sums["ran"] += moment.replicas * span_ms
        sums["oracle"] += (without[index] or 0) * span_ms
        sums["early"] += (with_start_up[index] or 0) * span_ms
    time_ms = sums["time"]
    if not time_ms:
        return Scores(**dict.fromkeys(Scores.__struct_fields__, 0.0))
    hours = time_ms / 3_600_000
    return Scores(
        hours=hours,
        under_accuracy=sums["under"] / time_ms,
        over_accuracy=sums["over"] / time_ms,
        under_share=sums["under_time"] / time_ms,
        over_share=sums["over_time"] / time_ms,
        instability=_instability(moments, period_ms) / time_ms,
        adaptations_per_hour=sum(a.replicas != b.replicas for a, b in pairwise(moments)) / hours,
        slack=1 - sums["used"] / sums["ran"] if sums["ran"] else 0.0,
        replica_hours=sums["ran"] / 3_600_000,
        oracle_replica_hours=sums["oracle"] / 3_600_000,
        oracle_with_start_up_replica_hours=sums["early"] / 3_600_000,
    )


def _instability(moments: Sequence[Moment], period_ms: int) -> float:
    """Milliseconds in which demand and supply move in opposite directions."""
    total = 0
    for (before, after), span_ms in zip(pairwise(moments), spans_ms(moments, period_ms), strict=False):
        if before.need is None or after.need is None:
            continue
        asked = demand(after.need) - demand(before.need)
        total += span_ms if asked * (after.replicas - before.replicas) < 0 else 0
    return total


def by_hours(parts: Sequence[Scores]) -> Scores:
    """Several HPAs together: accuracies and shares are means over time, hours and replica-hours are sums."""
    hours = sum(each.hours for each in parts)
    found: dict[str, float] = {}
    for name in Scores.__struct_fields__:
        values = [getattr(each, name) for each in parts]
        if name == "hours" or name.endswith("replica_hours"):
            found[name] = sum(values)
        elif name == "slack":
            ran = sum(each.replica_hours for each in parts)
            used = sum(each.slack * each.replica_hours for each in parts)
            found[name] = used / ran if ran else 0.0
        else:
            weighted = sum(value * each.hours for value, each in zip(values, parts, strict=True))
            found[name] = weighted / hours if hours else 0.0
    return Scores(**found)
