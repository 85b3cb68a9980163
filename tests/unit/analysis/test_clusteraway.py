"""What the other clusters of a FleetHPA could have without one of them."""

import pytest

from schemas.observed import FleetCluster, FleetSpec
from streams.analysis.wholes import without_cluster

HAD = {"east": 6, "west": 3, "north": 3}


def _spec(**most: int) -> FleetSpec:
    return FleetSpec(clusters=[FleetCluster(name=name, max_replicas=most.get(name, 20)) for name in HAD])


@pytest.mark.parametrize(
    ("maximum", "is_spilled", "shares", "missing"),
    [
        pytest.param(20, False, {"west": 6, "north": 6}, 0, id="room beside what east keeps"),
        pytest.param(14, False, {"west": 4, "north": 4}, 4, id="east counts"),
        pytest.param(14, True, {"west": 6, "north": 6}, 0, id="east counts no longer"),
        pytest.param(10, True, {"west": 5, "north": 5}, 2, id="not even then"),
    ],
)
def test_the_others_get_what_the_maximum_leaves(
    maximum: int, is_spilled: bool, shares: dict[str, int], missing: int
) -> None:
    made = without_cluster(_spec(), "east", maximum, 12, HAD, is_spilled=is_spilled, caps={}, gone={})
    assert (made.shares, made.missing) == (shares, missing)


def test_bounds_and_room_of_the_others_hold() -> None:
    made = without_cluster(_spec(west=4), "east", 40, 12, HAD, is_spilled=True, caps={}, gone={})
    assert (made.shares, made.missing) == ({"west": 4, "north": 8}, 0)
    made = without_cluster(_spec(west=4, north=5), "east", 40, 12, HAD, is_spilled=True, caps={}, gone={})
    assert (made.shares, made.may_have, made.missing) == ({"west": 4, "north": 5}, 9, 3)
    made = without_cluster(_spec(), "east", 40, 12, HAD, is_spilled=True, caps={"west": 3}, gone={})
    assert made.shares == {"west": 3, "north": 9}


def test_one_that_is_away_already_counts_too() -> None:
    made = without_cluster(_spec(), "east", 20, 12, HAD, is_spilled=False, caps={}, gone={"north": 3})
    assert (made.shares, made.missing) == ({"west": 11}, 1)
