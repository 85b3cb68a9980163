"""`fleethpa export decisions`: the audit trail for analysts."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import click

from fleethpa.cli.common import selection as selecting
from fleethpa.cli.common.exporting import PARTITION_KEYS, Export
from fleethpa.cli.common.failures import OK, usage
from fleethpa.cli.common.filters import Filter
from fleethpa.cli.common.filters import window as window_of
from fleethpa.cli.common.finding import check_known
from fleethpa.cli.common.session import Session, command_options
from fleethpa.cli.common.suggesting import SuggestingGroup


@click.group(cls=SuggestingGroup)
def export() -> None:
    """Write decisions as Parquet, CSV or JSON lines."""


@export.command("decisions")
@click.argument("names", nargs=-1, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@selecting.options(labels=False)
@click.option("-o", "--output", type=click.Choice(["parquet", "csv", "jsonl"]), default="parquet", show_default=True)
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
        for number in range(await past.partitions()):
            async with aclosing(past.decisions(number, wanted.since_ms, wanted.until_ms)) as decisions:
                async for recorded in decisions:
                    if wanted.matches(recorded):
                        made.add(recorded)
        await check_known(past, wanted.selection, made.hpas)
