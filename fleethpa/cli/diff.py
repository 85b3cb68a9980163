"""`fleethpa diff`: what `apply -f` would change, without changing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from fleethpa.cli.common.failures import ANSWER_IS_NO, OK, usage
from fleethpa.cli.common.finding import matching_clusters
from fleethpa.cli.common.fleetstate import fleet_now
from fleethpa.cli.common.manifestfiles import FieldValidation, check_hpa, read_input, validate_option, warn_about_fields
from fleethpa.cli.common.schedules import kept_by
from fleethpa.cli.common.selection import DEFAULT_NAMESPACE, cluster_globs
from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.output.formats import Listing, render
from fleethpa.cli.output.specdiff import sorted_spec, spec_diff
from fleethpa.cli.output.table import Column, paint
from schemas.keys import HpaId
from schemas.kubernetes.jsontypes import Json
from streams.analysis.revisions import differences

if TYPE_CHECKING:
    from fleethpa.cli.common.views import FleetState


@dataclass(frozen=True)
class ManifestDifference:
    """One HPA of the input beside the recorded one; None where one of them does not exist."""

    hpa: HpaId
    before: Json | None
    after: Json

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
    """Compare manifests with the specs in force, central ones and the clusters' own: exit 0 if equal, 1 if not.

    The order of metrics does not matter, and a field that is left out has its default.
    """
    read = read_input(filenames, validate)
    warn_about_fields(session, read)
    if not read.hpas:
        raise usage(f"-f {' '.join(filenames)}: no HorizontalPodAutoscaler found")
    wanted: list[Json] = []
    for manifest in read.hpas:
        body, errors = check_hpa(manifest, namespace)
        if errors:
            raise usage(f"{manifest.source}: HPA {manifest.name} is invalid", cause="\n".join(errors))
        wanted.append(body)

    state = session.run(fleet_now(session))
    globs = cluster_globs(clusters)
    known = matching_clusters(state, globs)
    if not known:
        raise usage("no cluster is known", cause="No observer has reported one.", next_step="fleethpa get clusters")
    found = [each for body in wanted for each in _differences(state, body, known, globs, session.now_ms())]
    changed = [each for each in found if each.what != "same"]
    if output == "table":
        session.lines(line for each in changed for line in _lines(session, each))
        _say(session, found, changed, filenames)
    else:
        session.out(render(_listing(found), output))
    return ANSWER_IS_NO if changed else OK


def _differences(
    state: FleetState, body: Json, clusters: list[str], globs: tuple[str, ...], now_ms: int
) -> list[ManifestDifference]:
    namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
    ids = [HpaId(cluster, namespace, name) for cluster in clusters]
    there = [hpa for hpa in ids if hpa in state.hpas]
    # Without -C, an HPA that is in some clusters is not asked for in the others.
    found = []
    for hpa in ids if globs or not there else there:
        view = state.hpas.get(hpa)
        # What a schedule has changed is no difference: `apply` would leave it.
        wanted = kept_by(view.hpa, body, now_ms) if view is not None and view.origin == "central" else body
        before = sorted_spec(view.spec) if view is not None else None
        found.append(ManifestDifference(hpa, before, sorted_spec(wanted["spec"])))
    return found


def _lines(session: Session, each: ManifestDifference) -> list[str]:
    lines = spec_diff(each.before, each.after, f"{each.hpa} (in force)", f"{each.hpa} (manifest)")
    styles = {"+": "green", "-": "red"}
    return [paint(line, styles.get(line[:1], ""), color=session.color) for line in lines]


def _say(
    session: Session, found: list[ManifestDifference], changed: list[ManifestDifference], filenames: tuple[str, ...]
) -> None:
    session.note(f"{len(found)} compared, {len(changed)} different")
    tried = [each for each in changed if each.before is not None]
    if tried:
        files = " ".join(f"-f {name}" for name in filenames)
        session.note(f"Next: fleethpa backtest {files} --since 1d, to see what it would have done")


def _listing(found: list[ManifestDifference]) -> Listing[ManifestDifference]:
    columns: tuple[Column[ManifestDifference], ...] = (
        Column("HPA", lambda d: str(d.hpa)),
        Column("WHAT", lambda d: d.what),
    )
    return Listing(
        kind="Difference",
        items=found,
        columns=columns,
        document=lambda d: {
            "cluster": d.hpa.cluster,
            "namespace": d.hpa.namespace,
            "name": d.hpa.name,
            "what": d.what,
            "changes": d.changes,
            "before": d.before,
            "after": d.after,
        },
        name=lambda d: f"diff/{d.hpa}",
    )
