"""`fleethpa guardrails`: rules over removals of replicas, checked and tried on the recorded past."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from fleethpa.changes.settings import read_guardrails, usable_guardrails
from fleethpa.fleet.decisions import AskedPeriod, period_options
from fleethpa.fleet.state import look_for_trouble
from fleethpa.frame.errors import ANSWER_IS_NO, OK, SuggestingGroup, usage
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import by_partition
from fleethpa.show.report import Grid, QuestionReport, Section, Sentences
from fleethpa.show.times import rfc3339
from fleethpa.show.words import counted
from schemas.settings import Guardrails
from streams.analysis.guardrailruns import GuardedEvent, Trip, guarded_events, run_guardrails
from streams.archive.layout import DECISIONS
from streams.history.parallel import DecisionsTask, Faults


@click.group(cls=SuggestingGroup)
def guardrails() -> None:
    """Rules over removals of replicas: check a file of them, or try it on recorded decisions."""


@guardrails.command("lint")
@click.argument("argument", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option("-f", "--filename", "option", metavar="FILE", type=click.Path(path_type=Path), help="The file of rules.")
@command_options()
def lint(session: Session, /, argument: Path | None, option: Path | None) -> int:
    """Check a file of rules without a cluster; exit 1 if something is wrong."""
    file = argument or option
    if file is None or (argument is not None and option is not None):
        raise usage("name one file of rules", next_step="fleethpa guardrails lint -f guardrails.yaml")
    rules, found = read_guardrails(file)
    for problem in found:
        session.out(f"{file}: {problem}")
    if rules is not None and not found:
        session.out(f"{file}: {counted(len(rules.rules), 'rule')}, nothing is wrong")
    return ANSWER_IS_NO if found else OK


@guardrails.command("test")
@click.option("-f", "--filename", "file", required=True, metavar="FILE", type=click.Path(path_type=Path))
@period_options("30d")
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def test_rules(session: Session, /, file: Path, period: AskedPeriod, output: str) -> int:
    """Run the rules over recorded decisions: when each would have tripped, what that would have held, and its cost.

    Only enforced HPAs count. Decisions after a trip are shown as recorded, without the pause that the rule would have
    caused.
    """
    rules = usable_guardrails(file)
    begin_ms, end_ms = period.window(session.now_ms())
    events, read, faults = session.run(_events(session, begin_ms, end_ms))
    trips = run_guardrails(rules.rules, events)
    session.publish(_report(rules, trips, read), output)
    if output == "table":
        session.note(f"{read:,} decisions read; {counted(sum(1 for each in events if each.removed), 'removal')}")
    return session.failed(faults)


async def _events(session: Session, begin_ms: int, end_ms: int) -> tuple[list[GuardedEvent], int, Faults]:
    async with session.past() as past:
        await look_for_trouble(past)
        tasks = [DecisionsTask(past, number, begin_ms, end_ms) for number in range(await past.partitions())]
        parts = await by_partition(session, past, guarded_events, tasks, DECISIONS)
    faults = Faults()
    for each in parts:
        faults |= each[2]
    return [event for events, _, _ in parts for event in events], sum(read for _, read, _ in parts), faults


def _report(rules: Guardrails, trips: list[Trip], read: int) -> QuestionReport:
    rows = [("TIME", "RULE", "CLUSTER", "NAMESPACE", "REMOVED", "PAUSED UNTIL", "HELD", "REPLICA-HOURS")]
    for trip in trips:
        until = "a person resumes" if trip.until is None else rfc3339(trip.until)
        removed = f"{trip.removed} of {trip.replicas}"
        held = f"{counted(trip.held, 'replica')} of {counted(trip.held_hpas, 'HPA')}" if trip.held else "-"
        where = trip.cluster, trip.namespace or "(all)"
        rows.append((rfc3339(trip.time), trip.rule, *where, removed, until, held, f"{trip.cost_replica_hours:g}"))
    quiet = [rule.name for rule in rules.rules if all(trip.rule != rule.name for trip in trips)]
    document = {
        "rules": [rule.name for rule in rules.rules],
        "decisions": read,
        "trips": [
            msgspec.to_builtins(trip)
            | {"time": rfc3339(trip.time), "until": None if trip.until is None else rfc3339(trip.until)}
            for trip in trips
        ],
    }
    section = Section(parts=[Grid(rows), Sentences([f"{name}: never tripped" for name in quiet])])
    return QuestionReport("Guardrails", "GuardrailReport", document, [section])
