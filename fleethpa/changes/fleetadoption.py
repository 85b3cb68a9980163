"""`fleethpa adopt @fleet/NAMESPACE/NAME`: one FleetHPA of the HPAs of its name in some clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleethpa.changes.adoption import SERIES_GO_SILENT, AdoptionSteps, uid_of
from fleethpa.changes.fleetmanifests import fleet_hpa_from, fleet_records, present_manifest
from fleethpa.changes.foresight import Present, read_present, refusal_errors
from fleethpa.changes.handover import Place, Plan, native_hpas, native_objects
from fleethpa.changes.handoverplans import adopt_plan
from fleethpa.changes.owners import owned_hpa
from fleethpa.changes.records import PlannedRecord
from fleethpa.changes.writing import Concern, WriteOptions, change
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import OK, CommandError, not_found, usage
from fleethpa.frame.session import Session
from fleethpa.show.words import counted
from reconciler.core.objects import target_of
from schemas.keys import FLEET, HpaId
from schemas.kubernetes.shape import Json
from schemas.observed import Mode
from streams.across.fleetsettings import fleet_settings
from streams.analysis.fleetwords import differences_in_words

if TYPE_CHECKING:
    from reconciler.clusters.nativehpas import NativeHpas


async def adopt_fleet(session: Session, place: Place, folder: Path, mode: Mode, options: WriteOptions) -> int:
    """Make one FleetHPA of the HPAs of its name in some clusters: first its records, then the steps in each cluster.

    Nothing is done where one of the clusters cannot take part.
    """
    fleet_hpa = _named_fleet_hpa(place, mode)
    async with native_hpas(session, place.clusters) as clients:
        async with session.past() as past:
            state, present = await read_present(past)
        plans, objects = await _fleet_plans(state, fleet_hpa, clients)
        if code := session.report(*(problem for plan in plans.values() for problem in plan.problems)):
            return code
        records = _records_of(session, state, fleet_hpa, objects, mode, options)
        if _is_adopted(state, fleet_hpa, plans):
            session.out(f"{fleet_hpa}: nothing to adopt")
            return OK
        starts = {HpaId(each.cluster, each.namespace, fleet_hpa.name): each for each in records}
        sure = options._replace(yes=True)
        hand_overs = {
            name: AdoptionSteps(
                session, Place(name, *fleet_hpa[1:]), client, state, sure, folder=folder, mode=mode, starts=starts
            )
            for name, client in clients.items()
        }
        moved = {hpa: native for plan in plans.values() for hpa, native in plan.moved.items()}
        deletions = [hand_overs[hpa.cluster].deletion(hpa, uid_of(native)) for hpa, native in moved.items()]
        _check_allowed(present, records, deletions)
        begun = {hpa.cluster for hpa in moved}  # there the hand-over writes the record
        at_once = [each for each in records if each.cluster not in begun]
        concerns = _concerns(state, fleet_hpa, sorted(plans), len(moved))
        code = await change(session, f"adopt {fleet_hpa}", at_once, concerns, options, must_arrive=True)
        for name, hand_over in hand_overs.items():
            code = code or await hand_over.carry_out(plans[name])
        if code == OK and not options.dry_run:
            session.note(f"Next: fleethpa describe {fleet_hpa}")
            session.note(f"Back: fleethpa release {fleet_hpa}")
        return code


def _is_adopted(state: FleetState, fleet_hpa: HpaId, plans: Mapping[str, Plan[Json]]) -> bool:
    """Whether the FleetHPA is there with all its clusters, and no cluster has anything left to do."""
    known = state.hpas.get(fleet_hpa)
    return known is not None and not known.incomplete and not any(each.moved or each.gone for each in plans.values())


def _check_allowed(present: Present, records: Sequence[PlannedRecord], deletions: Sequence[PlannedRecord]) -> None:
    """See that all may be written for once the native HPAs are gone. Raises CommandError: one of them may not."""
    foresight = present.foresee([*records, *deletions])
    for error in refusal_errors(foresight.refusals(foresight.touched(records)), "cannot be adopted to enforce"):
        raise error


def _concerns(state: FleetState, fleet_hpa: HpaId, clusters: Sequence[str], count: int) -> list[Concern]:
    """Return what a user must agree to. `count`: of native HPAs that are deleted."""
    native = counted(count, "native HPA")
    text = f"adopt deletes {native} and makes {fleet_hpa} of the HPAs in {', '.join(clusters)}"
    differing = differences_in_words(fleet_settings(dict(state.settings), clusters))
    return [Concern(each) for each in (text, SERIES_GO_SILENT, *differing)]


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
    reason = options.reason or AdoptionSteps.because
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
