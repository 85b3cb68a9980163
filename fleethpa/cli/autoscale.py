"""`fleethpa autoscale`: central HPAs from a few options, as `kubectl autoscale` makes them in a cluster."""

from __future__ import annotations

import click

from fleethpa.changes.applying import applied
from fleethpa.changes.autoscaling import autoscaled
from fleethpa.changes.manifests import Input
from fleethpa.changes.writing import WriteOptions, write_options
from fleethpa.frame.session import Session, command_options
from schemas.observed import Mode


@click.command()
@click.argument("workloads", nargs=-1, metavar="TYPE/NAME… | TYPE NAME…")
@click.option(
    *("-f", "--filename", "filenames"), multiple=True, metavar="FILE|DIR|-", help="Manifests of the workloads."
)
@click.option("--min", "least", type=int, help="Fewest replicas [default: 1].")
@click.option("--max", "most", type=int, required=True, help="Most replicas.")
@click.option("--cpu", metavar="N%|QUANTITY", help="Target of cpu: percent of the requests, or an average per pod.")
@click.option("--memory", metavar="N%|QUANTITY", help="Target of memory, likewise.")
@click.option("--cpu-percent", type=int, help="The same as --cpu N%.")
@click.option("--name", help="Name of the HPA [default: that of the workload].")
@click.option("-C", "--clusters", metavar="GLOB,…", help="Clusters to create it in, if there are several.")
@click.option("-n", "--namespace", help="Namespace of the workloads [default: default].")
@click.option("--mode", type=click.Choice(["off", "shadow", "enforce"]), help="Also set its mode.")
@write_options
@command_options()
def autoscale(
    session: Session,
    /,
    workloads: tuple[str, ...],
    filenames: tuple[str, ...],
    least: int | None,
    most: int,
    cpu: str | None,
    memory: str | None,
    cpu_percent: int | None,
    name: str | None,
    clusters: str | None,
    namespace: str | None,
    mode: Mode | None,
    options: WriteOptions,
) -> int:
    """Create central HPAs for Deployments, StatefulSets, ReplicaSets or ReplicationControllers.

    What `kubectl autoscale` would create in one cluster is created in fleethpa, for each cluster that is meant. Without
    --cpu and --memory the target is 80 % of the cpu requests. An HPA that is there already is not changed.
    """
    made = autoscaled(workloads, filenames, least, most, cpu, memory, cpu_percent, name)
    return session.run(applied(session, Input(hpas=made), clusters, namespace, mode, options, creates=True))
