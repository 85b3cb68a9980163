"""`fleethpa decisions`: the audit trail, listed or followed."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

import click

from fleethpa import selection as selecting
from fleethpa.completing import hpa_names
from fleethpa.decisionlists import DEFAULT_LAST, Test, first_columns, newest, positioned
from fleethpa.decisionlists import follow as follow_on
from fleethpa.decisions import Recorded
from fleethpa.errors import usage
from fleethpa.finding import check_known
from fleethpa.output import words
from fleethpa.output.formats import Listing, render
from fleethpa.output.table import Column
from fleethpa.output.times import parse_duration_ms
from fleethpa.selection import Selection
from fleethpa.session import Session, command_options, output_option

_WIDTHS: Final = (24, 28, 4, 4, 11)


@click.command()
@click.argument("names", nargs=-1, shell_complete=hpa_names, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@selecting.options(labels=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with decisions as they are made.")
@click.option("--since", metavar="DURATION", help="Only those of the last 10m, 2h, …")
@click.option("--last", type=click.IntRange(min=1), help=f"The newest N [default: {DEFAULT_LAST}].")
@click.option("--changes", is_flag=True, help="Only those that change the replicas, and how their writes ended.")
@click.option("--reason", metavar="GLOB", help="Only those whose reason, or a metric's, matches, such as 'FailedGet*'.")
@click.option("--limited-by", metavar="LIMIT", help="Only those that this held, such as StabilizationWindow.")
@click.option("--no-headers", is_flag=True, help="Leave out the header.")
@output_option()
@command_options(reads=True)
def decisions(
    session: Session,
    selection: Selection,
    follow: bool,
    since: str | None,
    last: int | None,
    changes: bool,
    reason: str | None,
    limited_by: str | None,
    no_headers: bool,
    output: str,
) -> None:
    """List decisions, oldest first, also those that changed nothing; -f follows them."""
    since_ms = session.now_ms() - parse_duration_ms(since, "--since") if since else None
    test = _test(selection, changes, reason, limited_by, since_ms)
    if follow:
        if output not in ("table", "wide", "jsonl"):
            name, cause = output.partition("=")[0], "A list that never ends has no end."
            raise usage(f"--follow cannot print {name}", cause=cause, next_step="use -o jsonl")
        session.run(_follow(session, selection, test, output, not no_headers))
        return
    found = session.run(_listed(session, selection, test, since_ms, last))
    session.out(render(_listing(session, found), output, headers=not no_headers, color=session.color))


def _test(
    selection: Selection, changes: bool, reason: str | None, limited_by: str | None, since_ms: int | None
) -> Test:
    def test(recorded: Recorded) -> bool:
        decision = recorded.decision
        if not selection.matches(recorded.hpa):
            return False
        if since_ms is not None and recorded.time_ms < since_ms:
            return False
        if changes and decision.final_desired_replicas == decision.current_replicas and decision.kind == "evaluation":
            return False
        if limited_by and limited_by not in decision.constraints_applied:
            return False
        return not reason or any(fnmatchcase(text, reason) for text in _reasons(recorded))

    return test


def _reasons(recorded: Recorded) -> list[str]:
    decision = recorded.decision
    conditions = (decision.status or {}).get("conditions") or []
    texts = [decision.reason, *(metric.reason for metric in decision.metrics)]
    texts += [str(condition.get("reason", "")) for condition in conditions]
    return [text for text in texts if text]


async def _listed(
    session: Session, selection: Selection, test: Test, since_ms: int | None, last: int | None
) -> list[Recorded]:
    wanted = last or (None if since_ms is not None else DEFAULT_LAST)

    def enough(_: int, decisions: list[Recorded]) -> bool:
        if since_ms is not None and (not decisions or decisions[0].time_ms < since_ms):
            return True
        return wanted is not None and sum(map(test, decisions)) >= wanted

    async with session.reader() as reader:
        tails = await reader.tail(enough)
        everything = [recorded for tail in tails.values() for recorded in tail]
        await check_known(reader, selection, (each.hpa for each in everything))
    return newest(everything, test, wanted)


async def _follow(session: Session, selection: Selection, test: Test, output: str, headers: bool) -> None:
    async with session.reader(watching=True) as reader:
        await check_known(reader, selection)
        await follow_on(session, reader, test, _columns(session), _WIDTHS, output, headers=headers)


def _columns(session: Session) -> tuple[Column[Recorded], ...]:
    return (
        *first_columns(session),
        Column("KIND", lambda r: r.decision.kind),
        Column("WINNER", lambda r: words.short(r.decision.selected_metric) or "-", wide=True),
        Column("LIMITED BY", lambda r: ",".join(r.decision.constraints_applied) or "-", wide=True),
        Column("MODE", lambda r: r.decision.mode, wide=True),
        Column("ID", lambda r: r.decision.id, wide=True),
        Column("WHY", lambda r: words.why(r.decision)),
    )


def _listing(session: Session, found: list[Recorded]) -> Listing[Recorded]:
    return Listing(
        kind="Decision",
        items=found,
        columns=_columns(session),
        document=positioned,
        name=lambda recorded: f"decision/{recorded.decision.id}",
        style=_style,
    )


def _style(recorded: Recorded) -> str:
    decision = recorded.decision
    if decision.error or decision.refused:
        return "yellow"
    return "green" if decision.final_desired_replicas != decision.current_replicas else ""
