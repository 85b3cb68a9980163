"""Removal and addition budgets: what they cut, when they let go, and the laws that hold for every log."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.decisions import Decision
from schemas.entries import Body
from schemas.keys import HpaId
from schemas.observed import AutoscalerDeleted, AutoscalerSet, Command, PodDeleted, PodSet
from schemas.settings import ClusterSettings, parse_budget
from streams.state.limits.budgetbook import BUCKET_MS
from tests.kit.brakes import MINUTE, SECOND, World, after, whole
from tests.kit.partition import START_MS, disturbed_log, make_hpa, make_pod, scale
from tests.laws import examples

# --- the setting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "base", "allowed"),
    [
        pytest.param("30%/10m", 100, 30, id="a percentage"),
        pytest.param("30%/10m", 9, 2, id="rounded down"),
        pytest.param("30%/10m", 2, 1, id="but at least one"),
        pytest.param("5/10m", 3, 5, id="a number of replicas"),
        pytest.param("100%/1h", 7, 7, id="everything"),
    ],
)
def test_what_a_budget_allows(text: str, base: int, allowed: int) -> None:
    budget = parse_budget(text)
    assert budget is not None
    assert budget.allowed(base) == allowed


@pytest.mark.parametrize(
    "text", ["", "30%", "30/", "0%/10m", "101%/10m", "0/10m", "30%/30s", "30%/2h", "-1/10m", "³/10m"]
)
def test_what_is_no_budget(text: str) -> None:
    with pytest.raises(ValueError, match=r"budget|duration"):
        parse_budget(text)


def test_only_a_removal_budget_holds() -> None:
    budget = parse_budget("30%/10m,then=hold")
    assert budget is not None
    assert (budget.holds, budget.percent, budget.text) == (True, 30, "30%/10m,then=hold")
    with pytest.raises(ValueError, match="only a removal budget may say then=hold"):
        parse_budget("30%/10m,then=hold", additions=True)


def test_a_whole_cluster_has_a_percentage() -> None:
    with pytest.raises(ValueError, match="whole cluster must be a percentage"):
        parse_budget("5/10m", whole_cluster=True)
    assert parse_budget("off") is None


# --- what is cut ------------------------------------------------------------------------------------------------------


def test_a_decision_is_cut_to_what_is_left_and_says_when_more_is_free() -> None:
    world = World("web", removal_budgets={"shop": "30%/10m"})
    at_ms = world.log.now_ms
    (decision,) = world.poll(0).values()
    assert (decision["wants"], decision["finalDesiredReplicas"]) == (7, 7)
    assert decision["constraintsApplied"][-1] == "RemovalBudget"
    step = decision["steps"][-1]
    assert (step["step"], step["in"], step["out"]) == ("removalBudget", 1, 7)
    assert step["detail"] == {"budget": "30%/10m", "of": "namespace eu/shop", "allowed": 3, "used": 0}
    assert after(world.period(0)) == {"web": 7}
    held = world.period(0)["web"]
    assert "wants" not in held
    full = whole(world.log)[-1]
    assert full.paused == "held: the removal budget of namespace eu/shop (30%/10m) allows 3, and 3 were removed"
    free_ms = (at_ms // BUCKET_MS + 1) * BUCKET_MS + 10 * MINUTE
    assert full.steps[-1].until == free_ms
    while world.log.now_ms + 15 * SECOND < free_ms:
        assert "wants" not in world.period(0)["web"]
    assert after(world.period(0)) == {"web": 4}


HELD = "scaleDown of namespace shop is paused by fleethpa: the removal budget 30%/10m,then=hold of namespace eu/shop is"


def test_a_budget_that_holds_removes_nothing_more_until_somebody_resumes() -> None:
    world = World("web", removal_budgets={"shop": "30%/10m,then=hold"})
    assert after(world.poll(0)) == {"web": 7}
    for _ in range(60):  # 15 minutes: the window has long had room again
        world.period(0)
        assert whole(world.log)[-1].paused == f"{HELD} used up"
    assert world.replicas == {"web": 7}
    assert after(world.period(100)) == {"web": 14}, "additions go on"
    world.log.add(Command(command="resume", name="", author="jo"))
    world.period(0)
    assert world.replicas == {"web": 10}, "30 % of 14, and it is used up again"
    world.period(0)
    assert whole(world.log)[-1].paused.startswith("scaleDown of namespace shop is paused by fleethpa")


@pytest.mark.parametrize(
    "budget",
    [
        pytest.param({"removal_budgets": {"shop": "30%/10m,then=hold"}}, id="of the namespace"),
        pytest.param({"removal_budget": "30%/10m,then=hold"}, id="of the cluster"),
    ],
)
def test_an_exempt_hpa_is_not_paused_by_a_budget_that_holds_but_by_a_person(budget: dict[str, Any]) -> None:
    world = World("free", "web", **budget)
    world.put("free", {"fleethpa.io/budget": "exempt"})
    world.period({"free": 50, "web": 0})
    assert after(world.period({"free": 25, "web": 0})) == {"free": 5, "web": 4}, "30 % of what both had"
    world.log.add(Command(command="pause", pause_kind="scaleDown", name="", author="jo"))
    assert after(world.period({"free": 0, "web": 0})) == {"free": 5, "web": 4}


def test_a_pause_that_has_ended_does_not_keep_a_budget_from_holding() -> None:
    world = World("web", removal_budgets={"shop": "30%/10m,then=hold"})
    world.log.add(Command(command="pause", pause_kind="scaleDown", name="", until=world.log.now_ms + 1))
    world.period(0)
    world.period(0)
    assert whole(world.log)[-1].paused.startswith("scaleDown of namespace shop is paused by fleethpa")


def test_what_is_cut_before_the_budget_is_used_up_holds_nothing() -> None:
    world = World("calm", "web", removal_budgets={"*": "50%/10m,then=hold"})
    assert after(world.poll({"calm": 50, "web": 0})) == {"calm": 10, "web": 5}
    assert after(world.period({"calm": 50, "web": 0})) == {"calm": 10, "web": 1}
    assert whole(world.log)[-1].paused == ""


def test_the_budget_of_a_cluster_holds_the_cluster() -> None:
    world = World("web", removal_budget="30%/10m,then=hold")
    world.poll(0)
    world.period(0)
    paused = whole(world.log)[-1].paused
    assert paused.startswith("scaleDown of cluster eu is paused by fleethpa: the removal budget 30%/10m,then=hold of")
    world.log.add(Command(command="resume", cluster="eu"))
    assert world.log.partition.state.row.pauses == {}


def test_of_two_budgets_that_are_used_up_the_one_that_holds_does() -> None:
    world = World("web", removal_budget="30%/10m,then=hold", removal_budgets={"*": "3/10m"})
    world.poll(0)
    world.period(0)
    assert whole(world.log)[-1].paused.startswith("scaleDown of cluster eu is paused by fleethpa")


def test_a_wave_is_shared_by_size_and_what_is_left_goes_to_those_that_ask() -> None:
    world = World("big", "small", "still", removal_budgets={"*": "40%/10m"}, replicas=10)
    world.replicas["big"] = 30
    world.put("big")
    world.period(50)
    # 40 % of 50 replicas are 20: 12 of the big one, 4 of each small one.
    assert after(world.period(0)) == {"big": 18, "small": 6, "still": 6}
    assert sum(world.replicas.values()) == 30


def test_one_that_asks_alone_gets_all_of_it_in_the_second_period() -> None:
    world = World("calm", "web", removal_budgets={"*": "50%/10m"})
    assert after(world.poll({"calm": 50, "web": 0})) == {"calm": 10, "web": 5}
    assert after(world.period({"calm": 50, "web": 0})) == {"calm": 10, "web": 1}


def test_a_write_that_failed_gives_back_what_it_had_reserved() -> None:
    world = World("web", removal_budgets={"shop": "3/10m"})
    assert after(world.poll(0, "failed")) == {"web": 7}
    assert after(world.period(0)) == {"web": 7}
    assert "wants" not in world.period(0)["web"]


def test_removals_by_other_hands_count() -> None:
    world = World("web", removal_budgets={"shop": "3/10m"})
    world.replicas["web"] = 8
    world.log.add(scale("web", 8, manager="kubectl"))
    assert after(world.poll(0)) == {"web": 7}


def test_moves_to_the_maximum_are_cut_too() -> None:
    world = World("web", removal_budgets={"shop": "3/10m"})
    world.put("web", maxReplicas=4)
    decision = world.period(50)["web"]
    assert (decision["wants"], decision["constraintsApplied"]) == (7, ["MaxReplicas", "RemovalBudget"])


def test_the_tighter_of_namespace_and_cluster_counts() -> None:
    world = World("web", removal_budget="20%/10m", removal_budgets={"*": "50%/10m"})
    step = world.poll(0)["web"]["steps"][-1]
    assert (step["out"], step["detail"]["of"]) == (8, "cluster eu")


def test_a_namespace_may_be_taken_out() -> None:
    assert after(World("web", removal_budgets={"*": "50%/10m", "shop": "off"}).poll(0)) == {"web": 1}


def test_an_annotation_exempts() -> None:
    world = World("web", "blue", removal_budgets={"shop": "2/10m"})
    world.put("blue", {"fleethpa.io/budget": "exempt"})
    assert after(world.poll(0)) == {"blue": 1, "web": 9}
    assert after(world.period(0)) == {"blue": 1, "web": 8}


def test_additions_have_a_budget_of_their_own() -> None:
    world = World("web", addition_budgets={"shop": "50%/10m"})
    decision = world.poll(100)["web"]
    assert (decision["wants"], decision["constraintsApplied"][-1]) == (15, "AdditionBudget")
    assert "wants" not in world.period(100)["web"]


def test_an_hpa_that_is_deleted_and_made_again_has_not_forgotten() -> None:
    world = World("web", removal_budgets={"shop": "3/10m"})
    world.poll(0)
    world.log.add(AutoscalerDeleted(name="web", uid="uid-web"))
    world.log.ticks(20)
    world.put("web")
    assert "wants" not in world.period(0)["web"]


def test_shadow_shows_upstreams_answer_and_counts_nothing() -> None:
    world = World("web", removal_budgets={"shop": "3/10m"})
    world.log.add(Command(command="mode", mode="shadow"))
    decision = world.poll(0)["web"]
    assert (decision["finalDesiredReplicas"], decision.get("wants")) == (1, None)


# --- a tenant beside the others --------------------------------------------------------------------------------------


def beside(ready: int, replicas: int = 1_000_000, **braking: Any) -> World:
    """500 replicas, and an enforced HPA of another namespace whose target's scale shows many more."""
    world = World(*(f"app-{number}" for number in range(10)), replicas=50, **braking)
    hpa = make_hpa("giant", "uid-giant", maxReplicas=2_000_000)
    hpa["metadata"]["namespace"] = "batch"
    pods = [PodSet(pod=make_pod(f"giant-{number}", "giant")) for number in range(ready)]
    bodies: list[Body] = [AutoscalerSet(hpa=hpa), scale("giant", replicas), *pods]
    world.log.add(*(world.log.entry(body, "eu/batch") for body in bodies))
    for _ in range(3):  # its first answers are waited for, and never come
        world.period(50)
    return world


