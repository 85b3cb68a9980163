"""`fleethpa history`: the revisions of an HPA's spec and the commands about it: who, why, what changed."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from fleethpa.cli.common import selection as selecting
from fleethpa.cli.common.failures import CommandError, not_found
from fleethpa.cli.common.selection import Selection
from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.output.formats import Listing, render
from fleethpa.cli.output.table import Column
from fleethpa.cli.output.times import rfc3339, shown

if TYPE_CHECKING:
    from fleethpa.cli.common.readers import Reader
    from schemas.keys import HpaId
    from streams.analysis.revisions import Revision


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="[hpa] [CLUSTER/][NAMESPACE/]NAME")
@selecting.options(labels=False)
@click.option("--since", metavar="7d|TIME", help="Only from then on [default: as far back as the log goes].")
@click.option("--no-headers", is_flag=True, help="Leave out the header.")
@output_option()
@command_options(reads=True)
def history(session: Session, selection: Selection, since: str | None, no_headers: bool, output: str) -> None:
    """Show every change of an HPA's spec, mode and pauses, oldest first: who made it, why, and what it changed.

    An HPA that was deleted is found by its whole name, or by a part of it that no living one bears.
    """
    from fleethpa.cli.common.filters import moment

    since_ms = moment(since, session.now_ms(), "--since")
    hpa, found = session.run(_found(session, selection, since_ms))
    if not found:
        when = f" since {since}" if since else ""
        raise not_found(f"{hpa} has no change in the log{when}", next_step=f"fleethpa describe {hpa}")
    listing = Listing(
        kind="Revision",
        items=found,
        columns=_columns(session),
        document=lambda each: _document(hpa, each),
        name=lambda each: f"revision/{hpa}@{each.offset}",
        style=lambda each: "dim" if each.what not in ("created", "spec", "deleted") else "",
    )
    session.out(render(listing, output, headers=not no_headers, color=session.color))


async def _found(session: Session, selection: Selection, since_ms: int | None) -> tuple[HpaId, list[Revision]]:
    from fleethpa.cli.common.replaying import LogGoneError, fold_from
    from schemas.keys import partition_for
    from streams.analysis.revisions import history as read_history

    async with session.reader() as reader:
        count = await reader.count()
        hpa = await _meant(reader, selection, count)
        number = partition_for(hpa.namespace_key, count)
        partition, batches = await fold_from(reader, number, time_ms=since_ms)
        if since_ms is None and partition.applied_offset >= 0:
            session.note(f"note: {reader.name} goes back to {rfc3339(partition.clock_ms)} only")
        found: list[Revision] = []
        try:
            async with aclosing(batches):
                async for batch in batches:
                    found += read_history(partition, batch, hpa)
        except LogGoneError as error:
            raise CommandError(str(error), code=2) from error
    return hpa, [each for each in found if since_ms is None or each.time >= since_ms]


async def _meant(reader: Reader, selection: Selection, count: int) -> HpaId:
    """The only HPA that is meant: among those that exist, else among all that the log names."""
    from fleethpa.cli.common.finding import no_such_hpa, sole_id
    from fleethpa.cli.common.fleetstate import read_state
    from schemas.keys import partition_for
    from streams.analysis.revisions import named_in

    state = await read_state(reader)
    living = [hpa for hpa in state.hpas if selection.matches(hpa)]
    if living:
        return sole_id(living, str(selection))
    ref = selection.refs[0] if len(selection.refs) == 1 else None
    whole = ref and ref.cluster and ref.namespace
    numbers = [partition_for(f"{ref.cluster}/{ref.namespace}", count)] if ref and whole else range(count)
    named: set[HpaId] = set()
    for number in numbers:
        async for record in reader.log(number, 0):
            named.update(filter(selection.matches, named_in(record.value)))
    if not named:
        raise no_such_hpa(selection.refs[0], state.hpas, selection.namespace)
    return sole_id(sorted(named), str(selection))


def _columns(session: Session) -> tuple[Column[Revision], ...]:
    return (
        Column("REVISION", lambda r: str(r.generation) if r.generation else "-"),
        Column("DATE", lambda r: shown(r.time, session.time_style, session.now_ms())),
        Column("CHANGED BY", lambda r: r.author or r.manager or "-"),
        Column("REASON", lambda r: r.reason or "-"),
        Column("LOG OFFSET", lambda r: str(r.offset), wide=True),
        Column("ORIGIN", lambda r: r.origin or "-", wide=True),
        Column("CHANGE", lambda r: "; ".join(r.changes) or r.what),
    )


def _document(hpa: HpaId, each: Revision) -> dict[str, Any]:
    import msgspec

    made: dict[str, Any] = msgspec.to_builtins(each)
    head = {"cluster": hpa.cluster, "namespace": hpa.namespace, "name": hpa.name}
    return head | made | {"time": rfc3339(each.time)}
