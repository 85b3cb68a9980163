"""Applying manifests of central HPAs, FleetHPAs and CapacityGroups: shared by `apply` and `autoscale`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fleethpa.changes.capacitygroups import applied_groups, capacity_groups, group_concerns, refused_groups
from fleethpa.changes.fleetmanifests import fleet_manifest, fleet_records, unknown_member
from fleethpa.changes.foresight import Foresight, Present, concerns, read_present
from fleethpa.changes.lintrules import VersionRules, rules_in, version_errors, version_warnings
from fleethpa.changes.livetargets import live_targets, target_warnings
from fleethpa.changes.manifests import BY_OWNER, Input, checked_hpa, stated_annotations
from fleethpa.changes.records import PlannedRecord, central_record
from fleethpa.changes.schedules import kept_by
from fleethpa.changes.writing import WriteOptions, change
from fleethpa.fleet.finding import DEFAULT_NAMESPACE, cluster_globs, matching_clusters
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import CommandError, usage
from fleethpa.frame.session import Session
from fleethpa.show.words import counted
from schemas.keys import FLEET, HpaId
from schemas.kubernetes.apirules import CURRENT_API
from schemas.observed import FLEET_KIND, AutoscalerSet, Mode
from streams.state.ownership import Claim


@dataclass
class ApplyPlan:
    """The effect of an apply: records to write, what stays as it is, and what is refused."""

    state: FleetState
    author: str
    reason: str
    now_ms: int
    creates: bool = False
    """Only what is not there is written."""
    writes: list[PlannedRecord] = field(default_factory=list)
    unchanged: list[HpaId] = field(default_factory=list)
    problems: list[CommandError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    meant: dict[HpaId, dict[str, Any]] = field(default_factory=dict)
    """Every HPA of the input in its cluster, changed or not."""
    left_out: int = 0
    """HPAs of a listing that live in their clusters, or in clusters that are not meant."""

    def add(self, read: Input, clusters: list[str], namespace: str | None, mode: Mode | None) -> None:
        """Add the HPAs of an input."""
        for manifest in read.hpas:
            meant = manifest.meant_for(clusters) if manifest.origin != "cluster" else []
            if not meant:
                self.left_out += 1
                continue
            versions = {cluster: rules_in(self.state, cluster) for cluster in meant}
            # Ingest knows no cluster's version: it checks with the rules of 1.37, whatever the API servers say.
            rules = dict.fromkeys([*(version.api for version in versions.values()), CURRENT_API])
            try:
                bodies = {each: checked_hpa(manifest, namespace, each) for each in rules}
            except CommandError as problem:
                self.problems.append(problem)
                continue
            scope = bodies[CURRENT_API]["metadata"]["namespace"]
            for cluster, version in versions.items():
                hpa = HpaId(cluster, scope, manifest.name)
                self.meant[hpa] = bodies[version.api]
                self._add(hpa, bodies[version.api], version, mode or manifest.mode)

    def _add(self, hpa: HpaId, body: dict[str, Any], version: VersionRules, mode: Mode | None) -> None:
        before = self.state.hpas.get(hpa)
        if self.creates and before is not None:
            whose = "fleethpa" if before.origin == "central" else "its cluster"
            self.problems.append(
                CommandError(
                    f"hpa {hpa} already exists",
                    cause=f"It belongs to {whose}, and autoscale creates HPAs only.",
                    next_step=f"fleethpa get hpa {hpa} -o yaml, change it, and fleethpa apply -f FILE",
                )
            )
            return
        held = before if before is not None and before.origin == "central" else None
        if held is not None:
            try:
                body = kept_by(held.hpa, body, self.now_ms)
            except CommandError as problem:
                self.problems.append(problem)
                return
        changes = _changes(held, body)
        if held is not None and not changes and mode in (None, held.mode):
            self.unchanged.append(hpa)
            return
        if held is not None and held.revision:
            self.problems.append(_of_fleet(hpa))
            return
        if errors := version_errors(body["spec"], version, held.spec if held is not None else None):
            self.problems.append(usage(f"{hpa} is invalid in its cluster", cause="\n".join(errors)))
            return
        self.warnings += [f"{hpa}: {text}" for text in version_warnings(body["spec"], version)]
        words = "created" if held is None else "configured" + (f" ({changes})" if changes else "")
        self.writes.append(central_record(hpa, words, body, self.author, self.reason, mode, over=held))


async def applied(
    session: Session,
    read: Input,
    clusters: str | None,
    namespace: str | None,
    mode: Mode | None,
    options: WriteOptions,
    *,
    creates: bool = False,
) -> int:
    """Create or change what was read, and return the exit code. `creates`: as `autoscale`, nothing is changed.

    Raises CommandError: a manifest is not valid, or the clusters are not clear (exit 2).
    """
    groups = capacity_groups(read)
    async with session.past() as past:
        state, present = await read_present(past)
    targets = _targets(state, read, clusters, session.config.contexts)
    verb = "autoscale" if creates else "apply"
    plan = ApplyPlan(state, session.config.author, options.reason, session.now_ms(), creates)
    plan.add(read, targets, namespace, mode)
    plan.warnings += target_warnings(read, plan.meant, await live_targets(session, plan.meant))
    for number, each in enumerate(read.of_kind(FLEET_KIND)):
        manifest = fleet_manifest(each, namespace or DEFAULT_NAMESPACE)
        if (problem := unknown_member(manifest, state, session.config.contexts)) is not None:
            plan.problems.append(problem)
            continue
        author, revision = session.config.author, session.now_ms() + number
        plan.writes += fleet_records(manifest, state, revision, mode or each.mode, author, options.reason)
    foresight = look_ahead(plan, present)
    refused = refused_groups(groups, state)
    plan.problems += refused.values()
    kept = [each for each in groups if each.name not in refused]
    ceilings = applied_groups(kept, state, session.now_ms(), session.config.author, options.reason)
    all_concerns = [*concerns(verb, foresight, plan.writes), *group_concerns(ceilings, state)]
    code = _report(session, plan)
    changed = {getattr(write.body, "name", "") for write in ceilings}
    session.lines(f"capacitygroup {group.name} unchanged" for group in kept if group.name not in changed)
    code = await change(session, verb, plan.writes + ceilings, all_concerns, options, code=code, state=state)
    for text in foresight.handed_over():
        session.note(text)
    if not options.dry_run:
        _say_mode(session, plan)
    return code


def _targets(state: FleetState, read: Input, globs: str | None, contexts: tuple[str, ...]) -> list[str]:
    """The clusters of the HPAs that are read: those of `-C`, else those that every one of them names, else the only
    one. Raises CommandError: none is known, or there are several (exit 2).
    """
    if not read.hpas:
        return []
    own = {each.cluster for each in read.hpas}
    named = cluster_globs(",".join(sorted(own)) if globs is None and all(own) else globs)
    matches = matching_clusters(state, named, contexts)
    if named or len(matches) == 1:
        return matches
    if not matches:
        step = "fleethpa run observer --kubeconfig FILE"
        raise usage("no cluster is known", cause="No observer has reported one.", next_step=step)
    listed = ", ".join(matches)
    raise usage("apply to which clusters?", cause=f"There are {listed}.", next_step=f"add -C {matches[0]}, or -C '*'")


def _report(session: Session, plan: ApplyPlan) -> int:
    for warning in plan.warnings:
        session.warn(warning)
    for hpa in plan.unchanged:
        session.out(f"hpa {hpa} unchanged")
    if plan.left_out:
        session.note(
            f"{counted(plan.left_out, 'HPA')} left out: in the clusters themselves, or in others than -C names"
        )
    return session.report(*plan.problems)


def _say_mode(session: Session, plan: ApplyPlan) -> None:
    created = [each for each in plan.writes if each.subject.endswith("created")]
    for each in [each for each in created if isinstance(each.body, AutoscalerSet) and each.body.mode is None][:1]:
        name = each.subject.split()[1]
        session.note(f"Its mode is the one set for its namespace or cluster. Next: fleethpa get hpa {name}")


def _of_fleet(hpa: HpaId) -> CommandError:
    fleet_hpa = hpa._replace(cluster=FLEET)
    return CommandError(
        f"hpa {hpa} belongs to FleetHPA {fleet_hpa}",
        cause="Its spec is that of the FleetHPA, which alone says how many replicas the cluster has.",
        next_step=f"change the manifest of the FleetHPA and apply that, or fleethpa delete {fleet_hpa}",
    )


def look_ahead(plan: ApplyPlan, present: Present) -> Foresight:
    """Refuse the HPAs that would not enforce, or would take a target from an HPA of another name; foresee the rest."""
    foresight = present.foresee(plan.writes)
    kept, refused = [], set[int]()
    for write in plan.writes:
        (hpa,) = foresight.touched([write])
        problem = _problem(foresight, hpa)
        if problem is None:
            kept.append(write)
        else:
            plan.problems.append(problem)
            refused.add(_revision(write))
    # A FleetHPA is applied as a whole, or not at all.
    plan.writes = [write for write in kept if not _revision(write) or _revision(write) not in refused]
    return present.foresee(plan.writes)


def _revision(write: PlannedRecord) -> int:
    return getattr(write.body, "revision", 0)


def _problem(foresight: Foresight, hpa: HpaId) -> CommandError | None:
    before, after = foresight.before.claims.get(hpa), foresight.after.claims.get(hpa)
    if after is None or after.asked != "enforce":
        return None
    was_refused = before is not None and before.origin == "central" and before.refused
    if after.refused and not was_refused:
        return _refused(foresight, hpa, after)
    for holder in foresight.displaced(hpa):
        return CommandError(
            f"{hpa}: fleethpa drives {after.target.short} by HPA {holder.hpa.name}",
            cause="Its mode and what it remembers pass only to a central HPA of the same name.",
            next_step=f"name the HPA {holder.hpa.name} in the manifest, or fleethpa apply … --mode shadow",
        )
    return None


def _refused(foresight: Foresight, hpa: HpaId, claim: Claim) -> CommandError:
    native = next((each for each in foresight.after.holders.get(claim.target, []) if each.native), None)
    if native is None:
        return CommandError(f"{hpa} would be refused", cause=claim.refused, next_step=claim.remedy)
    adopted = f"fleethpa adopt {native.hpa}"
    if native.hpa.name != hpa.name:
        adopted += f", then apply with the name {native.hpa.name}"
    return CommandError(
        f'{hpa}: native HPA "{native.hpa.name}" (kube-controller-manager) owns {claim.target.short}',
        cause="Both would write the same replicas.",
        next_step=f"{adopted}, or fleethpa apply … --mode shadow",
    )


def _changes(before: HpaView | None, body: dict[str, Any]) -> str:
    if before is None:
        return ""
    old, new = before.spec, body.get("spec") or {}
    texts = []
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            both = isinstance(old.get(name), int) and isinstance(new.get(name), int)
            texts.append(f"{name} {old[name]}→{new[name]}" if both else name)
    held, stated = stated_annotations(before.hpa["metadata"]), stated_annotations(body["metadata"])
    texts += [f"annotation {name}" for name in BY_OWNER if held.get(name) != stated.get(name)]
    return ", ".join(texts)
