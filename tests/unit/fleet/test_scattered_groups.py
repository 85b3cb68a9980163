"""A CapacityGroup that not every log partition has: named, and applied again although its spec is the same."""

from __future__ import annotations

from fleethpa.changes.capacitygroups import CapacityGroup, applied_groups
from fleethpa.fleet.state import _state as state_of
from fleethpa.fleet.views import FleetState
from schemas.capacity import CapacityGroupSet, CapacityLimit, CapacityMatch, CapacitySpec
from schemas.entries import WHOLE_PARTITION_KEY
from streams.history.past import Folded
from tests.kit.partition import LogBuilder

SPEC = CapacitySpec(selector={"matchLabels": {"team": "search"}}, limit=CapacityLimit(count=8), namespaces=["*"])
GROUP = CapacityGroup("search", SPEC, CapacityMatch(SPEC))


def _state(*revisions: int) -> FleetState:
    """The state of a fleet whose partitions have these revisions of the group (0: none)."""
    logs = [LogBuilder() for _ in revisions]
    for log, revision in zip(logs, revisions, strict=True):
        if revision:
            log.add(log.entry(CapacityGroupSet(name="search", revision=revision, spec=SPEC), key=WHOLE_PARTITION_KEY))
    return state_of([Folded(log.partition, {}) for log in logs], 0, {})


def test_a_group_that_all_partitions_have_stays_as_it_is() -> None:
    assert _state(7, 7).scattered_groups == set()
    assert applied_groups([GROUP], _state(7, 7), 9, "anna", "") == []


def test_a_group_that_a_partition_has_lost_or_has_of_before_is_applied_again() -> None:
    for revisions in ((7, 0), (0, 7), (7, 5)):
        assert _state(*revisions).scattered_groups == {"search"}
        (write,) = applied_groups([GROUP], _state(*revisions), 9, "anna", "")
        assert write.subject == "capacitygroup search configured"
