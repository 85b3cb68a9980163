"""`fleethpa decisions`: list or follow decisions."""

from __future__ import annotations

from typing import Any

import click

from fleethpa.fleet.decisions import (
    DEFAULT_LAST,
    Filter,
    ListedDecisions,
    decision_listing,
    expired_until,
    filter_options,
    listed,
    window,
)
from fleethpa.fleet.decisions import follow as follow_on
from fleethpa.fleet.finding import Selection, check_known, nothing_found, selection_options
from fleethpa.fleet.state import look_for_trouble, read_state
from fleethpa.frame.errors import usage
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.show import words
from fleethpa.show.text import dated


@click.command()
@selection_options(labels=False)
@click.option("-f", "--follow", is_flag=True, help="Print decisions from now on, as they are made.")
@filter_options
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

    `-o wide` adds the reason, the metric that decided, what limited the change, and how the write ended. With
    --changes each change has one row, with the outcome of its write; followed, it has a second one when that ends.
    """
    wanted = Filter(selection, *window(since, until, session.now_ms()), **only)
    if follow:
        if output not in ("table", "wide", "jsonl"):
            cause = "This format needs the whole list, and following has no end."
            raise usage(f"--follow cannot print {output}", cause=cause, next_step="use -o jsonl")
        if until or last:
            raise usage(f"--follow and --{'until' if until else 'last'} exclude each other")
        session.run(_follow(session, wanted, output, not no_headers), follows=True)
        return
    records, endings, has_older = session.run(_listed(session, wanted, last))
    if not records and output in ("table", "wide"):
        session.note(f"No decisions of {selection} match. Next: fleethpa decisions -A")
        return
    changes = bool(only["changes"])
    listing = decision_listing(records, endings, session.time_style, session.now_ms(), changes=changes)
    session.listing(listing, output, headers=not no_headers)
    if has_older and last is None:
        session.note(f"The newest {len(records)} are listed; there are older ones. Next: --since 24h, or --last N")


async def _listed(session: Session, wanted: Filter, last: int | None) -> ListedDecisions:
    async with session.past() as past:
        await look_for_trouble(past)
        found = await listed(past, wanted, last)
        if (until_ms := await expired_until(past, wanted, len(found.found), last)) is not None:
            topic = session.source == "kafka"
            where = "have expired from the topic (retention.ms)" if topic else "are not in this archive"
            step = (
                "an archive that has them (--from DIR)" if topic else "an archive that was begun earlier (--from DIR)"
            )
            session.warn(f"decisions before {dated(until_ms)} {where}: older ones may be missing here. Next: {step}")
        return found


async def _follow(session: Session, wanted: Filter, output: str, headers: bool) -> None:
    async with session.past(watching=True) as past:
        await check_known(past, wanted.selection)
        state = await read_state(past)
        if count := sum(map(wanted.selection.matches, state.hpas)):
            session.note(f"following {words.counted(count, 'HPA')} of {wanted.selection}")
        else:
            session.note(nothing_found(wanted.selection, state, "decisions --follow"))
            session.note("waiting for one to appear")
        await follow_on(session, past, wanted.matches, output, headers=headers)
