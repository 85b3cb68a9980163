"""Guardrails over recorded decisions: when each rule would have tripped, what that would have held, and its cost.

Pure: events, read from the decisions of a log partition, in; trips out. An HPA gives an event where its size changed or
a decision wants to remove replicas. Times are log time in Unix milliseconds.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec
from msgspec import Struct

from schemas.entries import BreakerCommand
from schemas.keys import FLEET, HpaId
from schemas.kubernetes.gotimes import parse_time_ms
from schemas.settings import SHORTEST_MS, Guardrail
from streams.history.parallel import DecisionsTask, Faults, SeenDecision, full_evaluation, read_decisions

LEAST_CLUSTERS = 3
"""Clusters that must remove replicas for a rule of the fleet to count."""
TRIPS_UNTIL_A_PERSON = 3
_HOUR_MS = 3_600_000
_NEVER_MS = 2**62
_PERCENT = 100
GONE_MS = 1_800_000
"""An HPA is gone if no full record of it came for this long: while it is evaluated, one comes every 10 minutes."""
_LOOKED_CHARACTERS = len("2026-01-01T00:0")
"""HPAs that are gone are looked for in each ten minutes."""


class GuardedEvent(NamedTuple):
    """What a decision says of one enforced HPA (`cluster/namespace/name`): its replicas that have been ready (0: it is
    no longer enforced), and how many of them it removes.
    """

    time_ms: int
    cluster: str
    hpa: str
    replicas: int
    removed: int

    @property
    def namespace(self) -> str:
        return self.hpa.split("/")[1]


class Trip(Struct, frozen=True, kw_only=True, rename="camel"):
    """A rule tripped for a cluster, or for one `namespace` alone: `removed` of the cluster's `replicas` in its window.

    `until`: end of the pause (Unix ms); None: it waits for a person, as the third one within an hour. `held`,
    `heldHpas`: replicas that decisions wanted to remove during the pause (the most of each HPA), and of how many HPAs;
    `costReplicaHours`: those replicas until the end of the pause. Of a pause without end, until its length has passed.
    """

    time: int
    rule: str
    cluster: str
    namespace: str = ""
    removed: int
    replicas: int
    until: int | None
    held: int = 0
    held_hpas: int = 0
    cost_replica_hours: float = 0.0

    def pause(self, window_ms: int) -> BreakerCommand:
        """The record of the pause that it causes. `window_ms`: of the rule."""
        return BreakerCommand(
            command="pause",
            cluster=self.cluster,
            namespace=self.namespace,
            guardrail=self.rule,
            until=self.until or 0,
            removed=self.removed,
            replicas=self.replicas,
            window_ms=window_ms,
        )


class EventReader:
    """Makes events of the decisions of one log partition, in their order."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._seen: dict[str, str] = {}
        """HPA -> time of its newest full record, of those that are enforced."""
        self._looked = "never"
        """Beginning of the time at which HPAs that are gone were looked for."""

    def take(self, value: bytes) -> Sequence[GuardedEvent]:
        """Read a decision record: what has changed with it, and which HPAs are gone by then. A short one changes
        nothing, nor does one of a FleetHPA, whose replicas are those of the HPAs in its clusters.
        """
        seen = full_evaluation(value)
        return () if seen is None else self.see(seen)

    def see(self, seen: SeenDecision) -> Sequence[GuardedEvent]:
        """The same, of a full record that is read already."""
        if seen.cluster == FLEET:
            return ()
        gone = () if seen.time.startswith(self._looked) else self._gone(seen.time)
        hpa = seen.hpa
        size = self._size(hpa, seen) if seen.mode == "enforce" else 0
        removed = max(0, size - seen.wants) if seen.wants is not None else 0
        if size:
            self._seen[hpa] = seen.time
        else:
            self._seen.pop(hpa, None)
        if not removed and self._sizes.get(hpa, 0) == size:
            return gone
        self._sizes[hpa] = size
        return (*gone, GuardedEvent(parse_time_ms(seen.time), seen.cluster, hpa, size, removed))

    def _size(self, hpa: str, seen: SeenDecision) -> int:
        """The replicas that have been ready: their number falls with the scale only, as in budgets, since a rule must
        trip also when pods are not seen.
        """
        ready = seen.observed.ready_pods
        if ready is None:
            return seen.current_replicas
        return min(seen.current_replicas, max(ready, self._sizes.get(hpa, 0)))

    def _gone(self, now: str) -> Sequence[GuardedEvent]:
        """Forget the HPAs that are gone; their replicas are no longer part of their cluster."""
        self._looked, now_ms = now[:_LOOKED_CHARACTERS], parse_time_ms(now)
        gone = [hpa for hpa, at in self._seen.items() if now_ms - parse_time_ms(at) > GONE_MS]
        for hpa in gone:
            del self._seen[hpa], self._sizes[hpa]
        return tuple(GuardedEvent(now_ms, hpa.partition("/")[0], hpa, 0, 0) for hpa in gone)


