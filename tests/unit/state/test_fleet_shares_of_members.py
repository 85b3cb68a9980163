"""No cluster of a FleetHPA decides for the others: whatever one says of its own."""

from random import Random
from typing import Any

import pytest

from fleethpa.fleet.state import _members
from schemas.keys import FLEET
from tests.kit.fleet import PERIOD_MS, Fleet
from tests.kit.hostilefleet import Lie, busy, huge, idle, lying
from tests.laws import one_of

MAXIMUM = 60
PODS = {"east": 20, "west": 2}


def begun(**fleet: Any) -> Fleet:
    """East has 20 pods, west 2; each pod is at its target, and so is each cluster."""
    run = Fleet(PODS, MAXIMUM, weights={"east": 10, "west": 1}, rebalance_after_ms=36_000_000, **fleet)
    for _ in range(3):
        run.period(of_pods(run))
    assert run.replicas == PODS
    return run


def of_pods(run: Fleet, times: int = 1) -> dict[str, int]:
    """A load that is the same per pod; `times` that of the target."""
    return {name: 50 * count * times for name, count in run.replicas.items()}


def why(run: Fleet) -> dict[str, str]:
    """What `get` and the page say of the clusters."""
    known = run.row(FLEET).fleet
    assert known is not None
    views = _members(known, run.logs[FLEET].now_ms, PERIOD_MS)
    return {each.cluster.name: each.problem for each in views if each.problem}


def said(run: Fleet) -> dict[str, str]:
    """What the newest decision says of the shares."""
    steps = [each for each in run.last()["steps"] if each["step"] == "shares"]
    return {name: text for each in steps for name, text in each["detail"].items()}


@pytest.mark.parametrize("lie", [idle, busy, huge], ids=lambda lie: str(lie.__name__))
@pytest.mark.parametrize("minutes", [10])
def test_a_cluster_keeps_what_its_own_metrics_keep(lie: Lie, minutes: int) -> None:
    run = begun()
    run.deliver = lying("west", lie)
    for _ in range(4 * minutes):
        run.period({"east": 1_000, "west": 100})
        assert run.replicas["east"] >= 20
        assert run.total <= MAXIMUM


def test_pods_that_seem_idle_take_nothing_from_others_and_the_decision_says_so() -> None:
    run = begun()
    run.deliver = lying("west", idle)
    for _ in range(40):
        run.period({"east": 1_000, "west": 100})
    assert run.replicas["east"] == 20
    bounded = [each for each in run.decided[FLEET] if any(step["step"] == "clusters" for step in each.get("steps", ()))]
    assert bounded
    for decision in bounded:
        (step,) = [each for each in decision["steps"] if each["step"] == "clusters"]
        assert step["detail"]["keep"].startswith("east 20, west ")
        assert step["in"] < step["out"]
        assert "FleetHPA" in decision["constraintsApplied"]


def test_pods_that_seem_idle_do_not_hide_the_load_of_others() -> None:
    run = begun()
    run.deliver = lying("west", idle)
    for _ in range(12):
        run.period({"east": 2_000, "west": 0})
    assert run.replicas["east"] >= 36  # its part of 40 by the weights


def test_usage_counts_with_the_own_maximum_of_a_cluster_at_most() -> None:
    run = begun(maxima={"west": 5})
    run.deliver = lying("west", busy)
    for _ in range(40):
        run.period({"east": 1_000, "west": 100})
        assert run.total <= 20 + 5
    (step,) = [each for each in run.last()["steps"] if each["step"] == "clusters"]
    assert step["detail"]["countWith"] == "east 20, west 5"
    assert "maxReplicas 5" in why(run)["west"]


@pytest.mark.parametrize("maximum", [5, MAXIMUM])
def test_replicas_that_a_cluster_claims_beyond_its_maximum_do_not_count_and_are_named(maximum: int) -> None:
    run = begun(maxima={"west": maximum})
    run.deliver = lying("west", huge)
    for _ in range(12):
        run.period({"east": 2_000, "west": 100})
    decision = run.last()
    detail = {
        name: why for each in decision["steps"] if each["step"] == "shares" for name, why in each["detail"].items()
    }
    assert "1000000" in detail["west"]
    if maximum == 5:
        assert run.replicas["east"] >= 35
    else:
        assert f"west may have {maximum}" in detail["east"]


@pytest.mark.parametrize("seed", one_of(6, range(30)))
def test_clusters_that_tell_the_truth_bound_the_total_by_rounding_and_tolerance_only(seed: int) -> None:
    """Each keeps what it would keep by itself; nothing else differs from one controller over all pods."""
    rng = Random(seed)
    run = Fleet({"east": rng.randint(1, 12), "west": rng.randint(1, 12)}, 40)
    for _ in range(12):
        run.period({name: rng.randint(10, 110) * count for name, count in run.replicas.items()})
    for decision in run.decided[FLEET]:
        for step in decision.get("steps", ()):
            if step["step"] == "clusters":
                less, more = sorted((step["in"], step["out"]))
                assert more <= less * 1.11 + 2, step


# --- a cluster that cannot write --------------------------------------------------------------------------------------


def test_a_share_that_is_not_reached_spills_whatever_the_reason() -> None:
    run = Fleet({"east": 4, "west": 4}, 40, spill_after_ms=60_000)
    for _ in range(2):
        run.period({"east": 200, "west": 200})
    run.refusing = {"west"}
    for _ in range(8):
        run.period({"east": 1_600, "west": 400})
    assert run.replicas["west"] == 4
    assert run.replicas["east"] == 36
    run.refusing = set()
    for _ in range(100):
        run.period({"east": 1_000, "west": 1_000})
    assert run.replicas["west"] == 20, "once it can write again, it has its share"


@pytest.mark.parametrize("spill_ms", [0, 3_600_000])
def test_what_is_not_there_does_not_seem_to_be(spill_ms: int) -> None:
    run = Fleet({"east": 4, "west": 4}, 40, spill_after_ms=spill_ms)
    for _ in range(2):
        run.period({"east": 200, "west": 200})
    run.refusing = {"west"}
    for _ in range(8):
        run.period({"east": 1_600, "west": 400})
    decision = run.last()
    assert decision["currentReplicas"] == run.total == 24
    assert decision["status"]["currentReplicas"] == 24
    assert "share 20, has 4" in why(run)["west"]
    assert said(run) == why(run)
    assert "east" not in why(run)


def test_a_share_on_its_way_is_no_problem() -> None:
    run = Fleet({"east": 4, "west": 4}, 40)
    for load in (200, 200, 400, 800, 800):
        run.period({"east": load, "west": load})
        assert not why(run)
