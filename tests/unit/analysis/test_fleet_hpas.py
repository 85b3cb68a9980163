"""Questions to a FleetHPA: its past in shadow against the HPAs of its clusters, and what is left without one."""

import pytest

from schemas.observed import FleetCluster, FleetSpec
from streams.analysis.fleethpas import FleetHpaSeen, fleet_hpa_shadow, without_cluster


def _seen(total: int | None, east: int, west: int, *away: str) -> FleetHpaSeen:
    had = {name: count for name, count in (("east", east), ("west", west)) if name not in away}
    return FleetHpaSeen(0, total, {"east": east, "west": west}, had, away)


QUIET = [_seen(9, 6, 3)] * 60


def test_equal_totals_are_ready() -> None:
    made = fleet_hpa_shadow(QUIET, [])
    assert (made.ready, made.agreed, made.compared, made.most_below, made.most_above) == (True, 60, 60, 0, 0)


def test_the_beginning_does_not_count() -> None:
    made = fleet_hpa_shadow([_seen(None, 6, 3, "west"), _seen(None, 6, 3), *QUIET], [])
    assert (made.ready, made.evaluations, made.undecided) == (True, 60, 0)


def test_separate_hpas_that_follow_within_two_evaluations_had_the_same() -> None:
    climbing = [_seen(11, 6, 3), _seen(11, 6, 3), *[_seen(11, 7, 4)] * 60]
    assert fleet_hpa_shadow(climbing, []).agreed == 62
    late = [*[_seen(11, 6, 3)] * 3, *[_seen(11, 7, 4)] * 60]
    assert (fleet_hpa_shadow(late, []).agreed, fleet_hpa_shadow(late, []).most_above) == (62, 2)


@pytest.mark.parametrize(("below", "ready"), [(1, True), (2, False)])
def test_one_fewer_per_further_cluster_is_rounding(below: int, ready: bool) -> None:
    made = fleet_hpa_shadow([_seen(9 - below, 6, 3)] * 60, [])
    assert (made.ready, made.most_below, made.fewer) == (ready, below, 0 if ready else 60)


def test_more_than_one_in_a_hundred_without_all_clusters_is_named() -> None:
    seen = [*QUIET, _seen(6, 6, 3, "west"), *QUIET]
    assert fleet_hpa_shadow(seen, []).ready
    made = fleet_hpa_shadow([*seen, _seen(None, 6, 3), *QUIET[:1]], [])
    assert made.reasons == ["2 of 123 evaluations were without all clusters: west had not reported"]


def test_where_nothing_was_whole_all_of_it_is_named() -> None:
    made = fleet_hpa_shadow([_seen(None, 6, 3, "east", "west")] * 3, ["east"])
    assert made.reasons == [
        "cluster east has no HPA of its own to compare with",
        "0 evaluations of all clusters, 40 are needed",
        "3 of 3 evaluations were without all clusters: east, west had not reported",
    ]
    assert made.members == []


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
