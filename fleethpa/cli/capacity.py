"""`fleethpa capacity`: a ceiling that many HPAs share, tried on the past, shown and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final

import click
import msgspec

from fleethpa.changes.capacitygroups import CapacityGroup, deleted_groups, group_concerns, read_capacity_group
from fleethpa.changes.writing import WriteOptions, change, write_options
from fleethpa.fleet.capacity import group_listing, member_rows, named_groups
from fleethpa.fleet.decisions import AskedPeriod, period_options
from fleethpa.fleet.finding import not_evaluated
from fleethpa.fleet.state import fleet_now, read_state
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import ANSWER_IS_NO, OK, SuggestingGroup, not_found
from fleethpa.frame.options import ConditionMeasure, html_option, output_option, parse_fail_if
from fleethpa.frame.session import Session, command_options, travel_option
from fleethpa.frame.sources import by_partition
from fleethpa.questions.backtestreport import minutes
from fleethpa.show.report import Grid, Notes, QuestionReport, Section, Sentences
from fleethpa.show.text import layout, rfc3339
from fleethpa.show.words import counted, listed
from schemas.capacity import UNITS_ANNOTATION, CapacityLimit
from schemas.keys import HpaId
from streams.analysis.capacityruns import CapacityTest, CeilingMember, run_ceiling, wanted_replicas
from streams.archive.layout import DECISIONS
from streams.history.parallel import DecisionsTask
from streams.hpa.autoscaler import compile_autoscaler
from streams.state.clustersettings import effective
from streams.state.limits.capacity import replica_use

_MEASURES: Final = {"held": ConditionMeasure("held"), "time_held": ConditionMeasure("minutes", "minutes")}


@click.group(cls=SuggestingGroup)
def capacity() -> None:
    """A ceiling that many HPAs share: try, describe, delete it."""


@capacity.command("test")
@click.option("-f", "--filename", "file", required=True, metavar="FILE", help="Manifest of a CapacityGroup, or -.")
@period_options("7d")
@click.option("--fail-if", metavar="TEST", help="Exit 1 if this is true: 'held>0' (HPAs), 'time_held>30m'.")
@html_option
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def test_ceiling(
    session: Session, /, file: str, period: AskedPeriod, fail_if: str | None, html: str | None, output: str
) -> int:
    """Try a ceiling on recorded decisions: how often it would have held additions back, of which HPAs, for how long.

    Additions are given by priority, then in proportion to what is missing; nothing is scaled down for a ceiling. Reads
    the log or an archive and writes nothing.
    """
    gate = None if fail_if is None else parse_fail_if(fail_if, _MEASURES)
    group = read_capacity_group(file)
    result = session.run(_tested(session, group, period.window(session.now_ms())))
    session.publish(report(group.name, group.spec.limit, result), output, html=html)
    nothing = SimpleNamespace(held=0, minutes=0.0)
    held = SimpleNamespace(held=len(result.held), minutes=result.minutes)
    return ANSWER_IS_NO if gate is not None and gate.holds(nothing, held) else OK


async def _tested(session: Session, group: CapacityGroup, window: tuple[int, int]) -> CapacityTest:
    async with session.past() as past:
        state = await read_state(past)
        members = _members(group, state)
        numbers = sorted({state.hpas[hpa].partition for hpa in members})
        tasks = [DecisionsTask(past, number, *window) for number in numbers]
        # What is held back at the end of the log is not held back until now.
        until_ms = min(window[1], max([await past.last_ms(number) for number in numbers]))
        parts = await by_partition(session, past, wanted_replicas, tasks, DECISIONS)
    events = [event for found, _ in parts for event in found]
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
            members[hpa] = CeilingMember(priority, _weight(state, view, group.spec.limit))
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


@capacity.command("describe")
@click.argument("name")
@travel_option
@command_options(reads=True)
def describe(session: Session, name: str) -> None:
    """Show a CapacityGroup and each HPA that it bounds: what it has, wants and may have.

    MAY HAVE is of the newest allotment, which lasts for 60 s; `-`: none is in force.
    """
    (group,) = named_groups(session.run(fleet_now(session), brief=True), (name,))
    session.listing(group_listing([group]), "wide")
    session.lines(["", *layout(member_rows(group)), "", f"State: {group.state[0]}"])
    if group.held:
        session.note(f"Next: fleethpa explain {group.held[0]}")


@capacity.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@write_options
@command_options()
async def delete(session: Session, /, names: tuple[str, ...], options: WriteOptions) -> int:
    """Delete CapacityGroups: they bound nothing any more; no HPA and no workload is deleted."""
    state = await fleet_now(session)
    found = [group.name for group in named_groups(state, names)]
    writes = deleted_groups(found, session.now_ms(), session.config.author, options.reason)
    return await change(session, "capacity delete", writes, list(group_concerns(writes, state)), options)


def _weight(state: FleetState, view: HpaView, limit: CapacityLimit) -> int:
    """Give what one replica uses of a limit by its annotation, its pods and its price as they are at the end."""
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


def report(name: str, limit: CapacityLimit, result: CapacityTest) -> QuestionReport:
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
            f"{begin} would have held back {len(result.held)} of {counted(result.hpas, 'HPA')}: "
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
