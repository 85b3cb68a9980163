"""`fleethpa capacity`: a ceiling that many HPAs share, shown and deleted."""

from __future__ import annotations

import click

from fleethpa.changes.capacitygroups import deleted_groups, group_concerns
from fleethpa.changes.writing import WriteOptions, change, write_options
from fleethpa.fleet.capacity import group_listing, member_rows, named_groups
from fleethpa.fleet.state import fleet_now
from fleethpa.frame.errors import OK, PARTIAL, SuggestingGroup
from fleethpa.frame.session import Session, command_options, travel_option
from fleethpa.show.text import layout


@click.group(cls=SuggestingGroup)
def capacity() -> None:
    """A ceiling that many HPAs share: describe, delete it."""


@capacity.command("describe")
@click.argument("name")
@travel_option
@command_options(reads=True)
def describe(session: Session, name: str) -> int:
    """Show a CapacityGroup and each HPA that it bounds: what it has, wants and may have.

    MAY HAVE is of the newest allotment, which lasts for 60 s; `-`: none is in force. Exit 5: what is shown of an HPA is
    only the last that was known.
    """
    (group,) = named_groups(session.run(fleet_now(session), brief=True), (name,))
    session.listing(group_listing([group]), "wide")
    session.lines(["", *layout(member_rows(group)), "", f"State: {group.state[0]}"])
    if group.held:
        session.note(f"Next: fleethpa explain {group.held[0]}")
    return PARTIAL if group.is_old else OK


@capacity.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@write_options
@command_options()
async def delete(session: Session, /, names: tuple[str, ...], options: WriteOptions) -> int:
    """Delete CapacityGroups: they bound nothing any more; no HPA and no workload is deleted."""
    state = await fleet_now(session)
    groups = [group.name for group in named_groups(state, names)]
    writes = deleted_groups(groups, session.now_ms(), session.config.author, options.reason)
    return await change(session, "capacity delete", writes, list(group_concerns(writes, state)), options, state=state)
