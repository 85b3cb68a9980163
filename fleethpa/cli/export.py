"""`fleethpa export`: decisions as rows for analysts, and what was recorded of an HPA as one file."""

from __future__ import annotations

import shutil
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click
import yaml

from fleethpa.changes.specs import read_one
from fleethpa.fleet.decisions import AskedPeriod, Filter, period_options, window
from fleethpa.fleet.finding import Selection, check_known, selection_options
from fleethpa.fleet.state import fleet_now, look_for_trouble
from fleethpa.frame.errors import OK, SuggestingGroup, not_found, usage
from fleethpa.frame.options import OutputFormat
from fleethpa.frame.session import Session, command_options
from fleethpa.hub.exporting import objects_of, unexported
from fleethpa.questions.exports import PARTITION_KEYS, Export
from fleethpa.show import words
from fleethpa.show.text import rfc3339
from fleethpa.show.words import counted
from schemas.keys import HpaId
from schemas.limits import OverLimitError
from schemas.partitioning import partition_for
from streams.history.archivepast import Bundled, pack, write_bundle

_MOST_NAMED: Final = 5


@click.group(cls=SuggestingGroup)
def export() -> None:
    """Write decisions as JSON lines or CSV, what was recorded of an HPA as one file, or objects of the hub's API."""


@export.command("decisions")
@selection_options(labels=False)
@click.option("-o", "--output", type=OutputFormat(["jsonl", "csv"]), default="jsonl")
@click.option("--since", metavar="30d|TIME", help="Start at this time.")
@click.option("--until", metavar="2h|TIME", help="End at this time.")
@click.option("--out", metavar="FILE|DIR", help="Where to write [default: stdout].")
@click.option(
    "--partition-by", metavar="KEY,…", help="Write one folder for each cluster, namespace, date or hour below --out."
)
@command_options(reads=True)
def export_decisions(
    session: Session,
    selection: Selection,
    output: str,
    since: str | None,
    until: str | None,
    out: str | None,
    partition_by: str | None,
) -> int:
    """Write decisions as rows with all their fields; of all HPAs, unless some are named."""
    times = window(since, until, session.now_ms())
    given = click.get_current_context().params.get("namespace") or selection.refs
    everything = selection if given else replace(selection, namespace=None)
    keys = _keys(partition_by)
    if keys and not out:
        raise usage("--partition-by needs --out DIR")
    path = Path(out) if out and out != "-" else None
    try:
        with Export(output, path, keys) as exporter:
            session.run(_write(session, Filter(everything, *times), exporter))
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"--out {path}" if path else "stdout"
        raise usage(f"{where} cannot be written: {error.strerror or error}") from error
    session.note(f"{exporter.rows:,} decisions in {exporter.files} file{'s' if exporter.files != 1 else ''}")
    return session.failed(exporter.faults)


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


@export.command("objects")
@click.option("--out", metavar="FILE", help="Where to write [default: stdout].")
@command_options(reads=True)
async def export_objects(session: Session, /, out: str | None) -> int:
    """Write central HPAs, CapacityGroups, settings and pauses as objects of the hub's API, to begin with it.

    What an object states already is left out. A FleetAccess has to say where the objects may act.
    """
    state = await fleet_now(session)
    objects = list(objects_of(state, session.now_ms()))
    for text in unexported(state):
        session.note(text)
    if not objects:
        raise not_found("nothing in the log could be stated by an object", next_step="fleethpa get hpa -A")
    text = yaml.safe_dump_all(objects, sort_keys=False)
    if out is None:
        session.out(text.rstrip())
    else:
        Path(out).write_text(text, encoding="utf-8")
        session.note(f"{counted(len(objects), 'object')} written to {out}. Next: kubectl apply --server-side -f {out}")
    return OK


@export.command("bundle")
@selection_options("[hpa] [CLUSTER/][NAMESPACE/]NAME", required=True, labels=False)
@period_options("30m")
@click.option("--out", metavar="FILE", help="Where to write [default: NAME-TIME.tar].")
@command_options(reads=True)
def export_bundle(session: Session, selection: Selection, period: AskedPeriod, out: str | None) -> int:
    """Write what was recorded of an HPA in a time as one file, for an incident; --from FILE reads it.

    It can be verified and replayed: it holds the log and the decisions of the HPA's whole log partition.
    """
    window = period.window(session.now_ms())
    hpa, others, contents, file = session.run(_bundle(session, selection, window, out))
    session.out(str(file))
    begin = f" from {rfc3339(contents.begin_ms)}" if contents.begin_ms else ""
    held = f"{words.counted(contents.decisions, 'decision')} of {words.counted(contents.log_records, 'log record')}"
    session.note(f"{held}{begin} to {rfc3339(window[1])}, {file.stat().st_size:,} bytes")
    if others:
        named = words.listed([str(each) for each in others], _MOST_NAMED)
        session.note(f"Whoever gets it can read the HPAs of the same log partition, too: {named}")
    session.note(f"Next: fleethpa explain {hpa} --from {file}")
    return OK


async def _bundle(
    session: Session, selection: Selection, window: tuple[int, int], out: str | None
) -> tuple[HpaId, list[HpaId], Bundled, Path]:
    async with session.past() as past:
        state, hpa = await read_one(past, selection)
        number = partition_for(hpa.namespace_key, count := await past.partitions())
        others = [each for each in state.hpas if each != hpa and partition_for(each.namespace_key, count) == number]
        file = Path(out or f"{hpa.name}-{rfc3339(window[1])[:19].replace(':', '')}.tar")
        with TemporaryDirectory(prefix="fleethpa-bundle-") as folder:
            try:
                contents = await write_bundle(past, number, *window, Path(folder, "archive"))
                if not contents.decisions:
                    cause = f"The log partition of {hpa} has no decision from {rfc3339(window[0])} on, up to then."
                    raise not_found(f"nothing was decided up to {rfc3339(window[1])}", cause=cause)
                pack(Path(folder, "archive"), Path(folder, "bundle"))
                shutil.copyfile(Path(folder, "bundle"), file)
            except OverLimitError as error:
                cause = "It holds the records of all HPAs of the log partition."
                raise usage(f"the bundle is too large: {error}", cause=cause, next_step="a shorter time") from error
            except OSError as error:
                raise usage(f"--out {file} cannot be written: {error.strerror or error}") from error
    return hpa, others, contents, file
