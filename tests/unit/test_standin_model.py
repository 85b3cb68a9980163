"""The stand-in's protocol, explored: every schedule of few faults here, more in `python -m tests.standin_model`."""

from collections.abc import Callable

import pytest

from tests.standin_model.explore import explore, walk
from tests.standin_model.mutations import MUTATIONS
from tests.standin_model.world import State, first, stood_in

_LONG = {"compare-and-set"}


@pytest.mark.parametrize(
    ("faults", "begin", "states"),
    [
        (1, first, 1_200),
        (0, stood_in, 200),
        pytest.param(1, stood_in, 15_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
        pytest.param(2, first, 50_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
def test_every_invariant_holds(faults: int, begin: Callable[[int], State], states: int) -> None:
    found = explore(faults, begin=begin)
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