_Scope = tuple[str, str]
"""A cluster, and one namespace of it; empty: all of it."""


class _Over(NamedTuple):
    """What is over a rule: removed of replicas."""

    scope: _Scope
    removed: int
    replicas: int


class _Window:
    """Removals of a cluster within a sliding window, and the most replicas that it had there."""

    def __init__(self, length_ms: int) -> None:
        self._length_ms = length_ms
        self._removals: deque[tuple[int, int]] = deque()
        self._largest: deque[tuple[int, int]] = deque()
        """(time until which it held, total), falling."""
        self.removed = 0

    def add(self, now_ms: int, total_before: int, total: int, removed: int) -> None:
        for at_ms, count in ((now_ms, total_before), (now_ms, total)):
            while self._largest and self._largest[-1][1] <= count:
                self._largest.pop()
            self._largest.append((at_ms, count))
        if removed:
            self._removals.append((now_ms, removed))
            self.removed += removed
        self.trim(now_ms)

    def trim(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._length_ms
        while self._removals and self._removals[0][0] <= oldest_ms:
            self.removed -= self._removals.popleft()[1]
        while len(self._largest) > 1 and self._largest[0][0] <= oldest_ms:
            self._largest.popleft()

    def forget(self, until_ms: int) -> None:
        """What was removed until then counts no more."""
        while self._removals and self._removals[0][0] <= until_ms:
            self.removed -= self._removals.popleft()[1]

    @property
    def base(self) -> int:
        return self._largest[0][1] if self._largest else 0


class _Pause:
    """A pause that is in force in the run, and what it holds."""

    def __init__(self, trip: Trip, end_ms: int) -> None:
        self.trip, self.end_ms = trip, end_ms
        self.held: dict[str, tuple[int, int]] = {}
        """HPA -> (replicas, since when)."""

    def hold(self, event: GuardedEvent) -> None:
        known, since_ms = self.held.get(event.hpa, (0, event.time_ms))
        self.held[event.hpa] = (max(known, event.removed), since_ms)

    def ended(self) -> Trip:
        cost_ms = sum(count * (self.end_ms - since_ms) for count, since_ms in self.held.values())
        return msgspec.structs.replace(
            self.trip,
            held=sum(count for count, _ in self.held.values()),
            held_hpas=len(self.held),
            cost_replica_hours=round(cost_ms / _HOUR_MS, 3),
        )


class GuardrailRun:
    """The rules over a stream of events in order of time.

    A namespace counts in its cluster for half of what a rule needs at most, so that none trips one for all. One that
    reaches a rule alone is paused alone.

    Args:
        acts: whether a trip of a rule at a time pauses its cluster. One that does not is given once per length of its
            pause, and removals go on counting; one that waits for a person does until `resumed`. None: of recorded
            events, where every trip counts as a pause of its length.
    """

    def __init__(self, rules: Sequence[Guardrail], acts: Callable[[Guardrail, int], bool] | None = None) -> None:
        self._acts = acts
        self._quiet_ms: dict[tuple[str, _Scope], int] = {}
        """Until when a trip that was only reported is not reported again."""
        self._resumed_ms: dict[_Scope, int] = {}
        self._rules = rules
        self._lengths = [(rule, rule.window_ms, rule.pause_ms) for rule in rules]
        self._sizes: dict[str, int] = {}
        self._totals: dict[str, dict[str, int]] = {}
        """Cluster -> namespace (empty: all of it) -> replicas."""
        self._windows: dict[tuple[str, str], dict[str, _Window]] = {}
        """(rule, cluster) -> namespace (empty: all of it) -> its window."""
        self._pauses: dict[_Scope, _Pause] = {}
        self._trips: dict[tuple[str, _Scope], list[int]] = {}
        self._done: list[Trip] = []

    def take(self, event: GuardedEvent) -> list[Trip]:
        """Take the next event; give the trips that it causes, without what their pauses will hold."""
        if not self.watch(event):
            return []
        return [trip for rule, _, pause_ms in self._lengths for trip in self._look(rule, pause_ms, event)]

    def watch(self, event: GuardedEvent) -> int:
        """Take the next event without a look at the rules; give the replicas that it removes beside all pauses."""
        cluster, scopes = event.cluster, ("", event.namespace)
        totals = self._totals.setdefault(cluster, {})
        before = {name: totals.get(name, 0) for name in scopes}
        grown = event.replicas - self._sizes.get(event.hpa, 0)
        self._sizes[event.hpa] = event.replicas
        removed = event.removed
        for name in scopes:
            totals[name] = before[name] + grown
            pause = self._pauses.get((cluster, name))
            if pause is not None and event.time_ms >= pause.end_ms:
                self._done.append(self._pauses.pop((cluster, name)).ended())
            elif pause is not None:
                if removed:
                    pause.hold(event)
                removed = 0
        for rule, length_ms, _ in self._lengths:
            windows = self._windows.setdefault((rule.name, cluster), {})
            for name in scopes:
                window = windows.get(name)
                if window is None:
                    window = windows[name] = _Window(length_ms)
                window.add(event.time_ms, before[name], totals[name], removed)
        return removed

    def began(self, body: BreakerCommand, time_ms: int) -> None:
        """A record of this time paused a cluster or a namespace: of an earlier run of this process, of one beside it,
        or of this run.

        Its own trips, and those that another run saw in the same decisions, are known by the end of their pause: the
        record may be written much later, and by another clock, than the decision that tripped.
        """
        scope = body.cluster, body.namespace
        known = self._trips.setdefault((body.guardrail, scope), [])
        pause_ms = next((length_ms for rule, _, length_ms in self._lengths if rule.name == body.guardrail), 0)
        tripped_ms = body.until - pause_ms
        if any(abs(moment_ms - at_ms) < SHORTEST_MS for at_ms in known for moment_ms in (time_ms, tripped_ms)):
            return
        known.append(time_ms)
        if time_ms <= max(self._resumed_ms.get(each, 0) for each in (scope, (body.cluster, ""))):
            return
        trip = Trip(
            time=time_ms,
            rule=body.guardrail,
            cluster=body.cluster,
            namespace=body.namespace,
            removed=body.removed,
            replicas=body.replicas,
            until=body.until or None,
        )
        self._pauses[scope] = _Pause(trip, body.until or _NEVER_MS)

    def resumed(self, cluster: str, time_ms: int, namespace: str = "") -> None:
        """Somebody ended what guardrails paused in a cluster, or of one namespace alone: what was removed there until
        then counts no more.
        """
        scope = cluster, namespace
        self._resumed_ms[scope] = max(time_ms, self._resumed_ms.get(scope, 0))
        for (paused, name), pause in list(self._pauses.items()):
            if paused == cluster and namespace in ("", name) and pause.trip.time <= time_ms:
                del self._pauses[paused, name]
        for (_, known), windows in self._windows.items():
            for name, window in windows.items():
                if known == cluster and namespace in ("", name):
                    window.forget(time_ms)

    def knows(self, cluster: str) -> bool:
        """Whether an event of this cluster was taken."""
        return cluster in self._totals

    def clusters(self) -> list[str]:
        """The clusters of which something is known."""
        return sorted(self._totals.keys() | {cluster for cluster, _ in self._pauses})

    def _look(self, rule: Guardrail, pause_ms: int, event: GuardedEvent) -> list[Trip]:
        now_ms = event.time_ms
        if rule.scope == "cluster":
            found = self._over(rule, event.cluster, now_ms, [event.namespace])
        else:
            found = [
                each for cluster in self._over_in_fleet(rule, now_ms) for each in self._over(rule, cluster, now_ms)
            ]
        return [
            self._trip(rule, over, pause_ms, now_ms)
            for over in found
            if over.scope not in self._pauses
            and (over.scope[0], "") not in self._pauses
            and now_ms >= self._quiet_ms.get((rule.name, over.scope), 0)
        ]

    def _over(self, rule: Guardrail, cluster: str, now_ms: int, looked: Sequence[str] | None = None) -> list[_Over]:
        """Say whether a cluster is over a rule, or else which of its namespaces are alone.

        One that has more replicas than all the rest of the cluster counts for as many as the rest, its removals in the
        same proportion.

        Args:
            looked: the namespaces that may be over; None: all.
        """
        windows = self._windows.get((rule.name, cluster), {})
        for window in windows.values():
            window.trim(now_ms)
        if not windows or windows[""].removed < rule.least_removed:
            return []
        everything = base = windows[""].base
        parts = {name: window for name, window in windows.items() if name}
        surplus, removed = dict[str, int](), dict[str, int]()
        for name, window in parts.items():
            weight = max(0, min(window.base, everything - window.base))
            surplus[name] = window.base - weight
            removed[name] = min(weight, -(-window.removed * weight // max(1, window.base)))
            base -= surplus[name]
        needed = _needed(rule, base)
        most = min(-(-needed // 2), needed - 1)
        if sum(min(most, count) for count in removed.values()) >= needed:
            return [_Over((cluster, ""), windows[""].removed, everything)]
        seen_from = {name: base + surplus[name] for name in (parts if looked is None else looked)}
        return [
            _Over((cluster, name), parts[name].removed, seen)
            for name, seen in sorted(seen_from.items())
            if parts[name].removed >= _needed(rule, seen)
        ]

    def _over_in_fleet(self, rule: Guardrail, now_ms: int) -> list[str]:
        """Give the clusters to look at if the fleet as a whole is over the percentage."""
        windows = {cluster: self._windows.get((rule.name, cluster), {}).get("") for cluster in self._totals}
        known = {cluster: window for cluster, window in windows.items() if window is not None}
        for window in known.values():
            window.trim(now_ms)
        if sum(1 for window in known.values() if window.removed) < LEAST_CLUSTERS:
            return []
        whole = sum(window.base for window in known.values())
        cap = whole * rule.cluster_weight_percent // _PERCENT
        weights = {cluster: min(window.base, cap) for cluster, window in known.items() if window.base}
        lost = sum(weight * known[cluster].removed / known[cluster].base for cluster, weight in weights.items())
        if lost * _PERCENT < rule.removed_percent * sum(weights.values()):
            return []
        return sorted(weights)

    def _trip(self, rule: Guardrail, over: _Over, pause_ms: int, now_ms: int) -> Trip:
        key = rule.name, over.scope
        recent = [at for at in self._trips.get(key, []) if now_ms - at < _HOUR_MS] + [now_ms]
        self._trips[key] = recent
        waits = len(recent) >= TRIPS_UNTIL_A_PERSON
        trip = Trip(
            time=now_ms,
            rule=rule.name,
            cluster=over.scope[0],
            namespace=over.scope[1],
            removed=over.removed,
            replicas=over.replicas,
            until=None if waits else now_ms + pause_ms,
        )
        if self._acts is None:
            self._pauses[over.scope] = _Pause(trip, now_ms + pause_ms)
        elif self._acts(rule, now_ms):
            self._pauses[over.scope] = _Pause(trip, trip.until or _NEVER_MS)
        else:
            self._quiet_ms[key] = now_ms + pause_ms
        return trip

    def finish(self) -> list[Trip]:
        """Give all trips in order of time, with what their pauses held."""
        trips = [*self._done, *(pause.ended() for pause in self._pauses.values())]
        return sorted(trips, key=attrgetter("time", "cluster", "namespace", "rule"))


def _needed(rule: Guardrail, base: int) -> int:
    """Give how many of `base` replicas must be removed for a rule to trip."""
    return max(rule.least_removed, -(-rule.removed_percent * max(1, base) // _PERCENT))


def run_guardrails(rules: Sequence[Guardrail], events: Iterable[GuardedEvent]) -> list[Trip]:
    """Run rules over events of several partitions; they are put in order of time first."""
    run = GuardrailRun(rules)
    for event in sorted(events):
        run.take(event)
    return run.finish()


async def guarded_events(task: DecisionsTask) -> tuple[list[GuardedEvent], int, Faults]:
    """Read the events of a partition; give them, the number of decisions read, and the faults.

    An HPA's size from before the window counts from its begin on.
    """
    reader, events, faults = EventReader(), list[GuardedEvent](), Faults()

    def take(value: bytes) -> None:
        if (seen := full_evaluation(value)) is None:
            return
        with faults.of(HpaId(seen.cluster, seen.namespace, seen.name)):
            for event in reader.see(seen):
                if event.time_ms < task.end_ms:
                    removed = event.removed if event.time_ms >= task.begin_ms else 0
                    events.append(event._replace(time_ms=max(task.begin_ms, event.time_ms), removed=removed))

    return events, await read_decisions(task, take), faults
