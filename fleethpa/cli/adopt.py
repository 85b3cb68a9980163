"""`fleethpa adopt`: a cluster's own HPAs become central ones."""

from __future__ import annotations

from pathlib import Path

import click

from fleethpa.changes.adoption import AdoptionSteps, look_ahead
from fleethpa.changes.fleetadoption import adopt_fleet
from fleethpa.changes.foresight import read_present
from fleethpa.changes.handover import Place, native_hpas, native_objects, place_options
from fleethpa.changes.handoverplans import adopt_plan
from fleethpa.changes.writing import WriteOptions, write_options
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import not_found
from fleethpa.frame.session import Session, command_options
from fleethpa.show.words import counted
from schemas.keys import FLEET
from schemas.observed import Mode


@click.command()
@click.option("--export", "folder", default=".", metavar="DIR", help="Folder in which native HPAs are saved.")
@click.option("--mode", type=click.Choice(["shadow", "enforce"]), default="enforce")
@write_options
@command_options()
@place_options("adopt")
async def adopt(session: Session, /, place: Place, folder: str, mode: Mode, options: WriteOptions) -> int:
    """Move a cluster's own HPAs into fleethpa: save each to a file, create the central one, delete the native one.

    The central HPA writes nothing while the native one exists, so the target is never driven by both. A run that was
    interrupted is continued by the next one. To undo it: fleethpa release.

    @fleet/NAMESPACE/NAME with -C EAST,WEST makes one FleetHPA of the HPAs of that name in these clusters.
    """
    begin = adopt_fleet if place.cluster == FLEET else _adopt
    return await begin(session, place, Path(folder), mode, options)


async def _adopt(session: Session, place: Place, folder: Path, mode: Mode, options: WriteOptions) -> int:
    async with native_hpas(session, [place.cluster]) as opened:
        hpas = opened[place.cluster]
        natives = await native_objects(hpas, place)
        async with session.past() as past:
            state, present = await read_present(past)
        plan = adopt_plan(state, place, natives, mode)
        adoption = AdoptionSteps(session, place, hpas, state, options, folder=folder, mode=mode)
        look_ahead(adoption, plan, present)
        if not (plan.moved or plan.gone or plan.problems):
            _nothing_to_adopt(session, state, place)
        return await adoption.carry_out(plan)


def _nothing_to_adopt(session: Session, state: FleetState, place: Place) -> None:
    central = [hpa for hpa, view in state.hpas.items() if place.holds(hpa) and view.origin == "central"]
    if not central:
        raise not_found(f"cluster {place.cluster} has no HPA in {place}", next_step="fleethpa get hpa -A")
    session.out(f"{place}: nothing to adopt ({counted(len(central), 'HPA')}, all central)")
