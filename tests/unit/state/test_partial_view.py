"""A partial view: pods or metrics that vanish or fall together hold scale-downs until they are back."""

from typing import Any

import pytest

from schemas.answers import Answers
from schemas.observed import PodDeleted, PodSet
from streams.state.limits.partialview import partial_view
from tests.kit.brakes import MINUTE, SECOND, World, after
from tests.kit.partition import cpu_answer, make_pod, scale

Json = dict[str, Any]
APPS = ("api", "pay", "web")


def watched(*apps: str, **braking: Any) -> World:
    return World(*(apps or APPS), **({"partial_view": True} | braking))


def halves(world: World, milli: int, share: float) -> dict[str, Json]:
    """An answer that lacks a share of each target's pods."""
    world.log.now_ms += 15 * SECOND
    items = [
        cpu_answer(app, {f"{app}-{index}": milli for index in range(round(count * (1 - share)))}, world.log.now_ms)
        for app, count in world.replicas.items()
    ]
    return {each["name"]: each for each in world.log.add(Answers(items=items)) if "name" in each}


def view(world: World) -> str:
    """Why scale-downs are held in the namespace now."""
    return partial_view(world.log.partition.state.namespaces["eu/shop"], world.log.now_ms)


def held(made: dict[str, Json]) -> set[str]:
    return {app for app, decision in made.items() if "PartialView" in decision.get("constraintsApplied", ())}


def test_metrics_that_fall_together_hold_scale_downs_until_they_are_back() -> None:
    world = watched()
    since_ms = world.log.now_ms
    made = world.poll(1)
    assert held(made) == set(APPS)
    assert after(made) == dict.fromkeys(APPS, 10)
    web = made["web"]
    assert web["paused"] == (
        "held: the view of namespace eu/shop is partial: the metrics of 3 targets fell by more than 90% at once"
    )
    assert web["steps"][-1]["step"] == "partialView"
    assert web["steps"][-1]["until"] == since_ms + 30 * MINUTE
    for _ in range(5):
        assert held(world.period(1)) == set(APPS)
    assert after(world.period(20)) == dict.fromkeys(APPS, 4)


def test_two_targets_are_no_partial_view() -> None:
    world = watched("api", "web")
    assert after(world.poll(1)) == {"api": 1, "web": 1}


def test_a_slow_fall_is_a_fall_of_the_load() -> None:
    world = watched()
    assert after(world.poll(6)) == dict.fromkeys(APPS, 2)


def test_zeros_are_a_fall() -> None:
    assert held(watched().poll(0)) == set(APPS)


@pytest.mark.parametrize(
    ("share", "is_held"), [pytest.param(0.5, False, id="half of them"), pytest.param(0.6, True, id="more than half")]
)
def test_metrics_that_vanish_hold_scale_downs(share: float, is_held: bool) -> None:
    world = watched()
    halves(world, 40, share)
    assert view(world).endswith("12 of 30 metric values of ready pods are seen" if is_held else "")
    assert bool(view(world)) == is_held


def test_pods_that_vanish_hold_scale_downs_until_they_are_back() -> None:
    world = watched()
    gone = [PodDeleted(name=f"{app}-{index}") for app in APPS for index in range(6)]
    world.log.add(*gone)
    made = halves(world, 30, 0)
    assert held(made) == set(APPS)
    assert made["web"]["paused"].endswith("is partial: 12 of 30 ready pods are seen")
    world.log.add(*[PodSet(pod=make_pod(f"{app}-{index}", app)) for app in APPS for index in range(6)])
    assert after(halves(world, 30, 0)) == dict.fromkeys(APPS, 6)


def test_pods_that_went_with_a_smaller_count_are_not_lost() -> None:
    world = watched()
    for app in APPS:
        world.replicas[app] = 3
        world.log.add(scale(app, 3, manager="kubectl"), *[PodDeleted(name=f"{app}-{i}") for i in range(3, 10)])
    assert not held(world.poll(40))


def test_scale_ups_are_not_held() -> None:
    world = watched()
    world.poll(1)
    made = world.period({"api": 1, "pay": 1, "web": 100})
    assert (made["web"]["wants"], held(made)) == (20, {"api", "pay"}) or made["web"]["wants"] == 20


def test_after_half_an_hour_what_is_seen_is_believed() -> None:
    world = watched()
    began_ms = world.log.now_ms
    assert held(world.poll(1))
    while world.log.now_ms + 15 * SECOND < began_ms + 30 * MINUTE:
        assert held(world.period(1)) == set(APPS)
    assert after(world.period(1)) == dict.fromkeys(APPS, 1)


def test_half_the_pods_and_then_zeros_are_one_partial_view() -> None:
    world = watched()
    halves(world, 8, 0.6)
    assert view(world)
    for _ in range(6):
        assert held(world.period(0)) == set(APPS)
    assert world.replicas == dict.fromkeys(APPS, 10)


def test_off_is_upstreams_answer() -> None:
    assert after(watched(partial_view=False).poll(0)) == dict.fromkeys(APPS, 1)
