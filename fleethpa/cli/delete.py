"""`fleethpa delete`: central HPAs."""

from __future__ import annotations

from typing import Any

import click

from fleethpa.cli.common import selection as selecting
from fleethpa.cli.common.completing import hpa_names
from fleethpa.cli.common.failures import CommandError, usage
from fleethpa.cli.common.finding import chosen
from fleethpa.cli.common.fleetstate import fleet_now
from fleethpa.cli.common.foresight import Present, concerns
from fleethpa.cli.common.manifestfiles import read_input
from fleethpa.cli.common.selection import DEFAULT_NAMESPACE, Ref, Selection
from fleethpa.cli.common.session import Session, command_options
from fleethpa.cli.common.writing import PlannedRecord, confirm, dry_run, show, write_all, write_options
from schemas.autoscalers import AutoscalerDeleted


@click.command()
@click.argument("names", nargs=-1, shell_complete=hpa_names, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@selecting.options()
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
    session: Session,
    /,
    selection: Selection,
    filenames: tuple[str, ...],
    ignore_not_found: bool,
    **written: Any,
) -> int:
    """Delete central HPAs; the workloads keep their replicas. A cluster's own HPA is deleted with kubectl."""
    refs = selection.refs + tuple(_refs(filenames, selection))
    if filenames and not refs:
        raise usage(f"-f {' '.join(filenames)}: no HorizontalPodAutoscaler found")
    if not refs and selection.labels is None:
        raise usage(
            "delete what?", cause="Name the HPAs, or give -f or -l.", next_step="fleethpa delete east/shop/checkout"
        )
    wanted = Selection(refs, selection.namespace, selection.clusters, selection.labels, selection.selector)

    async def work() -> int:
        writes = await _writes(session, wanted, ignore_not_found, written["reason"])
        if not writes:
            session.note(f"Nothing to delete: no HPA found in {wanted}.")
            return 0
        async with session.past() as past:
            foresight = (await Present.read(past)).foresee(writes)
        found = concerns("delete", foresight, writes)
        if written["dry_run"]:
            show(session, found)
            return dry_run(session, writes)
        confirm(session, found, written["yes"], "delete")
        for text in foresight.handed_over():
            session.note(text)
        async with session.writer() as writer:
            return await write_all(session, writer, writes, written["wait"])

    return session.run(work())


def _refs(filenames: tuple[str, ...], selection: Selection) -> list[Ref]:
    found = read_input(filenames).hpas
    return [Ref(m.name, m.namespace or selection.namespace or DEFAULT_NAMESPACE) for m in found]


async def _writes(session: Session, wanted: Selection, ignore_not_found: bool, reason: str) -> list[PlannedRecord]:
    state = await fleet_now(session)
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
    author = session.config.author
    return [
        PlannedRecord(
            f"hpa {view.id} deleted",
            AutoscalerDeleted(name=view.id.name, origin="central", author=author, reason=reason),
            view.id.cluster,
            view.id.namespace,
        )
        for view in views
    ]
