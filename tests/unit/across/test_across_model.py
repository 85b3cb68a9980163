"""Report and allotment, explored: a small bound here, more in `python -m tests.across_model`."""

import pytest

from tests.across_model.ceiling import CAPACITY_BEGINNINGS, CAPACITY_MUTATIONS, capacity_world
from tests.across_model.world import BEGINNINGS, MUTATIONS, world
from tests.kit.exploring import explore, walk

LONG = ("nothing-added-above-the-maximum", "fences")
"""Mechanisms whose lack shows only in the slow tier: many states come before."""
BEGINS = {
    "fences": BEGINNINGS["lost"](0, 0),
    "revisions": BEGINNINGS["again"](1, 0),
    "writes-in-flight": BEGINNINGS["moving"](1, 0),
    "absences": BEGINNINGS["spilled"](1, 0),
    "claims-take-nothing": BEGINNINGS["lying"](0, 0),
}
"""Where the lack of a mechanism shows soonest, if not in `full`."""


@pytest.mark.parametrize(
    ("begin", "changes", "faults", "states"),
    [
        pytest.param("settled", 1, 1, 2_500, marks=pytest.mark.slow),
        ("full", 0, 1, 250),
        ("settled", 0, 0, 1),
        pytest.param("spilled", 0, 1, 2_000, marks=pytest.mark.slow),
        pytest.param("lost", 0, 0, 14_000, marks=pytest.mark.slow),
    ],
)
def test_every_invariant_holds(begin: str, changes: int, faults: int, states: int) -> None:
    found = explore(world(BEGINNINGS[begin](changes, faults)))
    assert found.is_whole
    assert not found.broken, found.path
    assert found.states >= states  # a model in which little can happen proves little


@pytest.mark.parametrize("begin", sorted(BEGINNINGS))
@pytest.mark.parametrize("most", [300, pytest.param(1_000, marks=pytest.mark.slow)])
def test_every_invariant_holds_in_the_states_that_come_first(begin: str, most: int) -> None:
    found = explore(world(BEGINNINGS[begin](1, 1)), most=most)
    assert found.states >= most
    assert not found.broken, found.path


@pytest.mark.parametrize("begin", ["full", "again", "spilled", "lost"])
@pytest.mark.parametrize("most", [400, pytest.param(1_500, marks=pytest.mark.slow)])
def test_every_invariant_holds_far_from_the_beginning(begin: str, most: int) -> None:
    found = walk(world(BEGINNINGS[begin](3, 2)), most=most)
    assert not found.broken, found.path


@pytest.mark.slow
def test_every_invariant_holds_in_many_states() -> None:
    found = explore(world(BEGINNINGS["full"](1, 0)), most=40_000)
    assert not found.broken, found.path


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.slow] * (each in LONG)) for each in sorted(MUTATIONS)]
)
def test_no_mechanism_is_for_nothing(name: str) -> None:
    begin = BEGINS.get(name, BEGINNINGS["full"](1, 0))
    assert explore(world(begin, MUTATIONS[name]), most=20_000).broken


@pytest.mark.parametrize("begin", sorted(CAPACITY_BEGINNINGS))
@pytest.mark.parametrize("most", [200, pytest.param(800, marks=pytest.mark.slow)])
def test_a_ceiling_holds_in_the_states_that_come_first_and_far_from_the_beginning(begin: str, most: int) -> None:
    found = explore(capacity_world(CAPACITY_BEGINNINGS[begin](1, 1)), most=most)
    assert found.states >= most
    assert not found.broken, found.path
    found = walk(capacity_world(CAPACITY_BEGINNINGS[begin](3, 2)), most=most)
    assert not found.broken, found.path


@pytest.mark.slow
@pytest.mark.parametrize("begin", sorted(CAPACITY_BEGINNINGS))
def test_a_ceiling_holds_in_many_states(begin: str) -> None:
    found = explore(capacity_world(CAPACITY_BEGINNINGS[begin](1, 1)), most=8_000)
    assert not found.broken, found.path


@pytest.mark.parametrize(
    ("name", "begin", "bound"),
    [
        ("counts-allotments", "scarce", 0),
        ("settles", "anew", 0),
        ("revisions", "scarce", 1),
        pytest.param("writes", "anew", 1, marks=pytest.mark.slow),
    ],
)
def test_no_mechanism_of_a_ceiling_is_for_nothing(name: str, begin: str, bound: int) -> None:
    world_ = capacity_world(CAPACITY_BEGINNINGS[begin](bound, bound), CAPACITY_MUTATIONS[name])
    assert explore(world_, most=4_000).broken


@pytest.mark.slow
def test_what_has_ended_is_counted_until_the_member_says_so() -> None:
    rules = CAPACITY_MUTATIONS["counts-ended"]
    assert walk(capacity_world(CAPACITY_BEGINNINGS["scarce"](3, 2), rules), most=12_000).broken
    assert explore(
        capacity_world(CAPACITY_BEGINNINGS["scarce"](2, 1), CAPACITY_MUTATIONS["numbers"]), most=20_000
    ).broken
