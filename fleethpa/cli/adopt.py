"""`fleethpa adopt`: a cluster's own HPAs become central ones.

Up to 20 HPAs at a time take these steps. In brackets: who scales if the run is killed after the step.

1. *Save* the native HPA to a file. (The native controller.)
2. *Start* the central HPA and wait for it in the log. It is refused while the native one exists. (The native one.)
3. *Delete* that very native object. (The central HPA, as soon as an observer has seen the deletion.)
4. *Report* the deletion to the log. (The central HPA.)

Two controllers never scale the same target; between steps 3 and 4 neither does. The next run continues where one ended,
and reports native HPAs that are gone from the cluster but not from the log. No step changes the replicas: the central
HPA continues with the recommendations that fleethpa recorded in shadow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from fleethpa.changes.foresight import Foresight, Present, concerns, refusal_errors
from fleethpa.changes.handover import HandOver, Place, Plan, about, native_hpas, native_objects, owner_of, place_options
from fleethpa.changes.writing import Concern, PlannedRecord, write_options
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import OK, CommandError, not_found, usage
from fleethpa.frame.session import Session, command_options
from fleethpa.show.formats import to_yaml
from fleethpa.show.words import counted
from reconciler.core.hpaobjects import bears_own_label, target_of
from schemas.fitting import over_limits
from schemas.keys import HpaId
from schemas.kubernetes.hpa import semantically_equal_spec
from schemas.kubernetes.shape import Json
from schemas.observed import AutoscalerSet, Target
from streams.analysis.revisions import differences
from streams.state.clustersettings import effective

DROPPED = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "ownerReferences")
"""Metadata of the native object that the central one does not take over."""


@click.command()
@click.option("--export", "folder", default=".", metavar="DIR", help="Folder in which native HPAs are saved.")
@click.option("--mode", type=click.Choice(["shadow", "enforce"]), default="enforce")
@write_options
@command_options()
@place_options("adopt")
def adopt(session: Session, /, place: Place, folder: str, mode: Any, **written: Any) -> int:
    """Move a cluster's own HPAs into fleethpa: save each to a file, create the central one, delete the native one.

    The central HPA writes nothing while the native one exists, so the target is never driven by both. A run that was
    interrupted is continued by the next one. The way back is fleethpa release.
    """
    return session.run(_adopt(session, place, Path(folder), mode, written))


async def _adopt(session: Session, place: Place, folder: Path, mode: Any, written: dict[str, Any]) -> int:
    async with native_hpas(session, place.cluster) as hpas:
        natives = await native_objects(hpas, place)
        async with session.past() as past:
            state, present = await read_state(past), await Present.read(past)
        plan = adopt_plan(state, place, natives, mode)
        adoption = _Adoption(session, place, hpas, state, written, folder=folder, mode=mode)
        _look_ahead(adoption, plan, present)
        if not (plan.moved or plan.gone or plan.problems):
            _nothing_to_adopt(session, state, place)
        return await adoption.climb(plan)


def _nothing_to_adopt(session: Session, state: FleetState, place: Place) -> None:
    central = [hpa for hpa, view in state.hpas.items() if place.holds(hpa) and view.origin == "central"]
    if not central:
        raise not_found(f"cluster {place.cluster} has no HPA in {place}", next_step="fleethpa get hpa -A")
    session.out(f"{place}: nothing to adopt ({counted(len(central), 'HPA')}, all central)")


# --- planning ---------------------------------------------------------------------------------------------------------


def adopt_plan(state: FleetState, place: Place, natives: Mapping[HpaId, Json], mode: str) -> Plan[Json]:
    """Say which native HPAs are adopted, and why others are not. `natives`: what the API server has in that place."""
    plan: Plan[Json] = Plan(gone=_gone(state, place, natives))
    for hpa, native in natives.items():
        if bears_own_label(native):
            continue
        problem = (
            _owned(hpa, native) or _too_large(hpa, native) or (_stopped(state, hpa) if mode == "enforce" else None)
        )
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


def _stopped(state: FleetState, hpa: HpaId) -> CommandError | None:
    """Why fleethpa would not scale an HPA that it adopts to enforce."""
    if effective(state.settings, hpa.cluster).frozen:
        why, step = f"cluster {hpa.cluster} is frozen", f"fleethpa settings {hpa.cluster} frozen="
    else:
        view = state.hpas.get(hpa)
        cluster = state.clusters.get(hpa.cluster)
        paused = view.paused if view is not None else "; ".join(cluster.pauses) if cluster is not None else ""
        if not paused:
            return None
        why, step = f"paused: {paused}", "fleethpa resume"
        if cluster is not None and (cluster.guardrail or cluster.guarded):
            step += f", or fleethpa resume -C {hpa.cluster} --guardrails"
    return CommandError(
        f"{hpa} is not adopted ({why})",
        cause="Nothing would scale it any more. With --mode shadow that would be so too.",
        next_step=step,
    )


def _look_ahead(adoption: _Adoption, plan: Plan[Json], present: Present) -> None:
    """Leave out what would be refused, and note what the user must agree to."""

    def foresee() -> tuple[Foresight, list[PlannedRecord]]:
        started = [adoption.start(hpa, native) for hpa, native in plan.moved.items()]
        deleted = [adoption.deletion(hpa, _uid(native)) for hpa, native in plan.moved.items()]
        return present.foresee([*started, *deleted]), started

    foresight, started = foresee()
    refused = foresight.refusals(foresight.touched(started))
    plan.problems += refusal_errors(refused, "cannot be adopted to enforce")
    for hpa in refused:
        del plan.moved[hpa]
    if refused:
        foresight, started = foresee()
    if plan.moved:
        plan.concerns.append(Concern(f"adopt deletes {_named(plan.moved)} in {adoption.place.cluster}"))
    plan.concerns += [Concern(text) for text in _replaced(adoption.state, plan.moved)]
    plan.concerns += concerns("adopt", foresight, started)


def _named(adopted: Iterable[HpaId]) -> str:
    names = [f"{hpa.namespace}/{hpa.name}" for hpa in adopted]
    return f"the native HPA {names[0]}" if len(names) == 1 else f"{len(names)} native HPAs"


def _replaced(state: FleetState, adopted: Mapping[HpaId, Json]) -> list[str]:
    """Say which central HPAs have a spec of their own that the native one's replaces."""
    found = []
    for hpa, native in adopted.items():
        view = state.hpas.get(hpa)
        if view is not None and view.origin == "central" and not semantically_equal_spec(view.spec, native["spec"]):
            found.append(
                f"the central HPA {hpa} gets the native spec: {'; '.join(differences(view.spec, native['spec']))}"
            )
    return found


