"""What a spec costs and what overload it allows: measures over moments, the scores of the literature, and how a
group of HPAs fared after a change (`rollout`).

Formulas: the elasticity metrics of the SPEC Research Group ("Ready for Rain? A View from SPEC Research on the Future of
Cloud Metrics", arXiv 1604.03470, section 3), as Tamiru et al. use them for Kubernetes (CloudCom 2020); slack as
Autopilot defines it (EuroSys 2020). `docs/backtest.md` writes them out. The log knows no latency and no objectives.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from schemas.decisions import Decision
from schemas.keys import HpaId

GAP_PERIODS = 4
"""Sync periods without an evaluation from which on the time is a gap, of which only one period is counted."""


class Moment(Struct, frozen=True, gc=False):
    """An HPA at one evaluation.

    `replicas`: the count that the evaluation found, before its own decision, which the next moment shows; in the open
    loop, and of an autoscaler over several clusters that is tried, the count that it wants. `ready`: pods that take
    load. `need`: how many pods the load takes at target; None: not known then. `at_max`: `replicas` is the spec's
    maximum.
    """

    time_ms: int
    replicas: int
    ready: int
    need: float | None
    at_max: bool

    @property
    def overload(self) -> float | None:
        """Load over what the ready pods carry at target: above 1 they are above target."""
        if self.need is None:
            return None
        return self.need / self.ready if self.ready else (float("inf") if self.need > 0 else 0.0)


class Measures(Struct, frozen=True, kw_only=True, rename="camel"):
    """Sums over a period. Hours and minutes are of log time; `worst_overload` 1.0 means exactly at target."""

    replica_hours: float
    above_target_minutes: float
    worst_overload: float
    at_max_minutes: float
    scale_events: int
    direction_flips: int
    unknown_minutes: float
    hours: float


def measure(moments: Sequence[Moment], tolerance: float, period_ms: int) -> Measures:
    """Sum up; each moment holds until the next. Above target: beyond `tolerance`, as the controller sees it."""
    hours = replica = above = at_max = unknown = 0.0
    worst = 0.0
    for moment, span_ms in zip(moments, spans_ms(_times(moments), period_ms), strict=True):
        overload = moment.overload
        hours += span_ms
        replica += moment.replicas * span_ms
        at_max += span_ms if moment.at_max else 0
        if overload is None:
            unknown += span_ms
            continue
        above += span_ms if overload > 1.0 + tolerance else 0
        worst = max(worst, overload)
    events, flips = changes(moment.replicas for moment in moments)
    return Measures(
        replica_hours=replica / 3_600_000,
        above_target_minutes=above / 60_000,
        worst_overload=min(worst, 1e9),
        at_max_minutes=at_max / 60_000,
        scale_events=events,
        direction_flips=flips,
        unknown_minutes=unknown / 60_000,
        hours=hours / 3_600_000,
    )


def spans_ms(times_ms: Sequence[int], period_ms: int) -> list[int]:
    """How long each moment holds, in milliseconds: until the next, but one period only where a gap follows."""
    spans = [after - before for before, after in pairwise(times_ms)] + [period_ms] * bool(times_ms)
    return [span_ms if span_ms <= GAP_PERIODS * period_ms else period_ms for span_ms in spans]


def _times(moments: Sequence[Moment]) -> list[int]:
    return [each.time_ms for each in moments]


def changes(replicas: Iterable[int]) -> tuple[int, int]:
    """Count (changes, changes in the direction opposite to the one before)."""
    events = flips = direction = 0
    before: int | None = None
    for count in replicas:
        if before is not None and count != before:
            events += 1
            now = 1 if count > before else -1
            flips += int(direction == -now)
            direction = now
        before = count
    return events, flips


def total(parts: Iterable[Measures]) -> Measures:
    """Add up the measures of several HPAs; the worst overload is the worst of all."""
    listed = list(parts)
    sums = {
        name: sum(getattr(each, name) for each in listed)
        for name in Measures.__struct_fields__
        if name != "worst_overload"
    }
    return Measures(worst_overload=max((each.worst_overload for each in listed), default=0.0), **sums)


_NEAR = 1e-9
"""What a quotient of doubles may be above a whole number without asking for one replica more."""


class Scores(Struct, frozen=True, kw_only=True, rename="camel"):
    """Scores over the time in which the load is known (`hours`, in log time). Accuracies and shares are fractions.

    `under_accuracy`, `over_accuracy`: mean of what is missing, or too much, in units of the demand. `under_share`,
    `over_share`: share of time with too few, or too many, replicas. `instability`: share of time in which demand and
    supply move in opposite directions. `adaptations_per_hour`: changes of the count. `slack`: 1 minus used over
    allocated, both summed over time. `ideal_replica_hours`: what the ideal autoscaler (`streams.analysis.ideal`) would
    have run; `replica_hours`: what ran, over the same time. `too_many_replica_hours`, `too_few_replica_hours`: what ran
    above the ideal, and what was not ready below it, which do not offset each other; `too_few_share`: share of the time
    with fewer ready pods than it runs.
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
    ideal_replica_hours: float
    too_many_replica_hours: float
    too_few_replica_hours: float
    too_few_share: float

    @property
    def ideal_ratio(self) -> float | None:
        """Replica-hours over those of the ideal autoscaler; None where no load is known."""
        return self.replica_hours / self.ideal_replica_hours if self.ideal_replica_hours else None


