"""A metrics backend answers with half the pods, then with zeros: 200 HPAs in 4 clusters, with and without brakes."""

import pytest

from schemas.answers import Answers
from tests.kit.brakes import SECOND, World
from tests.kit.partition import cpu_answer

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
    with capsys.disabled():
        print(f"\nreplicas of {whole} left per cluster after ten minutes: with both brakes {kept[0]}, with the budget")
        print(f"alone {kept[1]}, without (upstream's answer) {kept[2]}")
    assert kept[0] == [whole] * len(CLUSTERS)
    assert all(left >= whole - whole * 30 // 100 for left in kept[1])
    assert kept[2] == [len(HPAS)] * len(CLUSTERS)
