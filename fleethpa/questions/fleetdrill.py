"""The fleet drill, `what-if --cluster-away CLUSTER`: who has no room when a cluster is away, at the load of a recorded
time, times a factor.

The load is read from decisions alone: of each metric the ratio of its usage to its target and the pods that it is of.
What a FleetHPA could give its other clusters, what an HPA asks for and what a CapacityGroup grants come from the
functions by which the decider divides, calculates and grants. What they rest on is in `ASSUMED`, and each row names its
own.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

import click
import msgspec
from msgspec import Struct

from fleethpa.fleet.capacity import GroupView, groups_of
from fleethpa.fleet.decisions import AskedPeriod
from fleethpa.fleet.finding import no_such_cluster, not_evaluated
from fleethpa.fleet.shards import by_partitions
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import ANSWER_IS_NO, OK, PARTIAL, usage
from fleethpa.frame.options import gathered, together
from fleethpa.frame.session import TRAVEL, Session
from fleethpa.frame.sources import by_partition
from fleethpa.questions.backtestreport import minutes
from fleethpa.questions.ceilings import weight_of
from fleethpa.show.report import Grid, Notes, QuestionReport, Section, Sentences, verdict
from fleethpa.show.text import rfc3339, span
from fleethpa.show.words import cause, counted, listed, scale_is_known, short
from schemas.capacity import CapacityLimit, CapacityMatch
from schemas.decisionfields import reader_of
from schemas.decisions import Decision, MetricDecision
from schemas.keys import HpaId
from schemas.observed import FleetSpec
from schemas.partitioning import partition_for
from streams.across.allotments import CapacityClaim, granted
from streams.across.capacity import FORGETS_MS
from streams.analysis.measures import GAP_PERIODS, spans_ms
from streams.analysis.wholes import WithoutCluster, without_at
from streams.archive.layout import DECISIONS
from streams.history.parallel import DecisionsTask, Faults, read_evaluations
from streams.hpa.autoscaler import compile_autoscaler
from streams.hpa.calculator import ToleranceBand, object_per_pod
from streams.hpa.gofloat import MAX_INT32
from streams.hpa.metrics import tolerance_band
from streams.hpa.rules import Rules
from streams.state.clustersettings import PERIOD_ANNOTATION, Effective, effective, fleet_settings, own_period_ms

ASSUMED: Final = (
    "the load of an HPA is the ratio of each of its metrics times the pods that it is of, the largest counts; pods "
    "without a sample, or not ready, count as the controller counts them. All metrics grow by the factor alike",
    "an HPA of one cluster does not move: the load of those in the cluster that is away goes nowhere",
    "the load of a FleetHPA stays whole: what its cluster that is away carried goes to the others as the decider "
    "divides, by weights, bounds and whenAway. With Spill, a row is about the time after the spill",
    "HPAs of a CapacityGroup want what their metrics ask for within their bounds, or their share; windows, policies, "
    f"brakes, pauses and modes hold nothing back. What the cluster that is away had counts for {span(FORGETS_MS)}, as "
    "for any HPA that is silent. It is looked at once a minute",
    "specs, settings, prices, labels and annotations are those of the end of the time; of an HPA whose spec changed, "
    "only what came after counts. Nodes are short only where pods have waited for one",
)
"""What the figures rest on."""
_OF_PODS: Final = ("Resource", "ContainerResource", "Pods")
_GRID_MS: Final = 60_000
"""How often CapacityGroups are looked at."""
_MILLI: Final = 1_000
_MOST_FACTOR: Final = 100
_SHOWN: Final = 20
"""Rows of the table; machine formats have all."""


# --- the load in decisions --------------------------------------------------------------------------------------------

read = reader_of(
    "seq",
    "time",
    "cluster",
    "namespace",
    "name",
    "kind",
    "current_replicas",
    "metrics",
    "observed",
    "reason",
    "error",
    "spec_hash",
)
"""Reads what the drill needs of a decision record."""


class Load(NamedTuple):
    """The pods that a load takes at the target of its metrics; None: no metric says it. `unread`: why the load may be
    larger, as a metric has no value; empty: all have.
    """

    pods: float | None
    unread: str = ""


def load_of(decision: Decision) -> Load:
    """Return the load that an evaluation saw. One whose target is set to 0 has none."""
    if not scale_is_known(decision):
        return Load(None, "its scale could not be read")
    if not decision.metrics:
        if not decision.current_replicas and not decision.error:
            return Load(0.0)
        why = cause(decision.error) or "its replicas were out of its bounds, so that its metrics were not asked"
        return Load(None, why)
    found: list[float] = []
    unread = ""
    replicas = int(decision.observed.get("statusReplicas", decision.current_replicas))
    for metric in decision.metrics:
        if (pods := _pods_for(metric, replicas)) is not None:
            found.append(pods)
        elif not unread:
            unread = f"{short(metric.name)}: {cause(metric.error) or 'its value is no load'}"
    return Load(max(found, default=None), unread)


def _pods_for(metric: MetricDecision, replicas: int) -> float | None:
    """Return the pods that one metric's load takes; None: it has no usable value."""
    if metric.proposal is None:
        return None
    ratio, pods = float(metric.ratio), metric.pods_used or (0 if metric.type in _OF_PODS else replicas)
    load = ratio * pods
    if not math.isfinite(load) or load < 0 or metric.proposal < 0 or not (pods or metric.proposal):
        return None
    # Where nothing kept the count, the proposal is the load in whole pods: it knows of the pods without a sample.
    return load if metric.note or math.ceil(load) == metric.proposal else float(metric.proposal)