def rescale(world: World, replicas: int) -> None:
    """Its owner changes the scale by hand; an evaluation sees it."""
    world.log.add(world.log.entry(scale("giant", replicas, manager="kubectl"), "eu/batch"))
    for _ in range(2):
        world.period(50)


@pytest.mark.parametrize(
    ("ready", "left"),
    [
        pytest.param(0, 350, id="of none of its replicas a pod was ever ready"),
        pytest.param(100, 320, id="100 pods of it are ready"),
        pytest.param(700, 200, id="it counts for as much as all the others at most"),
    ],
)
def test_a_scale_of_a_million_replicas_does_not_take_the_budget_away_from_its_neighbours(ready: int, left: int) -> None:
    world = beside(ready, removal_budget="30%/10m")
    for _ in range(20):
        world.period(0)
    assert sum(world.replicas.values()) == left


def test_a_scale_that_its_owner_lowers_does_not_use_up_the_budget_of_its_neighbours() -> None:
    world = beside(10, removal_budget="30%/10m")
    for replicas in (1, 1_000_000, 1):
        rescale(world, replicas)
    for _ in range(3):
        world.period(0)
    assert sum(world.replicas.values()) == 500 - (510 * 30 // 100 - 10)


def test_a_scale_that_its_owner_raises_does_not_use_up_the_additions_of_its_neighbours() -> None:
    world = beside(10, 10, addition_budget="30%/10m")
    rescale(world, 1_000_000)
    for _ in range(6):
        world.period(100)
    assert sum(world.replicas.values()) == 500 + (510 * 30 // 100 - 10)


def test_pods_that_are_not_seen_for_a_while_make_no_room_for_removals() -> None:
    world = World("api", "web", removal_budget="50%/1m")
    world.log.add(*(PodDeleted(name=f"api-{number}") for number in range(10)))
    for _ in range(8):
        world.period(50)
    for _ in range(2):
        world.period(0)
    assert world.replicas == {"api": 10, "web": 1}


# --- laws -------------------------------------------------------------------------------------------------------------

Json = dict[str, Any]
SEEDS = st.integers(0, 10_000)


@settings(max_examples=examples(25))
@given(seed=SEEDS, count=st.integers(1, 6), minutes=st.integers(1, 5))
def test_never_more_is_removed_in_any_window_than_the_budget_allows(seed: int, count: int, minutes: int) -> None:
    log = disturbed_log(
        seed, braking=ClusterSettings(downscale_stabilization_ms=0, removal_budgets={"*": f"{count}/{minutes}m"})
    )
    removed = removals(whole(log))
    window_ms = minutes * MINUTE
    for end, _ in removed:
        assert sum(each for at, each in removed if end - window_ms < at <= end) <= count


@settings(max_examples=examples(25))
@given(seed=SEEDS, percent=st.integers(1, 60))
def test_never_more_than_the_percentage_of_the_most_that_was_there(seed: int, percent: int) -> None:
    log = disturbed_log(seed, braking=ClusterSettings(downscale_stabilization_ms=0, removal_budget=f"{percent}%/2m"))
    decisions = whole(log)
    removed = removals(decisions)
    most = sum(max(each.current_replicas for each in decisions if each.name == name) for name in names(decisions))
    for end, _ in removed:
        total = sum(each for at, each in removed if end - 2 * MINUTE < at <= end)
        assert total <= max(1, most * percent // 100)


def names(decisions: list[Decision]) -> set[str]:
    return {each.name for each in decisions}


def removals(decisions: list[Decision]) -> list[tuple[int, int]]:
    """(log time, replicas) of the removals that decisions wanted and that did not fail."""
    failed = {each.completes for each in decisions if each.kind == "completion" and each.outcome["result"] != "applied"}
    return [
        (_ms(each), each.current_replicas - each.wants)
        for each in decisions
        if each.wants is not None and each.wants < each.current_replicas and each.id not in failed
    ]


def _ms(decision: Decision) -> int:
    minutes, seconds = decision.time[14:].rstrip("Z").split(":")
    hours = int(decision.time[11:13]) + 24 * (int(decision.time[8:10]) - 1)
    return START_MS + hours * 3_600_000 + int(minutes) * MINUTE + round(float(seconds) * SECOND)


def test_the_logs_of_the_laws_contain_what_they_promise() -> None:
    seen: set[str] = set()
    for seed in range(12):
        log = disturbed_log(
            seed,
            braking=ClusterSettings(
                downscale_stabilization_ms=0, removal_budgets={"*": "2/2m"}, addition_budget="30%/1m"
            ),
        )
        for decision in whole(log):
            seen |= set(decision.constraints_applied)
            seen |= {"held"} if decision.paused.startswith("held: the removal") else set()
    assert {"RemovalBudget", "AdditionBudget", "held"} <= seen


def test_rows_do_not_keep_what_no_window_reaches() -> None:
    world = World("web", removal_budgets={"shop": "1/1m"})
    for _ in range(40):
        world.log.now_ms += 2 * MINUTE
        world.poll(0)
        world.replicas["web"] = 10
        world.log.add(scale("web", 10, manager="kubectl"))
        world.log.partition.checkpoint()
    entries = world.log.partition.state.hpas[HpaId("eu", "shop", "web")].row.budget
    assert world.log.now_ms - entries[2].time_ms <= 70 * MINUTE


# --- several namespaces and clusters in one partition -----------------------------------------------------------------