def demand(need: float) -> int:
    """Replicas that a load asks for: it is divided over whole pods, and one always runs."""
    return max(1, math.ceil(need - _NEAR))


def scores(moments: Sequence[Moment], period_ms: int, ideal: Sequence[int | None]) -> Scores:
    """Score a series of moments, each of which holds until the next. `ideal`: replicas of the ideal autoscaler then.

    Demand is not bounded: replicas that a spec's maximum refuses are missing, those that its minimum keeps are too
    many. Supply is what is ready; costs and slack count what runs.
    """
    names = ("time", "under", "over", "under_time", "over_time", "used", "ran", "ideal", "many", "few", "few_time")
    sums = dict.fromkeys(names, 0.0)
    for index, (moment, span_ms) in enumerate(zip(moments, spans_ms(_times(moments), period_ms), strict=True)):
        if moment.need is None:
            continue
        demanded = demand(moment.need)
        missing, idle = max(0, demanded - moment.ready), max(0, moment.ready - demanded)
        sums["time"] += span_ms
        sums["under"] += missing / demanded * span_ms
        sums["over"] += idle / demanded * span_ms
        sums["under_time"] += span_ms if missing else 0
        sums["over_time"] += span_ms if idle else 0
        sums["used"] += min(moment.need, moment.replicas) * span_ms
        sums["ran"] += moment.replicas * span_ms
        best = ideal[index] or 0
        sums["ideal"] += best * span_ms
        sums["many"] += max(0, moment.replicas - best) * span_ms
        sums["few"] += max(0, best - moment.ready) * span_ms
        sums["few_time"] += span_ms if moment.ready < best else 0
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
        ideal_replica_hours=sums["ideal"] / 3_600_000,
        too_many_replica_hours=sums["many"] / 3_600_000,
        too_few_replica_hours=sums["few"] / 3_600_000,
        too_few_share=sums["few_time"] / time_ms,
    )


def _instability(moments: Sequence[Moment], period_ms: int) -> float:
    """Milliseconds in which demand and supply move in opposite directions."""
    total = 0
    for (before, after), span_ms in zip(pairwise(moments), spans_ms(_times(moments), period_ms), strict=False):
        if before.need is None or after.need is None:
            continue
        demanded = demand(after.need) - demand(before.need)
        total += span_ms if demanded * (after.replicas - before.replicas) < 0 else 0
    return total


def by_hours(parts: Sequence[Scores]) -> Scores:
    """Several HPAs together: accuracies and shares are means over time, hours and replica-hours are sums."""
    hours = sum(each.hours for each in parts)
    per_hour: dict[str, float] = {}
    for name in Scores.__struct_fields__:
        values = [getattr(each, name) for each in parts]
        if name == "hours" or name.endswith("replica_hours"):
            per_hour[name] = sum(values)
        elif name == "slack":
            ran = sum(each.replica_hours for each in parts)
            used = sum(each.slack * each.replica_hours for each in parts)
            per_hour[name] = used / ran if ran else 0.0
        else:
            weighted = sum(value * each.hours for value, each in zip(values, parts, strict=True))
            per_hour[name] = weighted / hours if hours else 0.0
    return Scores(**per_hour)


