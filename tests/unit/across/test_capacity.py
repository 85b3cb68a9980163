"""What a ceiling leaves to each: a table for the order, laws for the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.across.capacity import CapacityClaim, granted


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
    ),
    unique_by=lambda claim: claim.name,
    max_size=8,
)


@given(limit=st.integers(0, 60), claims=CLAIMS)
def test_nobody_gets_more_than_is_missing_and_the_room_is_used(limit: int, claims: list[CapacityClaim]) -> None:
    more = granted(limit, claims)
    room, missing = max(0, limit - sum(each.has for each in claims)), sum(each.missing for each in claims)
    assert all(0 <= more[each.name] <= each.missing for each in claims)
    assert sum(more.values()) == min(room, missing)
    assert granted(limit, claims[::-1]) == more


@given(limit=st.integers(0, 60), claims=CLAIMS)
def test_no_lower_priority_gets_anything_while_a_higher_one_lacks_something(
    limit: int, claims: list[CapacityClaim]
) -> None:
    more = granted(limit, claims)
    lacking = [each.priority for each in claims if more[each.name] < each.missing]
    served = [each.priority for each in claims if more[each.name]]
    assert not lacking or not served or min(served) >= max(lacking)
