"""`fleethpa lint`, `diff` and `upgrade-preview`: what manifests, or another Kubernetes, would change; what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any, Final

import click

from fleethpa.changes.capacitygroups import CapacityGroup, capacity_groups
from fleethpa.changes.fleetmanifests import FleetManifest, fleet_manifest
from fleethpa.changes.lintrules import Finding, version_named
from fleethpa.changes.lintrules import lint as check
from fleethpa.changes.manifests import FieldValidation, FileManifest, Input, read_hpas, valid_hpa, validate_option
from fleethpa.changes.schedules import kept_by
from fleethpa.fleet.capacity import CAPACITY_KIND, manifest_spec
from fleethpa.fleet.decisions import AskedPeriod, period_options
from fleethpa.fleet.finding import (
    DEFAULT_NAMESPACE,
    Selection,
    alone,
    chosen,
    cluster_globs,
    matching_clusters,
    not_evaluated,
    selection_options,
)
from fleethpa.fleet.state import fleet_now, read_state
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import ANSWER_IS_NO, OK, usage
from fleethpa.frame.options import ConditionMeasure, html_option, output_option, parse_fail_if
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import by_partition
from fleethpa.show.formats import Listing
from fleethpa.show.report import Grid, Notes, QuestionReport, Section, Sentences
from fleethpa.show.text import Column, paint, rfc3339
from fleethpa.show.words import counted, sorted_spec, spec_diff
from schemas.keys import FLEET, HpaId
from schemas.kubernetes.shape import Json
from schemas.observed import FLEET_KIND
from streams.analysis.revisions import differences
from streams.analysis.upgradepreview import SEVERAL, Preview, PreviewTask, previews
from streams.history.parallel import Faults
from streams.history.past import Past
from streams.hpa.rules import RELEASED, RULES, Rules, minor_of

# --- manifests --------------------------------------------------------------------------------------------------------

OWN_KINDS: Final = (FLEET_KIND, CAPACITY_KIND)
"""Kinds of fleethpa that its manifests may be of, beside HPAs."""


@click.command()
@click.option("-f", "--filename", "filenames", multiple=True, required=True, metavar="FILE|DIR|-", help="Manifests.")
@click.option("-n", "--namespace", default=DEFAULT_NAMESPACE, help="Namespace for manifests without one.")
@validate_option
@click.option("--kubernetes", metavar="1.NN", help="Also check against this version of Kubernetes.")
@click.option("--gates", metavar="NAME=true,…", help="Feature gates of that version that are set otherwise.")
@click.option("--strict", is_flag=True, help="Also exit 1 for warnings.")
@click.option("--no-headers", is_flag=True, help="Leave out the header.")
@output_option(formats=("table", "json", "yaml", "jsonl"))
@command_options()
def lint(
    session: Session,
    filenames: tuple[str, ...],
    namespace: str,
    validate: FieldValidation,
    kubernetes: str | None,
    gates: str | None,
    strict: bool,
    no_headers: bool,
    output: str,
) -> int:
    """Check HPAs, FleetHPAs and CapacityGroups without a cluster; exit 1 if one is invalid or two scale one target.

    Manifests of the targets, if they are in the input, are checked too: for requests that a utilization needs, and for
    a count that would be reset. Of several files, each that cannot be read is a finding, and the others are checked.
    """
    read = read_hpas(session, filenames, validate, also=OWN_KINDS, to_the_end=True)
    found = check(read, namespace, None if kubernetes is None else version_named("--kubernetes", kubernetes, gates))
    if output != "table" or found:
        session.listing(_listing(found), output, headers=not no_headers)
    errors = sum(each.level == "error" for each in found)
    session.note(f"{_counts(read)}: {counted(errors, 'error')}, {counted(len(found) - errors, 'warning')}")
    return ANSWER_IS_NO if errors or (strict and found) else OK


def _counts(read: Input) -> str:
    """What was read: `2 HPAs, 1 FleetHPA`."""
    counts = {"HPA": len(read.hpas)} | {kind: len(read.of_kind(kind)) for kind in OWN_KINDS}
    return ", ".join(counted(count, kind) for kind, count in counts.items() if count) or counted(0, "HPA")


def _listing(found: list[Finding]) -> Listing[Finding]:
    columns: tuple[Column[Finding], ...] = (
        Column("LEVEL", lambda f: f.level),
        Column("NAMESPACE", lambda f: f.namespace),
        Column("NAME", lambda f: f.name),
        Column("RULE", lambda f: f.rule),
        Column("MESSAGE", lambda f: f.message),
        Column("SOURCE", lambda f: f.source),
    )
    return Listing(
        kind="Finding",
        items=found,
        columns=columns,
        document=asdict,
        name=lambda f: f"{f.rule}/{f.namespace}/{f.name}",
        style=lambda f: "red" if f.level == "error" else "yellow",
    )


@dataclass(frozen=True)
class ManifestDifference:
    """One object of the input beside the recorded one; None where one of them does not exist.

    `place`: cluster, namespace and name; the cluster of a FleetHPA is `@fleet`, a CapacityGroup has its name alone.
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
    read = read_hpas(session, filenames, validate, also=OWN_KINDS)
    fleets = [fleet_manifest(each, namespace) for each in read.of_kind(FLEET_KIND)]
    groups = capacity_groups(read)
    wanted = [(manifest, valid_hpa(manifest, namespace)) for manifest in read.hpas]
    state = session.run(fleet_now(session))
    globs = cluster_globs(clusters)
    known = matching_clusters(state, globs)
    if not known:
        raise usage("no cluster is known", cause="No observer has reported one.", next_step="fleethpa get clusters")
    found = [each for one in wanted for each in _differences(state, *one, known, globs, session.now_ms())]
    found += [_fleet_difference(state, each) for each in fleets]
    found += [_group_difference(state, each) for each in groups]
    changed = [each for each in found if each.what != "same"]
    if output == "table":
        session.lines(line for each in changed for line in _lines(session, each))
        _say(session, found, changed, filenames)
    else:
        session.listing(_diff_listing(found), output)
    return ANSWER_IS_NO if changed else OK


