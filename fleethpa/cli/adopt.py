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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleethpa.changes.foresight import Present, concerns, refusal_errors
from fleethpa.changes.handover import (
    NativeHpas,
    Place,
    batches,
    deletion_of,
    has_agent,
    native_hpas,
    owner_of,
    place_options,
    until_reported,
)
from fleethpa.changes.writing import Concern, PlannedRecord, confirm, show, write_all, write_options
from fleethpa.fleet.state import read_state
from fleethpa.frame.errors import ANSWER_IS_NO, OK, CommandError, not_found, usage
from fleethpa.frame.session import Session, command_options
from fleethpa.show.formats import to_yaml
from fleethpa.show.words import counted
from reconciler.core.objectbodies import bears_own_label
from schemas.fitting import over_limits
from schemas.keys import HpaId
from schemas.kubernetes.hpa import semantically_equal_spec
from schemas.kubernetes.shape import Json
from schemas.observed import AutoscalerSet
from streams.analysis.revisions import differences
from streams.state.clustersettings import effective

if TYPE_CHECKING:
    from fleethpa.fleet.views import FleetState
    from fleethpa.frame.writer import Writer

DROPPED = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "ownerReferences")
"""Metadata of the native object that the central one does not take over."""


@dataclass
class AdoptPlan:
    """What an adoption would do: the native HPAs that it moves, those whose end the log lacks, and why others stay."""

    adopted: dict[HpaId, Json] = field(default_factory=dict)
    gone: dict[HpaId, str] = field(default_factory=dict)
    """uid of a native object that an interrupted run has deleted."""
    problems: list[CommandError] = field(default_factory=list)


@click.command()
@click.option(
    "--export", "folder", default=".", show_default=True, metavar="DIR", help="Folder in which native HPAs are saved."
)
@click.option("--mode", type=click.Choice(["shadow", "enforce"]), default="enforce", show_default=True)
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
    async with native_hpas(session, place.cluster) as api:
        natives = await api.listed(place)
        async with session.past() as past:
            state, present = await read_state(past), await Present.read(past)
        plan = adopt_plan(state, place, natives, mode)
        concerns = _looked_ahead(session, plan, place, present, state, mode, written)
        for problem in plan.problems:
            session.report(problem)
        code = ANSWER_IS_NO if plan.problems else OK
        if not (plan.adopted or plan.gone):
            _nothing_to_adopt(session, state, place, plan)
            return code
        if written["dry_run"]:
            show(session, concerns)
            _describe(session, plan, folder, mode)
            return code
        confirm(session, concerns, written["yes"], f"adopt {place}")
        async with session.writer() as writer:
            move = _Move(session, api, folder, mode, written, by_agent=has_agent(state, place.cluster))
            await move.record_gone(writer, plan.gone)
            for batch in batches(list(plan.adopted.items())):
                if (ended := await move.over(writer, batch)) != OK:
                    return ended
        session.note(f"Next: fleethpa status {place.arguments} --watch --timeout 2m")
        session.note(f"Back: fleethpa release {place.arguments}")
        return code


def _nothing_to_adopt(session: Session, state: FleetState, place: Place, plan: AdoptPlan) -> None:
    if plan.problems:
        return
    central = [hpa for hpa, view in state.hpas.items() if place.holds(hpa) and view.origin == "central"]
    if not central:
        raise not_found(f"cluster {place.cluster} has no HPA in {place}", next_step="fleethpa get hpa -A")
    session.out(f"{place}: nothing to adopt ({counted(len(central), 'HPA')}, all central)")


# --- planning ---------------------------------------------------------------------------------------------------------


def adopt_plan(state: FleetState, place: Place, natives: Mapping[HpaId, Json], mode: str) -> AdoptPlan:
    """Say which native HPAs are adopted, and why others are not. `natives`: what the API server has in that place."""
    plan = AdoptPlan(gone=_gone(state, place, natives))
    for hpa, native in natives.items():
        if bears_own_label(native):
            continue
        problem = (
            _owned(hpa, native) or _too_large(hpa, native) or (_stopped(state, hpa) if mode == "enforce" else None)
        )
        if problem is None:
            plan.adopted[hpa] = native
        else:
            plan.problems.append(problem)
    return plan


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


