"""The stand-in's protocol, explored: every schedule of few faults here, more in `python -m tests.standin_model`."""

from collections.abc import Callable

import pytest

from tests.standin_model.explore import explore, walk
from tests.standin_model.mutations import MUTATIONS
from tests.standin_model.world import ALONE, Rules, State, first, stood_in, switched_off

_LONG = {"closing", "compare-and-set"}


@pytest.mark.parametrize(
    ("faults", "begin", "rules", "states"),
    [
        (1, first, Rules(), 1_200),
        (0, stood_in, Rules(), 200),
        pytest.param(1, first, ALONE, 300, id="no native controller runs"),
        pytest.param(0, switched_off, ALONE, 100, id="the native controller was switched off meanwhile"),
        pytest.param(1, stood_in, Rules(), 15_000, marks=pytest.mark.slow),
        pytest.param(1, switched_off, ALONE, 4_000, marks=pytest.mark.slow),
        pytest.param(2, first, Rules(), 50_000, marks=pytest.mark.slow),
    ],
)
def test_every_invariant_holds(faults: int, begin: Callable[[int], State], rules: Rules, states: int) -> None:
    found = explore(faults, rules, begin=begin)
    assert found.is_whole
    assert not found.broken, found.path
    assert found.states > states  # a model in which little can happen proves little


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in _LONG else ()) for name in sorted(MUTATIONS)]
)
def test_no_mechanism_is_for_nothing(name: str) -> None:
    rules, faults, begin = MUTATIONS[name]
    assert explore(faults, rules, begin=begin).broken, f"without {name}, everything still holds"


def test_walks_reach_states_far_from_the_beginning() -> None:
    found = walk(4, most=1_500)
    assert not found.broken, found.path
    assert found.states == 1_500
    assert found.depth > explore(4, most=1_500).depth


def test_walks_find_what_breaks_without_a_mechanism() -> None:
    rules, faults, begin = MUTATIONS["disabling"]
    assert walk(faults, rules, begin=begin).broken
