"""Tuples used as sets: `streams.state.fewnames`."""

from hypothesis import given
from hypothesis import strategies as st

from streams.state.fewnames import with_name, without_name

NAMES = st.sampled_from("abcde")


@given(st.lists(st.tuples(st.booleans(), NAMES)))
def test_they_hold_what_a_set_would(changes: list[tuple[bool, str]]) -> None:
    names: tuple[str, ...] = ()
    expected: set[str] = set()
    for adds, name in changes:
        if adds:
            names = with_name(names, name)
            expected.add(name)
        else:
            names = without_name(names, name)
            expected.discard(name)
        assert len(names) == len(expected)
        assert set(names) == expected
