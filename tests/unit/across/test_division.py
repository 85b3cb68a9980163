"""The division of a total: tables for the rules, laws for everything else; and members whose pods find no node: when
they are capped, tried again, and what the others get.
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from schemas.observed import FleetCluster, FleetSpec
from streams.across.division import (
    RETRY_MS,
    ROOM,
    UNLIMITED,
    Divided,
    Strategy,
    capped,
    caps_of,
    divide,
    largest_remainder,
    next_division,
    next_room,
    settle,
)
from streams.state.acrossrows import MemberRoom


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


AFTER_MS = 60_000
MEMBERS = (member("east", 1, 1), member("west"))


def test_a_member_is_capped_at_what_has_nodes_once_pods_have_waited_for_long() -> None:
    room, seen = ROOM, []
    for now_ms in range(0, 75_000, 15_000):
        room = next_room(room, 6, 2, AFTER_MS, 1_000_000 + now_ms)
        seen.append(room.cap)
    assert seen == [-1, -1, -1, -1, 4]
    assert room.capped_ms == 1_060_000


def test_pods_that_find_a_node_in_between_begin_anew() -> None:
    room = next_room(ROOM, 6, 2, AFTER_MS, 1_000_000)
    room = next_room(room, 6, 0, AFTER_MS, 1_030_000)
    assert next_room(room, 6, 2, AFTER_MS, 1_060_000).cap == -1


@pytest.mark.parametrize(
    ("room", "replicas", "after"),
    [
        pytest.param(MemberRoom(0, 4, 1), 4, MemberRoom(0, 5, 1 + RETRY_MS, is_tried=True), id="one more is tried"),
        pytest.param(MemberRoom(0, 5, 1, is_tried=True), 5, ROOM, id="the one has a node"),
        pytest.param(
            MemberRoom(0, 5, 1, is_tried=True), 4, MemberRoom(0, 5, 1, is_tried=True), id="it is not there yet"
        ),
        pytest.param(MemberRoom(0, 4, 2), 4, MemberRoom(0, 4, 2), id="too early"),
    ],
)
def test_a_cap_is_raised_by_one_and_ends_once_that_one_has_a_node(
    room: MemberRoom, replicas: int, after: MemberRoom
) -> None:
    assert next_room(room, replicas, 0, AFTER_MS, 1 + RETRY_MS) == after


def test_one_that_is_tried_in_vain_gives_the_former_cap() -> None:
    tried = MemberRoom(1_000_000, 5, 1, is_tried=True)
    assert next_room(tried, 5, 1, AFTER_MS, 1_060_000) == MemberRoom(1_000_000, 4, 1_060_000)


@pytest.mark.parametrize(
    ("total", "caps", "shares"),
    [
        pytest.param(12, {}, {"east": 6, "west": 6}, id="no cap"),
        pytest.param(12, {"east": 4}, {"east": 4, "west": 8}, id="the rest spills"),
        pytest.param(6, {"east": 4}, {"east": 3, "west": 3}, id="a cap that is not reached"),
        pytest.param(12, {"east": 0}, {"east": 1, "west": 11}, id="the minimum comes first"),
        pytest.param(12, {"east": 4, "west": 4}, {"east": 6, "west": 6}, id="nobody has room"),
        pytest.param(12, {"east": 8, "west": 2}, {"east": 8, "west": 4}, id="nobody has room, each has what it had"),
    ],
)
def test_what_a_member_has_no_room_for_goes_to_the_others(
    total: int, caps: dict[str, int], shares: dict[str, int]
) -> None:
    assert divide(total, capped(total, MEMBERS, caps)) == shares


CAPS = st.dictionaries(st.sampled_from("abcdefg"), st.integers(0, 20))


@given(total=st.integers(0, 90), members=groups(), strategy=STRATEGIES, caps=CAPS)
def test_caps_change_neither_the_sum_nor_a_bound(
    total: int, members: tuple[FleetCluster, ...], strategy: Strategy, caps: dict[str, int]
) -> None:
    shares = divide(total, capped(total, members, caps), strategy)
    assert sum(shares.values()) == sum(divide(total, members, strategy).values())
    assert all(each.min_replicas <= shares[each.name] <= each.max_replicas for each in members)
    roomy = {each.name: max(each.min_replicas, min(each.max_replicas, caps.get(each.name, 99))) for each in members}
    if sum(roomy.values()) >= total:
        assert all(shares[name] <= room for name, room in roomy.items())
    else:
        assert all(shares[name] >= room for name, room in roomy.items())


@given(
    total=st.integers(2, 24),
    nodes=st.integers(0, 14),
    rebalance_after_ms=st.sampled_from((0, 60_000, 300_000)),
    after_ms=st.sampled_from((15_000, 60_000, 120_000)),
)
def test_a_constant_load_and_a_full_cluster_move_one_replica_at_most_once_in_ten_minutes(
    total: int, nodes: int, rebalance_after_ms: int, after_ms: int
) -> None:
    spec = FleetSpec(clusters=[], rebalance_after_ms=rebalance_after_ms)
    rooms, divided = {"east": ROOM}, Divided(divide(total, MEMBERS))
    raised: list[int] = []
    settled = (2 * after_ms + 30_000) // 15_000
    for period in range(480):  # two hours
        now_ms, had = 1_000_000 + period * 15_000, divided.shares["east"]
        rooms["east"] = next_room(rooms["east"], had, max(0, had - nodes), after_ms, now_ms)
        members = capped(total, MEMBERS, caps_of(rooms))
        divided = next_division(total, members, spec, divided, now_ms)
        moved = divided.shares["east"] - had
        if moved > 0:
            raised.append(now_ms)
            assert moved == 1
        if period > settled:
            assert divided.shares["east"] <= max(1, nodes + 1)
    assert all(later - earlier >= RETRY_MS for earlier, later in pairwise(raised))
    assert bool(raised) == (max(1, nodes) < divide(total, MEMBERS)["east"] and (nodes >= 1))


@given(total=st.integers(2, 24), cap=st.integers(0, 11))
def test_a_cluster_that_got_nodes_has_its_share_again(total: int, cap: int) -> None:
    spec = FleetSpec(clusters=[], rebalance_after_ms=60_000)
    rooms, divided = (
        {"east": MemberRoom(0, cap, 1_000_000)},
        Divided({"east": max(1, cap), "west": total - max(1, cap)}),
    )
    for period in range(120):
        now_ms, had = 1_000_000 + period * 15_000, divided.shares["east"]
        rooms["east"] = next_room(rooms["east"], had, 0, AFTER_MS, now_ms)
        divided = next_division(total, capped(total, MEMBERS, caps_of(rooms)), spec, divided, now_ms)
    assert divided.shares == divide(total, MEMBERS)


def test_a_room_of_which_nothing_is_known_is_the_same_as_none() -> None:
    assert next_room(ROOM, 4, 0, AFTER_MS, 1_000_000) == ROOM
    assert caps_of({"east": ROOM, "west": structs.replace(ROOM, cap=3)}) == {"west": 3}
