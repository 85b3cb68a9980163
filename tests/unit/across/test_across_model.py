"""Report and allotment, explored: a small bound here, more in `python -m tests.across_model`."""

import pytest

from tests.across_model.world import BEGINNINGS, MUTATIONS, world
from tests.exploring import explore, walk


@pytest.mark.parametrize(
    ("begin", "changes", "faults", "states"), [("settled", 1, 1, 2_500), ("full", 0, 1, 250), ("settled", 0, 0, 1)]
)
def test_every_invariant_holds(begin: str, changes: int, faults: int, states: int) -> None:
    found = explore(world(BEGINNINGS[begin](changes, faults)))
    assert found.is_whole
    assert not found.broken, found.path
    assert found.states >= states  # a model in which little can happen proves little


def test_every_invariant_holds_far_from_the_beginning() -> None:
    found = walk(world(BEGINNINGS["full"](3, 2)), most=4_000)
    assert not found.broken, found.path


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_invariant_holds_in_many_states() -> None:
    found = explore(world(BEGINNINGS["full"](1, 0)), most=150_000)
    assert not found.broken, found.path


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_no_mechanism_is_for_nothing(name: str) -> None:
    assert explore(world(BEGINNINGS["full"](1, 0), MUTATIONS[name]), most=20_000).broken
