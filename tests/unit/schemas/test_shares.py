"""Shares: a bound in number, and a turn for each key, whatever others ask for."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.limits import share_of
from schemas.shares import Turns


@pytest.mark.parametrize(
    ("total", "share"),
    [
        pytest.param(1, 1, id="at least one, of one"),
        pytest.param(3, 1, id="at least one, of three"),
        pytest.param(16, 4, id="a quarter"),
        pytest.param(19, 4, id="not more than a quarter"),
        pytest.param(2_000, 500, id="a quarter of a total in number"),
        pytest.param(0, 1, id="one, also of none: nobody is kept out for good"),
    ],
)
def test_a_share_is_a_quarter_and_at_least_one(total: int, share: int) -> None:
    assert share_of(total) == share


def served(turns: Turns[str, int], most: int) -> str:
    """The keys in the order in which they have their turn, where each item ends at once."""
    order = ""
    for _ in range(most):
        if (found := turns.next()) is None:
            break
        order += found[0]
        turns.end(found[0])
    return order


@pytest.mark.parametrize(
    ("items", "order"),
    [
        pytest.param([("a", 1)] * 3, "aaa", id="one key has all turns, in order"),
        pytest.param([("a", 1)] * 4 + [("b", 1)] * 2, "ababaa", id="in turn, however many one has"),
        pytest.param([("a", 3)] * 3 + [("b", 1)] * 6, "abbbabbbabb"[:9], id="by cost: one of three for three of one"),
        pytest.param([("a", 0)] * 2 + [("b", 1)] * 2, "abab", id="in turn, too, where it costs nothing"),
    ],
)
def test_each_key_has_its_turn(items: list[tuple[str, float]], order: str) -> None:
    turns: Turns[str, int] = Turns(1)
    for number, (key, cost) in enumerate(items):
        turns.add(key, number, cost)
    assert served(turns, 100) == order


def test_a_key_that_waited_for_nothing_has_saved_nothing_up() -> None:
    turns: Turns[str, int] = Turns(1)
    for number in range(200):
        turns.add("a", number)
    assert served(turns, 100) == "a" * 100
    for number in range(50):
        turns.add("b", number)
    assert served(turns, 20) == "ba" * 10


def test_what_an_item_used_is_charged_when_it_ends() -> None:
    """A request whose answer takes ten seconds costs its namespace ten turns of one second."""
    turns: Turns[str, int] = Turns(1)
    for number in range(30):
        turns.add("slow", number, 0.0)
        turns.add("quick", number, 0.0)
    order = ""
    for _ in range(22):
        found = turns.next()
        assert found is not None
        order += found[0][0]
        turns.end(found[0], 10.0 if found[0] == "slow" else 1.0)
    assert order.count("s") == 2


def test_a_key_has_at_most_a_quarter_of_the_slots_and_the_others_go_on() -> None:
    turns: Turns[str, int] = Turns(8)
    for number in range(100):
        turns.add("greedy", number)
    assert [turns.next() for _ in range(3)] == [("greedy", 0), ("greedy", 1), None]
    turns.add("other", 0)
    assert turns.next() == ("other", 0)
    assert turns.next() is None
    turns.end("greedy")
    assert turns.next() == ("greedy", 2)


def test_no_more_are_in_flight_than_there_are_slots() -> None:
    turns: Turns[int, str] = Turns(8)
    for key in range(20):
        turns.add(key, "item")
    assert [turns.next() is not None for _ in range(9)] == [True] * 8 + [False]


def test_what_is_dropped_waits_no_more() -> None:
    turns: Turns[str, int] = Turns(1)
    for number in range(4):
        turns.add("a", number)
    turns.add("b", 9)
    assert turns.drop("a", lambda number: number % 2 == 0) == [0, 2]
    assert (turns.waiting("a"), len(turns)) == (2, 3)
    assert turns.drop("a") == [1, 3]
    assert served(turns, 9) == "b"
    assert turns.drop("a") == []


def test_ending_what_is_not_in_flight_is_an_error() -> None:
    with pytest.raises(KeyError):
        Turns[str, int](1).end("a")


ITEMS = st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0.25, 8)), min_size=1, max_size=80)


@given(ITEMS, st.integers(1, 12))
def test_nothing_is_lost_nothing_doubled_and_the_bounds_hold(items: list[tuple[str, float]], slots: int) -> None:
    turns: Turns[str, int] = Turns(slots)
    for number, (key, cost) in enumerate(items):
        turns.add(key, number, cost)
    flying: list[str] = []
    given_out: dict[str, list[int]] = {key: [] for key in "abcd"}
    while len(turns) or flying:
        while (found := turns.next()) is not None:
            flying.append(found[0])
            given_out[found[0]].append(found[1])
            assert len(flying) <= slots
            assert flying.count(found[0]) <= share_of(slots)
        assert flying, "an item waits although every slot is free"
        turns.end(flying.pop(0))
    assert sorted(number for numbers in given_out.values() for number in numbers) == list(range(len(items)))
    assert all(before < after for numbers in given_out.values() for before, after in pairwise(numbers))


@given(ITEMS, st.integers(1, 60))
def test_of_two_keys_that_wait_neither_is_ahead_by_more_than_its_largest_item(
    items: list[tuple[str, float]], turns_taken: int
) -> None:
    turns: Turns[str, float] = Turns(1)
    for key, cost in items:
        turns.add(key, cost, cost)
    used = dict.fromkeys("abcd", 0.0)
    for _ in range(turns_taken):
        if (found := turns.next()) is None:
            break
        used[found[0]] += found[1]
        turns.end(*found[:1])
        waiting = [key for key in used if turns.waiting(key)]
        assert all(used[ahead] - used[behind] <= 8 + 1e-9 for ahead in waiting for behind in waiting)


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=30))
def test_the_memory_of_keys_that_are_gone_has_an_end(bursts: list[int]) -> None:
    turns: Turns[int, str] = Turns(4)
    turns.add(-1, "always there")
    for burst in bursts:
        for key in range(burst, burst + 100):
            turns.add(key, "once")
        turns.add(-1, "always there")
        while len(turns) > 1:
            found = turns.next()
            assert found is not None
            turns.end(found[0])
    assert len(vars(turns)["_used"]) <= 1_000 + 2 * 101