# --- doing ------------------------------------------------------------------------------------------------------------


class _Adoption(HandOver[Json]):
    """The steps of the module's docstring. What moves are native objects."""

    verb, because = "adopt", "adopted from the cluster"

    def __init__(self, *common: Any, folder: Path, mode: Any) -> None:
        super().__init__(*common)
        self._folder, self._mode = folder, mode

    def described(self, plan: Plan[Json]) -> Iterator[str]:
        for hpa in plan.gone:
            yield f"record that the native HPA {hpa} is gone"
        for hpa in plan.moved:
            yield f"save the native HPA to {_file(self._folder, hpa)}"
            yield f"start the central HPA {hpa} in mode {self._mode}"
            yield f"delete the native HPA {hpa.namespace}/{hpa.name} in cluster {hpa.cluster}"

    async def move(self, group: Mapping[HpaId, Json]) -> int:
        for hpa, native in group.items():
            _save(_file(self._folder, hpa), native)
            self.session.out(f"native HPA saved to {_file(self._folder, hpa)}")
        if (code := await self.record([self.start(hpa, native) for hpa, native in group.items()])) != OK:
            what = f"the native HPA {next(iter(group))} was" if len(group) == 1 else "the native HPAs were"
            self.session.warn(f"{what} not deleted; run adopt again")
            return code
        deleted: dict[HpaId, str] = {}
        try:
            for hpa, native in group.items():
                await self.delete(hpa, _uid(native))
                deleted[hpa] = _uid(native)
        finally:
            await self.report_gone(deleted)
        return OK

    def start(self, hpa: HpaId, native: Json) -> PlannedRecord:
        """The record that begins the central HPA."""
        body = AutoscalerSet(
            hpa=exported(native), origin="central", mode=self._mode, author=self.author, reason=self.reason
        )
        return about(hpa, f"hpa {hpa} adopted", body)

    def afterwards(self) -> Iterator[str]:
        yield f"Next: fleethpa status {self.place.arguments} --watch --timeout 2m"
        yield f"Back: fleethpa release {self.place.arguments}"


def _uid(native: Json) -> str:
    return str(native["metadata"]["uid"])


def _file(folder: Path, hpa: HpaId) -> Path:
    return folder / f"{hpa.cluster}.{hpa.namespace}.{hpa.name}.yaml"


def _save(file: Path, native: Json) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(to_yaml(exported(native)) + "\n")
    except OSError as error:
        raise usage(f"{file} cannot be written", cause=str(error), next_step="add --export DIR") from error


def exported(native: Json) -> Json:
    """The object without what only the API server gives it."""
    metadata = {name: value for name, value in (native.get("metadata") or {}).items() if name not in DROPPED}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": native["spec"],
    }
