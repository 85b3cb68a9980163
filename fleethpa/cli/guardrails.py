"""`fleethpa guardrails`: rules over removals of replicas, checked and tried on the recorded past."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from fleethpa.cli.common.failures import ANSWER_IS_NO, OK
from fleethpa.cli.common.filters import closed_window
from fleethpa.cli.common.guardrailfiles import read_guardrails, usable_guardrails
from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.common.suggesting import SuggestingGroup
from fleethpa.cli.output.formats import one
from fleethpa.cli.output.table import layout
from fleethpa.cli.output.times import rfc3339
from fleethpa.cli.output.words import counted
from schemas.guardrails import Guardrails
from streams.analysis.guardrails import EventReader, GuardedEvent, Trip, run_guardrails
from streams.archive.layout import DECISIONS

if TYPE_CHECKING:
    from streams.history.past import Past

LAG_MS = 3_600_000
"""The decider may publish a decision this much later than its log time."""


@click.group(cls=SuggestingGroup)
def guardrails() -> None:
    """Rules over removals of replicas: check a file of them, or try it on recorded decisions."""


@guardrails.command("lint")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@command_options()
def lint(session: Session, /, file: Path) -> int:
    """Check a file of rules without a cluster; exit 1 if something is wrong."""
    rules, found = read_guardrails(file)
    for problem in found:
        session.out(f"{file}: {problem}")
    if rules is not None and not found:
        session.out(f"{file}: {counted(len(rules.rules), 'rule')}, nothing is wrong")
    return ANSWER_IS_NO if found else OK


@guardrails.command("test")
@click.option("-f", "--filename", "file", required=True, metavar="FILE", type=click.Path(path_type=Path))
@click.option("--since", default="30d", show_default=True, metavar="30d|TIME", help="Start at this time.")
@click.option("--until", metavar="1h|TIME", help="End at this time [default: now].")
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def test(session: Session, /, file: Path, since: str, until: str | None, output: str) -> int:
    """Run the rules over recorded decisions: when each would have tripped, what that would have held, and its cost.

    Only enforced HPAs count. What came after a trip is the recorded past, in which nothing was held.
    """
    rules = usable_guardrails(file)
    begin_ms, end_ms = closed_window(since, until, session.now_ms())
    events, read = session.run(_events(session, begin_ms, end_ms))
    trips = run_guardrails(rules.rules, events)
    if output != "table":
        session.out(one("GuardrailReport", _document(rules, trips, read), output))
        return OK
    session.out("\n".join(_page(rules, trips)))
    session.note(f"{read:,} decisions read; {counted(sum(1 for each in events if each.removed), 'removal')}")
    return OK


async def _events(session: Session, begin_ms: int, end_ms: int) -> tuple[list[GuardedEvent], int]:
    events: list[GuardedEvent] = []
    read = 0
    async with session.past() as past:
        for number in range(await past.partitions()):
            found, count = await _events_of(past, number, begin_ms, end_ms)
            events += found
            read += count
    return events, read


async def _events_of(past: Past, number: int, begin_ms: int, end_ms: int) -> tuple[list[GuardedEvent], int]:
    reader, events, read = EventReader(), list[GuardedEvent](), 0
    first = await past.offset_at(DECISIONS, number, begin_ms)
    async with aclosing(past.records(DECISIONS, number, first)) as records:
        async for record in records:
            if record.timestamp_ms > end_ms + LAG_MS:
                break
            read += 1
            event = reader.take(record.value)
            if event is not None and event.time_ms < end_ms:
                # An HPA's size from before the window counts from its begin on.
                removed = event.removed if event.time_ms >= begin_ms else 0
                events.append(event._replace(time_ms=max(begin_ms, event.time_ms), removed=removed))
    return events, read


def _page(rules: Guardrails, trips: list[Trip]) -> list[str]:
    rows = [("TIME", "RULE", "CLUSTER", "REMOVED", "PAUSED UNTIL", "HELD", "REPLICA-HOURS")]
    for trip in trips:
        until = "a person resumes" if trip.until is None else rfc3339(trip.until)
        removed = f"{trip.removed} of {trip.replicas}"
        held = f"{trip.held} of {counted(trip.held_hpas, 'HPA')}"
        rows.append((rfc3339(trip.time), trip.rule, trip.cluster, removed, until, held, f"{trip.cost_replica_hours:g}"))
    quiet = [rule.name for rule in rules.rules if all(trip.rule != rule.name for trip in trips)]
    lines = layout(rows) if trips else []
    return lines + [f"{name}: never tripped" for name in quiet]


def _document(rules: Guardrails, trips: list[Trip], read: int) -> dict[str, Any]:
    return {
        "rules": [rule.name for rule in rules.rules],
        "decisions": read,
        "trips": [
            msgspec.to_builtins(trip)
            | {"time": rfc3339(trip.time), "until": None if trip.until is None else rfc3339(trip.until)}
            for trip in trips
        ],
    }