class LoadSeries:
    """The evaluations of one HPA under its newest spec, in the order of the log, some 30 bytes for each.

    `clusters`: of a FleetHPA, what each evaluation shows of them.
    """

    def __init__(self) -> None:
        self._spec_hash = ""
        self._clear()

    def _clear(self) -> None:
        self.times_ms, self.replicas, self._pods = array("q"), array("q"), array("d")
        self._unread: dict[int, str] = {}
        self.clusters: list[Mapping[str, Mapping[str, Any]]] = []

    def __len__(self) -> int:
        return len(self.times_ms)

    def add(self, decision: Decision, time_ms: int) -> None:
        """Take in an evaluation; what was under another spec is left out."""
        if decision.spec_hash != self._spec_hash:
            self._clear()
            self._spec_hash = decision.spec_hash
        load = load_of(decision)
        if load.unread:
            self._unread[len(self)] = load.unread
        self.times_ms.append(time_ms)
        self.replicas.append(decision.current_replicas)
        self._pods.append(math.nan if load.pods is None else load.pods)
        if (clusters := decision.observed.get("clusters")) is not None:
            self.clusters.append(clusters)

    def load(self, at: int) -> Load:
        """Return the load of one of them."""
        pods = self._pods[at]
        return Load(None if math.isnan(pods) else pods, self._unread.get(at, ""))

    def newest(self, time_ms: int) -> int:
        """Return which of them was the newest at a time; -1: none was before."""
        return bisect_right(self.times_ms, time_ms) - 1


class DrillTask(NamedTuple):
    """A partition's decisions of some HPAs."""

    decisions: DecisionsTask
    hpas: frozenset[HpaId]


Loads = dict[HpaId, LoadSeries]


async def loads(task: DrillTask) -> tuple[Loads, Faults]:
    """Read the loads of the HPAs of a partition, and the faults with others; one without an evaluation is left out."""
    found, faults = Loads(), Faults()

    def take(hpa: HpaId, decision: Decision, time_ms: int) -> None:
        with faults.of(hpa):
            found.setdefault(hpa, LoadSeries()).add(decision, time_ms)

    await read_evaluations(task.decisions, read, task.hpas, take)
    return {hpa: each for hpa, each in found.items() if hpa not in faults}, faults


# --- what is asked for, and what there is -----------------------------------------------------------------------------


class Controller(NamedTuple):
    """How an HPA is decided: its tolerance, its rules and how often."""

    band: ToleranceBand
    rules: Rules
    period_ms: int


