"""`fleethpa autoscale`: central HPAs from a few options, as `kubectl autoscale` makes them in a cluster."""

from __future__ import annotations

import click

from fleethpa.changes.applying import applied
from fleethpa.changes.autoscaling import AskedAutoscaler, autoscale_options, autoscaled
from fleethpa.changes.manifests import Input
from fleethpa.changes.writing import WriteOptions, write_options
from fleethpa.frame.session import Session, command_options
from schemas.observed import Mode


@click.command()
@autoscale_options
@click.option("-C", "--clusters", metavar="GLOB,…", help="Clusters to create it in, if there are several.")
@click.option("-n", "--namespace", help="Namespace of the workloads [default: default].")
@click.option("--mode", type=click.Choice(["off", "shadow", "enforce"]), help="Also set its mode.")
@write_options
@command_options()
def autoscale(
    session: Session,
    /,
    asked: AskedAutoscaler,
    clusters: str | None,
    namespace: str | None,
    mode: Mode | None,
    options: WriteOptions,
) -> int:
    """Create central HPAs for Deployments, StatefulSets, ReplicaSets or ReplicationControllers.

    What `kubectl autoscale` would create in one cluster is created in fleethpa, for each cluster that is meant. Without
    --cpu and --memory the target is 80% of the cpu requests. An HPA that is there already is not changed.
    """
    read = Input(hpas=autoscaled(asked))
    return session.run(applied(session, read, clusters, namespace, mode, options, creates=True))
