"""`fleethpa delete`: delete central HPAs."""

from __future__ import annotations

from dataclasses import replace

import click

from fleethpa.changes.capacitygroups import CapacityGroup, capacity_groups, deleted_groups, group_concerns
from fleethpa.changes.fleetmanifests import members_of
from fleethpa.changes.foresight import concerns, read_present
from fleethpa.changes.manifests import no_hpas, read_input
from fleethpa.changes.records import PlannedRecord, deleted_record
from fleethpa.changes.writing import WriteOptions, change, write_options
from fleethpa.fleet.capacity import no_such_group
from fleethpa.fleet.finding import DEFAULT_NAMESPACE, Ref, Selection, chosen, selection_options
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import CommandError, usage
from fleethpa.frame.session import Session, command_options


@click.command()
@selection_options()
@click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    metavar="FILE|DIR|-",
    help="Delete the HPAs that these manifests name.",
)
@click.option("--ignore-not-found", is_flag=True, help="Exit 0 even if a named HPA does not exist.")
@write_options
@command_options()
def delete(
    session: Session, /, selection: Selection, filenames: tuple[str, ...], ignore_not_found: bool, options: WriteOptions
) -> int:
    """Delete central HPAs; the workloads keep their replicas. A cluster's own HPA is deleted with kubectl."""
    read = read_input(filenames)
    default = selection.namespace or DEFAULT_NAMESPACE
    named = [Ref(each.name, each.namespace or default, each.cluster or None) for each in read.hpas]
    refs = (*selection.refs, *named)
    groups = capacity_groups(read)
    if filenames and not refs and not groups:
        raise no_hpas(filenames, read)
    if not refs and not groups and selection.labels is None:
        raise usage(
            "delete what?", cause="Name the HPAs, or give -f or -l.", next_step="fleethpa delete east/shop/checkout"
        )
    wanted = replace(selection, refs=refs)

    async def work() -> int:
        async with session.past() as past:
            state, present = await read_present(past)
        group_writes = _deleted_groups(session, groups, state, ignore_not_found, options.reason)
        writes: list[PlannedRecord] = []
        if refs or selection.labels is not None:
            writes = _writes(session, state, wanted, ignore_not_found, options.reason)
        if not writes and not group_writes:
            session.note(f"Nothing to delete: no HPA found in {wanted}.")
            return 0
        foresight = present.foresee(writes)
        all_concerns = [*concerns("delete", foresight, writes), *group_concerns(group_writes, state)]
        code = await change(session, "delete", writes + group_writes, all_concerns, options, state=state)
        for text in foresight.handed_over():
            session.note(text)
        return code

    return session.run(work())


def _deleted_groups(
    session: Session, groups: list[CapacityGroup], state: FleetState, ignore_not_found: bool, reason: str
) -> list[PlannedRecord]:
    known = state.capacity_groups
    if missing := [each.name for each in groups if each.name not in known and not ignore_not_found]:
        raise no_such_group(missing[0], sorted(known))
    names = [each.name for each in groups if each.name in known]
    return deleted_groups(names, session.now_ms(), session.config.author, reason)


def _writes(
    session: Session, state: FleetState, wanted: Selection, ignore_not_found: bool, reason: str
) -> list[PlannedRecord]:
    if ignore_not_found:
        views = [view for hpa, view in state.hpas.items() if wanted.matches(hpa, view.labels)]
    else:
        views = chosen(state, wanted)
    for view in views:
        if view.origin != "central":
            raise CommandError(
                f"hpa {view.id} belongs to its cluster",
                cause="fleethpa deletes only HPAs that live in it. Once this one is gone, nothing scales its target.",
                next_step=f"kubectl --context {view.id.cluster} delete hpa {view.id.name} -n {view.id.namespace}",
            )
    # With a FleetHPA go the HPAs in its clusters.
    hpas = {hpa for view in views for hpa in [view.id, *members_of(state, view.id)]}
    return [deleted_record(hpa, session.config.author, reason) for hpa in sorted(hpas)]
