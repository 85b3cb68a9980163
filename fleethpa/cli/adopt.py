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
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from fleethpa.changes.fleetmanifests import fleet_hpa_from, fleet_records, present_manifest
from fleethpa.changes.foresight import Foresight, Present, concerns, read_present, refusal_errors
from fleethpa.changes.handover import HandOver, Place, Plan, about, native_hpas, native_objects, place_options
from fleethpa.changes.handoverplans import adopt_plan
from fleethpa.changes.owners import owned_hpa
from fleethpa.changes.records import PlannedRecord
from fleethpa.changes.writing import Concern, WriteOptions, change, write_options
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import OK, CommandError, not_found, usage
from fleethpa.frame.session import Session, command_options
from fleethpa.show.formats import to_yaml
from fleethpa.show.words import counted
from reconciler.core.objects import target_of
from schemas.keys import FLEET, HpaId
from schemas.kubernetes.hpa import semantically_equal_spec
from schemas.kubernetes.shape import Json
from schemas.observed import ABSENT, AutoscalerSet, Mode
from streams.analysis.fleetwords import differences_in_words
from streams.analysis.revisions import differences
from streams.state.clustersettings import fleet_settings

if TYPE_CHECKING:
    from reconciler.clusters.nativehpas import NativeHpas

DROPPED = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "ownerReferences")
"""Metadata of the native object that the central one does not take over."""


@click.command()
@click.option("--export", "folder", default=".", metavar="DIR", help="Folder in which native HPAs are saved.")
@click.option("--mode", type=click.Choice(["shadow", "enforce"]), default="enforce")
@write_options
@command_options()
@place_options("adopt")
async def adopt(session: Session, /, place: Place, folder: str, mode: Mode, options: WriteOptions) -> int:
    """Move a cluster's own HPAs into fleethpa: save each to a file, create the central one, delete the native one.

    The central HPA writes nothing while the native one exists, so the target is never driven by both. A run that was
    interrupted is continued by the next one. To undo it: fleethpa release.

    @fleet/NAMESPACE/NAME with -C EAST,WEST makes one FleetHPA of the HPAs of that name in these clusters.
    """
    begin = _adopt_fleet if place.cluster == FLEET else _adopt
    return await begin(session, place, Path(folder), mode, options)


async def _adopt(session: Session, place: Place, folder: Path, mode: Mode, options: WriteOptions) -> int:
    async with native_hpas(session, place.cluster) as hpas:
        natives = await native_objects(hpas, place)
        async with session.past() as past:
            state, present = await read_present(past)
        plan = adopt_plan(state, place, natives, mode)
        adoption = _Adoption(session, place, hpas, state, options, folder=folder, mode=mode)
        _look_ahead(adoption, plan, present)
        if not (plan.moved or plan.gone or plan.problems):
            _nothing_to_adopt(session, state, place)
        return await adoption.carry_out(plan)


