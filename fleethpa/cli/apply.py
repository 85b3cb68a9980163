"""`fleethpa apply`: create or change central HPAs from manifests."""

from __future__ import annotations

import click

from fleethpa.changes.applying import applied
from fleethpa.changes.manifests import FieldValidation, read_hpas, validate_option
from fleethpa.changes.writing import WriteOptions, write_options
from fleethpa.fleet.capacity import CAPACITY_KIND
from fleethpa.frame.session import Session, command_options
from schemas.observed import FLEET_KIND, Mode


@click.command()
@click.option("-f", "--filename", "filenames", multiple=True, required=True, metavar="FILE|DIR|-", help="Manifests.")
@click.option("-C", "--clusters", metavar="GLOB,…", help="Clusters to apply to; may be omitted if there is only one.")
@click.option("-n", "--namespace", help="Namespace for manifests without one [default: default].")
@validate_option
@click.option("--mode", type=click.Choice(["off", "shadow", "enforce"]), help="Also set the HPA's mode.")
@write_options
@command_options()
def apply(
    session: Session,
    /,
    filenames: tuple[str, ...],
    clusters: str | None,
    namespace: str | None,
    validate: FieldValidation,
    mode: Mode | None,
    options: WriteOptions,
) -> int:
    """Create or change central HPAs from manifests of HPAs of any version, FleetHPAs and CapacityGroups.

    Other objects in the input are ignored, with a warning if the manifest of a target sets spec.replicas. Where a
    kubeconfig is configured, each HPA is compared with its target in the cluster, too, and warnings say what is wrong.
    What `get hpa -o yaml` has printed is put back: each central HPA in its cluster, in its mode.
    """
    read = read_hpas(session, filenames, validate, also=(FLEET_KIND, CAPACITY_KIND))
    return session.run(applied(session, read, clusters, namespace, mode, options))
