"""A FleetHPA whose clusters are under a CapacityGroup: the group bounds the sum, and the division follows."""

from collections.abc import Mapping
from typing import Any

import pytest

from schemas.capacity import CAPACITY, CapacityGroupSet, CapacityLimit, CapacitySpec
from streams.across.capacity import SETTLES_MS
from tests.kit.fleet import PERIOD_MS, Fleet
from tests.kit.partition import LogBuilder


class UnderCeiling(Fleet):
    """A FleetHPA, and a group over all HPAs in a log partition of its own."""

    def __init__(self, replicas: Mapping[str, int], maximum: int, limit: int, **fleet: Any) -> None:
        super().__init__(replicas, maximum, **fleet)
        self.logs[CAPACITY] = LogBuilder(len(self.logs))
        self.decided[CAPACITY] = []
        self.logs[CAPACITY].now_ms = max(each.now_ms for each in self.logs.values())
        self.limit(limit)

    def limit(self, count: int) -> None:
        """Apply the group, as the verb does."""
        spec = CapacitySpec(selector={}, namespaces=["*"], limit=CapacityLimit(count=count))
        for each in self.logs:
            self.add(each, CapacityGroupSet(name="all", revision=count, spec=spec))

    def rest(self, load: Mapping[str, int], ms: int = SETTLES_MS) -> None:
        """Periods under a constant load, for so long."""
        for _ in range(ms // PERIOD_MS + 1):
            self.period(load)


def test_the_sum_stays_within_the_limit_and_is_divided() -> None:
    run = UnderCeiling({"east": 2, "west": 2}, 20, 7)
    run.rest({"east": 100, "west": 100})
    run.rest({"east": 500, "west": 100}, 200_000)  # 12 replicas
    assert run.total == 7
    assert min(run.replicas.values()) >= 3
    assert run.most == 7


@pytest.mark.parametrize(("limit", "replicas"), [(9, {"east": 6, "west": 2}), (8, {"east": 5, "west": 3})])
def test_a_move_between_clusters_needs_room_for_one_replica_and_takes_none_away(
    limit: int, replicas: dict[str, int]
) -> None:
    run = UnderCeiling({"east": 4, "west": 4}, 20, limit)
    run.rest({"east": 200, "west": 200})
    assert run.replicas == {"east": 4, "west": 4}
    run.apply({"east": 3, "west": 1})
    run.rest({"east": 200, "west": 200}, 900_000)
    assert run.replicas == replicas
    assert run.most <= limit
