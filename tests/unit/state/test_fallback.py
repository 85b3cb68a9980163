"""Replicas for lost metrics, as the HPA's annotation names them."""

from typing import Any

import pytest

from schemas.answers import Answers, MetricAnswer
from streams.state.replacements.fallback import Fallback, parse_fallback
from tests.kit.brakes import SECOND, World

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("failureThreshold=3,replicas=6", Fallback(3, 6), id="as documented"),
        pytest.param("failureThreshold=3, replicas=6", Fallback(3, 6), id="with a space"),
        pytest.param("", None, id="none"),
        pytest.param("replicas=6", None, id="no threshold"),
        pytest.param("failureThreshold=0,replicas=6", None, id="never failed"),
    ],
)
def test_the_annotation(text: str, expected: Fallback | None) -> None:
    assert parse_fallback(text) == expected


def world(text: str = "failureThreshold=3,replicas=16", **braking: Any) -> World:
    made = World("web", **braking)
    made.put("web", {"fleethpa.io/fallback": text})
    return made


def failing(world: World) -> Json:
    """A period in which the metrics API fails; the decision."""
    world.log.now_ms += 15 * SECOND
    failed = MetricAnswer(api="resource", selector="app=web", error="the server is on fire")
    (made,) = world.log.add(Answers(items=[failed]))
    return made


def test_after_so_many_failures_the_replicas_are_those_of_the_annotation() -> None:
    run = world()
    first, second, third = failing(run), failing(run), failing(run)
    assert "wants" not in first
    assert "wants" not in second
    assert (third["wants"], third["constraintsApplied"]) == (16, ["Fallback"])
    assert third["reason"] == "fallback, as the metrics have failed 3 times in a row"
    assert third["steps"] == [
        {"step": "fallback", "in": 10, "out": 16, "detail": {"failures": 3, "failureThreshold": 3}}
    ]
    assert "the server is on fire" in third["error"]


def test_it_stays_within_the_limits_and_a_budget() -> None:
    assert failing(world("failureThreshold=1,replicas=5000"))["wants"] == 1_000
    cut = failing(world("failureThreshold=1,replicas=2", removal_budgets={"shop": "3/10m"}))
    assert (cut["wants"], cut["constraintsApplied"]) == (7, ["Fallback", "RemovalBudget"])


def test_metrics_that_come_back_begin_the_count_anew() -> None:
    run = world()
    failing(run)
    failing(run)
    run.period(50)
    made = [failing(run), failing(run)]
    assert all(each is None or "wants" not in each for each in made)
    assert failing(run)["wants"] == 16


def test_with_an_annotation_that_cannot_be_read_it_is_upstreams_answer() -> None:
    made = failing(world("replicas=16"))
    assert made is not None
    assert "wants" not in made
    assert "Fallback" not in made.get("constraintsApplied", [])
