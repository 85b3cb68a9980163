"""A few names used as a set: `streams.state.namespacerows`."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.state.namespacerows import MANY, Names, with_name, without_name

NAMES = st.integers(0, 2 * MANY)


@given(st.lists(st.tuples(st.booleans(), NAMES), max_size=6 * MANY), st.booleans())
def test_they_hold_what_a_dictionary_would_in_its_order(changes: list[tuple[bool, int]], begins_full: bool) -> None:
    names: Names[int] = ()
    expected: dict[int, None] = {}
    for adds, name in [(True, number) for number in range(2 * MANY) if begins_full] + changes:
        if adds:
            names = with_name(names, name)
            expected[name] = None
        else:
            names = without_name(names, name)
            expected.pop(name, None)
        assert list(names) == list(expected)
        assert isinstance(names, tuple) or len(names) > MANY // 2


@dataclass(eq=False)
class Counted:
    """A name that counts how often it is compared."""

    number: int
    compared: list[int] = field(repr=False)

    def __hash__(self) -> int:
        return hash(self.number)

    def __eq__(self, other: object) -> bool:
        self.compared[0] += 1
        return isinstance(other, Counted) and self.number == other.number


@pytest.mark.parametrize("count", [pytest.param(1, id="one"), pytest.param(100, id="100"), 2_000])
def test_comparisons_are_linear_in_the_number_of_names(count: int) -> None:
    compared = [0]
    names: Names[Counted] = ()
    for number in range(count):
        names = with_name(names, Counted(number, compared))
    for number in range(count):
        names = without_name(names, Counted(number, compared))
    assert names == ()
    assert compared[0] <= 2 * count + 2 * MANY**2
