"""An override takes the place of what the metrics ask for, for a while, within fleethpa's limits."""

from typing import Any

import pytest

from schemas.answers import Answers, MetricAnswer
from schemas.observed import Command
from schemas.settings import ClusterSettings, SettingsSet
from streams.analysis.answer import answer
from streams.partition import Partition
from streams.state.inputs import EvaluationInputs
from tests.kit.brakes import AT_ONCE, MINUTE, SECOND, World, after, whole
from tests.kit.partition import fold

AT_TARGET = 50


def override(run: World, replicas: int | None = 16, *, minutes: int = 60, **fields: Any) -> None:
    until = 0 if replicas is None else run.log.now_ms + minutes * MINUTE
    body = Command(
        command="override", name="web", replicas=replicas, until=until, author="anna", reason="sale", **fields
    )
    run.log.add(body)


def test_it_is_wanted_in_either_direction_and_the_decision_says_so() -> None:
    run = World("web")
    override(run)
    made = run.period(AT_TARGET)["web"]
    assert (made["wants"], made["constraintsApplied"]) == (16, ["Tolerance", "Override"])
    assert made["reason"] == "override to 16 replicas by anna until 2026-01-01T01:00:15Z: sale"
    (step,) = [each for each in made["steps"] if each["step"] == "override"]
    assert step == {
        "step": "override",
        "in": 10,
        "out": 16,
        "detail": {"replicas": 16, "author": "anna"},
        "until": run.log.now_ms + 60 * MINUTE - 15 * SECOND,
    }
    override(run, 3)
    assert after(run.period(AT_TARGET)) == {"web": 3}


@pytest.mark.parametrize("milli", [1, 50, 400])
def test_it_stays_whatever_the_metrics_ask_for(milli: int) -> None:
    run = World("web")
    override(run)
    assert after(run.period(AT_TARGET)) == {"web": 16}
    for _ in range(3):
        made = run.period(milli)["web"]
        assert (made["finalDesiredReplicas"], made.get("wants")) == (16, None)
        assert made["status"]["desiredReplicas"] == 16
        assert "Override" in made["constraintsApplied"]


def test_it_ends_by_log_time() -> None:
    run = World("web")
    override(run, minutes=2)
    assert after(run.period(AT_TARGET)) == {"web": 16}
    run.log.now_ms += 2 * MINUTE
    made = run.period(25)["web"]
    assert (made["wants"], made["reason"]) == (5, "All metrics below target")


def test_it_begins_and_ends_between_evaluations_that_repeat_each_other() -> None:
    run = World("web")
    for _ in range(5):
        assert after(run.period(AT_TARGET)) == {"web": 10}
    override(run, 12, minutes=2)
    assert [after(run.period(AT_TARGET))["web"] for _ in range(4)] == [12] * 4
    run.log.now_ms += 2 * MINUTE
    for _ in range(5):
        run.period(AT_TARGET)
    _, again = fold(run.log.records)
    assert again == [decision.value for decision in run.log.decisions]


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(Command(command="override", name="web"), id="by hand"),
        pytest.param(Command(command="mode", name="web", mode="shadow"), id="by a release, which sets the mode"),
    ],
)
def test_it_ends_by_a_command(end: Command) -> None:
    run = World("web")
    override(run)
    assert after(run.period(AT_TARGET)) == {"web": 16}
    run.log.add(end)
    run.log.add(Command(command="mode", name="web", mode="enforce"))
    assert after(run.period(25)) == {"web": 5}


def test_a_resume_and_a_pause_of_the_hpa_leave_it() -> None:
    run = World("web")
    override(run)
    run.log.add(Command(command="pause", name="web", author="bert"))
    held = run.period(AT_TARGET)["web"]
    assert (held["finalDesiredReplicas"], held["paused"]) == (10, "this HPA is paused by bert")
    assert held["constraintsApplied"] == ["Tolerance", "Override", "Paused"]
    run.log.add(Command(command="resume", name="web"))
    assert after(run.period(AT_TARGET)) == {"web": 16}


@pytest.mark.parametrize(
    ("braking", "spec", "replicas", "wants", "limit"),
    [
        ({}, {"maxReplicas": 12}, 16, 12, "Override"),
        ({}, {"minReplicas": 6}, 3, 6, "Override"),
        ({"max_step": 2}, {}, 16, 12, "MaxStep"),
        ({"removal_budgets": {"shop": "3/10m"}}, {}, 2, 7, "RemovalBudget"),
        ({"frozen": True}, {}, 16, None, "Frozen"),
    ],
)
def test_limits_hold_it(
    braking: dict[str, Any], spec: dict[str, Any], replicas: int, wants: int | None, limit: str
) -> None:
    run = World("web", **braking)
    run.put("web", **spec)
    override(run, replicas)
    made = run.period(AT_TARGET)["web"]
    assert (made.get("wants"), made["constraintsApplied"][-1]) == (wants, limit)


def test_it_holds_while_the_metrics_fail() -> None:
    run = World("web")
    override(run)
    run.log.now_ms += 15 * SECOND
    failed = MetricAnswer(api="resource", selector="app=web", error="no metrics-server")
    (made,) = run.log.add(Answers(items=[failed]))
    assert made["wants"] == 16
    assert "no metrics-server" in made["error"]


def test_it_has_no_effect_in_shadow() -> None:
    run = World("web")
    run.log.add(SettingsSet(cluster="eu", settings=ClusterSettings(default_mode="shadow")))
    override(run)
    made = run.period(25)["web"]
    assert (made["finalDesiredReplicas"], made.get("wants")) == (5, None)
    assert "constraintsApplied" not in made


def test_the_metrics_are_evaluated_on_so_that_the_windows_are_right_when_it_ends() -> None:
    run = World("web")
    slow = AT_ONCE["scaleDown"] | {"stabilizationWindowSeconds": 300}
    run.put("web", behavior=AT_ONCE | {"scaleDown": slow})
    override(run, 12, minutes=1)
    assert after(run.period(100)) == {"web": 12}
    run.log.now_ms += MINUTE
    made = run.period(10)["web"]
    assert (made["finalDesiredReplicas"], made["constraintsApplied"]) == (12, ["StabilizationWindow"])


def test_the_same_log_gives_the_same_bytes_and_its_inputs_give_the_same_answers() -> None:
    run = World("web", max_step=4)
    override(run)
    for milli in (50, 100, 10, 400, 50):
        run.period(milli)
    partition, inputs = Partition.empty(0), list[Any]()
    again = [made.value for record in run.log.records for made in partition.apply(*record, probe=inputs.append)]
    assert again == [decision.value for decision in run.log.decisions]
    evaluated = [answer(each) for each in inputs if isinstance(each, EvaluationInputs)]
    recorded = [each for each in whole(run.log) if each.kind == "evaluation"]
    assert [each.final for each in evaluated] == [each.final_desired_replicas for each in recorded]
    assert [each.constraints for each in evaluated] == [each.constraints_applied for each in recorded]
    assert sum("Override" in each.constraints for each in evaluated) == 5
