"""`fleethpa history`: the revisions of an HPA's spec and the commands about it: who, why, what changed."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from fleethpa.cli.common import selection as selecting
from fleethpa.cli.common.failures import not_found
from fleethpa.cli.common.selection import Selection
from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.output.formats import Listing, render
from fleethpa.cli.output.table import Column
from fleethpa.cli.output.times import rfc3339, shown

if TYPE_CHECKING:
    from schemas.keys import HpaId
    from streams.analysis.revisions import Revision
    from streams.history.past import Past


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
    from schemas.keys import partition_for
    from streams.analysis.revisions import history as read_history

    async with session.past() as past:
        hpa = await _meant(past, selection)
        number = partition_for(hpa.namespace_key, await past.partitions())
        partition = await past.restored(number, before_ms=since_ms)
        if since_ms is None and partition.applied_offset >= 0:
            session.note(f"note: {past.name} goes back to {rfc3339(partition.clock_ms)} only")
        found: list[Revision] = []
        async with aclosing(past.following(partition)) as records:
            async for record in records:
                found += read_history(partition, [record.plain], hpa)
    return hpa, [each for each in found if since_ms is None or each.time >= since_ms]


async def _meant(past: Past, selection: Selection) -> HpaId:
    """The only HPA that is meant: among those that exist, else among those that were deleted."""
    from fleethpa.cli.common.finding import no_such_hpa, sole_id
    from fleethpa.cli.common.fleetstate import read_state

    state = await read_state(past)
    for known in (state.hpas, sorted(state.forgotten)):
        if found := [hpa for hpa in known if selection.matches(hpa)]:
            return sole_id(found, str(selection))
    raise no_such_hpa(selection.refs[0], state.hpas, selection.namespace)


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
