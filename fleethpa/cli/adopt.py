"""`fleethpa adopt`: a cluster's own HPA becomes a central one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleethpa.cli.common.completing import hpa_names
from fleethpa.cli.common.failures import OK, CommandError, unreachable, usage
from fleethpa.cli.common.selection import parse_ref
from fleethpa.cli.common.session import Session, command_options
from fleethpa.cli.common.writing import Concern, PlannedRecord, confirm, show, write_all, write_options

if TYPE_CHECKING:
    from reconciler.clusters.client import ClusterClient
    from schemas.keys import HpaId

DROPPED = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "ownerReferences")
"""Metadata of the native object that the central one does not take over."""


@click.command()
@click.argument("name", shell_complete=hpa_names, metavar="CLUSTER/NAMESPACE/NAME")
@click.option(
    "--export", "folder", default=".", show_default=True, metavar="DIR", help="Folder in which the native HPA is saved."
)
@click.option("--mode", type=click.Choice(["shadow", "enforce"]), default="enforce", show_default=True)
@write_options
@command_options()
def adopt(session: Session, /, name: str, folder: str, mode: Any, **written: Any) -> int:
    """Move a cluster's own HPA into fleethpa: save it to a file, create the central one, delete the native one.

    The central HPA writes nothing while the native controller drives the native one, so the target is never driven by
    both. To go back: kubectl create -f the saved file, then fleethpa delete.
    """
    from schemas.keys import HpaId

    ref = parse_ref(name)
    if not (ref.cluster and ref.namespace):
        raise usage(
            f"{name!r} is not a full name", cause="adopt needs CLUSTER/NAMESPACE/NAME.", next_step="fleethpa get hpa -A"
        )
    hpa = HpaId(ref.cluster, ref.namespace, ref.name)
    return session.run(_adopt(session, hpa, Path(folder), mode, written))


async def _adopt(session: Session, hpa: HpaId, folder: Path, mode: Any, written: dict[str, Any]) -> int:
    from fleethpa.cli.common.writer import open_writer

    client = _client(session, hpa.cluster)
    try:
        native = await _read(client, hpa)
        adopted = _write(session, hpa, native, mode, written)
        concerns = await _looked_ahead(session, adopted, _deletion(session, hpa, native))
        file = folder / f"{hpa.cluster}.{hpa.namespace}.{hpa.name}.yaml"
        steps = [
            f"save the native HPA to {file}",
            f"start the central HPA {hpa} in mode {mode}",
            f"delete the native HPA {hpa.namespace}/{hpa.name} in cluster {hpa.cluster}",
        ]
        if written["dry_run"]:
            show(session, concerns)
            session.out("\n".join(f"{step} (dry run)" for step in steps))
            return OK
        confirm(session, concerns, written["yes"], f"adopt {hpa}")
        _save(file, native)
        session.out(f"native HPA saved to {file}")
        async with open_writer(session.config) as writer:
            if (code := await write_all(session, writer, [adopted], written["wait"], must_arrive=True)) != OK:
                session.warn(f"the native HPA {hpa} was not deleted; run adopt again")
                return code
            await _delete(client, hpa, native)
            # Reported here too, so that nothing depends on how soon an observer sees it.
            await write_all(session, writer, [_deletion(session, hpa, native)], written["wait"])
        session.note(f"Next: fleethpa status {hpa} --watch --timeout 2m")
        session.note(f"Back: kubectl --context {hpa.cluster} create -f {file}, then fleethpa delete {hpa}")
        return OK
    finally:
        await client.close()


async def _looked_ahead(session: Session, adopted: PlannedRecord, deleted: PlannedRecord) -> list[Concern]:
    """Say what the user must agree to.

    Raises:
        CommandError: the central HPA would be refused (exit 1).
    """
    from fleethpa.cli.common.foresight import Present, concerns, refusal_errors

    async with session.past() as past:
        foresight = (await Present.read(past)).foresee([adopted, deleted])
    for error in refusal_errors(foresight.refusals(foresight.touched([adopted])), "cannot be adopted to enforce"):
        raise error
    name = foresight.touched([deleted])[0].name
    deletion = f"adopt deletes the native HPA {adopted.namespace}/{name} in {adopted.cluster}"
    return [Concern(deletion), *concerns("adopt", foresight, [adopted])]


def _client(session: Session, cluster: str) -> ClusterClient:
    from fleethpa.cli.common.parts import member_clusters
    from reconciler.clusters.client import ClusterClient

    clusters = {each.name: each for each in member_clusters(session.config)}
    if cluster not in clusters:
        known = ", ".join(clusters) or "none"
        cause = f"{session.config.kubeconfig} has {known}."
        raise usage(f"no context for cluster {cluster}", cause=cause, next_step="add --kubeconfig FILE")
    return ClusterClient(clusters[cluster])


def _path(hpa: HpaId) -> str:
    return f"/apis/autoscaling/v2/namespaces/{hpa.namespace}/horizontalpodautoscalers/{hpa.name}"


async def _read(client: ClusterClient, hpa: HpaId) -> dict[str, Any]:
    from reconciler.clusters.clustererrors import ApiError, ConfigError, UnreachableError

    try:
        return await client.get(_path(hpa))
    except ApiError as error:
        code = 4 if error.status == 404 else 3
        raise CommandError(
            f"cannot read the native HPA {hpa}: {error}", next_step="fleethpa get hpa -A", code=code
        ) from error
    except (UnreachableError, ConfigError) as error:
        raise unreachable(f"cluster {hpa.cluster} does not answer: {error}", next_step="check --kubeconfig") from error


async def _delete(client: ClusterClient, hpa: HpaId, native: dict[str, Any]) -> None:
    from reconciler.clusters.clustererrors import ApiError, UnreachableError

    # Only the object that was saved: one made anew in between has not been exported.
    body = {"preconditions": {"uid": native["metadata"]["uid"]}}
    try:
        await client.request("DELETE", _path(hpa), body=body)
    except (ApiError, UnreachableError) as error:
        raise unreachable(
            f"the native HPA {hpa} was not deleted: {error}",
            cause="The central HPA exists, but writes nothing while the native one exists.",
            next_step=f"kubectl --context {hpa.cluster} delete hpa {hpa.name} -n {hpa.namespace}",
        ) from error


def _save(file: Path, native: dict[str, Any]) -> None:
    from fleethpa.cli.output.formats import to_yaml

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(to_yaml(exported(native)) + "\n")
    except OSError as error:
        raise usage(f"{file} cannot be written", cause=str(error), next_step="add --export DIR") from error


def exported(native: dict[str, Any]) -> dict[str, Any]:
    """The object without what only the API server gives it."""
    metadata = {name: value for name, value in (native.get("metadata") or {}).items() if name not in DROPPED}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": native["spec"],
    }


def _write(session: Session, hpa: HpaId, native: dict[str, Any], mode: Any, written: dict[str, Any]) -> PlannedRecord:
    from schemas.autoscalers import AutoscalerSet

    body = AutoscalerSet(
        hpa=exported(native),
        origin="central",
        mode=mode,
        author=session.config.author,
        reason=written["reason"] or "adopted from the cluster",
    )
    return PlannedRecord(f"hpa {hpa} adopted", body, hpa.cluster, hpa.namespace)


def _deletion(session: Session, hpa: HpaId, native: dict[str, Any]) -> PlannedRecord:
    from schemas.autoscalers import AutoscalerDeleted

    uid, author = native["metadata"]["uid"], session.config.author
    body = AutoscalerDeleted(name=hpa.name, uid=uid, origin="cluster", author=author, reason="adopted by fleethpa")
    return PlannedRecord(f"native HPA {hpa} deleted", body, hpa.cluster, hpa.namespace)
