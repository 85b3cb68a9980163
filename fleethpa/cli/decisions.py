"""`fleethpa decisions`: the decisions of HPAs, listed or followed; `audit list` and `audit tail` are the same verb."""

from __future__ import annotations

from typing import Any, Final

import click

from fleethpa.cli.common import filters
from fleethpa.cli.common import selection as selecting
from fleethpa.cli.common.completing import hpa_names
from fleethpa.cli.common.decisionlists import DEFAULT_LAST, decision_columns, decision_listing, listed
from fleethpa.cli.common.decisionlists import follow as follow_on
from fleethpa.cli.common.failures import usage
from fleethpa.cli.common.filters import Filter, window
from fleethpa.cli.common.finding import check_known, nothing_found
from fleethpa.cli.common.fleetstate import read_state
from fleethpa.cli.common.selection import Selection
from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.output import words
from fleethpa.cli.output.formats import render
from streams.history.recorded import Recorded

_WIDTHS: Final = (24, 28, 4, 4, 11, 18)


@click.command()
@click.argument("names", nargs=-1, shell_complete=hpa_names, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@selecting.options(labels=False)
@click.option("-f", "--follow", is_flag=True, help="Print decisions from now on, as they are made.")
@filters.options
@click.option("--since", metavar="2h|TIME", help="Start at this time.")
@click.option("--until", metavar="2h|TIME", help="End at this time.")
@click.option("--last", type=click.IntRange(min=1), help=f"The newest N [default: {DEFAULT_LAST}, all with --since].")
@click.option("--no-headers", is_flag=True, help="Leave out the header.")
@output_option()
@command_options(reads=True)
def decisions(
    session: Session,
    selection: Selection,
    follow: bool,
    only: dict[str, Any],
    since: str | None,
    until: str | None,
    last: int | None,
    no_headers: bool,
    output: str,
) -> None:
    """List decisions, oldest first, including those that changed nothing; -f follows them.

    `-o wide` adds the reason, the metric that decided, what limited the change, and how the write ended.
    """
    wanted = Filter(selection, *window(since, until, session.now_ms()), **only)
    if follow:
        if output not in ("table", "wide", "jsonl"):
            name, cause = output.partition("=")[0], "This format needs the whole list, and following has no end."
            raise usage(f"--follow cannot print {name}", cause=cause, next_step="use -o jsonl")
        if until or last:
            raise usage(f"--follow and --{'until' if until else 'last'} exclude each other")
        session.run(_follow(session, wanted, output, not no_headers), follows=True)
        return
    found, endings = session.run(_listed(session, wanted, last))
    if not found and output in ("table", "wide"):
        session.note(f"No decisions of {selection} match. Next: fleethpa decisions -A")
        return
    listing = decision_listing(found, endings, session.time_style, session.now_ms())
    session.out(render(listing, output, headers=not no_headers, color=session.color))


async def _listed(session: Session, wanted: Filter, last: int | None) -> tuple[list[Recorded], dict[str, Recorded]]:
    async with session.past() as past:
        return await listed(past, wanted, last)


async def _follow(session: Session, wanted: Filter, output: str, headers: bool) -> None:
    async with session.past(watching=True) as past:
        await check_known(past, wanted.selection)
        state = await read_state(past)
        if count := sum(map(wanted.selection.matches, state.hpas)):
            session.note(f"following {words.counted(count, 'HPA')} of {wanted.selection}")
        else:
            session.note(nothing_found(wanted.selection, state, "decisions --follow"))
            session.note("waiting for one to appear")
        await follow_on(
            session,
            past,
            wanted.matches,
            decision_columns({}, session.time_style, session.now_ms()),
            _WIDTHS,
            output,
            headers=headers,
        )


class _Following(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, ["--follow", *args])


tail = _Following(
    "tail", params=decisions.params, callback=decisions.callback, help="The same as `fleethpa decisions --follow`."
)
