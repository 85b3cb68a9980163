"""A cluster of a FleetHPA that goes away and comes back: nothing is added without load, nor by what is old."""

from typing import Any

import pytest

from schemas.entries import FleetAllotment
from schemas.keys import FLEET
from streams.state.partitionstate import Message
from tests.kit.fleet import Fleet

AT_REST = {"east": 200, "west": 200}


def _begun(maximum: int = 20, **fleet: Any) -> Fleet:
    run = Fleet({"east": 4, "west": 4}, maximum, **fleet)
    for _ in range(4):
        run.period(AT_REST)
    assert run.replicas == {"east": 4, "west": 4}
    return run


@pytest.mark.parametrize("after_ms", [0, 60_000], ids=["keep", "spill"])
def test_a_cluster_that_goes_away_makes_no_other_scale_without_load(after_ms: int) -> None:
    run = _begun(away_spill_after_ms=after_ms)
    run.away = {"west"}
    for _ in range(40):
        run.period(AT_REST)
        assert run.replicas["east"] == 4
    row = run.row(FLEET)
    assert {replicas for replicas, _ in row.history.recommendations} == {4}, "of what is left, not of both"
    run.away = set()
    for _ in range(40):
        run.period(AT_REST)
        assert run.replicas == {"east": 4, "west": 4}


def test_what_is_left_after_a_peak_is_kept_for_the_length_of_the_window() -> None:
    run = _begun()
    run.away = {"west"}
    run.period(AT_REST)
    for number in range(8):
        run.period({"east": 50, "west": 0})
        assert run.replicas["east"] == 4, number


@pytest.mark.parametrize("late", [False, True], ids=["in time", "after it is back"])
def test_a_share_from_before_an_absence_is_not_obeyed(late: bool) -> None:
    """Allotted, away before its write, spilled, back."""
    run = _begun(away_spill_after_ms=60_000)
    held: list[Message] = []

    def hold(message: Message) -> list[Message]:
        is_share = isinstance(message.body, FleetAllotment) and message.cluster == "west"
        held.extend([message] if is_share else [])
        return [] if is_share else [message]

    run.deliver = hold
    run.period({"east": 500, "west": 500})
    assert held
    west = run.logs["west"]
    run.away = {"west"}
    if not late:
        # Its log has the share; its scale cannot be read, so that nothing is written.
        run.refusing = {"west"}
        for each in held:
            west.add(west.entry(each.body, "west/shop"))
        west.partition.pop_messages()
        run.refusing = set()
    for _ in range(12):
        run.period({"east": 1_000, "west": 0})
    assert run.replicas["east"] == 20
    run.deliver = lambda message: [message]
    run.away = set()
    run.most = run.total
    if late:
        run.measure("west", 200)
        for each in held:
            run.add("west", each.body)
    for _ in range(20):
        run.period({"east": 1_000, "west": 200})
        assert run.replicas["west"] <= 4 or run.total <= 20
    assert run.most == 24, "nothing is added until all together are within the maximum"
    assert run.total <= 20
    assert run.row(FLEET).fleet is not None