async def _adopt_fleet(session: Session, place: Place, folder: Path, mode: Mode, options: WriteOptions) -> int:
    """Make one FleetHPA of the HPAs of its name in some clusters: first its records, then the steps in each cluster.

    Nothing is done where one of the clusters cannot take part.
    """
    fleet_hpa = _named_fleet_hpa(place, mode)
    async with AsyncExitStack() as opened:
        clients = {name: await opened.enter_async_context(native_hpas(session, name)) for name in place.clusters}
        async with session.past() as past:
            state, present = await read_present(past)
        plans, objects = await _fleet_plans(state, fleet_hpa, clients)
        if code := session.report(*(problem for plan in plans.values() for problem in plan.problems)):
            return code
        records = _records_of(session, state, fleet_hpa, objects, mode, options)
        known, is_done = state.hpas.get(fleet_hpa), not any(each.moved or each.gone for each in plans.values())
        if known is not None and not known.incomplete and is_done:
            session.out(f"{fleet_hpa}: nothing to adopt")
            return OK
        starts = {HpaId(each.cluster, each.namespace, fleet_hpa.name): each for each in records}
        sure = options._replace(yes=True)
        hand_overs = {
            name: _Adoption(
                session, Place(name, *fleet_hpa[1:]), client, state, sure, folder=folder, mode=mode, starts=starts
            )
            for name, client in clients.items()
        }
        moved = {hpa: native for plan in plans.values() for hpa, native in plan.moved.items()}
        deletions = [hand_overs[hpa.cluster].deletion(hpa, _uid(native)) for hpa, native in moved.items()]
        foresight = present.foresee([*records, *deletions])
        for error in refusal_errors(foresight.refusals(foresight.touched(records)), "cannot be adopted to enforce"):
            raise error
        begun = {hpa.cluster for hpa in moved}  # there the hand-over writes the record
        at_once = [each for each in records if each.cluster not in begun]
        count, clusters = counted(len(moved), "native HPA"), ", ".join(sorted(plans))
        text = f"adopt deletes {count} and makes {fleet_hpa} of the HPAs in {clusters}"
        differing = differences_in_words(fleet_settings(dict(state.settings), sorted(plans)))
        concerns = [Concern(each) for each in (text, _SILENT, *differing)]
        code = await change(session, f"adopt {fleet_hpa}", at_once, concerns, options, must_arrive=True)
        for name, hand_over in hand_overs.items():
            code = code or await hand_over.carry_out(plans[name])
        if code == OK and not options.dry_run:
            session.note(f"Next: fleethpa describe {fleet_hpa}")
            session.note(f"Back: fleethpa release {fleet_hpa}")
        return code


def _named_fleet_hpa(place: Place, mode: Mode) -> HpaId:
    """The FleetHPA that is made. Raises CommandError: no clusters are named, or nothing would scale (exit 2)."""
    fleet_hpa = HpaId(FLEET, place.namespace, place.name)
    if not place.clusters:
        raise usage(
            f"adopt {fleet_hpa} of which clusters?", next_step=f"fleethpa adopt {fleet_hpa} -C EAST,WEST --dry-run"
        )
    if mode == "shadow":
        raise usage(
            f"adopt {fleet_hpa} in shadow would leave nothing that scales",
            next_step="fleethpa backtest -f fleethpa.yaml, to try its manifest on what was recorded",
        )
    return fleet_hpa


async def _fleet_plans(
    state: FleetState, fleet_hpa: HpaId, clients: Mapping[str, NativeHpas]
) -> tuple[dict[str, Plan[Json]], dict[str, Json]]:
    """Plan the adoption in each cluster; and give the HPA there, as that cluster or fleethpa has it."""
    plans: dict[str, Plan[Json]] = {}
    objects: dict[str, Json] = {}
    for name, client in clients.items():
        hpa = fleet_hpa._replace(cluster=name)
        natives = await native_objects(client, Place(name, fleet_hpa.namespace))
        own = {each: native for each, native in natives.items() if each == hpa}
        plan = plans[name] = adopt_plan(state, Place(*hpa), own, "enforce", fleet_hpa)
        view = state.hpas.get(hpa)
        held = plan.moved.get(hpa) or (view.hpa if view is not None and view.origin == "central" else None)
        if held is not None:
            objects[name] = held
        elif not plan.problems:
            where = f"cluster {name} has no HPA {hpa.namespace}/{hpa.name}"
            plan.problems.append(not_found(where, next_step="fleethpa get hpa -A"))
        plan.problems += _hindrances(state, fleet_hpa, name, natives, None if held is None else target_of(held))
    return plans, objects


def _hindrances(
    state: FleetState, fleet_hpa: HpaId, name: str, natives: Mapping[HpaId, Json], target: object
) -> Iterator[CommandError]:
    """Why no FleetHPA is made with this cluster: an object of the hub's API makes it, the cluster is away, or another
    HPA there drives the target.
    """
    known = state.hpas.get(fleet_hpa)
    if known is not None and (owned := owned_hpa(known)) is not None:
        yield owned
    cluster = state.clusters.get(name)
    if cluster is not None and cluster.hidden is not None:
        yield CommandError(
            f"{fleet_hpa} is not made: cluster {name} is away ({cluster.hidden.text})",
            next_step=f"fleethpa get clusters {name}",
        )
    for each, native in natives.items():
        if each.name != fleet_hpa.name and target_of(native) == target:
            yield CommandError(
                f"{fleet_hpa} is not made: HPA {each} of cluster {name} drives its target",
                next_step=f"kubectl --context {name} delete hpa {each.name} -n {each.namespace}",
            )


