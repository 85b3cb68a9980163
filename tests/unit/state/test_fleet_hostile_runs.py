"""Many clusters, some of which lie, cannot write, go away or have settings of their own: what holds for the others."""

from random import Random
from typing import Any

import pytest

from schemas.keys import FLEET
from schemas.settings import ClusterSettings, SettingsSet
from tests.kit.crashing import assert_the_same_after_crashes
from tests.kit.fleet import Fleet
from tests.unit.state.test_fleet_shares_of_members import busy, huge, idle, lying

MAXIMUM, NAMES = 60, ("east", "north", "west")


class Hostile(Fleet):
    """Three clusters; `west` does what is drawn, at times. `honest`: those that only tell the truth."""

    honest = ("east", "north")

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        spec: dict[str, Any] = {"spill_after_ms": random.choice([0, 60_000])}
        spec["away_spill_after_ms"] = random.choice([0, 60_000])
        super().__init__(
            {"east": 10, "north": 6, "west": 4},
            MAXIMUM,
            weights={"east": 10, "north": 6, "west": 4},
            rebalance_after_ms=36_000_000,
            **spec,
        )

    def disturb(self) -> None:
        """Draw what west does from now on."""
        what = self.random.choice(["honest", "idle", "busy", "huge", "cannot write", "away", "settings"])
        self.deliver = lambda message: [message]
        self.refusing, self.away = set(), set()
        match what:
            case "idle":
                self.deliver = lying("west", idle)
            case "busy":
                self.deliver = lying("west", busy)
            case "huge":
                self.deliver = lying("west", huge)
            case "cannot write":
                self.refusing = {"west"}
            case "away":
                self.away = {"west"}
            case "settings":
                period_ms = self.random.choice([5_000, 15_000])
                body = SettingsSet(cluster="west", settings=ClusterSettings(downscale_stabilization_ms=period_ms * 12))
                for name in self.logs:
                    self.add(name, body)


def _run(seed: int, periods: int = 40) -> Hostile:
    run = Hostile(seed)
    load = {"east": 500, "north": 300, "west": 200}
    for number in range(periods):
        if number % 8 == 4:
            run.disturb()
        run.period(load)
    return run


@pytest.mark.parametrize("seed", range(12))
def test_under_a_constant_load_no_honest_cluster_falls_below_what_it_needs(seed: int) -> None:
    run = Hostile(seed)
    load = {"east": 500, "north": 300, "west": 200}
    for number in range(60):
        if number % 8 == 4:
            run.disturb()
        run.period(load)
        for name, least in (("east", 10), ("north", 6)):
            assert run.replicas[name] >= least, f"period {number}"


@pytest.mark.parametrize("seed", range(12))
def test_without_lies_nothing_is_added_without_load(seed: int) -> None:
    """A member that goes away, cannot write, or has settings of its own."""
    run = Hostile(seed)
    for number in range(60):
        if number % 8 == 4:
            run.away = {"west"} if run.random.random() < 0.5 else set()
            run.refusing = {"west"} if run.random.random() < 0.5 else set()
        run.period({"east": 500, "north": 300, "west": 200})
        assert run.replicas == {"east": 10, "north": 6, "west": 4}, f"period {number}"


@pytest.mark.parametrize("seed", range(6))
def test_every_share_that_is_not_reached_is_a_step_of_the_decision(seed: int) -> None:
    run = Hostile(seed)
    run.refusing = {"west"}
    for _ in range(8):
        run.period({"east": 900, "north": 600, "west": 400})
    known = run.row(FLEET).fleet
    assert known is not None
    missing = {name for name, share in known.shares.items() if run.replicas[name] < share}
    named = {name for each in run.last()["steps"] if each["step"] == "shares" for name in each["detail"]}
    assert missing <= named


@pytest.mark.parametrize("seed", range(4))
def test_no_crash_changes_a_decision(seed: int) -> None:
    run = _run(seed)
    assert_the_same_after_crashes(run.logs, Random(seed))
