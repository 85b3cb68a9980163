"""Events are counted, combined and held back as upstream's correlator does it."""

from typing import Any

from msgspec import structs

from reconciler.core.events import (
    CACHE_ENTRIES,
    COMBINED,
    SIMILAR_WITHIN_MS,
    EventBudget,
    EventCorrelator,
    EventWrite,
    event_writes,
)
from tests.unit.core.test_reconcile_status import DECISION

FAILED = ("Warning", "FailedGetScale", 'deployments.apps "web" not found')


def event(
    message: str = FAILED[2], *, time: str = "12:00:00", reason: str = FAILED[1], name: str = "web"
) -> EventWrite:
    decision = structs.replace(
        DECISION, name=name, uid=f"u-{name}", time=f"2026-11-21T{time}.000Z", events=[(FAILED[0], reason, message)]
    )
    (made,) = event_writes(decision)
    return made


def counts(found: list[EventWrite | None]) -> list[Any]:
    return [None if each is None else each.body["count"] for each in found]


def test_an_equal_event_each_period_is_counted_until_the_object_has_had_25() -> None:
    correlator = EventCorrelator(EventBudget())
    found = [correlator.observe(event(), number * 5_000) for number in range(30)]
    assert counts(found) == [*range(1, 26), None, None, None, None, None]
    # One more after five minutes shows all that were observed, those that were held back among them.
    later = correlator.observe(event(time="12:05:00"), 301_000)
    assert later is not None
    assert (later.body["count"], later.body["firstTimestamp"], later.body["lastTimestamp"]) == (
        31,
        "2026-11-21T12:00:00Z",
        "2026-11-21T12:05:00Z",
    )


def test_another_object_has_a_budget_of_its_own() -> None:
    correlator = EventCorrelator(EventBudget())
    for _ in range(26):
        last = correlator.observe(event(), 0)
    assert last is None
    assert counts([correlator.observe(event(name="api"), 0)]) == [1]


def test_the_tenth_different_message_of_a_kind_is_combined_with_those_that_follow() -> None:
    correlator = EventCorrelator(EventBudget())
    found = [correlator.observe(event(f"New size: {n}", reason="SuccessfulRescale"), n * 1_000) for n in range(13)]
    made = [each for each in found if each is not None]
    assert len(made) == 13
    assert [each.body["message"].startswith(COMBINED) for each in made] == [False] * 9 + [True] * 4
    assert [each.body["count"] for each in made] == [1] * 9 + [1, 2, 3, 4]
    assert len({each.name for each in made}) == 10
    assert {each.body["metadata"]["name"] for each in made} == {each.name for each in made}
    assert made[-1].body["message"] == f"{COMBINED}New size: 12"


def test_what_is_long_ago_is_not_combined() -> None:
    correlator = EventCorrelator(EventBudget())
    for n in range(9):
        correlator.observe(event(f"New size: {n}"), 0)
    later = correlator.observe(event("New size: 9"), SIMILAR_WITHIN_MS + 1)
    assert later is not None
    assert later.body["message"] == "New size: 9"


def test_it_counts_on_from_what_another_process_has_counted() -> None:
    correlator = EventCorrelator(EventBudget())
    first = correlator.observe(event(), 0)
    assert first is not None
    correlator.keep(first, 8, "2026-11-21T11:00:00Z")
    later = correlator.observe(event(), 15_000)
    assert later is not None
    assert (later.body["count"], later.body["firstTimestamp"]) == (9, "2026-11-21T11:00:00Z")


def test_what_it_remembers_is_bounded() -> None:
    correlator = EventCorrelator(EventBudget())
    for number in range(CACHE_ENTRIES + 1):
        correlator.observe(event(name=f"web-{number}"), 0)
    assert len(correlator._counted) == len(correlator._similar) == CACHE_ENTRIES
    assert counts([correlator.observe(event(name="web-0"), 0)]) == [1], (
        "the first one is forgotten, as upstream forgets"
    )
