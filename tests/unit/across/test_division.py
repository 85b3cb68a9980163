"""The division of a total: tables for the rules, laws for everything else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.observed import FleetCluster, FleetSpec
from streams.across.division import UNLIMITED, Divided, Strategy, divide, largest_remainder, next_division, settle


def member(name: str, weight: int = 1, least: int = 0, most: int = UNLIMITED) -> FleetCluster:
    return FleetCluster(name=name, weight=weight, min_replicas=least, max_replicas=most)


EAST, WEST, NORTH = member("east", 2), member("west"), member("north")


@pytest.mark.parametrize(
    ("total", "members", "strategy", "shares"),
    [
        (6, (EAST, WEST), "Weighted", {"east": 4, "west": 2}),
        (7, (EAST, WEST), "Weighted", {"east": 5, "west": 2}),
        (8, (EAST, WEST), "Weighted", {"east": 5, "west": 3}),
        pytest.param(2, (WEST, NORTH, EAST), "Weighted", {"east": 1, "north": 1, "west": 0}, id="ties go by name"),
        pytest.param(
            10, (member("east", 2, 0, 3), WEST), "Weighted", {"east": 3, "west": 7}, id="a maximum comes first"
        ),
        pytest.param(6, (member("east", 5), member("west", 1, 4)), "Weighted", {"east": 2, "west": 4}, id="a minimum"),
        pytest.param(
            9,
            (member("east", 8, 0, 4), member("north", 1, 3), WEST),
            "Weighted",
            {"east": 4, "north": 3, "west": 2},
            id="both bounds",
        ),
        pytest.param(
            1, (member("east", 1, 2), member("west", 1, 2)), "Weighted", {"east": 2, "west": 2}, id="minimums"
        ),
        pytest.param(
            9, (member("east", 1, 0, 2), member("west", 1, 0, 3)), "Weighted", {"east": 2, "west": 3}, id="full"
        ),
        (7, (member("east", 1, 0, 4), member("west", 1, 1)), "Ordered", {"east": 4, "west": 3}),
        (3, (member("west", 1, 0, 4), member("east", 1, 1)), "Ordered", {"west": 2, "east": 1}),
        (5, (EAST,), "Weighted", {"east": 5}),
        (5, (), "Weighted", {}),
    ],
)
def test_a_total_is_divided(
    total: int, members: tuple[FleetCluster, ...], strategy: Strategy, shares: dict[str, int]
) -> None:
    assert divide(total, members, strategy) == shares


@pytest.mark.parametrize(
    ("total", "present", "shares"),
    [
        pytest.param(7, {"east": 2, "west": 4}, {"east": 3, "west": 4}, id="an addition goes where least is"),
        pytest.param(5, {"east": 2, "west": 4}, {"east": 2, "west": 3}, id="a removal comes from where most is"),
        pytest.param(6, {"east": 2, "west": 4}, {"east": 2, "west": 4}, id="no change moves nothing"),
        pytest.param(9, {"east": 4, "west": 2}, {"east": 6, "west": 3}, id="from division to division"),
        pytest.param(3, {}, {"east": 2, "west": 1}, id="a beginning"),
    ],
)
def test_a_change_of_the_total_moves_the_fewest(total: int, present: dict[str, int], shares: dict[str, int]) -> None:
    assert settle(total, (EAST, WEST), present) == shares


def test_replicas_move_between_members_once_the_division_has_differed_for_long() -> None:
    spec, divided = FleetSpec(clusters=[]), Divided({"east": 2, "west": 4})
    seen = []
    for now_ms in range(0, 360_000, 60_000):
        divided = next_division(6, (EAST, WEST), spec, divided, now_ms)
        seen.append(divided.shares["east"])
    assert seen == [2, 2, 2, 2, 2, 4]
    assert divided == Divided({"east": 4, "west": 2})


@st.composite
def groups(draw: st.DrawFn) -> tuple[FleetCluster, ...]:
    names = draw(st.lists(st.sampled_from("abcdefg"), unique=True, min_size=1, max_size=6))
    made = []
    for name in names:
        least = draw(st.integers(0, 5))
        made.append(member(name, draw(st.integers(1, 9)), least, least + draw(st.integers(0, 12))))
    return tuple(made)


STRATEGIES: st.SearchStrategy[Strategy] = st.sampled_from(("Weighted", "Ordered"))


def _within(total: int, members: tuple[FleetCluster, ...], shares: dict[str, int]) -> None:
    assert all(each.min_replicas <= shares[each.name] <= each.max_replicas for each in members)
    least, most = sum(each.min_replicas for each in members), sum(each.max_replicas for each in members)
    assert sum(shares.values()) == min(max(total, least), most)


@given(total=st.integers(0, 90), members=groups(), strategy=STRATEGIES)
def test_a_division_keeps_the_bounds_and_the_sum_whatever_the_order_of_weighted_members(
    total: int, members: tuple[FleetCluster, ...], strategy: Strategy
) -> None:
    shares = divide(total, members, strategy)
    _within(total, members, shares)
    if strategy == "Weighted":
        assert divide(total, members[::-1], strategy) == shares


@given(
    total=st.integers(0, 90),
    members=groups(),
    strategy=STRATEGIES,
    present=st.dictionaries(st.sampled_from("abcdefg"), st.integers(0, 30)),
)
def test_what_is_settled_keeps_bounds_and_sum_and_stays_where_it_is(
    total: int, members: tuple[FleetCluster, ...], strategy: Strategy, present: dict[str, int]
) -> None:
    shares = settle(total, members, present, strategy)
    _within(total, members, shares)
    assert settle(total, members, shares, strategy) == shares


@given(total=st.integers(0, 90), members=groups(), strategy=STRATEGIES, periods=st.integers(1, 40))
def test_a_constant_total_moves_nothing(
    total: int, members: tuple[FleetCluster, ...], strategy: Strategy, periods: int
) -> None:
    divided = before = Divided(divide(total, members, strategy))
    for period in range(periods):
        spec = FleetSpec(clusters=[], strategy=strategy, rebalance_after_ms=60_000)
        divided = next_division(total, members, spec, divided, period * 15_000)
    assert divided == before


@given(total=st.integers(0, 500), weights=st.dictionaries(st.text(max_size=3), st.integers(0, 50), max_size=8))
def test_nobody_is_a_whole_replica_from_the_exact_share(total: int, weights: dict[str, int]) -> None:
    given_shares, whole = largest_remainder(total, weights), sum(weights.values())
    assert sum(given_shares.values()) == (total if whole else 0)
    for name, weight in weights.items():
        assert abs(given_shares[name] * whole - total * weight) < max(whole, 1)
