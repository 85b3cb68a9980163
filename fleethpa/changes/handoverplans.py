"""The plans of `adopt` and `release`: the HPAs of which control is transferred, why others stay, the native objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import structs

from fleethpa.changes.handover import Place, Plan, owner_of
from fleethpa.changes.owners import owned_hpa
from fleethpa.changes.writing import Concern
from fleethpa.fleet.troubles import ClusterView, silent_limit_ms, silent_reconciler
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import CommandError
from fleethpa.show.words import counted, listed
from reconciler.core.objects import FIELD_MANAGER, STAND_IN_LABEL, bears_own_label, is_canary, spec_manager, target_of
from schemas.fitting import over_limits
from schemas.keys import HpaId
from schemas.kubernetes.hpa import manifest_of, semantically_equal_spec
from schemas.kubernetes.shape import Json
from schemas.observed import Target
from schemas.settings import settings_of
from streams.analysis.revisions import differences
from streams.analysis.upgradepreview import differing
from streams.annotations import POLICY_ANNOTATIONS
from streams.hpa.rules import RULES
from streams.state.clustersettings import effective

# --- adopt ------------------------------------------------------------------------------------------------------------


def adopt_plan(
    state: FleetState, place: Place, natives: Mapping[HpaId, Json], mode: str, fleet_hpa: HpaId | None = None
) -> Plan[Json]:
    """Return which native HPAs are adopted, and why others are not.

    Args:
        natives: what the API server has in that place.
        fleet_hpa: the FleetHPA that they become a part of.
    """
    plan: Plan[Json] = Plan(gone=_gone(state, place, natives))
    for hpa, native in natives.items():
        if bears_own_label(native):
            if hpa not in state.hpas and not is_canary(native):
                plan.problems.append(_labelled(hpa))
            continue
        view = state.hpas.get(hpa)
        problem = None if view is None else owned_hpa(view)
        problem = problem or _owned(hpa, native) or _too_large(hpa, native) or _of_another(state, hpa, fleet_hpa)
        problem = problem or (_not_scaled(state, hpa) if mode == "enforce" else None)
        if problem is None:
            plan.moved[hpa] = native
        else:
            plan.problems.append(problem)
    if mode == "enforce":
        plan.problems += _sharing(plan.moved)
    return plan


def _sharing(moved: dict[HpaId, Json]) -> list[CommandError]:
    """Leave out HPAs that have one target, as neither could be enforced, and say so once for each target.

    All of them are the cluster's own, so only kubectl can delete one.
    """
    by_target: dict[tuple[str, Target], list[HpaId]] = {}
    for hpa, native in moved.items():
        by_target.setdefault((hpa.namespace, target_of(native)), []).append(hpa)
    problems = []
    for (_, target), hpas in by_target.items():
        if len(hpas) == 1:
            continue
        for hpa in hpas:
            del moved[hpa]
        listed = f"{', '.join(map(str, hpas[:-1]))} and {hpas[-1]}"
        problems.append(
            CommandError(
                f"{listed} are not adopted: they have one target",
                cause=f"They drive {target.kind}/{target.name} together, and only one of them may stay.",
                next_step=f"kubectl --context {hpas[-1].cluster} delete hpa {hpas[-1].name} -n {hpas[-1].namespace}",
            )
        )
    return problems


def _gone(state: FleetState, place: Place, natives: Mapping[HpaId, Json]) -> dict[HpaId, str]:
    """Native HPAs that the log still has behind a central one of their name, and the cluster no longer has."""
    uids: dict[HpaId, str] = {}
    for (cluster, name), namespace in state.namespaces.items():
        central = {key.name for key in namespace.directory if key.origin == "central"}
        for key, entry in namespace.directory.items():
            hpa = HpaId(cluster, name, key.name)
            if (
                key.origin == "cluster"
                and key.name in central
                and place.holds(hpa)
                and hpa not in natives
                and entry.uid
            ):
                uids[hpa] = entry.uid
    return dict(sorted(uids.items()))


def _labelled(hpa: HpaId) -> CommandError:
    return CommandError(
        f"{hpa} is not adopted: it has the label {STAND_IN_LABEL}",
        cause="The stand-in of an agent finds its own native HPAs by it.",
        next_step=f"kubectl --context {hpa.cluster} label hpa {hpa.name} -n {hpa.namespace} {STAND_IN_LABEL}-, "
        "if no stand-in made it",
    )


def _owned(hpa: HpaId, native: Json) -> CommandError | None:
    if not (owner := owner_of(native)):
        return None
    kind, name = owner.split("/", 1)
    return CommandError(
        f"{hpa} is not adopted: {owner} owns it",
        cause=f"{kind} would create it again as soon as it is deleted.",
        next_step=f"kubectl --context {hpa.cluster} get {kind.lower()} {name} -n {hpa.namespace} -o yaml",
    )


def _too_large(hpa: HpaId, native: Json) -> CommandError | None:
    """Why fleethpa would ignore an HPA that it adopts."""
    if not (excesses := over_limits(native, hpa.namespace)):
        return None
    return CommandError(
        f"{hpa} is not adopted: fleethpa would ignore it, and nothing would scale its target",
        cause=str(excesses[0]),
        next_step=f"kubectl --context {hpa.cluster} edit hpa {hpa.name} -n {hpa.namespace}",
    )


def _of_another(state: FleetState, hpa: HpaId, fleet_hpa: HpaId | None) -> CommandError | None:
    """Why an HPA that belongs to a FleetHPA is not adopted by itself."""
    view = state.hpas.get(hpa)
    if view is None or view.fleet_hpa in (None, fleet_hpa):
        return None
    return CommandError(
        f"{hpa} is not adopted: its central HPA belongs to FleetHPA {view.fleet_hpa}",
        cause="It gets its spec and its replicas from there.",
        next_step=f"fleethpa adopt {view.fleet_hpa} -C CLUSTER,…, with all of its clusters",
    )


def _not_scaled(state: FleetState, hpa: HpaId) -> CommandError | None:
    """Why fleethpa would not scale an HPA that it adopts to enforce."""
    if effective(state.settings, hpa.cluster).stated.frozen:
        why, step = f"cluster {hpa.cluster} is frozen", f"fleethpa settings {hpa.cluster} frozen="
    else:
        view = state.hpas.get(hpa)
        cluster = state.clusters.get(hpa.cluster)
        pauses = view.pauses if view is not None else cluster.pauses if cluster is not None else ()
        if pauses:
            why, step = f"paused: {'; '.join(text for text, _ in pauses)}", ", then ".join(end for _, end in pauses)
        elif hangs := _hangs(state, cluster):
            why, step = hangs
        else:
            return None
    return CommandError(
        f"{hpa} is not adopted ({why})",
        cause="Nothing would scale it any more. With --mode shadow that would be so too.",
        next_step=step,
    )


def _hangs(state: FleetState, cluster: ClusterView | None) -> tuple[str, str] | None:
    """Return what hangs without which no HPA of the cluster is scaled, and the next step; None: nothing does."""
    if (process := state.stopped_by) is not None:
        return process.what, process.next_step
    if cluster is None:
        return None
    found = next((each for each in cluster.troubles if each.since_ms and (each.is_of_silence or each.is_away)), None)
    # A reconciler that has nothing to write is no trouble of its cluster yet; with the HPAs to be adopted it is one.
    period_ms = effective(state.settings, cluster.name).sync_period_ms
    found = found or silent_reconciler(cluster, cluster.clock_ms - silent_limit_ms(period_ms))
    return None if found is None else (found.text, found.next_step)


# --- release ----------------------------------------------------------------------------------------------------------

MARK: Final = "being released"
"""How the reason of that pause begins: the next run knows it by this."""
_TRACKED: Final = (
    "fleethpa.io/",
    "argocd.argoproj.io/",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
    "meta.helm.sh/",
    "kubectl.kubernetes.io/last-applied-configuration",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
)
"""Labels and annotations by which a GitOps tool knows its own objects, and deletes those that are not in Git; and what
fleethpa keeps of its own work on a central HPA.
"""
_POLICIES: Final = frozenset(POLICY_ANNOTATIONS)
"""What its owner wants of fleethpa: it stays with the HPA, so that a later `adopt` finds it."""


@dataclass
class ReleasePlan(Plan["HpaView"]):
    """What a release would do to central HPAs."""

    natives: dict[HpaId, Json] = field(default_factory=dict)
    """Native HPAs that are there: an earlier run has created them, or somebody else."""
    kept: set[HpaId] = field(default_factory=set)
    """Those of them that are never deleted again: fleethpa did not create them, or the central HPA would not scale in
    their place.
    """
    held: dict[HpaId, str] = field(default_factory=dict)
    """Why fleethpa does not scale some of the released ones now."""


def release_plan(
    state: FleetState,
    views: Sequence[HpaView],
    natives: Mapping[HpaId, Json],
    include_held: bool,
    fleet_hpa: HpaId | None = None,
) -> ReleasePlan:
    """Return which central HPAs can be released, and why the others cannot.

    Args:
        natives: the HPA objects of the same cluster as its API server has them.
        fleet_hpa: the FleetHPA that is released as a whole.
    """
    plan = ReleasePlan()
    drivers: dict[tuple[str, Target], list[HpaId]] = {}
    for hpa, each in natives.items():
        drivers.setdefault((hpa.namespace, target_of(each)), []).append(hpa)
    for view in views:
        native = natives.get(view.id)
        held = "" if native is not None else _unscaled(state, view)
        problem = owned_hpa(view) or _of_fleet(view, fleet_hpa) or _conflict(view, native, drivers)
        problem = problem or (_left_out(view, held) if held and not include_held else None)
        if problem is not None:
            plan.problems.append(problem)
            continue
        plan.moved[view.id] = view
        if native is not None:
            plan.natives[view.id] = native
            is_idle = (view.mode != "enforce" and not view.refused) or bool(_stopped(state, view))
            if is_idle or spec_manager(native["metadata"])[0] != FIELD_MANAGER:
                plan.kept.add(view.id)
        if held:
            plan.held[view.id] = held
    return plan


def _of_fleet(view: HpaView, fleet_hpa: HpaId | None) -> CommandError | None:
    if view.fleet_hpa in (None, fleet_hpa):
        return None
    return CommandError(
        f"{view.id} is not released: it belongs to FleetHPA {view.fleet_hpa}",
        cause="That would go on counting what the cluster has, and allot to nobody.",
        next_step=f"fleethpa release {view.fleet_hpa}, or take the cluster out of its manifest",
    )


def unreleased_fleet_hpa(state: FleetState, fleet_hpa: HpaId, include_held: bool) -> CommandError | None:
    """Why a FleetHPA is not released: it does not scale now, and native controllers would."""
    held = _unscaled(state, state.hpas[fleet_hpa])
    return _left_out(state.hpas[fleet_hpa], held) if held and not include_held else None


def _conflict(
    view: HpaView, native: Json | None, drivers: Mapping[tuple[str, Target], list[HpaId]]
) -> CommandError | None:
    """Return what another native HPA has against it."""
    if native is not None and STAND_IN_LABEL in (native["metadata"].get("labels") or {}):
        return CommandError(
            f"{view.id}: its native HPA has the label of the stand-in of cluster {view.id.cluster}",
            cause="The agent deletes the native HPAs that it made once the hub works again.",
            next_step=f"fleethpa get clusters {view.id.cluster}, and release when fleethpa is in charge again; "
            "if it is, remove the label, since the stand-in did not make that HPA",
        )
    others = [hpa for hpa in drivers.get((view.id.namespace, target_of(view.hpa)), []) if hpa != view.id]
    if others:
        return CommandError(
            f"{view.id}: the native HPA {others[0].namespace}/{others[0].name} drives its target",
            cause="Two native HPAs of one target stop each other.",
            next_step=_saved_and_deleted(others[0]),
        )
    if native is not None and not semantically_equal_spec(native["spec"], view.spec):
        return CommandError(
            f"{view.id}: the cluster has a native HPA of this name with another spec",
            cause=f"Native to central: {'; '.join(differences(native['spec'], view.spec))}.",
            next_step=f"fleethpa delete {view.id} (keeps the native one), "
            f"or {_saved_and_deleted(view.id)}, then release",
        )
    return None


def _saved_and_deleted(native: HpaId) -> str:
    """The commands that save the manifest of a native HPA and then delete the HPA."""
    hpa = f"hpa {native.name} -n {native.namespace}"
    kubectl = f"kubectl --context {native.cluster}"
    return f"save it with {kubectl} get {hpa} -o yaml > {native.name}.yaml, then {kubectl} delete {hpa}"


def _unscaled(state: FleetState, view: HpaView) -> str:
    """Why fleethpa does not scale an HPA now; empty: it does. The pause of an earlier release does not count."""
    if view.refused:
        return f"refused: {view.refused}"
    if view.mode != "enforce":
        return f"mode {view.mode}"
    return _stopped(state, view)


def _stopped(state: FleetState, view: HpaView) -> str:
    """The freeze or pause that stops an HPA which fleethpa would write; empty: none."""
    if effective(state.settings, view.id.cluster).stated.frozen:
        return f"cluster {view.id.cluster} is frozen"
    paused = "; ".join(text for text, _ in view.pauses if MARK not in text)
    return f"paused: {paused}" if paused else ""


def _left_out(view: HpaView, held: str) -> CommandError:
    return CommandError(
        f"{view.id} is not released ({held})",
        cause="fleethpa does not scale it now; the native controller would.",
        next_step="add --include-held, or end what holds it first",
    )


def manifest_to_create(view: HpaView) -> Json:
    """The native object: the central one's spec, with its labels and annotations, except those of GitOps tools."""
    own = {"labels": view.labels, "annotations": view.annotations}
    kept = {part: {name: own[part][name] for name in own[part] if not _is_dropped(name)} for part in own}
    return manifest_of(view.id._asdict() | kept, view.spec)


