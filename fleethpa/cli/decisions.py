"""`fleethpa decisions`, `audit` and `export`: the decisions of HPAs, listed, followed, verified and exported."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

import click

from fleethpa.fleet import filters
from fleethpa.fleet import selection as selecting
from fleethpa.fleet.decisions import DEFAULT_LAST, decision_columns, decision_listing, listed
from fleethpa.fleet.decisions import follow as follow_on
from fleethpa.fleet.filters import Filter, window
from fleethpa.fleet.filters import window as window_of
from fleethpa.fleet.finding import check_known, nothing_found
from fleethpa.fleet.selection import Selection
from fleethpa.fleet.state import look_for_trouble, read_state
from fleethpa.frame.errors import OK, ImportedGroup, SuggestingGroup, usage
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.questions.exports import PARTITION_KEYS, Export
from fleethpa.show import words
from fleethpa.show.formats import render
from streams.history.recorded import Recorded


class AuditGroup(ImportedGroup):
    """The commands of `audit`."""

    places: ClassVar = {
        "list": "cli.decisions:decisions",
        "tail": "cli.decisions:tail",
        "verify": "cli.verify:audit_verify",
        "keygen": "cli.verify:audit_keygen",
    }


@click.group(cls=AuditGroup)
def audit() -> None:
    """List decisions, check that none was altered, and create the key that signs checkpoints."""


@click.group(cls=SuggestingGroup)
def export() -> None:
    """Write decisions as Parquet, CSV or JSON lines."""


@export.command("decisions")
@selecting.options(labels=False)
@click.option("-o", "--output", type=click.Choice(["parquet", "csv", "jsonl"]), default="parquet")
@click.option("--since", metavar="30d|TIME", help="Start at this time.")
@click.option("--until", metavar="2h|TIME", help="End at this time.")
@click.option("--out", metavar="FILE|DIR", help="Where to write [default: stdout; for Parquet decisions.parquet].")
@click.option(
    "--partition-by", metavar="KEY,…", help="Write one folder for each cluster, namespace, date or hour below --out."
)
@command_options(reads=True)
def export_decisions(
    session: Session,
    selection: selecting.Selection,
    output: str,
    since: str | None,
    until: str | None,
    out: str | None,
    partition_by: str | None,
) -> int:
    """Write decisions as rows with all their fields; of all HPAs, unless some are named."""
    window = window_of(since, until, session.now_ms())
    given = click.get_current_context().params.get("namespace") or selection.refs
    everything = selection if given else replace(selection, namespace=None)
    keys = _keys(partition_by)
    if keys and not out:
        raise usage("--partition-by needs --out DIR")
    path = Path(out) if out and out != "-" else Path("decisions.parquet") if output == "parquet" else None
    try:
        with Export(output, path, keys) as made:
            session.run(_write(session, Filter(everything, *window), made))
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"--out {path}" if path else "stdout"
        raise usage(f"{where} cannot be written: {error.strerror or error}") from error
    session.note(f"{made.rows:,} decisions in {made.files} file{'s' if made.files != 1 else ''}")
    return OK


def _keys(text: str | None) -> tuple[str, ...]:
    keys = tuple(part for part in (text or "").split(",") if part)
    if odd := [key for key in keys if key not in PARTITION_KEYS]:
        raise usage(f"--partition-by {odd[0]!r} is unknown", cause=f"Known are {', '.join(PARTITION_KEYS)}.")
    return keys


async def _write(session: Session, wanted: Filter, made: Export) -> None:
    async with session.past() as past:
        await look_for_trouble(past)
        for number in range(await past.partitions()):
            async with aclosing(past.decisions(number, wanted.since_ms, wanted.until_ms)) as decisions:
                async for recorded in decisions:
                    if wanted.matches(recorded):
                        made.add(recorded)
        await check_known(past, wanted.selection, made.hpas)


_WIDTHS: Final = (24, 28, 4, 4, 11, 18)


@click.command()
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
        await look_for_trouble(past)
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