def _differences(
    state: FleetState, manifest: FileManifest, body: Json, known: list[str], globs: tuple[str, ...], now_ms: int
) -> list[ManifestDifference]:
    namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
    clusters = manifest.meant_for(known) or ([] if globs else [manifest.cluster])
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


def _fleet_difference(state: FleetState, wanted: FleetManifest) -> ManifestDifference:
    metadata = wanted.body["metadata"]
    whole = HpaId(FLEET, metadata["namespace"], metadata["name"])
    view = state.hpas.get(whole)
    before = sorted_spec(view.spec | view.fleet.fields()) if view is not None and view.fleet is not None else None
    return ManifestDifference(whole, before, sorted_spec(wanted.body["spec"] | wanted.fleet.fields()))


def _group_difference(state: FleetState, wanted: CapacityGroup) -> ManifestDifference:
    row = state.capacity_groups.get(wanted.name)
    before = None if row is None else sorted_spec(manifest_spec(row.spec))
    return ManifestDifference(HpaId("", "", wanted.name), before, sorted_spec(manifest_spec(wanted.spec)))


def _lines(session: Session, each: ManifestDifference) -> list[str]:
    lines = spec_diff(each.before, each.after, f"{each.named} (in force)", f"{each.named} (manifest)")
    styles = {"+": "green", "-": "red"}
    return [paint(line, styles.get(line[:1], ""), color=session.color) for line in lines]


def _say(
    session: Session, found: list[ManifestDifference], changed: list[ManifestDifference], filenames: tuple[str, ...]
) -> None:
    session.note(f"{len(found)} compared, {len(changed)} different")
    tried = [each for each in changed if each.before is not None and each.place.namespace]
    if tried:
        files = " ".join(f"-f {name}" for name in filenames)
        session.note(f"Next: fleethpa backtest {files} --since 1d, to see what it would have done")


def _diff_listing(found: list[ManifestDifference]) -> Listing[ManifestDifference]:
    def document(each: ManifestDifference) -> Json:
        shown = {"what": each.what, "changes": each.changes, "before": each.before, "after": each.after}
        return each.place._asdict() | shown

    return Listing(kind="Difference", items=found, document=document)


# --- another version of Kubernetes ------------------------------------------------------------------------------------

_MEASURES: Final = {"changed": ConditionMeasure("changed")}


@click.command("upgrade-preview")
@selection_options()
@click.option("--to", required=True, metavar="1.NN", help="The version of Kubernetes to compare with.")
@click.option("--gates", metavar="NAME=true,…", help="Feature gates of its controller manager.")
@period_options("7d")
@click.option("--fail-if", metavar="changed>N", help="Exit 1 if so many HPAs would be scaled otherwise.")
@html_option
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def upgrade_preview(
    session: Session,
    selection: Selection,
    to: str,
    gates: str | None,
    period: AskedPeriod,
    fail_if: str | None,
    html: str | None,
    output: str,
) -> int:
    """Show which decisions would have been different after an upgrade of Kubernetes, and because of which change.

    Decides each recorded evaluation again with the rules of the other version. Reads the log or an archive and writes
    nothing.
    """
    rules, name = version_named("--to", to, gates)
    gate = None if fail_if is None else parse_fail_if(fail_if, _MEASURES)
    window = period.window(session.now_ms())
    found, faults = session.run(_previews(session, selection, window, rules))
    if found:
        session.publish(report(found, name), output, html=html)
    nothing, counts = SimpleNamespace(changed=0), SimpleNamespace(changed=changed(found))
    return session.failed(faults) or (ANSWER_IS_NO if gate is not None and gate.holds(nothing, counts) else OK)


async def _previews(
    session: Session, selection: Selection, window: tuple[int, int], rules: Rules
) -> tuple[list[Preview], Faults]:
    async with session.past() as past:
        views = alone(chosen(await read_state(past), selection), "upgrade-preview", session.note)
        parts = await by_partition(session, past, previews, _tasks(past, views, window, rules))
    made = {hpa: preview for part, _ in parts for hpa, preview in part.items()}
    faults = Faults({hpa: fault for _, part in parts for hpa, fault in part.items()})
    found = [each for view in views if (each := made.get(view.id)) is not None and each.evaluations]
    if not found and not faults:
        raise not_evaluated(f"no evaluation of {selection} in this window")
    return found, faults


