"""`fleethpa decisions`: the audit trail, listed or followed."""

from __future__ import annotations

from typing import Final

import click

from fleethpa.cli.common import selection as selecting
from fleethpa.cli.common.completing import hpa_names
from fleethpa.cli.common.decisionlists import DEFAULT_LAST, first_columns, newest, positioned, read_back
from fleethpa.cli.common.decisionlists import follow as follow_on
from fleethpa.cli.common.decisionreading import Recorded
from fleethpa.cli.common.failures import usage
from fleethpa.cli.common.filters import LIMITS, Filter, moment
from fleethpa.cli.common.finding import check_known
from fleethpa.cli.common.selection import Selection
from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.output import words
from fleethpa.cli.output.formats import Listing, render
from fleethpa.cli.output.table import Column

_WIDTHS: Final = (24, 28, 4, 4, 11)


@click.command()
@click.argument("names", nargs=-1, shell_complete=hpa_names, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@selecting.options(labels=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with decisions as they are made.")
@click.option("--since", metavar="2h|TIME", help="From then on.")
@click.option("--last", type=click.IntRange(min=1), help=f"The newest N [default: {DEFAULT_LAST}].")
@click.option("--changes", is_flag=True, help="Only those that change the replicas, and how their writes ended.")
@click.option("--reason", metavar="GLOB", help="Only those whose reason, or a metric's, matches, such as 'FailedGet*'.")
@click.option(
    "--limited-by",
    type=click.Choice(LIMITS),
    metavar="LIMIT",
    help="Only those that this held or cut, such as StabilizationWindow.",
)
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
    since_ms = moment(since, session.now_ms(), "--since") if since else None
    wanted = Filter(selection, since_ms, changes=changes, reason=reason, limit=limited_by)
    if follow:
        if output not in ("table", "wide", "jsonl"):
            name, cause = output.partition("=")[0], "A list that never ends has no end."
            raise usage(f"--follow cannot print {name}", cause=cause, next_step="use -o jsonl")
        session.run(_follow(session, wanted, output, not no_headers))
        return
    found = session.run(_listed(session, wanted, last))
    if not found and output in ("table", "wide"):
        session.note(f"No decisions of {selection} match. Next: fleethpa decisions -A")
        return
    session.out(render(_listing(session, found), output, headers=not no_headers, color=session.color))


async def _listed(session: Session, wanted: Filter, last: int | None) -> list[Recorded]:
    limit = last or (None if wanted.since_ms is not None else DEFAULT_LAST)

    async with session.reader() as reader:
        everything = await read_back(reader, wanted, limit)
        await check_known(reader, wanted.selection, (each.hpa for each in everything))
    return newest(everything, wanted.matches, limit)


async def _follow(session: Session, wanted: Filter, output: str, headers: bool) -> None:
    async with session.reader(watching=True) as reader:
        await check_known(reader, wanted.selection)
        await follow_on(session, reader, wanted.matches, _columns(session), _WIDTHS, output, headers=headers)


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