class EvaluatedMoment(Struct, frozen=True, gc=False):
    """What one evaluation says of an HPA.

    `replicas`: what the target has from then on: what fleethpa wants to be written, else what there is. `proposal`:
    what the metrics ask for, within minReplicas and maxReplicas, before any window or policy; None: they could not be
    read.
    """

    time_ms: int
    before: int
    replicas: int
    proposal: int | None
    is_at_max: bool
    is_failing: bool


class WaveMeasures(Struct, frozen=True, kw_only=True, rename="camel"):
    """Measures of a group of HPAs in a time; shares are percentages.

    `unevaluated`: HPAs without any evaluation in that time. `replicas_removed`: replicas that were taken away at the
    lowest moment of each HPA, of all that the group had. `recommended_removal`: the same for what the metrics asked
    for, which shows before a window lets it happen. `at_max`, `failing`: HPAs whose newest evaluation is kept by
    maxReplicas, or could not scale by its metrics. `scale_events`, `direction_flips`: per HPA.
    """

    hpas: int
    unevaluated: int
    replicas_removed: float
    recommended_removal: float
    at_max: float
    failing: float
    scale_events: float
    direction_flips: float


def moment_of(decision: Decision, time_ms: int) -> EvaluatedMoment:
    """Reduce an evaluation, as recorded, to what is measured."""
    wanted = decision.wants if decision.wants is not None else decision.current_replicas
    proposal = decision.raw_desired_replicas
    if proposal is not None and decision.max_replicas:
        proposal = min(max(proposal, decision.min_replicas), decision.max_replicas)
    return EvaluatedMoment(
        time_ms,
        decision.current_replicas,
        wanted,
        proposal,
        "MaxReplicas" in decision.constraints_applied,
        bool(decision.error) or _is_inactive(decision),
    )


def _is_inactive(decision: Decision) -> bool:
    """Whether the condition ScalingActive is False for another reason than that somebody set the target to 0."""
    conditions = (decision.status or {}).get("conditions") or ()
    return any(
        each["type"] == "ScalingActive" and each["status"] == "False" and each.get("reason") != "ScalingDisabled"
        for each in conditions
    )


def wave_measures(moments: Mapping[HpaId, Sequence[EvaluatedMoment]], replicas: Mapping[HpaId, int]) -> WaveMeasures:
    """Measure a group of HPAs. `replicas`: what each had at the beginning; it names the whole group."""
    series = [(count, moments.get(hpa) or ()) for hpa, count in replicas.items()]
    known = [(count, of_hpa) for count, of_hpa in series if of_hpa]
    had = sum(replicas.values())
    events = [_directions(of_hpa) for _, of_hpa in known]
    return WaveMeasures(
        hpas=len(replicas),
        unevaluated=len(series) - len(known),
        replicas_removed=_percent_of(
            sum(count - _lowest(count, (m.replicas for m in of_hpa)) for count, of_hpa in known), had
        ),
        recommended_removal=_percent_of(
            sum(count - _lowest(count, (m.proposal for m in of_hpa)) for count, of_hpa in known), had
        ),
        at_max=_percent_of(sum(of_hpa[-1].is_at_max for _, of_hpa in known), len(replicas)),
        failing=_percent_of(sum(of_hpa[-1].is_failing for _, of_hpa in known), len(replicas)),
        scale_events=sum(map(len, events)) / len(replicas) if replicas else 0.0,
        direction_flips=sum(a != b for each in events for a, b in pairwise(each)) / len(replicas) if replicas else 0.0,
    )


def condensed(moments: Sequence[EvaluatedMoment]) -> list[EvaluatedMoment]:
    """Leave out the moments that no measure needs: what is left gives the same measures, also with later ones added.

    The first and the last, every change of the count, and where replicas and proposal were lowest.
    """
    if not moments:
        return []
    proposed = [moment for moment in moments if moment.proposal is not None]
    kept = [moments[0], moments[-1], min(moments, key=lambda each: each.replicas)]
    kept += [min(proposed, key=lambda each: each.proposal or 0)] if proposed else []
    needed = set(map(id, kept))
    return [each for each in moments if id(each) in needed or each.replicas != each.before]


def _lowest(count: int, numbers: Iterable[int | None]) -> int:
    return min([count, *(each for each in numbers if each is not None)])


def _directions(moments: Sequence[EvaluatedMoment]) -> list[bool]:
    """The changes of the count that were wanted, in their order: up (True) or down."""
    return [moment.replicas > moment.before for moment in moments if moment.replicas != moment.before]


def _percent_of(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
