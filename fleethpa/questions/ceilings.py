"""A CapacityGroup over the recorded past: how often it would have held additions back, of which HPAs, for how long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from fleethpa.changes.capacitygroups import CapacityGroup
from fleethpa.fleet.finding import not_evaluated
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import not_found
from fleethpa.frame.session import Session
from fleethpa.frame.sources import by_partition
from fleethpa.questions.backtestreport import minutes
from fleethpa.show.report import Grid, Notes, QuestionReport, Section, Sentences
from fleethpa.show.text import rfc3339
from fleethpa.show.words import counted, listed
from schemas.capacity import UNITS_ANNOTATION, CapacityLimit
from schemas.keys import HpaId
from streams.across.capacity import replica_use
from streams.analysis.capacityruns import CapacityTest, CeilingMember, run_ceiling, wanted_replicas
from streams.archive.layout import DECISIONS
from streams.history.parallel import DecisionsTask
from streams.hpa.autoscaler import compile_autoscaler
from streams.state.clustersettings import effective


async def tested_ceiling(session: Session, group: CapacityGroup, window: tuple[int, int]) -> CapacityTest:
    """Run the group over the decisions of a window (from a log time to before another).

    Raises CommandError: no HPA is of the group, none uses of its limit, or none was evaluated (exit 4).
    """
    async with session.past() as past:
        state = await read_state(past)
        members = _members(group, state)
        numbers = sorted({state.hpas[hpa].partition for hpa in members})
        tasks = [DecisionsTask(past, number, *window) for number in numbers]
        # What is held back at the end of the log is not held back until now.
        until_ms = min(window[1], max([await past.last_ms(number) for number in numbers]))
        parts = await by_partition(session, past, wanted_replicas, tasks, DECISIONS)
    events = [event for part_events, _ in parts for event in part_events]
    by_name = {str(hpa): member for hpa, member in members.items()}
    result = run_ceiling(group.spec.limit.count, events, by_name, until_ms)
    if result is None:
        raise not_evaluated(f"no HPA of the CapacityGroup {group.name} was evaluated in this window")
    return result


def _members(group: CapacityGroup, state: FleetState) -> dict[HpaId, CeilingMember]:
    """The HPAs of a group, as they are at the end. Raises CommandError: none is, or none uses of its limit (exit 4)."""
    members: dict[HpaId, CeilingMember] = {}
    for hpa, view in state.hpas.items():
        priority = group.match.priority(hpa.cluster, hpa.namespace, view.labels)
        if priority is not None and view.fleet is None:
            members[hpa] = CeilingMember(priority, weight_of(state, view, group.spec.limit))
    if not members:
        raise not_found(
            f"no HPA is of the CapacityGroup {group.name}",
            cause="Its selector, namespaces and clusters match none that the log knows.",
            next_step="fleethpa get hpa -A -o yaml, to see their labels",
        )
    if not any(each.weight for each in members.values()):
        cause, next_step = _WITHOUT_USE[group.spec.limit.kind]
        raise not_found(
            f"no HPA of the CapacityGroup {group.name} uses anything of its limit, {group.spec.limit.text()}",
            cause=cause,
            next_step=next_step,
        )
    return members


def weight_of(state: FleetState, view: HpaView, limit: CapacityLimit) -> int:
    """Return what one replica uses of a limit by its annotation, its pods and its price as they are at the end."""
    id_ = view.id
    namespace, cluster = state.namespaces[id_.cluster, id_.namespace], state.clusters.get(id_.cluster)
    settings = effective(state.settings, id_.cluster, "" if cluster is None else cluster.kubernetes)
    autoscaler = compile_autoscaler(view.hpa, settings.controller.rules)
    scale = namespace.scales.get((autoscaler.target_group, autoscaler.target_kind, autoscaler.target_name))
    selector = "" if scale is None else scale.selector
    pods = namespace.membership.matching(selector, settings.controller.rules)
    annotation = (view.hpa["metadata"].get("annotations") or {}).get(UNITS_ANNOTATION, "")
    return replica_use(annotation, limit, settings, pods, is_central=view.origin == "central")


_WITHOUT_USE: Final[Mapping[str, tuple[str, str]]] = {
    "units": (
        f"They have no annotation {UNITS_ANNOTATION} with this unit, and none of their pods requests it.",
        f"set the annotation, such as {UNITS_ANNOTATION}: gpu=2, in the manifests and apply them",
    ),
    "cost": (
        "Their clusters have no price.",
        "fleethpa settings CLUSTER price=0.04, for what a replica costs per hour",
    ),
}


# --- the report -------------------------------------------------------------------------------------------------------

_UNKNOWN: Final = (
    "what a load that is held back would have asked for later: HPAs want what was decided as recorded",
    "what HPAs wanted that are no longer there: they are not counted",
)
_WEIGHED: Final = "what a replica used in the past: annotations, requests of pods and prices are those of the end"


def ceiling_report(name: str, limit: CapacityLimit, result: CapacityTest) -> QuestionReport:
    """The report of one ceiling."""
    is_weighed = limit.kind != "replicas"
    rows = [
        (
            each.hpa,
            str(each.priority),
            *([limit.text(each.weight)] if is_weighed else []),
            str(each.times),
            minutes(each.minutes),
            minutes(each.longest_minutes),
            str(each.most_missing),
            f"{each.missing_replica_hours:,.2f}",
        )
        for each in result.held
    ]
    head = (
        "HPA",
        "PRIORITY",
        *(["EACH REPLICA"] if is_weighed else []),
        "TIMES",
        "HELD BACK",
        "LONGEST",
        "MISSING AT MOST",
        "REPLICA-HOURS",
    )
    about = f"{rfc3339(result.since_ms)} … {rfc3339(result.until_ms)}   {counted(result.hpas, 'HPA')}"
    document = {
        "name": name,
        "limit": _limit(limit),
        "since": rfc3339(result.since_ms),
        "until": rfc3339(result.until_ms),
        "hpas": result.hpas,
        "peak": {"used": float(limit.number(result.peak)), "time": rfc3339(result.peak_ms)},
        "above": float(limit.number(result.above)),
        "times": result.times,
        "minutes": result.minutes,
        "longestMinutes": result.longest_minutes,
        "withoutUse": result.without_use,
        "held": [msgspec.to_builtins(each) | {"weight": float(limit.number(each.weight))} for each in result.held],
    }
    unknown = (*_UNKNOWN, *((_WEIGHED,) if is_weighed else ()))
    section = Section(f"CapacityGroup {name}", about, [Sentences(_verdict(limit, result)), Grid([head, *rows])])
    return QuestionReport(
        "Capacity test", "CapacityReport", document, [section], closing=[Notes("This cannot know:", unknown)]
    )


def _limit(limit: CapacityLimit) -> dict[str, Any]:
    """A limit as manifests have it."""
    number = float(limit.number(limit.count))
    if limit.kind == "units":
        return {"units": limit.name, "count": number}
    return {"costPerHour": number} if limit.kind == "cost" else {"replicas": limit.count}


def _verdict(limit: CapacityLimit, result: CapacityTest) -> list[str]:
    begin = f"A limit of {limit.text()}"
    peak = f"the most that was wanted at once is {limit.text(result.peak)}, at {rfc3339(result.peak_ms)}"
    if not result.held:
        texts = [f"{begin} would never have held anything back: {peak}."]
    else:
        texts = [
            f"{begin} would have held back {len(result.held):,} of {counted(result.hpas, 'HPA')}: "
            f"{counted(result.times, 'time')}, {minutes(result.minutes)} in all.",
            f"The longest time was {minutes(result.longest_minutes)}, from {rfc3339(result.longest_since_ms)} on.",
            f"A limit of {limit.text(result.peak)} would have held nothing back: {peak}.",
        ]
    if result.above:
        texts.append(
            f"Up to {limit.text(result.above)} were used, above the limit: nothing is scaled down for a ceiling."
        )
    if result.without_use:
        names = listed(result.without_use[:3])
        texts.append(f"{counted(len(result.without_use), 'HPA')} used nothing of the limit, among them {names}.")
    return texts
