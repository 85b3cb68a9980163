"""A ceiling over the recorded past: which additions it would have held back, of whom, and for how long.

HPAs want what was decided. What the ceiling holds back is missing until there is room, and what was decided later is
taken as recorded, though a load that was held back might have asked for more.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct

from schemas.decisionfields import reader_of
from schemas.kubernetes.gotimes import parse_time_ms
from streams.across.allotments import CapacityClaim, granted
from streams.history.parallel import DecisionsTask, read_decisions

_read = reader_of(
    "time", "cluster", "namespace", "name", "kind", "current_replicas", "final_desired_replicas", "observed"
)


class WantedReplicas(NamedTuple):
    """An HPA (`cluster/namespace/name`) has some replicas at a moment and is to have others."""

    time_ms: int
    hpa: str
    current: int
    wanted: int


async def wanted_replicas(task: DecisionsTask) -> tuple[list[WantedReplicas], int]:
    """Return the changes of what HPAs had and wanted in a partition, and the number of decisions read.

    A decision for which the scale was not known changes nothing.
    """
    changes: list[WantedReplicas] = []
    last: dict[str, tuple[int, int]] = {}

    def add(value: bytes) -> None:
        decision = _read(value)
        if decision.kind != "evaluation" or decision.observed.get("specReplicas") is None:
            return
        hpa = f"{decision.cluster}/{decision.namespace}/{decision.name}"
        now = decision.current_replicas, decision.final_desired_replicas
        if last.get(hpa) != now and task.begin_ms <= (time_ms := parse_time_ms(decision.time)) < task.end_ms:
            last[hpa] = now
            changes.append(WantedReplicas(time_ms, hpa, *now))

    return changes, await read_decisions(task, add)


class HeldHpa(Struct, frozen=True, kw_only=True, rename="camel"):
    """An HPA whose additions were held back: how often, how long, and how many replicas were missing at most.

    `weight`: what one replica uses of the limit.
    """

    hpa: str
    priority: int
    weight: int
    times: int
    minutes: float
    longest_minutes: float
    most_missing: int
    missing_replica_hours: float


class CapacityTest(Struct, frozen=True, kw_only=True):
    """What a ceiling would have done. `limit`, `peak` and `above` in the counts of a `CapacityLimit`.

    `peak`: the most that all HPAs wanted at once, the least limit that never holds. `times`, `longest_…`: spans in
    which any HPA was held back. `above`: the most that was used where that was more than the limit; 0: it never was.
    `without_use`: HPAs whose replicas use nothing of the limit, or nobody knows what: they are never held back.
    """

    limit: int
    hpas: int
    since_ms: int
    until_ms: int
    peak: int
    peak_ms: int
    above: int
    times: int
    minutes: float
    longest_minutes: float
    longest_since_ms: int
    without_use: list[str]
    held: list[HeldHpa]


class HeldSpans:
    """Spans of time in which something is held back: closed ones, and the one that is open."""

    def __init__(self) -> None:
        self.closed: list[tuple[int, int]] = []
        self.begin_ms: int | None = None

    def see(self, is_held: bool, now_ms: int) -> None:
        """Open or close a span."""
        if is_held and self.begin_ms is None:
            self.begin_ms = now_ms
        elif not is_held and self.begin_ms is not None:
            if now_ms > self.begin_ms:
                self.closed.append((self.begin_ms, now_ms))
            self.begin_ms = None

    @property
    def minutes(self) -> float:
        """Sum of the spans."""
        return sum([end - begin for begin, end in self.closed]) / 60_000

    @property
    def longest(self) -> tuple[int, int]:
        """The longest span: begin and end; the first of equal ones."""
        return max(self.closed, key=lambda span: span[1] - span[0], default=(0, 0))


class CeilingMember(NamedTuple):
    """An HPA of a group: the higher priority comes first; `weight` is what one replica uses of the limit."""

    priority: int
    weight: int = 1


class _Hpa:
    """An HPA under the ceiling: what it has there, and what it wants."""

    def __init__(self, member: CeilingMember, has: int) -> None:
        self.priority, self.weight = member
        self.has, self.wants = has, has
        self.spans, self.missing_ms, self.most = HeldSpans(), 0, 0


def run_ceiling(
    limit: int, events: Iterable[WantedReplicas], members: Mapping[str, CeilingMember], until_ms: int
) -> CapacityTest | None:
    """Run a ceiling over what HPAs wanted, until a time; None: no HPA of the group wanted anything.

    `members`: the HPAs of the group; others are left out.
    """
    ceiling = _Ceiling(limit, members)
    for now_ms, moment in groupby(sorted(events), attrgetter("time_ms")):
        ceiling.apply(now_ms, moment)
    return ceiling.result(until_ms) if ceiling.hpas else None


class _Ceiling:
    """A ceiling that is run: its HPAs, and what it held back so far."""

    def __init__(self, limit: int, members: Mapping[str, CeilingMember]) -> None:
        self.hpas: dict[str, _Hpa] = {}
        self._limit, self._members = limit, members
        self._whole = HeldSpans()
        self._peak, self._peak_ms, self._above = 0, 0, 0
        self._since_ms, self._last_ms = 0, 0

    def apply(self, now_ms: int, events: Iterable[WantedReplicas]) -> None:
        """Apply what HPAs want from now on."""
        self._pass(now_ms)
        self._since_ms = self._since_ms or now_ms
        for event in events:
            self._want(event)
        self._grant(now_ms)
        hpas = self.hpas.values()
        self._whole.see(any(each.wants > each.has for each in hpas), now_ms)
        total, had = sum([each.wants * each.weight for each in hpas]), sum([each.has * each.weight for each in hpas])
        if total > self._peak:
            self._peak, self._peak_ms = total, now_ms
        self._above = max(self._above, had if had > self._limit else 0)

    def _want(self, event: WantedReplicas) -> None:
        """An HPA is first seen with what it has; what it gives up is given up at once."""
        member = self._members.get(event.hpa)
        if member is not None:
            hpa = self.hpas.setdefault(event.hpa, _Hpa(member, event.current))
            hpa.wants = event.wanted
            hpa.has = min(hpa.has, hpa.wants)

    def _grant(self, now_ms: int) -> None:
        claims = [CapacityClaim(name, hpa.has, hpa.wants, hpa.priority, hpa.weight) for name, hpa in self.hpas.items()]
        for name, more in granted(self._limit, claims).items():
            hpa = self.hpas[name]
            hpa.has += more
            hpa.most = max(hpa.most, hpa.wants - hpa.has)
            hpa.spans.see(hpa.wants > hpa.has, now_ms)

    def _pass(self, now_ms: int) -> None:
        for hpa in self.hpas.values():
            hpa.missing_ms += (hpa.wants - hpa.has) * (now_ms - self._last_ms)
        self._last_ms = now_ms

    def result(self, until_ms: int) -> CapacityTest:
        """End the run. There is an HPA at least."""
        self._pass(until_ms)
        for spans in (self._whole, *[each.spans for each in self.hpas.values()]):
            spans.see(False, until_ms)
        begin_ms, end_ms = self._whole.longest
        return CapacityTest(
            limit=self._limit,
            hpas=len(self.hpas),
            since_ms=self._since_ms,
            until_ms=until_ms,
            peak=self._peak,
            peak_ms=self._peak_ms,
            above=self._above,
            times=len(self._whole.closed),
            minutes=self._whole.minutes,
            longest_minutes=(end_ms - begin_ms) / 60_000,
            longest_since_ms=begin_ms,
            without_use=sorted([name for name, each in self.hpas.items() if not each.weight]),
            held=_held(self.hpas),
        )


def _held(hpas: Mapping[str, _Hpa]) -> list[HeldHpa]:
    held = [
        HeldHpa(
            hpa=name,
            priority=hpa.priority,
            weight=hpa.weight,
            times=len(hpa.spans.closed),
            minutes=hpa.spans.minutes,
            longest_minutes=(hpa.spans.longest[1] - hpa.spans.longest[0]) / 60_000,
            most_missing=hpa.most,
            missing_replica_hours=hpa.missing_ms / 3_600_000,
        )
        for name, hpa in hpas.items()
        if hpa.spans.closed
    ]
    return sorted(held, key=lambda each: (-each.missing_replica_hours, each.hpa))