def asked_for(pods: float, most: int, controller: Controller) -> int:
    """Return the replicas that a load asks for where there are `most`, as the controller calculates an average per pod:
    within the tolerance no more than these.
    """
    milli = round(min(pods, MAX_INT32 / _MILLI) * _MILLI)
    made = object_per_pod(most, _MILLI, milli, controller.band, controller.rules).proposal
    return made if made > most else min(made, -(-milli // _MILLI))


class Judged(NamedTuple):
    """One moment, in replicas, of a CapacityGroup in counts of its limit. `unknown`: why the demand is not known;
    empty: it is. `first`: what is missing while what the cluster had still counts, `later`: once it counts no longer;
    `missing` is one of the two.
    """

    asks: int = 0
    may_have: int = 0
    missing: int = 0
    why: str = ""
    unknown: str = ""
    first: int = 0
    later: int = 0


def judged_alone(load: Load, most: int, factor: float, controller: Controller) -> Judged:
    """Judge an HPA of one cluster that is not away."""
    asks = 0 if load.pods is None else asked_for(load.pods * factor, most, controller)
    if asks > most:
        missing = asks - most
        return Judged(asks, most, missing, f"maxReplicas {most}", "", missing, missing)
    return Judged(unknown=load.unread) if load.unread else Judged(asks, most)


class Whole(NamedTuple):
    """A FleetHPA."""

    spec: FleetSpec
    least: int
    most: int

    @property
    def names(self) -> list[str]:
        """Its clusters."""
        return [each.name for each in self.spec.clusters]


def judged_whole(
    load: Load,
    clusters: Mapping[str, Mapping[str, Any]],
    whole: Whole,
    away: str,
    factor: float,
    controller: Controller,
) -> tuple[Judged, Mapping[str, int]]:
    """Judge a FleetHPA, and give the shares of its other clusters; none where its load is not known."""
    for name in whole.names:
        if clusters.get(name, {}).get("away") or "replicas" not in clusters.get(name, {}):
            return Judged(unknown=f"cluster {name} had not reported"), {}
    if load.pods is None:
        return Judged(unknown=load.unread), {}
    pods, clusters = load.pods * factor, {name: clusters[name] for name in whole.names}

    def without(is_spilled: bool) -> WithoutCluster:
        def divided(needed: int) -> WithoutCluster:
            return without_at(whole.spec, clusters, away, whole.most, needed, is_spilled=is_spilled)

        may_have = divided(0).may_have
        held = 0 if is_spilled or away not in clusters else int(clusters[away]["replicas"])
        return divided(max(asked_for(pods, may_have, controller), min(may_have, whole.least - held)))

    kept = without(is_spilled=False)
    made = without(is_spilled=True) if whole.spec.away_spill_after_ms else kept
    waiting = _waiting(made, clusters)
    first, missing = kept.missing + sum(_waiting(kept, clusters).values()), made.missing + sum(waiting.values())
    if load.unread and not first and not missing:
        return Judged(unknown=load.unread), {}
    why = [_why_missing(made, whole, clusters, away)] if made.missing else []
    why += [f"{name} has nodes for {made.shares[name] - short}" for name, short in waiting.items()]
    if first > missing > 0:
        why.append(f"until the spill {first} are missing")
    asks = made.needed
    return Judged(asks, asks - missing, missing, "; ".join(why), "", first, missing), made.shares


def _waiting(made: WithoutCluster, clusters: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Return how many replicas of each share are known to find no node."""
    rooms = {name: int(clusters[name].get("room", MAX_INT32)) for name in made.shares}
    return {name: share - rooms[name] for name, share in made.shares.items() if share > rooms[name]}


def _why_missing(made: WithoutCluster, whole: Whole, clusters: Mapping[str, Mapping[str, Any]], away: str) -> str:
    others = sum([each.max_replicas for each in whole.spec.clusters if each.name != away])
    if not others:
        return f"it has no cluster but {away}"
    if made.may_have == others < whole.most:
        return f"maxReplicas of its other clusters: {others}"
    held = int(clusters.get(away, {}).get("replicas", 0))
    is_counted = held and not whole.spec.away_spill_after_ms
    return f"maxReplicas {whole.most}" + (f", of which {away} keeps {held} (whenAway Keep)" if is_counted else "")


class DrillMember(NamedTuple):
    """An HPA of a CapacityGroup at one moment. `wants`: None: its demand is not known, so it counts with what it has.
    `is_away`: it is in the cluster that is away, and counts with what it has, too.
    """

    name: str
    has: int
    wants: int | None
    priority: int
    weight: int
    is_away: bool = False

    @property
    def claim(self) -> CapacityClaim:
        """What it has and wants of the group; what it gives up is given up at once."""
        wants = self.has if self.wants is None or self.is_away else self.wants
        return CapacityClaim(self.name, min(self.has, wants), wants, self.priority, self.weight)


def judged_group(limit: int, members: Sequence[DrillMember]) -> tuple[Judged, dict[str, int]]:
    """Judge a CapacityGroup while it still counts what the cluster had that is away. Gives also the replicas that are
    missing, by HPA.
    """
    missing = _held_back(limit, members)
    weights = {each.name: each.weight for each in members}
    wants = sum([each.claim.wants * each.weight for each in members if not each.is_away])
    lost = sum([each.has * each.weight for each in members if each.is_away])
    short = sum([count * weights[name] for name, count in missing.items()])
    left = _held_back(limit, [each for each in members if not each.is_away])
    later = sum([count * weights[name] for name, count in left.items()])
    unknown = sum([each.wants is None and not each.is_away for each in members])
    why = []
    if missing:
        most = max(missing, key=lambda name: (missing[name], name))
        why = [f"{counted(len(missing), 'HPA')} held back, {most} by {missing[most]}"]
    if missing and lost:
        why.append("what the cluster had still counts")
    if missing and unknown:
        why.append(f"{counted(unknown, 'HPA')} of unknown demand with what they have")
    return Judged(wants, max(0, limit - lost), short, "; ".join(why), "", short, later), missing


def _held_back(limit: int, members: Sequence[DrillMember]) -> dict[str, int]:
    claims = [each.claim for each in members]
    given = granted(limit, claims)
    return {each.name: each.missing - given[each.name] for each in claims if each.missing > given[each.name]}


# --- over the time ----------------------------------------------------------------------------------------------------


class DrillNeed(Struct, frozen=True, kw_only=True, rename="camel"):
    """Who has no room. `asks`, `mayHave`, `missing`: at the moment at which most was missing (`time`), in `unit`.

    `minutes`: how long anything was missing, of `knownMinutes`. `firstMissing`, `laterMissing`: while what the cluster
    had still counts, and once it counts no longer; `missing` is the second of a FleetHPA, the first of a CapacityGroup.
    `assumed`: what the figures rest on. `held`: the HPAs that a CapacityGroup holds back, and how many replicas each.
    """

    kind: str
    name: str
    asks: float
    may_have: float
    missing: float
    unit: str
    minutes: float
    known_minutes: float
    time: str
    why: str
    first_missing: float
    later_missing: float
    assumed: str
    held: dict[str, int] = {}

    @property
    def need(self) -> float:
        """What it asks for as a multiple of what it may have, by which it is listed."""
        return self.asks / max(1.0, self.may_have)


class DrillUnknown(Struct, frozen=True, kw_only=True, rename="camel"):
    """Whose demand is not known for `minutes`, and why. `isWhole`: it is known at no moment of the time."""

    name: str
    why: str
    minutes: float
    is_whole: bool


class DrillDelay(Struct, frozen=True, kw_only=True, rename="camel"):
    """A FleetHPA that has room once what it has in the cluster is spilled, and lacks at most `missing` replicas for the
    `seconds` before.
    """

    name: str
    missing: int
    seconds: int


class Drilled(NamedTuple):
    """What a drill found. `known`: how many HPAs, FleetHPAs and CapacityGroups were judged. `gone`: HPAs of the cluster
    alone.
    """

    needs: list[DrillNeed]
    delays: list[DrillDelay]
    unknown: list[DrillUnknown]
    known: int
    gone: list[str]

    @property
    def code(self) -> int:
        """The exit code: who lacks room is what counts; that all have it is not said where a demand is unknown."""
        if self.needs:
            return ANSWER_IS_NO
        return PARTIAL if not self.known or any(each.is_whole for each in self.unknown) else OK


class _Judgement:
    """The moments of one HPA, FleetHPA or CapacityGroup together: how long it lacks room, when most, and what is not
    known.
    """

    def __init__(self, name: str, times_ms: Sequence[int], period_ms: int, judged: Sequence[Judged]) -> None:
        self.name = name
        spans = spans_ms(times_ms, period_ms)
        moments = list(zip(times_ms, spans, judged, strict=True))
        self.known_ms = sum([span_ms for _, span_ms, each in moments if not each.unknown])
        self.unknown_ms = sum([span_ms for _, span_ms, each in moments if each.unknown])
        self.lacking_ms = sum([span_ms for _, span_ms, each in moments if each.missing])
        lacking = [(time_ms, each) for time_ms, _, each in moments if each.missing]
        self.worst = max(lacking, key=lambda each: (each[1].missing, -each[0])) if lacking else None
        self.most_first = max([each.first for each in judged], default=0)
        self._reasons = Counter([each.unknown for each in judged if each.unknown])

    @property
    def unknown(self) -> DrillUnknown | None:
        """Why and for how long the demand is not known; None: it is known at each moment."""
        if not self._reasons:
            return None
        (why, _), *_ = self._reasons.most_common(1)
        lasting = self.unknown_ms / 60_000
        return DrillUnknown(name=self.name, why=why, minutes=lasting, is_whole=not self.known_ms)


class Drill:
    """A drill over a fleet. `away`: the cluster; `found`: the loads of its HPAs; `faults`: takes those of fleethpa."""

    def __init__(self, state: FleetState, away: str, factor: float, found: Loads, faults: Faults) -> None:
        self._state, self._away, self._factor, self._found = state, away, factor, found
        self._faults = faults
        self._settings: dict[str, Effective] = {}
        self._shares: dict[HpaId, list[Mapping[str, int]]] = {}
        """Of each FleetHPA, those of its clusters at each evaluation; without its load none."""
        self._controllers: dict[HpaId, Controller] = {}

    def run(self, window: tuple[int, int]) -> Drilled:
        """Judge every HPA, FleetHPA and CapacityGroup over a time, to before its end."""
        made = Drilled([], [], [], 0, [])
        views = [view for view in self._state.hpas.values() if view.whole is None]
        gone = [view for view in views if view.id.cluster == self._away]
        made.gone.extend([str(view.id) for view in gone])
        known = 0
        for view in views:
            if view.id.cluster != self._away and view.id not in self._faults:
                with self._faults.of(view.id):
                    known += self._take(view, made)
        for group in groups_of(self._state).values():
            found, is_known = self._of_group(group, window)
            made.needs.extend(found)
            known += is_known
        made.needs.sort(key=lambda each: (-each.need, -each.missing, each.name))
        made.unknown.sort(key=lambda each: (not each.is_whole, each.name))
        return made._replace(known=known)

    def _take(self, view: HpaView, made: Drilled) -> bool:
        """Put what is found of an HPA of one cluster, or a FleetHPA, where it belongs; say whether it was judged."""
        name, judgement = str(view.id), self._judge(view)
        if judgement is None:
            why = "mode off: nothing is decided" if view.mode == "off" else "no evaluation in this time"
            made.unknown.append(DrillUnknown(name=name, why=why, minutes=0.0, is_whole=True))
            return False
        if (unknown := judgement.unknown) is not None:
            made.unknown.append(unknown)
        if judgement.worst is not None:
            made.needs.append(_need(judgement, view, self._away, self._factor))
        elif judgement.most_first and view.fleet is not None:
            seconds = view.fleet.away_spill_after_ms // 1000
            made.delays.append(DrillDelay(name=name, missing=judgement.most_first, seconds=seconds))
        return bool(judgement.known_ms)

    def _judge(self, view: HpaView) -> _Judgement | None:
        """Judge an HPA of one cluster, or a FleetHPA; None: it was not evaluated."""
        series = self._found.get(view.id)
        if not series:
            return None
        controller, spec = self._controller(view), view.spec
        if view.fleet is None:
            most = spec["maxReplicas"]
            judged = [judged_alone(series.load(at), most, self._factor, controller) for at in range(len(series))]
        else:
            whole = Whole(view.fleet, spec.get("minReplicas") or 1, spec["maxReplicas"])
            both = [
                judged_whole(series.load(at), series.clusters[at], whole, self._away, self._factor, controller)
                for at in range(len(series))
            ]
            judged, self._shares[view.id] = [each for each, _ in both], [shares for _, shares in both]
        return _Judgement(str(view.id), series.times_ms, controller.period_ms, judged)

    def _controller(self, view: HpaView) -> Controller:
        if view.id not in self._controllers:
            settings = self._settings_of(view)
            band = tolerance_band(compile_autoscaler(view.hpa, settings.controller.rules), settings.controller)
            period_ms = own_period_ms(view.annotations.get(PERIOD_ANNOTATION, ""))
            if period_ms is None or view.period_without_effect:
                period_ms = settings.sync_period_ms
            self._controllers[view.id] = Controller(band, settings.controller.rules, period_ms)
        return self._controllers[view.id]

    def _settings_of(self, view: HpaView) -> Effective:
        if view.fleet is not None:
            return fleet_settings(self._state.settings, [each.name for each in view.fleet.clusters]).effective
        name = view.id.cluster
        if name not in self._settings:
            cluster = self._state.clusters.get(name)
            version = "" if cluster is None else cluster.kubernetes
            self._settings[name] = effective(self._state.settings, name, version)
        return self._settings[name]

    # --- CapacityGroups -----------------------------------------------------------------------------------------------

    def _of_group(self, group: GroupView, window: tuple[int, int]) -> tuple[list[DrillNeed], bool]:
        """Judge a CapacityGroup minute by minute; say also whether any of its HPAs was evaluated."""
        times, judged, held = array("q"), list[Judged](), list[dict[str, int]]()
        places = self._places(group)
        for time_ms in self._grid([hpa for hpa, _, _ in places], window):
            members = list(self._members(places, time_ms))
            if members:
                made, missing = judged_group(group.limit.count, members)
                times.append(time_ms)
                judged.append(made)
                held.append(missing)
        made_of_all = _Judgement(f"CapacityGroup {group.name}", times, _GRID_MS, judged)
        if made_of_all.worst is None:
            return [], bool(times)
        at = times.index(made_of_all.worst[0])
        return [_need_of_group(made_of_all, group.limit, held[at])], True

    def _places(self, group: GroupView) -> list[tuple[HpaId, int, int]]:
        """Each HPA of a group, its priority there, and what one of its replicas uses of the limit."""
        match, state = CapacityMatch(group.row.spec), self._state
        found = []
        for hpa in group.hpas:
            view = state.hpas[hpa]
            priority = match.priority(hpa.cluster, hpa.namespace, view.labels) or 0
            found.append((hpa, priority, weight_of(state, view, group.limit)))
        return found

    def _grid(self, hpas: Sequence[HpaId], window: tuple[int, int]) -> range:
        """The moments at which a group is looked at: each minute from its HPAs' first evaluation to their last."""
        known = [each for hpa in hpas if (each := self._found.get(hpa))]
        first = max(window[0], min([each.times_ms[0] for each in known], default=window[1]))
        last = max([each.times_ms[-1] for each in known], default=first)
        # The first minute that ends with an evaluation of all that were evaluated in it.
        return range(min(first + _GRID_MS, last), last + 1, _GRID_MS) if known else range(0)

    def _members(self, places: Sequence[tuple[HpaId, int, int]], time_ms: int) -> Iterator[DrillMember]:
        """The HPAs of a group that were evaluated lately."""
        for hpa, priority, weight in places:
            series, view = self._found.get(hpa), self._state.hpas[hpa]
            at = -1 if series is None else series.newest(time_ms)
            if series is None or at < 0:
                continue
            controller = self._controller(view)
            if time_ms - series.times_ms[at] <= max(_GRID_MS, GAP_PERIODS * controller.period_ms):
                is_away, has = hpa.cluster == self._away, series.replicas[at]
                wants = None if is_away else self._wants(view, series.load(at), controller, time_ms)
                yield DrillMember(str(hpa), has, wants, priority, weight, is_away)

    def _wants(self, view: HpaView, load: Load, controller: Controller, time_ms: int) -> int | None:
        """Return what an HPA of a group wants, within its bounds; None: not known."""
        if (whole := view.whole) is not None:
            series = self._found.get(whole)
            at = -1 if series is None else series.newest(time_ms)
            shares = self._shares.get(whole)
            return shares[at].get(view.id.cluster) if shares and at >= 0 else None
        if load.pods is None:
            return None
        least, most = view.spec.get("minReplicas") or 1, view.spec["maxReplicas"]
        asks = asked_for(load.pods * self._factor, most, controller)
        return None if load.unread and asks < most else min(max(asks, least if load.pods else 0), most)


def _need(made: _Judgement, view: HpaView, away: str, factor: float) -> DrillNeed:
    assert made.worst is not None
    time_ms, worst = made.worst
    of_factor = "its recorded load" if factor == 1.0 else f"its load times {factor:g}"
    assumed = of_factor
    if view.fleet is not None and any(each.name == away for each in view.fleet.clusters):
        after_s = view.fleet.away_spill_after_ms // 1000
        policy = f"after the spill ({after_s}s)" if after_s else "whenAway Keep"
        assumed = f"{of_factor}, all of it in its other clusters; {policy}"
    return DrillNeed(
        kind="HPA" if view.fleet is None else "FleetHPA",
        name=made.name,
        asks=worst.asks,
        may_have=worst.may_have,
        missing=worst.missing,
        unit="replicas",
        minutes=made.lacking_ms / 60_000,
        known_minutes=made.known_ms / 60_000,
        time=rfc3339(time_ms),
        why=worst.why,
        first_missing=worst.first,
        later_missing=worst.later,
        assumed=assumed,
    )


def _need_of_group(made: _Judgement, limit: CapacityLimit, held: dict[str, int]) -> DrillNeed:
    assert made.worst is not None
    time_ms, worst = made.worst
    return DrillNeed(
        kind="CapacityGroup",
        name=made.name.rpartition(" ")[2],
        asks=float(limit.number(worst.asks)),
        may_have=float(limit.number(worst.may_have)),
        missing=float(limit.number(worst.missing)),
        unit={"replicas": "replicas", "units": limit.name, "cost": "per hour"}[limit.kind],
        minutes=made.lacking_ms / 60_000,
        known_minutes=made.known_ms / 60_000,
        time=rfc3339(time_ms),
        why=worst.why,
        first_missing=float(limit.number(worst.first)),
        later_missing=float(limit.number(worst.later)),
        assumed="its HPAs want what their metrics ask for",
        held=dict(sorted(held.items(), key=lambda each: (-each[1], each[0]))),
    )


# --- the verb ---------------------------------------------------------------------------------------------------------


def parse_factor(text: str) -> float:
    """Read `--factor`. Raises CommandError: it is no number above 0 and up to 100 (exit 2)."""
    try:
        found = Decimal(text)
    except InvalidOperation:
        found = Decimal("NaN")
    if not found.is_finite() or not 0 < found <= _MOST_FACTOR:
        cause_ = f"It is a number above 0 and up to {_MOST_FACTOR}; 1.3 is a load that is 30 % higher than recorded."
        raise usage(f"--factor {text} is not a factor", cause=cause_)
    return float(found)


class AskedDrill(NamedTuple):
    """`--since` and `--factor` as they are typed; None where one is not."""

    since: str | None
    factor: str | None

    def refuse(self, session: Session) -> None:
        """See that none of them is given. Raises CommandError: one is (exit 2)."""
        given = {"--since": self.since, "--factor": self.factor, "--at": session.at_ms}
        for option, value in given.items():
            if value is not None:
                raise usage(
                    f"{option} is for the drill of the whole fleet",
                    cause="What is named is evaluated as it was decided; NAME@TIME takes an older decision.",
                    next_step="fleethpa what-if --cluster-away CLUSTER, without a name",
                )


drill_options: Final = together(
    gathered(
        "drill",
        AskedDrill,
        click.option(
            "--factor", metavar="NUMBER", help="Of a drill: times the recorded load, such as 1.3 [default: 1]."
        ),
        click.option(
            "--since", metavar="1h|TIME", help="Of a drill: the load from this time on [default: an hour before --at]."
        ),
    ),
    click.option("--at", TRAVEL, metavar="TIME|2h", help="Of a drill: the load until this time [default: now]."),
)
"""`--factor` and `--since`, of which the function gets one argument `drill`, and `--at`, which its session takes."""


def fleet_drill(session: Session, away: str, asked: AskedDrill, output: str) -> int:
    """Print who has no room without a cluster; return the exit code: 0: all have, 1: somebody has not, 5: nobody is
    known to lack it, but the demand of some is not known.

    Raises CommandError: no such cluster, or nothing was evaluated in the time (exit 4); a value is wrong (exit 2).
    """
    factor = 1.0 if asked.factor is None else parse_factor(asked.factor)
    window = AskedPeriod(asked.since or "1h", None).window(session.now_ms())
    found, faults = session.run(_drilled(session, away, factor, window))
    session.publish(report(found, away, factor, window), output)
    return session.failed(faults) or found.code


async def _drilled(session: Session, away: str, factor: float, window: tuple[int, int]) -> tuple[Drilled, Faults]:
    async with session.past() as past:
        state = await read_state(past)
        if away not in state.clusters:
            raise no_such_cluster(away, state)
        count, hpas = await past.partitions(), by_partitions(list(state.hpas.values()))
        numbers = [partition_for(min(each).namespace_key, count) for each in hpas]
        tasks = [DrillTask(DecisionsTask(past, at, *window), each) for at, each in zip(numbers, hpas, strict=True)]
        parts = await by_partition(session, past, loads, tasks, DECISIONS)
    found = {hpa: series for part, _ in parts for hpa, series in part.items()}
    if not found:
        raise not_evaluated(f"no HPA was evaluated from {rfc3339(window[0])} to {rfc3339(window[1] - 1)}")
    faults = Faults.of_parts(parts)
    return Drill(state, away, factor, found, faults).run(window), faults


# --- the report -------------------------------------------------------------------------------------------------------

_HEAD: Final = ("WHO", "ASKS FOR", "MAY HAVE", "MISSING", "FOR", "WHY", "ASSUMED")


def report(found: Drilled, away: str, factor: float, window: tuple[int, int]) -> QuestionReport:
    """The report of a drill."""
    since, until = rfc3339(window[0]), rfc3339(window[1] - 1)
    rows = [_HEAD, *[_row(each) for each in found.needs[:_SHOWN]]]
    left = len(found.needs) - len(rows) + 1
    more = [Sentences([f"{counted(left, 'further row')}: -o json has all"])] if left else []
    document = {
        "away": away,
        "factor": factor,
        "since": since,
        "until": until,
        "known": found.known,
        "items": [msgspec.to_builtins(each) for each in found.needs],
        "untilSpill": [msgspec.to_builtins(each) for each in found.delays],
        "unknown": [msgspec.to_builtins(each) for each in found.unknown],
        "gone": found.gone,
        "assumed": list(ASSUMED),
    }
    sections = [
        verdict(_verdict(found, away, factor)),
        Section("Recorded load", f"{since} … {until}", [Grid(rows), *more]),
    ]
    if found.delays:
        texts = _first([f"{each.name}: {each.missing} replicas, for {each.seconds}s" for each in found.delays])
        sections.append(Section(parts=[Notes("These have room after the spill (whenAway), and lack before:", texts)]))
    if found.gone:
        names = listed(found.gone)
        text = f"HPAs of {away} alone, whose load is in no figure: {names}"
        sections.append(Section(parts=[Sentences([text])]))
    if found.unknown:
        texts = _first([_unknown_text(each) for each in found.unknown])
        sections.append(Section(parts=[Notes("The demand of these is not known, and not guessed:", texts)]))
    notes = Notes("The figures are estimates, and rest on this:", ASSUMED)
    return QuestionReport("Fleet drill", "FleetDrill", document, sections, closing=[notes])


def _first(texts: Sequence[str]) -> list[str]:
    hidden = len(texts) - _SHOWN
    return [*texts[:_SHOWN], *([f"{hidden} more: -o json has all"] if hidden > 0 else [])]


def _row(each: DrillNeed) -> tuple[str, ...]:
    name = f"CapacityGroup {each.name}" if each.kind == "CapacityGroup" else each.name
    amounts = (each.asks, each.may_have, each.missing)
    unit = "" if each.unit == "replicas" else f" {each.unit}"
    shown = [f"{amount:g}{unit}" for amount in amounts]
    lasting = f"{minutes(each.minutes)} of {minutes(each.known_minutes)}"
    return (name, *shown, lasting, each.why, each.assumed)


def _unknown_text(each: DrillUnknown) -> str:
    return f"{each.name}: {each.why}" if each.is_whole else f"{each.name}, for {minutes(each.minutes)}: {each.why}"


def _verdict(found: Drilled, away: str, factor: float) -> str:
    load = "the recorded load" if factor == 1.0 else f"{factor:g} times the recorded load"
    begin = f"Without {away}, at {load}"
    gone = (
        f"; {counted(len(found.gone), 'HPA')} of {away} alone {'is' if len(found.gone) == 1 else 'are'} away with it"
        if found.gone
        else ""
    )
    if found.needs:
        have = "has" if len(found.needs) == 1 else "have"
        return f"{begin}, {len(found.needs)} of {found.known} {have} no room{gone}."
    if not found.known:
        return f"{begin}, nothing is known of anybody's room: no demand outside {away} is known."
    whole = sum(each.is_whole for each in found.unknown)
    rest = f"; of {whole} the demand is not known" if whole else ""
    return f"{begin}, all {found.known} whose demand is known have room{rest}{gone}."