def _is_dropped(name: str) -> bool:
    return name.startswith(_TRACKED) and name not in _POLICIES


def carried_status(view: HpaView) -> Json:
    """Return what the native controller must know of the past; empty: nothing.

    Without the condition ScaledToZero a target at 0 would stay there for ever: the native controller takes it for
    switched off by hand.
    """
    status = view.status
    zero = [each for each in status.get("conditions") or () if each["type"] == "ScaledToZero"]
    if not zero and "lastScaleTime" not in status:
        return {}
    carried: Json = {name: status.get(name) or 0 for name in ("currentReplicas", "desiredReplicas")}
    if "lastScaleTime" in status:
        carried["lastScaleTime"] = status["lastScaleTime"]
    return carried | {"conditions": zero}


def with_status(native: Json, carried: Json) -> Json:
    """A native HPA with what is carried over; what its controller has written itself stays.

    `carried`: `lastScaleTime`, the condition ScaledToZero, and the counts that a status must have.
    """
    own = native.get("status") or {}
    conditions = {each["type"]: each for each in (*carried["conditions"], *(own.get("conditions") or ()))}
    return native | {"status": carried | own | {"conditions": list(conditions.values())}}


def native_differences(state: FleetState, cluster: str) -> list[str]:
    """Return what the cluster's native controller does otherwise than the rules that settings pin, one sentence per
    rule.
    """
    own = settings_of(state.settings, cluster)
    if not own.rules:
        return []
    view = state.clusters.get(cluster)
    version = view.kubernetes if view is not None else ""
    if not version:
        return [
            f"the version of cluster {cluster} is not known: its controller may not decide by the rules {own.rules}"
        ]
    pinned = effective(state.settings, cluster, version).controller.rules
    # Stated gates are those of the pinned version.
    native = effective({cluster: structs.replace(own, rules=None, gates=None)}, cluster, version).controller.rules
    who = f"the native controller of {version.partition(' ')[0]}"
    return [
        f"{who} {'does' if getattr(native, name) else 'does not do'} what the rules {own.rules} "
        f"{'do not' if getattr(native, name) else 'do'}: {RULES[name].change}"
        for name in differing(pinned, native)
    ]


def concerns(plan: ReleasePlan, place: Place, otherwise: Sequence[str] = ()) -> list[Concern]:
    """Return what a user must agree to. `otherwise`: what the native controller does otherwise
    (`native_differences`).
    """
    count = counted(len(plan.moved), "HPA")
    concern_list = [
        Concern(f"release gives {count} of {place} back to the native controller of {place.cluster}"),
        Concern("each of them is scaled by nobody for some seconds and one sync period of the native controller"),
        *(Concern(text, harmful=True) for text in otherwise),
    ]
    if plan.held:
        held = listed((f"{hpa} ({why})" for hpa, why in plan.held.items()), separator="; ")
        concern_list.append(Concern(f"the native controller will scale what fleethpa does not: {held}", harmful=True))
    named = {name for view in plan.moved.values() for name in (*view.labels, *view.annotations)}
    dropped = sorted(filter(_is_dropped, named))
    if dropped:
        concern_list.append(
            Concern(f"left out, so that GitOps does not delete what Git does not have: {', '.join(dropped)}")
        )
    return concern_list
