"""The fleet drill over a time: every HPA, FleetHPA and CapacityGroup is judged at each moment. Pure."""

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from fleethpa.fleet.capacity import GroupView, groups_of
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import ANSWER_IS_NO, OK, PARTIAL
from fleethpa.questions.ceilings import weight_of
from fleethpa.questions.drilljudging import (
    Controller,
    DrillFleetHpa,
    DrillMember,
    Judged,
    asked_for,
    judged_alone,
    judged_fleet_hpa,
    judged_group,
)
from fleethpa.questions.drillloads import Load, Loads
from fleethpa.show.text import rfc3339
from schemas.capacity import CapacityLimit, CapacityMatch
from schemas.keys import HpaId
from streams.across.fleetsettings import fleet_settings
from streams.analysis.measures import GAP_PERIODS, spans_ms
from streams.history.parallel import Faults
from streams.hpa.autoscaler import compile_autoscaler
from streams.hpa.metrics import tolerance_band
from streams.state.clustersettings import Effective, effective

_GRID_MS: Final = 60_000
"""How often CapacityGroups are checked."""


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
        """The replicas that it asks for as a multiple of those that it may have; the list is sorted by it."""
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
    """The result of a drill. `known`: how many HPAs, FleetHPAs and CapacityGroups were judged. `gone`: the HPAs of the
    cluster alone.
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
        self.missing_ms = sum([span_ms for _, span_ms, each in moments if each.missing])
        short_of = [(time_ms, each) for time_ms, _, each in moments if each.missing]
        self.worst = max(short_of, key=lambda each: (each[1].missing, -each[0])) if short_of else None
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
    """A drill over a fleet. `away`: the cluster; `loads`: those of its HPAs; `faults`: for those of fleethpa itself."""

    def __init__(self, state: FleetState, away: str, factor: float, loads: Loads, faults: Faults) -> None:
        self._state, self._away, self._factor, self._loads = state, away, factor, loads
        self._faults = faults
        self._settings: dict[str, Effective] = {}
        self._shares: dict[HpaId, list[Mapping[str, int]]] = {}
        """Of each FleetHPA, those of its clusters at each evaluation; without its load none."""
        self._controllers: dict[HpaId, Controller] = {}

    def run(self, window: tuple[int, int]) -> Drilled:
        """Judge every HPA, FleetHPA and CapacityGroup over a time, to before its end."""
        drilled = Drilled([], [], [], 0, [])
        views = [view for view in self._state.hpas.values() if view.fleet_hpa is None]
        gone = [view for view in views if view.id.cluster == self._away]
        drilled.gone.extend([str(view.id) for view in gone])
        known = 0
        for view in views:
            if view.id.cluster != self._away and view.id not in self._faults:
                with self._faults.of(view.id):
                    known += self._add_judged(view, drilled)
        for group in groups_of(self._state).values():
            needs, is_known = self._of_group(group, window)
            drilled.needs.extend(needs)
            known += is_known
        drilled.needs.sort(key=lambda each: (-each.need, -each.missing, each.name))
        drilled.unknown.sort(key=lambda each: (not each.is_whole, each.name))
        return drilled._replace(known=known)

    def _add_judged(self, view: HpaView, made: Drilled) -> bool:
        """Add to `made` what is known of an HPA of one cluster, or of a FleetHPA; return whether it was judged."""
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
        series = self._loads.get(view.id)
        if not series:
            return None
        controller, spec = self._controller(view), view.spec
        if view.fleet is None:
            most = spec["maxReplicas"]
            judged = [judged_alone(series.load(at), most, self._factor, controller) for at in range(len(series))]
        else:
            fleet_hpa = DrillFleetHpa(view.fleet, spec.get("minReplicas") or 1, spec["maxReplicas"])
            both = [
                judged_fleet_hpa(series.load(at), series.clusters[at], fleet_hpa, self._away, self._factor, controller)
                for at in range(len(series))
            ]
            judged, self._shares[view.id] = [each for each, _ in both], [shares for _, shares in both]
        return _Judgement(str(view.id), series.times_ms, controller.period_ms, judged)

    def _controller(self, view: HpaView) -> Controller:
        if view.id not in self._controllers:
            settings = self._settings_of(view)
            band = tolerance_band(compile_autoscaler(view.hpa, settings.controller.rules), settings.controller)
            period_ms = view.own_period_ms or settings.sync_period_ms
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
        """Judge a CapacityGroup minute by minute; return also whether any of its HPAs was evaluated."""
        times, judged, held = array("q"), list[Judged](), list[dict[str, int]]()
        places = self._places(group)
        for time_ms in self._grid([hpa for hpa, _, _ in places], window):
            members = list(self._members(places, time_ms))
            if members:
                judgement, missing = judged_group(group.limit.count, members)
                times.append(time_ms)
                judged.append(judgement)
                held.append(missing)
        judgements = _Judgement(f"CapacityGroup {group.name}", times, _GRID_MS, judged)
        if judgements.worst is None:
            return [], bool(times)
        at = times.index(judgements.worst[0])
        return [_need_of_group(judgements, group.limit, held[at])], True

    def _places(self, group: GroupView) -> list[tuple[HpaId, int, int]]:
        """Return each HPA of a group, its priority there, and what one of its replicas uses of the limit."""
        match, state = CapacityMatch(group.row.spec), self._state
        places = []
        for hpa in group.hpas:
            view = state.hpas[hpa]
            priority = match.priority(hpa.cluster, hpa.namespace, view.labels) or 0
            places.append((hpa, priority, weight_of(state, view, group.limit)))
        return places

    def _grid(self, hpas: Sequence[HpaId], window: tuple[int, int]) -> range:
        """Return the moments at which a group is checked: each minute from its HPAs' first evaluation to their last."""
        known = [each for hpa in hpas if (each := self._loads.get(hpa))]
        first = max(window[0], min([each.times_ms[0] for each in known], default=window[1]))
        last = max([each.times_ms[-1] for each in known], default=first)
        # The first minute that ends with an evaluation of all that were evaluated in it.
        return range(min(first + _GRID_MS, last), last + 1, _GRID_MS) if known else range(0)

    def _members(self, places: Sequence[tuple[HpaId, int, int]], time_ms: int) -> Iterator[DrillMember]:
        """Yield the HPAs of a group that were evaluated lately."""
        for hpa, priority, weight in places:
            series, view = self._loads.get(hpa), self._state.hpas[hpa]
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
        if (fleet_hpa := view.fleet_hpa) is not None:
            series = self._loads.get(fleet_hpa)
            at = -1 if series is None else series.newest(time_ms)
            shares = self._shares.get(fleet_hpa)
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
        minutes=made.missing_ms / 60_000,
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
        minutes=made.missing_ms / 60_000,
        known_minutes=made.known_ms / 60_000,
        time=rfc3339(time_ms),
        why=worst.why,
        first_missing=float(limit.number(worst.first)),
        later_missing=float(limit.number(worst.later)),
        assumed="its HPAs want what their metrics ask for",
        held=dict(sorted(held.items(), key=lambda each: (-each[1], each[0]))),
    )
