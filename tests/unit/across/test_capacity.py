"""What a ceiling leaves to each: a table for the order, laws for the rest."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from streams.across.allotments import MOST_OUTSTANDING, CapacityClaim, allot_capacity, granted, reported, used
from streams.state.acrossrows import Account, CapacityMember, MemberReport


@pytest.mark.parametrize(
    ("limit", "claims", "given_to"),
    [
        (10, (CapacityClaim("a", 2, 4), CapacityClaim("b", 2, 5)), {"a": 2, "b": 3}),
        pytest.param(
            7,
            (CapacityClaim("a", 2, 4), CapacityClaim("b", 2, 6)),
            {"a": 1, "b": 2},
            id="in proportion to what is missing",
        ),
        pytest.param(5, (CapacityClaim("b", 2, 3), CapacityClaim("a", 2, 3)), {"b": 0, "a": 1}, id="ties go by name"),
        pytest.param(
            6, (CapacityClaim("a", 2, 4), CapacityClaim("b", 2, 6, 9)), {"a": 0, "b": 2}, id="priority comes first"
        ),
        pytest.param(
            9, (CapacityClaim("a", 2, 4), CapacityClaim("b", 2, 6, 9)), {"a": 1, "b": 4}, id="then who is left"
        ),
        pytest.param(
            3,
            (CapacityClaim("a", 2, 4), CapacityClaim("b", 4, 2)),
            {"a": 0, "b": 0},
            id="above the limit nothing is added",
        ),
        (0, (), {}),
        pytest.param(
            13,
            (CapacityClaim("a", 1, 3, weight=4), CapacityClaim("b", 1, 9, weight=1)),
            {"a": 1, "b": 4},
            id="a replica that uses more takes more of the room",
        ),
        pytest.param(
            10,
            (CapacityClaim("a", 0, 2, 9, weight=8), CapacityClaim("b", 0, 5)),
            {"a": 1, "b": 2},
            id="what is too little for a large replica goes to others",
        ),
        pytest.param(0, (CapacityClaim("a", 4, 9, weight=0),), {"a": 5}, id="what uses nothing of the limit gets all"),
    ],
)
def test_additions_that_a_limit_has_room_for(
    limit: int, claims: tuple[CapacityClaim, ...], given_to: dict[str, int]
) -> None:
    assert granted(limit, claims) == given_to


CLAIMS = st.lists(
    st.builds(
        CapacityClaim,
        st.text("abcdef", min_size=1, max_size=2),
        st.integers(0, 9),
        st.integers(0, 20),
        st.integers(0, 2),
        st.integers(1, 5),
    ),
    unique_by=lambda claim: claim.name,
    max_size=8,
)


@given(limit=st.integers(0, 60), claims=CLAIMS)
def test_nobody_gets_more_than_is_missing_and_the_room_is_used(limit: int, claims: list[CapacityClaim]) -> None:
    more = granted(limit, claims)
    room = max(0, limit - sum(each.has * each.weight for each in claims))
    given_ = sum(more[each.name] * each.weight for each in claims)
    assert all(0 <= more[each.name] <= each.missing for each in claims)
    assert given_ <= room
    unmet = [each.weight for each in claims if more[each.name] < each.missing]
    assert not unmet or room - given_ < max(unmet)  # what is left is too little for whoever still wants more


@given(limit=st.integers(0, 60), claims=CLAIMS, random=st.randoms())
def test_the_order_of_the_claims_changes_nothing(limit: int, claims: list[CapacityClaim], random: Random) -> None:
    assert granted(limit, claims) == granted(limit, random.sample(claims, len(claims)))


@given(limit=st.integers(0, 60), claims=CLAIMS)
def test_a_lower_priority_takes_nothing_from_a_higher_one(limit: int, claims: list[CapacityClaim]) -> None:
    high = [each if each.priority == 2 else structs.replace(each, wants=0) for each in claims]
    alone, together = granted(limit, high), granted(limit, claims)
    assert all(alone[each.name] == together[each.name] for each in claims if each.priority == 2)


def _member(obeys: int, has: int, most: int, wants: int, *, has_ended: bool = False) -> CapacityMember:
    report = MemberReport(obeys, has, most, has_ended)
    return reported(CapacityMember(), report, wants=wants, weight=1, priority=0, at=1, now_ms=0)


def test_what_was_allotted_counts_until_a_report_shows_that_it_is_obeyed_or_has_ended() -> None:
    members = {"a": _member(0, 2, 2, 6, has_ended=True), "b": _member(0, 2, 2, 2, has_ended=True)}
    made = allot_capacity(8, members, now_ms=0, lasts_ms=60_000)
    assert [each.replicas for each in made["a"].account.allotted] == [6]
    assert used(made) == 8
    early = reported(made["a"], MemberReport(0, 2, 2, True), wants=2, weight=1, priority=0, at=2, now_ms=1)
    assert early.account.counted == 6  # it may still arrive
    ended = reported(made["a"], MemberReport(1, 2, 2, True), wants=2, weight=1, priority=0, at=2, now_ms=1)
    assert ended.account.counted == 2
    assert reported(ended, MemberReport(1, 6, 6), wants=6, weight=1, priority=0, at=1, now_ms=2) is ended  # it is older


def test_above_the_limit_nobody_may_add_anything_and_below_it_an_allotment_is_renewed_at_half_its_time() -> None:
    members = {"a": _member(3, 6, 6, 9), "b": _member(3, 6, 6, 6)}
    above = allot_capacity(10, members, now_ms=0, lasts_ms=60_000)
    assert {each.account.newest.replicas for each in above.values()} == {0}
    made = allot_capacity(12, members, now_ms=0, lasts_ms=60_000)
    assert made["a"].account.newest.replicas == 6
    assert allot_capacity(12, made, now_ms=29_000, lasts_ms=60_000) == made
    again = allot_capacity(12, made, now_ms=30_000, lasts_ms=60_000)
    assert [each.number for each in again["a"].account.allotted] == [4, 5]


def test_a_member_that_is_silent_or_obeys_nothing_gets_no_further_allotment_and_counts() -> None:
    members = {"a": _member(0, 2, 2, 2)}
    assert allot_capacity(8, members, now_ms=60_001, lasts_ms=60_000) == members
    made = members
    for number in range(3 * MOST_OUTSTANDING):
        wants = {"a": structs.replace(made["a"], wants=2 + number % 2)}
        made = allot_capacity(8, wants, now_ms=number, lasts_ms=60_000)
    assert len(made["a"].account.allotted) == MOST_OUTSTANDING + 1
    assert used(made) == 3


def test_a_member_that_has_not_reported_under_a_new_spec_counts_as_before_and_gets_nothing() -> None:
    known = _member(3, 2, 6, 6)
    former = structs.replace(known, account=known.account.of_new_spec)
    made = allot_capacity(8, {"a": former, "b": _member(0, 1, 1, 9)}, now_ms=0, lasts_ms=60_000)
    assert made["a"] == former
    assert made["b"].account.newest.replicas == 2
    assert Account().counted == 0