def _tasks(past: Past, views: Sequence[HpaView], window: tuple[int, int], rules: Rules) -> list[PreviewTask]:
    """One task per log partition, those with the most HPAs first: partitions are read beside each other."""
    hpas: dict[int, list[HpaId]] = {}
    for view in views:
        hpas.setdefault(view.partition, []).append(view.id)
    ordered = sorted(hpas.values(), key=len, reverse=True)
    return [PreviewTask(past, frozenset(each), window, rules) for each in ordered]


# --- the report -------------------------------------------------------------------------------------------------------

_NOTES: Final = (
    "Each recorded evaluation was decided again with the inputs that it had. After the first different write the "
    "recorded load no longer is the one that the other version would have seen: what follows is a hint only.",
    "Texts of conditions, statuses and events are not compared; a metrics answer keeps the form that it was read in.",
)


def changed(previews: Sequence[Preview]) -> int:
    """Count the HPAs with a decision that differs."""
    return sum(each.first is not None for each in previews)


def report(previews: Sequence[Preview], to: str) -> QuestionReport:
    """The report of some HPAs: those with a different decision first, then what concerns the others."""
    ordered = sorted(previews, key=lambda each: (each.first is None, not each.findings, str(each.hpa)))
    sections = [
        Section(f"Upgrade to Kubernetes {to}", parts=[Sentences(_verdict(previews, to))]),
        Section(parts=[_by_rule(previews)]),
        Section("First different decision of each HPA", parts=[_first(ordered)]),
        Section("What concerns HPAs whatever their load", parts=[_findings(ordered)]),
    ]
    document = {"to": to, "changed": changed(previews), "items": [_item(each) for each in ordered]}
    shown = [each for each in sections if any(not isinstance(part, Grid) or part.rows[1:] for part in each.parts)]
    return QuestionReport("Upgrade preview", "UpgradePreview", document, shown, closing=[Notes("Limits:", _NOTES)])


def _verdict(previews: Sequence[Preview], to: str) -> list[str]:
    evaluations = sum(each.evaluations for each in previews)
    looked = f"{counted(evaluations, 'evaluation')} of {counted(len(previews), 'HPA')}"
    differ = changed(previews)
    texts = [
        f"{differ} of {counted(len(previews), 'HPA')} would have been scaled otherwise ({evaluations} evaluations)."
        if differ
        else f"No decision would have been different ({looked})."
    ]
    if minor_of(to) > RELEASED:
        texts.append(f"Kubernetes {to} is not released: these are the changes that are merged for it.")
    return texts


def _by_rule(previews: Sequence[Preview]) -> Grid:
    hpas: Counter[str] = Counter(rule for each in previews for rule in each.applied)
    times: Counter[str] = Counter()
    for each in previews:
        times.update(each.applied)
    rows = [
        (str(hpas[rule]), str(times[rule]), _since(rule), sentence(rule), _link(rule))
        for rule, _ in times.most_common()
    ]
    return Grid([("HPAS", "EVALUATIONS", "SINCE", "CHANGE", "UPSTREAM"), *rows], "by change")


def _first(previews: Sequence[Preview]) -> Grid:
    rows = [
        (
            str(each.hpa),
            rfc3339(first.time_ms),
            f"{first.current} → {first.recorded}",
            f"{first.current} → {first.other}",
            sentence(first.rule),
        )
        for each in previews
        if (first := each.first) is not None
    ]
    return Grid([("HPA", "TIME", "DECIDED", "WOULD BE", "BECAUSE"), *rows])


def _findings(previews: Sequence[Preview]) -> Grid:
    rows = [
        (str(each.hpa), _since(finding.rule), finding.text, sentence(finding.rule))
        for each in previews
        for finding in each.findings
    ]
    return Grid([("HPA", "SINCE", "FOUND", "CHANGE"), *rows])


def sentence(rule: str) -> str:
    """What changed, in one sentence."""
    return "several changes together" if rule == SEVERAL else RULES[rule].change


def _since(rule: str) -> str:
    return "-" if rule == SEVERAL else f"1.{RULES[rule].since}"


def _link(rule: str) -> str:
    return "-" if rule == SEVERAL else RULES[rule].link


def _item(preview: Preview) -> dict[str, Any]:
    first = preview.first
    return {
        "hpa": str(preview.hpa),
        "evaluations": preview.evaluations,
        "first": None
        if first is None
        else {
            "decision": first.decision,
            "time": rfc3339(first.time_ms),
            "currentReplicas": first.current,
            "decided": first.recorded,
            "wouldBe": first.other,
            **_rule(first.rule),
        },
        "applied": [{**_rule(rule), "evaluations": count} for rule, count in preview.applied.items()],
        "findings": [{**_rule(finding.rule), "found": finding.text} for finding in preview.findings],
    }


def _rule(rule: str) -> dict[str, str]:
    return {"rule": rule, "since": _since(rule), "change": sentence(rule), "upstream": _link(rule)}
