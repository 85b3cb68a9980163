"""`fleethpa diff`: what `apply` would change."""

from __future__ import annotations

from dataclasses import dataclass

import click

from fleethpa.changes.capacitygroups import CapacityGroup, capacity_groups
from fleethpa.changes.fleetmanifests import FleetManifest, fleet_manifest
from fleethpa.changes.livetargets import live_targets, target_warnings
from fleethpa.changes.manifests import (
    FieldValidation,
    FileManifest,
    read_hpas,
    stated_annotations,
    valid_hpa,
    validate_option,
)
from fleethpa.changes.schedules import kept_by
from fleethpa.fleet.capacity import CAPACITY_KIND, manifest_spec
from fleethpa.fleet.finding import DEFAULT_NAMESPACE, cluster_globs, matching_clusters
from fleethpa.fleet.state import fleet_now
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import ANSWER_IS_NO, OK, usage
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.show.formats import Listing
from fleethpa.show.text import paint
from fleethpa.show.words import sorted_spec, spec_diff
from schemas.keys import FLEET, HpaId
from schemas.kubernetes.shape import Json
from schemas.observed import FLEET_KIND
from streams.analysis.revisions import differences


@dataclass(frozen=True)
class ManifestDifference:
    """One object of the input beside the recorded one; None where one of them does not exist.

    Both are specs, with the annotations that state something to fleethpa beside them where these differ. `place`:
    cluster, namespace and name; the cluster of a FleetHPA is `@fleet`, a CapacityGroup has its name alone.
    """

    place: HpaId
    before: Json | None
    after: Json

    @property
    def named(self) -> str:
        """What people call it."""
        return str(self.place) if self.place.namespace else f"capacitygroup {self.place.name}"

    @property
    def what(self) -> str:
        """`new`, `changed` or `same`."""
        if self.before is None:
            return "new"
        return "changed" if self.before != self.after else "same"

    @property
    def changes(self) -> list[str]:
        """What differs, in words."""
        return differences(self.before or {}, self.after)


@click.command()
@click.option("-f", "--filename", "filenames", multiple=True, required=True, metavar="FILE|DIR|-", help="Manifests.")
@click.option("-C", "--clusters", metavar="GLOB,…", help="Clusters to compare with [default: all that have the HPA].")
@click.option("-n", "--namespace", default=DEFAULT_NAMESPACE, help="Namespace for manifests without one.")
@validate_option
@output_option(formats=("table", "json", "yaml", "jsonl"))
@command_options(reads=True)
def diff(
    session: Session,
    filenames: tuple[str, ...],
    clusters: str | None,
    namespace: str,
    validate: FieldValidation,
    output: str,
) -> int:
    """Compare HPAs, FleetHPAs and CapacityGroups with what is in force, also in clusters: exit 0 if equal, 1 if not.

    The order of metrics does not matter, and a field that is left out has its default.
    """
    read = read_hpas(session, filenames, validate, also=(FLEET_KIND, CAPACITY_KIND))
    fleets = [fleet_manifest(each, namespace) for each in read.of_kind(FLEET_KIND)]
    groups = capacity_groups(read)
    wanted = [(manifest, valid_hpa(manifest, namespace)) for manifest in read.hpas]
    state = session.run(fleet_now(session))
    globs = cluster_globs(clusters)
    known = matching_clusters(state, globs)
    if not known:
        raise usage("no cluster is known", cause="No observer has reported one.", next_step="fleethpa get clusters")
    comparisons = [each for one in wanted for each in _differences(state, *one, known, globs, session.now_ms())]
    comparisons += [_fleet_difference(state, each) for each in fleets]
    comparisons += [_group_difference(state, each) for each in groups]
    changed = [each for each in comparisons if each.what != "same"]
    meant = {each.place: {"spec": each.after} for each in comparisons if each.place.cluster not in ("", FLEET)}
    for text in target_warnings(read, meant, session.run(live_targets(session, meant))):
        session.warn(text)
    if output == "table":
        session.lines(line for each in changed for line in _lines(session, each))
        _say(session, comparisons, changed, filenames)
    else:
        session.listing(_diff_listing(comparisons), output)
    return ANSWER_IS_NO if changed else OK


def _differences(
    state: FleetState, manifest: FileManifest, body: Json, known: list[str], globs: tuple[str, ...], now_ms: int
) -> list[ManifestDifference]:
    namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
    clusters = manifest.meant_for(known) or ([] if globs else [manifest.cluster])
    ids = [HpaId(cluster, namespace, name) for cluster in clusters]
    there = [hpa for hpa in ids if hpa in state.hpas]
    # Without -C, an HPA that is in some clusters is not asked for in the others.
    comparisons = []
    for hpa in ids if globs or not there else there:
        view = state.hpas.get(hpa)
        # What a schedule has changed is no difference: `apply` would leave it.
        wanted = kept_by(view.hpa, body, now_ms) if view is not None and view.origin == "central" else body
        before, after = sorted_spec(view.spec) if view is not None else None, sorted_spec(wanted["spec"])
        if view is not None and before is not None:
            held, stated = stated_annotations(view.hpa["metadata"]), stated_annotations(wanted["metadata"])
            if held != stated:
                before, after = before | {"annotations": held}, after | {"annotations": stated}
        comparisons.append(ManifestDifference(hpa, before, after))
    return comparisons


def _fleet_difference(state: FleetState, wanted: FleetManifest) -> ManifestDifference:
    metadata = wanted.body["metadata"]
    fleet_hpa = HpaId(FLEET, metadata["namespace"], metadata["name"])
    view = state.hpas.get(fleet_hpa)
    before = sorted_spec(view.spec | view.fleet.fields()) if view is not None and view.fleet is not None else None
    return ManifestDifference(fleet_hpa, before, sorted_spec(wanted.body["spec"] | wanted.fleet.fields()))


def _group_difference(state: FleetState, wanted: CapacityGroup) -> ManifestDifference:
    row = state.capacity_groups.get(wanted.name)
    before = None if row is None else sorted_spec(manifest_spec(row.spec))
    return ManifestDifference(HpaId("", "", wanted.name), before, sorted_spec(manifest_spec(wanted.spec)))


def _lines(session: Session, each: ManifestDifference) -> list[str]:
    lines = spec_diff(each.before, each.after, f"{each.named} (in force)", f"{each.named} (manifest)")
    styles = {"+": "green", "-": "red"}
    return [paint(line, styles.get(line[:1], ""), color=session.color) for line in lines]


def _say(
    session: Session,
    differences: list[ManifestDifference],
    changed: list[ManifestDifference],
    filenames: tuple[str, ...],
) -> None:
    session.note(f"{len(differences)} compared, {len(changed)} different")
    tried = [each for each in changed if each.before is not None and each.place.namespace]
    if tried:
        files = " ".join(f"-f {name}" for name in filenames)
        session.note(f"Next: fleethpa backtest {files} --since 1d, to see what it would have done")


def _diff_listing(differences: list[ManifestDifference]) -> Listing[ManifestDifference]:
    def document(each: ManifestDifference) -> Json:
        shown = {"what": each.what, "changes": each.changes, "before": each.before, "after": each.after}
        return each.place._asdict() | shown

    return Listing(kind="Difference", items=differences, document=document)
