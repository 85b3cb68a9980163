"""What `fleethpa adopt` would do: which native HPAs become central ones, and why others stay."""

from __future__ import annotations

from collections.abc import Mapping

from fleethpa.changes.handover import Place, Plan, owner_of
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import CommandError
from reconciler.core.objects import bears_own_label, target_of
from schemas.fitting import over_limits
from schemas.keys import HpaId
from schemas.kubernetes.shape import Json
from schemas.observed import Target
from streams.state.clustersettings import effective


def adopt_plan(
    state: FleetState, place: Place, natives: Mapping[HpaId, Json], mode: str, whole: HpaId | None = None
) -> Plan[Json]:
    """Say which native HPAs are adopted, and why others are not.

    Args:
        natives: what the API server has in that place.
        whole: the FleetHPA that they become a part of.
    """
    plan: Plan[Json] = Plan(gone=_gone(state, place, natives))
    for hpa, native in natives.items():
        if bears_own_label(native):
            continue
        problem = _owned(hpa, native) or _too_large(hpa, native) or _of_another(state, hpa, whole)
        problem = problem or (_stopped(state, hpa) if mode == "enforce" else None)
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
    found: dict[HpaId, str] = {}
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
                found[hpa] = entry.uid
    return dict(sorted(found.items()))


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
    if not (found := over_limits(native, hpa.namespace)):
        return None
    return CommandError(
        f"{hpa} is not adopted: fleethpa would ignore it, and nothing would scale its target",
        cause=str(found[0]),
        next_step=f"kubectl --context {hpa.cluster} edit hpa {hpa.name} -n {hpa.namespace}",
    )


def _of_another(state: FleetState, hpa: HpaId, whole: HpaId | None) -> CommandError | None:
    """Why an HPA that belongs to a FleetHPA is not adopted by itself."""
    view = state.hpas.get(hpa)
    if view is None or view.whole in (None, whole):
        return None
    return CommandError(
        f"{hpa} is not adopted: its central HPA belongs to FleetHPA {view.whole}",
        cause="It gets its spec and its replicas from there.",
        next_step=f"fleethpa adopt {view.whole} -C CLUSTER,…, with all of its clusters",
    )


def _stopped(state: FleetState, hpa: HpaId) -> CommandError | None:
    """Why fleethpa would not scale an HPA that it adopts to enforce."""
    if effective(state.settings, hpa.cluster).frozen:
        why, step = f"cluster {hpa.cluster} is frozen", f"fleethpa settings {hpa.cluster} frozen="
    else:
        view = state.hpas.get(hpa)
        cluster = state.clusters.get(hpa.cluster)
        pauses = view.pauses if view is not None else cluster.pauses if cluster is not None else ()
        if not pauses:
            return None
        why, step = f"paused: {'; '.join(text for text, _ in pauses)}", ", then ".join(end for _, end in pauses)
    return CommandError(
        f"{hpa} is not adopted ({why})",
        cause="Nothing would scale it any more. With --mode shadow that would be so too.",
        next_step=step,
    )
