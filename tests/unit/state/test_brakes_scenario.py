"""A metrics backend answers with half the pods, then with zeros: 200 HPAs in 4 clusters, with and without brakes."""

from typing import Any

import pytest

from schemas.answers import Answers
from schemas.entries import BreakerCommand
from schemas.settings import Guardrail
from streams.analysis.guardrailruns import EventReader, GuardedEvent, GuardrailRun, run_guardrails
from tests.kit.brakes import MINUTE, SECOND, World
from tests.kit.partition import START_MS, cpu_answer

CLUSTERS = ("east", "north", "south", "west")
HPAS = [f"app-{number:02}" for number in range(50)]
REPLICAS = 10
PERIODS = 40
"""Ten minutes of wrong answers."""


def ten_minutes(world: World) -> None:
    """One period with half of the pods, then zeros for all."""
    world.log.now_ms += 15 * SECOND
    half = [
        cpu_answer(app, {f"{app}-{index}": 50 for index in range(count // 2)}, world.log.now_ms)
        for app, count in world.replicas.items()
    ]
    world.log.add(Answers(items=half))
    for _ in range(PERIODS - 1):
        world.period(0)


def events_of(world: World, cluster: str) -> list[GuardedEvent]:
    reader = EventReader()
    seen = [event for made in world.log.decisions for event in reader.take(made.value)]
    return [event._replace(cluster=cluster, hpa=f"{cluster}/{event.hpa}") for event in seen]


@pytest.mark.slow
def test_half_the_pods_and_then_zeros(capsys: pytest.CaptureFixture[str]) -> None:
    budget = {"removal_budget": "30%/10m", "partial_view": True}
    braked, free, budgeted = (
        [World(*HPAS, replicas=REPLICAS, **settings) for _ in CLUSTERS]
        for settings in (budget, {}, {"removal_budget": "30%/10m"})
    )
    for world in (*braked, *free, *budgeted):
        ten_minutes(world)
    whole = len(HPAS) * REPLICAS
    kept = [[sum(world.replicas.values()) for world in some] for some in (braked, budgeted, free)]
    rules = [Guardrail(name="wave", removed_percent=25)]
    trips = run_guardrails(
        rules, [each for name, world in zip(CLUSTERS, free, strict=True) for each in events_of(world, name)]
    )
    with capsys.disabled():
        print(f"\nreplicas of {whole} left per cluster after ten minutes: with both brakes {kept[0]}, with the budget")
        print(f"alone {kept[1]}, without (upstream's answer) {kept[2]}")
    assert kept[0] == [whole] * len(CLUSTERS)
    assert all(left >= whole - whole * 30 // 100 for left in kept[1])
    assert kept[2] == [len(HPAS)] * len(CLUSTERS)
    first_zeros_ms = START_MS + 30 * SECOND
    assert {trip.cluster for trip in trips} == set(CLUSTERS)
    assert all(0 <= trip.time - first_zeros_ms <= MINUTE for trip in trips)


PAUSE_AFTER_MS = 5 * SECOND
"""From a trip to its pause in the log; tests/pipeline/test_breaker.py measures what it takes."""


def an_hour(world: World, *, guarded: bool) -> tuple[list[int], list[int | None]]:
    """Zeros for an hour, looked at once a minute, and (`guarded`) a breaker: replicas after each quarter, and trips."""
    rule = Guardrail(name="wave", removed_percent=25, act=True)
    run, reader, seen = GuardrailRun([rule], Guardrail.acts_at), EventReader(), 0
    left: list[int] = []
    until: list[int | None] = []
    for minute in range(60):
        world.period(0)
        new, seen = world.log.decisions[seen:], len(world.log.decisions)
        trips = [trip for made in new for event in reader.take(made.value) for trip in run.take(event)]
        world.log.now_ms += PAUSE_AFTER_MS
        for trip in trips if guarded else []:
            pause = BreakerCommand(
                command="pause", cluster="eu", namespace=trip.namespace, guardrail="wave", until=trip.until or 0
            )
            world.log.add(pause)
            until.append(trip.until)
        world.log.now_ms += MINUTE - 15 * SECOND - PAUSE_AFTER_MS
        left += [sum(world.replicas.values())] if minute % 15 == 14 else []
    return left, until


@pytest.mark.slow
def test_an_hour_of_zeros_with_a_breaker(capsys: pytest.CaptureFixture[str]) -> None:
    budget: dict[str, Any] = {"removal_budget": "30%/10m"}
    alone, _ = an_hour(World(*HPAS, replicas=REPLICAS, **budget), guarded=False)
    braked, until = an_hour(World(*HPAS, replicas=REPLICAS, **budget), guarded=True)
    whole = len(HPAS) * REPLICAS
    with capsys.disabled():
        print(
            f"\nreplicas of {whole} left after each quarter of an hour: with the budget {alone}, and a breaker {braked}"
        )
    assert [each is None for each in until] == [False, False, True], "the third trip waits for a person"
    assert alone[-1] == len(HPAS)
    for quarter, left in enumerate(braked, start=1):
        assert left >= whole * 0.7 ** min(quarter, 3) - 1, "one budget for each pause that ended"
    assert braked[-1] == braked[-2]
