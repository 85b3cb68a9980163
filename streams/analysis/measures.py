"""What a spec costs and what it lets pass: measures over a series of moments."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

GAP_PERIODS = 4
"""Sync periods without an evaluation from which on the time is a gap, of which only one period is counted."""


class Moment(Struct, frozen=True, gc=False):
    """An HPA at one evaluation.

    `replicas`: what is wanted or runs. `ready`: pods that take load. `need`: how many pods the load takes at target;
    None: not known then. `at_max`: `replicas` is the spec's maximum.
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
    for moment, span_ms in zip(moments, spans_ms(moments, period_ms), strict=True):
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


def spans_ms(moments: Sequence[Moment], period_ms: int) -> Iterable[int]:
    """How long each moment holds, in milliseconds: until the next, but one period only where a gap follows."""
    for number, moment in enumerate(moments):
        span_ms = moments[number + 1].time_ms - moment.time_ms if number + 1 < len(moments) else period_ms
        yield span_ms if span_ms <= GAP_PERIODS * period_ms else period_ms


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
