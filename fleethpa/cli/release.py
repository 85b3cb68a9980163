"""`fleethpa release`: HPAs go back to the native controller of their cluster."""

from __future__ import annotations

import click

from fleethpa.changes import handover
from fleethpa.changes.fleetrelease import release_fleet
from fleethpa.changes.releasing import ReleaseSteps, planned
from fleethpa.changes.writing import WriteOptions, write_options
from fleethpa.fleet.state import fleet_now
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import OK, not_found
from fleethpa.frame.options import parse_duration_ms
from fleethpa.frame.session import Session, command_options
from fleethpa.show.words import counted
from schemas.keys import FLEET


@click.command()
@click.option(
    "--include-held",
    is_flag=True,
    help="Also release HPAs that fleethpa does not scale now (paused, frozen, shadow, off, refused).",
)
@click.option(
    "--native-wait",
    default="60s",
    metavar="DURATION",
    help="How long to wait for the first status of the native controller.",
)
@write_options
@command_options()
@handover.place_options("release")
async def release(
    session: Session, /, place: handover.Place, include_held: bool, native_wait: str, options: WriteOptions
) -> int:
    """Give HPAs back to their cluster's own controller: create native HPAs of the present specs, end the central ones.

    An HPA that fleethpa does not scale now (paused, frozen, shadow or off) is left out, since the native controller
    would scale it at once; --include-held releases it, too. The change itself moves no replica. A run that was
    interrupted is continued by the next one. To undo it: fleethpa adopt.

    @fleet/NAMESPACE/NAME gives all HPAs of a FleetHPA back to their clusters, and then deletes it.
    """
    wait_s = parse_duration_ms(native_wait, "--native-wait") / 1000
    begin = release_fleet if place.cluster == FLEET else _release
    return await begin(session, place, include_held, wait_s, options)


async def _release(
    session: Session, place: handover.Place, include_held: bool, native_s: float, options: WriteOptions
) -> int:
    async with handover.native_hpas(session, [place.cluster]) as opened:
        hpas = opened[place.cluster]
        state = await fleet_now(session)
        views = [view for hpa, view in state.hpas.items() if place.holds(hpa) and view.origin == "central"]
        if not views:
            _nothing_to_release(session, state, place)
            return OK
        plan = await planned(state, place, views, hpas, include_held)
        return await ReleaseSteps(session, place, hpas, state, options, plan=plan, native_s=native_s).carry_out(plan)


def _nothing_to_release(session: Session, state: FleetState, place: handover.Place) -> None:
    known = [view for hpa, view in state.hpas.items() if place.holds(hpa)]
    if not known:
        raise not_found(f"no HPA is known in {place}", next_step="fleethpa get hpa -A")
    session.out(f"{place}: nothing to release ({counted(len(known), 'HPA')}, all of the cluster's own)")