def _records_of(
    session: Session,
    state: FleetState,
    fleet_hpa: HpaId,
    objects: Mapping[str, Json],
    mode: Mode,
    options: WriteOptions,
) -> list[PlannedRecord]:
    reason = options.reason or _Adoption.because
    known = state.hpas.get(fleet_hpa)
    if known is None or known.fleet is None:
        return fleet_records(
            fleet_hpa_from(fleet_hpa, objects), state, session.now_ms(), mode, session.config.author, reason
        )
    if {each.name for each in known.fleet.clusters} == objects.keys():
        # It was applied in shadow, or an earlier run has made it: it stays as it is.
        manifest = present_manifest(known, known.fleet)
        return fleet_records(manifest, state, session.now_ms(), mode, session.config.author, reason)
    listed = ", ".join(each.name for each in known.fleet.clusters)
    raise CommandError(
        f"{fleet_hpa} is there already, of the clusters {listed}",
        next_step=f"name the same with -C, or change its manifest: fleethpa get hpa {fleet_hpa} -o yaml",
    )


def _nothing_to_adopt(session: Session, state: FleetState, place: Place) -> None:
    central = [hpa for hpa, view in state.hpas.items() if place.holds(hpa) and view.origin == "central"]
    if not central:
        raise not_found(f"cluster {place.cluster} has no HPA in {place}", next_step="fleethpa get hpa -A")
    session.out(f"{place}: nothing to adopt ({counted(len(central), 'HPA')}, all central)")


_SILENT: Final = (
    "the series kube_horizontalpodautoscaler_* of kube-state-metrics go silent with that: dashboards and alerts that "
    "ask for them need fleethpa_hpa_* of the hub, or the rules of compose/prometheus-kube-state-metrics.yaml, which "
    "record these under the old names"
)


# --- planning ---------------------------------------------------------------------------------------------------------


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
        plan.concerns.append(Concern(_SILENT))
    plan.concerns += [Concern(text) for text in _replaced(adoption.state, plan.moved)]
    plan.concerns += concerns("adopt", foresight, started)


def _named(adopted: Iterable[HpaId]) -> str:
    names = [f"{hpa.namespace}/{hpa.name}" for hpa in adopted]
    return f"the native HPA {names[0]}" if len(names) == 1 else f"{len(names)} native HPAs"


def _replaced(state: FleetState, adopted: Mapping[HpaId, Json]) -> list[str]:
    """Return which central HPAs have a spec of their own that the native one's replaces."""
    texts = []
    for hpa, native in adopted.items():
        view = state.hpas.get(hpa)
        if view is not None and view.origin == "central" and not semantically_equal_spec(view.spec, native["spec"]):
            texts.append(
                f"the central HPA {hpa} gets the native spec: {'; '.join(differences(view.spec, native['spec']))}"
            )
    return texts


# --- doing ------------------------------------------------------------------------------------------------------------


class _Adoption(HandOver[Json]):
    """The steps of the module's docstring. What moves are native objects."""

    verb, because = "adopt", "adopted from the cluster"

    def __init__(
        self, *common: Any, folder: Path, mode: Mode, starts: Mapping[HpaId, PlannedRecord] | None = None
    ) -> None:
        """`starts`: the records that make HPAs members of a FleetHPA."""
        super().__init__(*common)
        self._folder, self._mode, self._starts = folder, mode, starts

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
        if self._starts is not None:
            return self._starts[hpa]
        body = AutoscalerSet(
            hpa=exported(native),
            origin="central",
            mode=self._mode,
            author=self.author,
            reason=self.reason,
            changes=ABSENT,
        )
        return about(hpa, f"hpa {hpa} adopted", body)

    def afterwards(self) -> Iterator[str]:
        if self._starts is not None:
            return
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
