"""A ceiling over what HPAs wanted: whom it holds back, how often and for how long."""

from collections.abc import Mapping

from streams.analysis.capacityruns import CapacityTest, CeilingMember, HeldHpa, WantedReplicas, run_ceiling

MINUTE = 60_000
MEMBERS = {"east/shop/a": CeilingMember(0), "east/shop/b": CeilingMember(10)}


def _at(minute: int, hpa: str, current: int, wanted: int) -> WantedReplicas:
    return WantedReplicas(minute * MINUTE, hpa, current, wanted)


EVENTS = [
    _at(1, "east/shop/a", 4, 4),
    _at(1, "east/shop/b", 2, 2),
    _at(1, "east/shop/other", 50, 90),
    _at(2, "east/shop/a", 4, 8),
    _at(3, "east/shop/b", 2, 4),
    _at(5, "east/shop/b", 4, 2),
    _at(9, "east/shop/a", 8, 5),
]


def _run(
    limit: int, events: list[WantedReplicas] = EVENTS, members: Mapping[str, CeilingMember] = MEMBERS
) -> CapacityTest:
    result = run_ceiling(limit, events, members, 10 * MINUTE)
    assert result is not None
    return result


def test_a_limit_that_has_room_for_all_holds_nothing_back() -> None:
    result = _run(12)
    assert (result.held, result.times, result.peak, result.peak_ms) == ([], 0, 12, 3 * MINUTE)
    assert (result.hpas, result.above, result.since_ms) == (2, 0, MINUTE)


def test_what_is_held_back_is_missing_until_there_is_room() -> None:
    # a has 6 of 8 from minute 2 on, b gets nothing at minute 3; at 5 b wants 2 again, which leaves room for nobody; at
    # 9 a wants 5.
    result = _run(8)
    a, b = result.held
    assert a == HeldHpa(
        hpa="east/shop/a",
        priority=0,
        weight=1,
        times=1,
        minutes=7.0,
        longest_minutes=7.0,
        most_missing=2,
        missing_replica_hours=14 / 60,
    )
    assert (b.hpa, b.priority, b.times, b.minutes, b.most_missing) == ("east/shop/b", 10, 1, 2.0, 2)
    assert (result.times, result.minutes, result.longest_minutes, result.longest_since_ms) == (1, 7.0, 7.0, 2 * MINUTE)


def test_a_limit_below_what_is_there_takes_nothing_away() -> None:
    result = _run(3)
    assert result.above == 6
    assert [each.most_missing for each in result.held] == [4, 2]


def test_what_is_held_back_at_the_end_counts_until_then() -> None:
    result = _run(4, [_at(1, "east/shop/a", 4, 4), _at(6, "east/shop/a", 4, 5)])
    assert [(each.minutes, each.missing_replica_hours) for each in result.held] == [(4.0, 4 / 60)]


def test_a_group_without_evaluations_has_no_result() -> None:
    assert run_ceiling(9, [_at(1, "west/shop/other", 1, 2)], MEMBERS, MINUTE) is None


def test_a_replica_uses_its_weight_of_the_limit() -> None:
    # At minute 2 a has 4 of 3 each and b 2 of 1; 20 leaves 6 for the 4 that a wants: 2. At 3 nothing is left for b.
    members = {"east/shop/a": CeilingMember(0, 3), "east/shop/b": CeilingMember(10, 1)}
    result = _run(20, members=members)
    assert [(each.hpa, each.weight, each.most_missing) for each in result.held] == [
        ("east/shop/a", 3, 2),
        ("east/shop/b", 1, 2),
    ]
    assert (result.peak, result.above, _run(28, members=members).held) == (28, 0, [])


def test_an_hpa_that_uses_nothing_is_never_held_back_and_is_named() -> None:
    members = {"east/shop/a": CeilingMember(0, 0), "east/shop/b": CeilingMember(10, 1)}
    result = _run(2, members=members)
    assert (result.without_use, [each.hpa for each in result.held], result.peak) == (
        ["east/shop/a"],
        ["east/shop/b"],
        4,
    )
