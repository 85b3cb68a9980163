"""`fleethpa rollback`: an earlier spec of a central HPA again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fleethpa.cli.common import selection as selecting
from fleethpa.cli.common.completing import hpa_names
from fleethpa.cli.common.failures import ANSWER_IS_NO, CommandError, not_found, usage
from fleethpa.cli.common.manifestfiles import FileManifest, check_hpa
from fleethpa.cli.common.revisionlog import manifest_of, read_revisions, revision_before, revision_of
from fleethpa.cli.common.selection import Selection
from fleethpa.cli.common.session import Session, command_options
from fleethpa.cli.common.writing import PlannedRecord, dry_run, write_all, write_options
from schemas.autoscalers import AutoscalerSet
from schemas.kubernetes.hpa import semantically_equal_spec
from streams.analysis.revisions import differences

if TYPE_CHECKING:
    from fleethpa.cli.common.views import FleetState, HpaView
    from schemas.keys import HpaId


@click.command()
@click.argument("names", nargs=-1, required=True, shell_complete=hpa_names, metavar="[hpa] [CLUSTER/][NAMESPACE/]NAME")
@selecting.options(labels=False)
@click.option(
    "--to-revision", "number", type=click.IntRange(min=1), help="The revision [default: the last with another spec]."
)
@write_options
@command_options()
def rollback(session: Session, /, selection: Selection, number: int | None, **written: Any) -> int:
    """Give a central HPA the spec of an earlier revision again; `fleethpa history NAME` lists them.

    Its mode, labels and pauses stay. It is a change like any other: a new revision, with your name and --reason.
    """

    async def work() -> int:
        state, hpa, found = await read_revisions(session, selection)
        view = _central(state, hpa)
        chosen = revision_of(found, number, hpa) if number else revision_before(found, view.spec, hpa)
        write = _write(session, view, chosen[0].generation, chosen[1], written["reason"])
        if write is None:
            session.out(f"hpa {hpa} unchanged (its spec is that of revision {chosen[0].generation})")
            return 0
        if written["dry_run"]:
            return dry_run(session, [write])
        async with session.writer() as writer:
            return await write_all(session, writer, [write], written["wait"])

    return session.run(work())


def _central(state: FleetState, hpa: HpaId) -> HpaView:
    """The HPA as it is now.

    Raises:
        CommandError: it was deleted (exit 4), or it is its cluster's own (exit 1); with the command that helps.
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
            code=ANSWER_IS_NO,
        )
    return view


def _write(session: Session, view: HpaView, number: int, spec: dict[str, Any], reason: str) -> PlannedRecord | None:
    """The record that brings a spec back; None: it is the current one."""
    if semantically_equal_spec(view.spec, spec):
        return None
    manifest = manifest_of(view.id, spec)
    metadata = view.hpa.get("metadata") or {}
    manifest["metadata"] |= {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
    body, errors = check_hpa(FileManifest(f"revision {number}", manifest), view.id.namespace)
    if errors:
        raise usage(f"revision {number} of {view.id} is not valid any more", cause="\n".join(errors))
    changes = "; ".join(differences(view.spec, body["spec"]))
    record = AutoscalerSet(
        hpa=body,
        origin="central",
        author=session.config.author,
        reason=reason or f"rollback to revision {number}",
    )
    subject = f"hpa {view.id} rolled back to revision {number} ({changes})"
    return PlannedRecord(subject, record, view.id.cluster, view.id.namespace)
