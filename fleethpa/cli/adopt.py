"""`fleethpa adopt`: a cluster's own HPA becomes a central one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleethpa.cli.common.completing import hpa_names
from fleethpa.cli.common.failures import OK, CommandError, unreachable, usage
from fleethpa.cli.common.selection import parse_ref
from fleethpa.cli.common.session import Session, command_options
from fleethpa.cli.common.writing import Write, write_all, write_options

if TYPE_CHECKING:
    from reconciler.clusters.client import ClusterClient
    from schemas.keys import HpaId

DROPPED = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "ownerReferences")
"""Metadata of the native object that the central one does not take over."""


@click.command()
@click.argument("name", shell_complete=hpa_names, metavar="CLUSTER/NAMESPACE/NAME")
@click.option(
    "--export", "folder", default=".", show_default=True, metavar="DIR", help="Where the native HPA is saved."
)
@click.option("--mode", type=click.Choice(["shadow", "enforce"]), default="enforce", show_default=True)
@write_options
@command_options()
def adopt(session: Session, /, name: str, folder: str, mode: Any, **written: Any) -> int:
    """Move a cluster's own HPA into fleethpa: save it to a file, start the central one, delete the native one.

    The central HPA writes nothing while the native one is there, so the target is never driven by both. To go back:
    fleethpa delete, then kubectl create -f the saved file.
    """
    from schemas.keys import HpaId

    ref = parse_ref(name)
    if not (ref.cluster and ref.namespace):
        raise usage(
            f"{name!r} is not whole", cause="adopt needs CLUSTER/NAMESPACE/NAME.", next_step="fleethpa get hpa -A"
        )
    hpa = HpaId(ref.cluster, ref.namespace, ref.name)
    return session.run(_adopt(session, hpa, Path(folder), mode, written))


async def _adopt(session: Session, hpa: HpaId, folder: Path, mode: Any, written: dict[str, Any]) -> int:
    from fleethpa.cli.common.writer import open_writer

    client = _client(session, hpa.cluster)
    try:
        native = await _read(client, hpa)
        file = folder / f"{hpa.cluster}.{hpa.namespace}.{hpa.name}.yaml"
        steps = [
            f"save the native HPA to {file}",
            f"start the central HPA {hpa} in mode {mode}",
            f"delete the native HPA {hpa.namespace}/{hpa.name} in cluster {hpa.cluster}",
        ]
        if written["dry_run"]:
            session.out("\n".join(f"{step} (dry run)" for step in steps))
            return OK
        _ask(hpa, written["yes"])
        _save(file, native)
        session.out(f"native HPA saved to {file}")
        async with open_writer(session.config) as writer:
            code = await write_all(session, writer, [_write(session, hpa, native, mode, written)], written["wait"])
        if code != OK:
            return code
        await _delete(client, hpa, native)
        session.out(f"native HPA {hpa} deleted")
        session.note(f"Next: fleethpa status {hpa} --watch --timeout 2m")
        session.note(f"Back: fleethpa delete {hpa}; kubectl --context {hpa.cluster} create -f {file}")
        return OK
    finally:
        await client.close()


def _ask(hpa: HpaId, yes: bool) -> None:
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        cause = "It deletes an object in the cluster, and there is no terminal to ask on."
        raise usage(f"adopt {hpa} needs a yes", cause=cause, next_step="add --yes, or --dry-run to see the steps")
    click.confirm(
        f"adopt deletes the native HPA {hpa.namespace}/{hpa.name} in {hpa.cluster}. Go on?", abort=True, err=True
    )


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
            cause="The central HPA is there, but writes nothing while the native one is.",
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


def _write(session: Session, hpa: HpaId, native: dict[str, Any], mode: Any, written: dict[str, Any]) -> Write:
    from schemas.autoscalers import AutoscalerSet

    body = AutoscalerSet(
        hpa=exported(native),
        origin="central",
        mode=mode,
        author=session.config.author,
        reason=written["reason"] or "adopted from the cluster",
    )
    return Write(f"hpa {hpa} adopted", body, hpa.cluster, hpa.namespace)
