"""`fleethpa audit list` and `audit tail`: decisions and spec changes by time, filtered."""

from __future__ import annotations

from typing import Any, Final

import click

from fleethpa.cli.common import filters
from fleethpa.cli.common import selection as selecting
from fleethpa.cli.common.decisionlists import DEFAULT_LAST, first_columns, follow, newest, positioned, read_back
from fleethpa.cli.common.decisionreading import Recorded
from fleethpa.cli.common.filters import Filter, window
from fleethpa.cli.common.finding import check_known
from fleethpa.cli.common.selection import Selection
from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.output import words
from fleethpa.cli.output.formats import Listing, render
from fleethpa.cli.output.table import Column

_WIDTHS: Final = (24, 28, 4, 4, 24, 12)


@click.command("list")
@click.argument("names", nargs=-1, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@selecting.options(labels=False)
@filters.options
@click.option("--since", metavar="2h|TIME", help="From then on.")
@click.option("--until", metavar="2h|TIME", help="Until then.")
@click.option("--last", type=click.IntRange(min=1), help=f"The newest N [default: {DEFAULT_LAST}, all with --since].")
@click.option("--no-headers", is_flag=True, help="Leave out the header.")
@output_option()
@command_options(reads=True)
def audit_list(
    session: Session,
    selection: Selection,
    only: dict[str, Any],
    since: str | None,
    until: str | None,
    last: int | None,
    no_headers: bool,
    output: str,
) -> None:
    """List decisions, oldest first: what was decided, why, what limited it, what became of the write."""
    wanted = Filter(selection, *window(since, until, session.now_ms()), **only)
    found, endings = session.run(_found(session, wanted, last))
    if not found and output in ("table", "wide"):
        session.note(f"No decisions of {selection} match. Next: fleethpa audit list -A")
        return
    listing = _listing(session, found, endings)
    session.out(render(listing, output, headers=not no_headers, color=session.color))


async def _found(session: Session, wanted: Filter, last: int | None) -> tuple[list[Recorded], dict[str, Recorded]]:
    limit = last or (None if wanted.since_ms is not None else DEFAULT_LAST)

    async with session.reader() as reader:
        everything = await read_back(reader, wanted, limit)
        await check_known(reader, wanted.selection, (each.hpa for each in everything))
    endings = {r.decision.completes: r for r in everything if r.decision.completes}
    return newest(everything, wanted.matches, limit), endings


@click.command("tail")
@click.argument("names", nargs=-1, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@selecting.options(labels=False)
@filters.options
@click.option("--no-headers", is_flag=True, help="Leave out the header.")
@output_option(formats=("table", "wide", "jsonl"))
@command_options(reads=True)
def audit_tail(session: Session, selection: Selection, only: dict[str, Any], no_headers: bool, output: str) -> None:
    """Follow decisions as they are made; the filters are those of `audit list`."""

    async def work() -> None:
        async with session.reader(watching=True) as reader:
            await check_known(reader, selection)
            wanted, columns = Filter(selection, **only), _columns(session, {})
            await follow(session, reader, wanted.matches, columns, _WIDTHS, output, headers=not no_headers)

    session.run(work())


def _columns(session: Session, endings: dict[str, Recorded]) -> tuple[Column[Recorded], ...]:
    return (
        *first_columns(session),
        Column("REASON", _reason),
        Column("WINNER", lambda r: words.short(r.decision.selected_metric) or "-"),
        Column("LIMITED BY", lambda r: ",".join(r.decision.constraints_applied) or "-"),
        Column("APPLIED", lambda r: _applied(r, endings)),
        Column("MODE", lambda r: r.decision.mode, wide=True),
        Column("GENERATION", lambda r: str(r.decision.generation), wide=True),
        Column("BY", lambda r: r.decision.author or "-", wide=True),
        Column("ID", lambda r: r.decision.id),
    )


def _reason(recorded: Recorded) -> str:
    decision = recorded.decision
    if decision.kind == "completion":
        return f"write {decision.outcome.get('result', 'ended')}"
    return words.rescale_reason(decision) if decision.direction != "None" else decision.reason or "-"


def _applied(recorded: Recorded, endings: dict[str, Recorded]) -> str:
    decision = recorded.decision
    if decision.kind == "completion":
        return str(decision.outcome.get("result", "ended"))
    if decision.wants is None:
        return "-"
    ending = endings.get(decision.id)
    return str(ending.decision.outcome.get("result", "ended")) if ending else "pending"


def _listing(session: Session, found: list[Recorded], endings: dict[str, Recorded]) -> Listing[Recorded]:
    return Listing(
        kind="Decision",
        items=found,
        columns=_columns(session, endings),
        document=positioned,
        name=lambda recorded: f"decision/{recorded.decision.id}",
        style=lambda r: "yellow" if r.decision.error else "green" if r.decision.direction != "None" else "",
    )
