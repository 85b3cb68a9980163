"""`fleethpa capacity`: a ceiling that many HPAs share: tried on the recorded past, its members, its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from fleethpa.changes.capacitygroups import CapacityGroup, deleted_groups, group_concerns, read_capacity_group
from fleethpa.changes.writing import change, write_options
from fleethpa.fleet.capacity import group_listing, member_rows, named_groups
from fleethpa.fleet.filters import closed_window
from fleethpa.fleet.state import fleet_now, read_state
from fleethpa.frame.errors import ANSWER_IS_NO, OK, SuggestingGroup, not_found, usage
from fleethpa.frame.options import ConditionMeasure, html_option, output_option, parse_fail_if
from fleethpa.frame.session import Session, command_options, travel_option
from fleethpa.frame.sources import by_partition
from fleethpa.questions.backtestreport import minutes
from fleethpa.show.formats import render
from fleethpa.show.report import Grid, Notes, QuestionReport, Section, Sentences
from fleethpa.show.table import layout
from fleethpa.show.times import rfc3339
from fleethpa.show.words import counted
from streams.analysis.capacityruns import CapacityTest, run_ceiling, wanted_replicas
from streams.analysis.decisionreads import DecisionsTask
from streams.archive.layout import DECISIONS

if TYPE_CHECKING:
    from streams.analysis.capacityruns import CapacityTest


_MEASURES: Final = {"held": ConditionMeasure("held"), "time_held": ConditionMeasure("minutes", "minutes")}


class _Held(NamedTuple):
    held: int
    minutes: float


@click.group(cls=SuggestingGroup)
def capacity() -> None:
    """A ceiling that many HPAs share: try, describe, delete it."""


@capacity.command("test")
@click.option("-f", "--filename", "file", required=True, metavar="FILE", help="Manifest of a CapacityGroup, or -.")
@click.option("--since", default="7d", metavar="7d|TIME", help="Start at this time.")
@click.option("--until", metavar="1h|TIME", help="End at this time [default: now].")
@click.option("--fail-if", metavar="TEST", help="Exit 1 if this is true: 'held>0' (HPAs), 'time_held>30m'.")
@html_option
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def test(
    session: Session, /, file: str, since: str, until: str | None, fail_if: str | None, html: str | None, output: str
) -> int:
    """Run a ceiling over recorded decisions: how often it would have held additions back, of whom, and for how long.

    Additions are given by priority, then in proportion to what is missing; nothing is scaled down for a ceiling. Reads
    the log or an archive and writes nothing.
    """
    gate = None if fail_if is None else parse_fail_if(fail_if, _MEASURES)
    group = read_capacity_group(file)
    if group.spec.limit.kind != "replicas":
        raise usage(
            f"a limit of {group.spec.limit.text()} cannot be tried on the past yet",
            cause="Decisions do not record what a replica used of it then.",
            next_step="try it with a limit of replicas, or apply it with whenUnknown: Open",
        )
    result = session.run(_tested(session, group, closed_window(since, until, session.now_ms())))
    session.publish(report(group.name, result), output, html=html)
    held = _Held(len(result.held), result.minutes)
    return ANSWER_IS_NO if gate is not None and gate.holds(_Held(0, 0.0), held) else OK


async def _tested(session: Session, group: CapacityGroup, window: tuple[int, int]) -> CapacityTest:
    async with session.past() as past:
        state = await read_state(past)
        labels = {id_: view.hpa["metadata"].get("labels") or {} for id_, view in state.hpas.items()}
        priorities = {str(id_): group.match.priority(id_.cluster, labels[id_]) for id_ in state.hpas}
        if all(each is None for each in priorities.values()):
            raise not_found(
                f"no HPA is of the CapacityGroup {group.name}",
                cause="Its selector and clusters match none that the log knows.",
                next_step="fleethpa get hpa -A -o yaml, to see their labels",
            )
        views = [view for id_, view in state.hpas.items() if priorities[str(id_)] is not None]
        numbers = sorted({view.partition for view in views})
        tasks = [DecisionsTask(past, number, *window) for number in numbers]
        # What is held back at the end of the log is not held back until now.
        until_ms = min(window[1], max([await past.last_ms(number) for number in numbers]))
        parts = await by_partition(session, past, wanted_replicas, tasks, DECISIONS)
    events = [event for found, _ in parts for event in found]
    result = run_ceiling(group.spec.limit.count, events, priorities.get, until_ms)
    if result is None:
        raise not_found(
            f"no HPA of the CapacityGroup {group.name} was evaluated in this window",
            next_step="fleethpa decisions -A --since 30d, to see when there are some",
        )
    return result


@capacity.command("describe")
@click.argument("name")
@travel_option
@command_options(reads=True)
def describe(session: Session, name: str) -> None:
    """Show a CapacityGroup and each HPA that it bounds: what it has, wants and may have.

    MAY HAVE is of the newest allotment, which lasts for 60 s; `-`: none is in force.
    """
    (group,) = named_groups(session.run(fleet_now(session), brief=True), (name,))
    session.out(render(group_listing([group]), "wide", color=session.color))
    session.lines(["", *layout(member_rows(group))])
    if group.held:
        session.note(f"Next: fleethpa explain {group.held[0]}")


@capacity.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@write_options
@command_options()
def delete(session: Session, /, names: tuple[str, ...], **written: Any) -> int:
    """Delete CapacityGroups: they bound nothing any more; no HPA and no workload is deleted."""

    async def work() -> int:
        state = await fleet_now(session)
        found = [group.name for group in named_groups(state, names)]
        writes = deleted_groups(found, session.now_ms(), session.config.author, written["reason"])
        return await change(session, "capacity delete", writes, list(group_concerns(writes, state)), written)

    return session.run(work())


# --- the report -------------------------------------------------------------------------------------------------------

_UNKNOWN: Final = (
    "what a load that is held back would have asked for later: HPAs want what was decided as recorded",
    "the weight of a replica: all count alike",
    "what HPAs wanted that are no longer there: they are not counted",
)


def report(name: str, result: CapacityTest) -> QuestionReport:
    """The report of one ceiling."""
    rows = [
        (
            each.hpa,
            str(each.priority),
            str(each.times),
            minutes(each.minutes),
            minutes(each.longest_minutes),
            str(each.most_missing),
            f"{each.missing_replica_hours:,.2f}",
        )
        for each in result.held
    ]
    head = ("HPA", "PRIORITY", "TIMES", "HELD BACK", "LONGEST", "MISSING AT MOST", "REPLICA-HOURS")
    about = f"{rfc3339(result.since_ms)} … {rfc3339(result.until_ms)}   {counted(result.hpas, 'HPA')}"
    document = {
        "name": name,
        "limit": {"replicas": result.limit},
        "since": rfc3339(result.since_ms),
        "until": rfc3339(result.until_ms),
        "hpas": result.hpas,
        "peak": {"replicas": result.peak, "time": rfc3339(result.peak_ms)},
        "above": result.above,
        "times": result.times,
        "minutes": result.minutes,
        "longestMinutes": result.longest_minutes,
        "held": msgspec.to_builtins(result.held),
    }
    section = Section(f"CapacityGroup {name}", about, [Sentences(_verdict(result)), Grid([head, *rows])])
    return QuestionReport(
        "Capacity test", "CapacityReport", document, [section], closing=[Notes("This cannot know:", _UNKNOWN)]
    )


def _verdict(result: CapacityTest) -> list[str]:
    limit = f"A limit of {counted(result.limit, 'replica')}"
    peak = f"the most that was wanted at once is {result.peak:,}, at {rfc3339(result.peak_ms)}"
    if not result.held:
        texts = [f"{limit} would never have held anything back: {peak}."]
    else:
        texts = [
            f"{limit} would have held back {len(result.held)} of {counted(result.hpas, 'HPA')}: "
            f"{counted(result.times, 'time')}, {minutes(result.minutes)} in all.",
            f"The longest time was {minutes(result.longest_minutes)}, from {rfc3339(result.longest_since_ms)} on.",
            f"A limit of {result.peak:,} would have held nothing back: {peak}.",
        ]
    if result.above:
        texts.append(
            f"There were up to {result.above:,} replicas, above the limit: nothing is scaled down for a ceiling."
        )
    return texts
