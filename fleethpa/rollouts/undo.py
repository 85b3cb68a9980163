"""`fleethpa rollout undo`: give a central HPA the spec of an earlier revision again."""

from __future__ import annotations

from typing import Any

import click

from fleethpa.changes.manifests import FileManifest, check_hpa
from fleethpa.changes.records import PlannedRecord, central_record
from fleethpa.changes.specs import read_revisions, revision_before, revision_of
from fleethpa.changes.writing import WriteOptions, change, write_options
from fleethpa.fleet.finding import Selection, selection_options
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import CommandError, not_found, usage
from fleethpa.frame.session import Session, command_options
from schemas.keys import HpaId
from schemas.kubernetes.hpa import manifest_of, semantically_equal_spec
from streams.analysis.revisions import differences


@click.command()
@selection_options("[hpa] [CLUSTER/][NAMESPACE/]NAME", required=True, labels=False)
@click.option(
    "--to-revision", "number", type=click.IntRange(min=1), help="The revision [default: the last with another spec]."
)
@write_options
@command_options()
async def undo(session: Session, /, selection: Selection, number: int | None, options: WriteOptions) -> int:
    """Give a central HPA the spec of an earlier revision again; `fleethpa history NAME` lists them.

    Its mode, labels and pauses stay. It is a change like any other: a new revision, with your name and --reason.
    """
    async with session.past() as past:
        state, hpa, revisions = await read_revisions(session, past, selection)
    view = _central(state, hpa)
    chosen = revision_of(revisions, number, hpa) if number else revision_before(revisions, view.spec, hpa)
    write = _write(session, view, chosen[0].generation, chosen[1], options.reason)
    if write is None:
        session.out(f"hpa {hpa} unchanged (its spec is that of revision {chosen[0].generation})")
        return 0
    return await change(session, "rollout undo", [write], [], options, state=state)


def _central(state: FleetState, hpa: HpaId) -> HpaView:
    """The HPA as it is now.

    Raises CommandError: it was deleted (exit 4), or it is its cluster's own (exit 1); with the command that helps.
    """
    view = state.hpas.get(hpa)
    shown = f"fleethpa history {hpa} --revision N -o yaml"
    if view is None:
        step = f"{shown} | fleethpa apply -C {hpa.cluster} -f -"
        raise not_found(f"{hpa} was deleted", cause="A spec of it can be applied anew.", next_step=step)
    if view.origin != "central":
        raise CommandError(
            f"hpa {hpa} lives in its cluster",
            cause="fleethpa changes only HPAs that live in fleethpa.",
            next_step=f"{shown} | kubectl --context {hpa.cluster} apply -f -",
        )
    if view.is_of_fleet:
        whole = view.fleet_hpa or view.id
        raise CommandError(
            f"{hpa} is {'a FleetHPA' if view.fleet_hpa is None else f'part of FleetHPA {whole}'}",
            cause="A FleetHPA and the HPAs in its clusters change together.",
            next_step=f"fleethpa history {whole} --revision N -o yaml | fleethpa apply -f -",
        )
    return view


def _write(session: Session, view: HpaView, number: int, spec: dict[str, Any], reason: str) -> PlannedRecord | None:
    """The record that brings a spec back; None: it is the current one."""
    if semantically_equal_spec(view.spec, spec):
        return None
    manifest = manifest_of(view.id._asdict() | {"labels": view.labels, "annotations": view.annotations}, spec)
    body, errors = check_hpa(FileManifest(f"revision {number}", manifest), view.id.namespace)
    if errors:
        raise usage(f"revision {number} of {view.id} is not valid any more", cause="\n".join(errors))
    words = f"rolled back to revision {number} ({'; '.join(differences(view.spec, body['spec']))})"
    why = reason or f"back to revision {number}"
    return central_record(view.id, words, body, session.config.author, why, over=view)
