"""Checks of FleetHPAs and CapacityGroups: what they are, what members report to them, and what they allot."""

from schemas import limits
from schemas.capacity import CAPACITY, CapacityAllotment, CapacityGroupSet, CapacityMatch, CapacityReport
from schemas.codec import encode
from schemas.entries import KINDS, Body, FleetAllotment, FleetReport, FleetReportItem, central_name
from schemas.keys import FLEET
from schemas.kubernetes.selectors import SelectorError
from schemas.kubernetes.shape import Json
from schemas.limits import Refusal
from schemas.observed import AutoscalerSet, FleetSpec
from streams.across.contradiction import contradiction
from streams.hpa.parts import PartError, read_part
from streams.ingest.checks import check_cluster, check_namespace, check_object, check_text
from streams.ingest.pieces import SourcePlace

_OF_FLEET = frozenset(each.tag for each in KINDS if each.is_of_fleet)


def check_of_fleet(body: Body, kind: str) -> None:
    """Refuse what is not of a FleetHPA: nothing is observed of it."""
    if central_name(body) is None and kind not in _OF_FLEET:
        raise Refusal("invalid", f"{kind!r} is of a cluster, and {FLEET} is none: it has FleetHPAs only")
    if isinstance(body, AutoscalerSet) and body.fleet is None:
        raise Refusal("invalid", f"an HPA of {FLEET} needs fleet, which says among which clusters it is divided")


def check_fleet(fleet: FleetSpec, spec: Json, revision: int, place: SourcePlace) -> None:
    """Check the part of a FleetHPA's spec that an HPA has not. Raises Refusal."""
    if place.cluster != FLEET:
        raise Refusal("invalid", f"fleet: a FleetHPA is of cluster {FLEET}, not of {place.cluster}")
    if not revision:
        raise Refusal("invalid", "a FleetHPA needs a revision, another one with each change")
    limits.check(limits.FLEET_CLUSTERS, len(fleet.clusters), "fleet.clusters")
    for each in fleet.clusters:
        check_cluster(each.name)
    if problem := contradiction(fleet.clusters, spec["minReplicas"], spec["maxReplicas"]):
        raise Refusal("invalid", problem)


def check_allotment(body: FleetAllotment) -> None:
    """Check what a FleetHPA allots to a member. Raises Refusal."""
    check_object(body.name, "name")
    check_text(body.decision, "decision")


def check_group(body: CapacityGroupSet) -> None:
    """Check a CapacityGroup. Raises Refusal."""
    check_namespace(body.name)
    if body.spec is None:
        return
    limits.check(limits.CAPACITY_PRIORITIES, len(body.spec.priorities), "spec.priorities")
    limits.check(limits.CAPACITY_CLUSTERS, len(body.spec.clusters), "spec.clusters")
    limits.check(limits.CAPACITY_CLUSTERS, len(body.spec.namespaces), "spec.namespaces")
    limits.check(limits.CAPACITY_SPEC, len(encode(body.spec)), f"CapacityGroup {body.name}")
    if body.spec.limit.kind == "units":
        check_text(body.spec.limit.name, "spec.limit.name")
    try:
        CapacityMatch(body.spec)
    except SelectorError as error:
        raise Refusal("invalid", f"CapacityGroup {body.name}: a selector cannot be read: {error}") from error


def check_capacity_report(body: CapacityReport, place: SourcePlace) -> None:
    """Check what a member reports to a CapacityGroup. Raises Refusal."""
    if place.namespace != body.group:
        raise Refusal("invalid", f"a report to CapacityGroup {body.group} goes to {CAPACITY}/{body.group}")
    check_cluster(body.cluster)
    check_namespace(body.namespace)
    check_object(body.name, "name")
    if body.most < body.has:
        raise Refusal("invalid", f"most is {body.most}, below has, which is {body.has}")


def check_capacity_allotment(body: CapacityAllotment) -> None:
    """Check what a CapacityGroup allots to a member. Raises Refusal."""
    check_namespace(body.group)
    check_object(body.name, "name")


def check_fleet_report(body: FleetReport, place: SourcePlace) -> None:
    """Check what a member reports to its FleetHPAs, but for the items. Raises Refusal."""
    if place.cluster != FLEET:
        raise Refusal("invalid", f"a report goes to cluster {FLEET}, not to {place.cluster}")
    check_cluster(body.member)


def checked_item(item: FleetReportItem, of: str) -> FleetReportItem:
    """Check and give what a member reports to one FleetHPA. Raises Refusal.

    Args:
        of: member and namespace, for texts.
    """
    check_object(item.name, "name")
    if item.most < item.replicas:
        raise Refusal("invalid", f"{item.name}: most is {item.most}, below replicas, which are {item.replicas}")
    limits.check(limits.FLEET_PART, len(item.part), f"{of}/{item.name}")
    try:
        read_part(item.part)
    except PartError as error:
        raise Refusal("wrongType", f"{item.name}: part: {error}") from error
    return item