def _looked_ahead(
    session: Session,
    plan: AdoptPlan,
    place: Place,
    present: Present,
    state: FleetState,
    mode: str,
    written: dict[str, Any],
) -> list[Concern]:
    """Leave out what would be refused, and say what the user must agree to."""

    def writes() -> tuple[list[PlannedRecord], list[PlannedRecord]]:
        started = [_start(session, hpa, native, mode, written) for hpa, native in plan.adopted.items()]
        return started, [_deletion(session, hpa, native) for hpa, native in plan.adopted.items()]

    started, deleted = writes()
    foresight = present.foresee([*started, *deleted])
    refused = foresight.refusals(foresight.touched(started))
    plan.problems += refusal_errors(refused, "cannot be adopted to enforce")
    for hpa in refused:
        del plan.adopted[hpa]
    if refused:
        started, deleted = writes()
        foresight = present.foresee([*started, *deleted])
    found = [Concern(f"adopt deletes {_named(plan.adopted)} in {place.cluster}")] if plan.adopted else []
    found += [Concern(text) for text in _replaced(state, plan.adopted)]
    return [*found, *concerns("adopt", foresight, started)]


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


def _describe(session: Session, plan: AdoptPlan, folder: Path, mode: str) -> None:
    for hpa in plan.gone:
        session.out(f"record that the native HPA {hpa} is gone (dry run)")
    for hpa in plan.adopted:
        session.out(f"save the native HPA to {_file(folder, hpa)} (dry run)")
        session.out(f"start the central HPA {hpa} in mode {mode} (dry run)")
        session.out(f"delete the native HPA {hpa.namespace}/{hpa.name} in cluster {hpa.cluster} (dry run)")


# --- doing ------------------------------------------------------------------------------------------------------------


class _Move:
    """The steps for one group of HPAs after another."""

    def __init__(
        self, session: Session, api: NativeHpas, folder: Path, mode: str, written: dict[str, Any], *, by_agent: bool
    ) -> None:
        """`by_agent`: only the cluster's agent may tell the log what is gone."""
        self._session, self._api, self._folder, self._mode, self._written = session, api, folder, mode, written
        self._by_agent = by_agent

    async def over(self, writer: Writer, adopted: Sequence[tuple[HpaId, Json]]) -> int:
        """Adopt some HPAs; returns the exit code.

        Raises CommandError: a step failed; the HPAs are as the module says for a crash there.
        """
        session, wait = self._session, self._written["wait"]
        for hpa, native in adopted:
            _save(_file(self._folder, hpa), native)
            session.out(f"native HPA saved to {_file(self._folder, hpa)}")
        started = [_start(session, hpa, native, self._mode, self._written) for hpa, native in adopted]
        if (code := await write_all(session, writer, started, wait, must_arrive=True)) != OK:
            what = f"the native HPA {adopted[0][0]} was" if len(adopted) == 1 else "the native HPAs were"
            session.warn(f"{what} not deleted; run adopt again")
            return code
        deleted: dict[HpaId, str] = {}
        try:
            for hpa, native in adopted:
                await self._api.delete(hpa, native)
                deleted[hpa] = native["metadata"]["uid"]
        finally:
            await self.record_gone(writer, deleted)
        return OK

    async def record_gone(self, writer: Writer, gone: Mapping[HpaId, str]) -> None:
        """See that the log knows what is gone from the cluster, by uid.

        It is reported here too, so that nothing depends on how soon an observer sees it.
        """
        if not self._by_agent:
            writes = [_deletion(self._session, hpa, {"metadata": {"name": hpa.name, "uid": gone[hpa]}}) for hpa in gone]
            if writes:
                await write_all(self._session, writer, writes, self._written["wait"])
            return
        late = await until_reported(self._session, dict.fromkeys(gone, "")) if gone else []
        for hpa in gone:
            if hpa not in late:
                self._session.out(f"native HPA {hpa} deleted")
        if late:
            agent = f"the agent of cluster {late[0].cluster}"
            reported = f"{agent} has not reported that {late[0]} is gone: nothing scales it until then"
            self._session.warn(f"{reported}. Next: fleethpa get clusters {late[0].cluster}")


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


def _start(session: Session, hpa: HpaId, native: Json, mode: Any, written: dict[str, Any]) -> PlannedRecord:
    body = AutoscalerSet(
        hpa=exported(native),
        origin="central",
        mode=mode,
        author=session.config.author,
        reason=written["reason"] or "adopted from the cluster",
    )
    return PlannedRecord(f"hpa {hpa} adopted", body, hpa.cluster, hpa.namespace)


def _deletion(session: Session, hpa: HpaId, native: Json) -> PlannedRecord:
    body = deletion_of(native, session.config.author, "adopted by fleethpa")
    return PlannedRecord(f"native HPA {hpa} deleted", body, hpa.cluster, hpa.namespace)
