"""`fleethpa release @fleet/NAMESPACE/NAME`: all HPAs of a FleetHPA go back to their clusters."""

from __future__ import annotations

from collections.abc import Sequence

from fleethpa.changes import handover
from fleethpa.changes.fleetmanifests import members_of
from fleethpa.changes.handoverplans import unreleased_fleet_hpa
from fleethpa.changes.records import deleted_record
from fleethpa.changes.releasing import ReleaseSteps, planned
from fleethpa.changes.writing import Concern, WriteOptions, change, confirm
from fleethpa.fleet.state import fleet_now
from fleethpa.fleet.views import HpaView
from fleethpa.frame.errors import OK, not_found, usage
from fleethpa.frame.session import Session
from schemas.keys import FLEET, HpaId


async def release_fleet(
    session: Session, place: handover.Place, include_held: bool, native_s: float, options: WriteOptions
) -> int:
    """Release the HPA in each cluster of a FleetHPA, then delete that. Nothing is done where one cannot be released."""
    fleet_hpa = HpaId(FLEET, place.namespace, place.name)
    state = await fleet_now(session)
    if place.clusters:
        raise usage(f"{fleet_hpa} is released as a whole", next_step="leave out -C")
    if fleet_hpa not in state.hpas:
        raise not_found(f"there is no FleetHPA {fleet_hpa}", next_step="fleethpa get hpa -A")
    members = members_of(state, fleet_hpa)
    async with handover.native_hpas(session, [hpa.cluster for hpa in members]) as opened:
        hand_overs: list[ReleaseSteps] = []
        for hpa in members:
            hpas = opened[hpa.cluster]
            at = handover.Place(*hpa)
            plan = await planned(state, at, [state.hpas[hpa]], hpas, include_held, fleet_hpa)
            hand_overs.append(ReleaseSteps(session, at, hpas, state, options, plan=plan, native_s=native_s))
        plans = [each.plan for each in hand_overs]
        held = unreleased_fleet_hpa(state, fleet_hpa, include_held)
        problems = [*([held] if held else []), *[each for plan in plans for each in plan.problems]]
        if code := session.report(*problems):
            return code
        all_concerns = [concern for plan in plans for concern in plan.concerns]
        all_concerns += _concerns_of_fleet_hpa(
            state.hpas[fleet_hpa], [state.hpas[hpa] for hpa in members_of(state, fleet_hpa)]
        )
        confirm(session, all_concerns, options, f"release {fleet_hpa}")
        for hand_over in hand_overs:
            hand_over.plan.concerns = []
            if (code := await hand_over.carry_out(hand_over.plan)) != OK:
                return code
        gone = deleted_record(fleet_hpa, session.config.author, options.reason or ReleaseSteps.because)
        return await change(session, "release", [gone], [], options)


def _concerns_of_fleet_hpa(fleet_hpa: HpaView, members: Sequence[HpaView]) -> list[Concern]:
    """Return what a user must agree to, beside what is so in each cluster."""
    concern_list = [Concern(f"release deletes {fleet_hpa.id}: nothing divides a total among its clusters any more")]
    most, limit = sum([each.spec["maxReplicas"] for each in members]), fleet_hpa.spec["maxReplicas"]
    if most > limit:
        text = f"the native HPAs may have {most} replicas together; the FleetHPA has maxReplicas {limit}"
        concern_list.append(Concern(text, harmful=True))
    return concern_list
