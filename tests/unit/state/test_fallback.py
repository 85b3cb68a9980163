"""Replicas for lost metrics, as the HPA's annotation names them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleethpa.fleet.decisionpage import explained
from schemas.answers import Answers, MetricAnswer
from schemas.decisions import Decision
from schemas.keys import HpaId
from streams.analysis.backtest import open_loop
from streams.analysis.candidate import candidate
from streams.analysis.counterfactual import counterfactuals
from streams.history.evaluations import Evaluated, events
from streams.partition import Partition
from streams.state.replacements.fallback import BEHAVIORS, Fallback, fallback_fault, parse_fallback
from tests.kit.brakes import AT_ONCE, SECOND, World
from tests.kit.partition import cpu_answer, make_hpa

Json = dict[str, Any]
NAME = "fleethpa.io/fallback"
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
QUEUE = {
    "type": "External",
    "external": {"metric": {"name": "queue_depth"}, "target": {"type": "Value", "value": "1000"}},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("failureThreshold=3,replicas=6", Fallback(3, 6), id="as documented"),
        pytest.param("failureThreshold=3, replicas=6", Fallback(3, 6), id="with a space"),
        pytest.param(
            "failureThreshold=3,replicas=6,behavior=currentReplicasIfHigher",
            Fallback(3, 6, "currentReplicasIfHigher"),
            id="a behavior",
        ),
        pytest.param("failureThreshold=3,replicas=6,metric=a,b", Fallback(3, 6, "static", ("a,b",)), id="a comma"),
        pytest.param(
            " failureThreshold=3,replicas=6, behavior=static, metric=a, metric=b ",
            Fallback(3, 6, "static", ("a", "b")),
            id="metrics with spaces",
        ),
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


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param(
            "failureThreshold=3,replicas=6,behavior=highest", "behavior='highest' is not known; it", id="value"
        ),
        pytest.param("failureThreshold=3,replicas=6,behavior=", "behavior='' is not known", id="an empty behavior"),
        pytest.param(
            "failureThreshold=3,replicas=6,metric=queue", "no metric queue; it has cpu, queue_depth", id="name"
        ),
        pytest.param("failureThreshold=3,replicas=6,metric=cpu,metric=", "must be such as", id="an empty name"),
        pytest.param("failureThreshold=3,replicas=6,behaviour=static", "must be such as", id="another key"),
        pytest.param("replicas=6", "'replicas=6' must be such as failureThreshold=3,replicas=6 or", id="no threshold"),
        pytest.param("failureThreshold=3,replicas=6,metric=cpu,metric=queue_depth", "", id="both metrics"),
    ],
)
def test_an_annotation_that_would_not_do_what_it_says_is_named(text: str, fault: str) -> None:
    found = fallback_fault(text, {"metrics": [CPU, QUEUE]})
    assert fault in found
    assert bool(fault) == bool(found)


@given(st.text(max_size=3_000))
def test_any_text_is_a_fallback_or_has_a_short_fault(text: str) -> None:
    fault = fallback_fault(text, {"metrics": [CPU]})
    assert bool(fault) or parse_fallback(text) is not None
    assert len(fault) < 2_000


class LossyWorld(World):
    """An HPA of CPU and a queue, whose scale has 10 replicas; each of the two may fail."""

    def __init__(self, text: str) -> None:
        super().__init__("web")
        self.put("web", {NAME: text}, metrics=[CPU, QUEUE])

    def asked(self, milli: int | None, queue: int | None = None) -> Decision:
        """One period. `milli`: the CPU of each pod, of which 50 is the target; None: it cannot be read."""
        self.log.now_ms += 15 * SECOND
        lost = MetricAnswer(api="resource", selector="app=web", error="the server is on fire")
        usage = {f"web-{index}": milli or 0 for index in range(self.replicas["web"])}
        cpu = lost if milli is None else cpu_answer("web", usage, self.log.now_ms)
        items = [] if queue is None else [(queue, self.log.now_ms)]
        error = "no such series" if queue is None else None
        answers = [MetricAnswer(api="external", metric="queue_depth", items=items, error=error), cpu]
        return msgspec.convert(self.log.add(Answers(items=answers))[-1], Decision)

    def recorded(self) -> list[Any]:
        return list(events(Partition.empty(0), self.log.records, lambda _: True))

    def inputs(self) -> Any:
        return [each for each in self.recorded() if isinstance(each, Evaluated)][-1].inputs


@pytest.mark.parametrize("behavior", BEHAVIORS)
@pytest.mark.parametrize("replicas", [6, 16])
def test_a_behavior_compares_with_the_current_replicas(behavior: str, replicas: int) -> None:
    """KEDA's `pkg/fallback`: 10 replicas are there."""
    made = LossyWorld(f"failureThreshold=1,replicas={replicas},behavior={behavior}").asked(None)
    expected = {
        "static": replicas,
        "currentReplicas": 10,
        "currentReplicasIfHigher": max(10, replicas),
        "currentReplicasIfLower": min(10, replicas),
    }[behavior]
    assert made.final_desired_replicas == expected
    assert made.wants == (None if expected == 10 else expected)
    assert made.constraints_applied == ["Fallback"]
    (step,) = made.steps
    stated = {} if behavior == "static" else {"replicas": replicas, "behavior": behavior}
    assert (step.in_, step.out) == (10, expected)
    assert step.detail == {"failures": 1, "failureThreshold": 1} | stated


OF_QUEUE = "failureThreshold=1,replicas={},metric=queue_depth"


@pytest.mark.parametrize(
    ("replicas", "milli", "wants", "applies"),
    [
        pytest.param(16, 50, 16, True, id="the other metric keeps 10, the lost one counts as 16"),
        pytest.param(16, 90, 18, False, id="the other metric asks for more"),
        pytest.param(6, 50, None, False, id="the other metric keeps more than the fallback"),
        pytest.param(6, 10, 6, True, id="the other metric asks for 2"),
        pytest.param(6, 40, 8, True, id="the other metric asks for 8"),
        pytest.param(6, None, 6, True, id="the other metric is lost, too"),
    ],
)
def test_the_fallback_of_a_metric_is_its_proposal_beside_those_of_the_others(
    replicas: int, milli: int | None, wants: int | None, applies: bool
) -> None:
    made = LossyWorld(OF_QUEUE.format(replicas)).asked(milli)
    assert made.wants == wants
    assert ("Fallback" in made.constraints_applied) == applies
    if applies:
        assert made.reason == "fallback, as metric queue_depth has failed in each of 1 evaluations in a row"
        assert made.steps[-1].detail == {"failures": 1, "failureThreshold": 1, "metric": "queue_depth"}


def test_a_failure_of_another_metric_does_not_bring_it() -> None:
    run = LossyWorld(OF_QUEUE.format(16))
    made = run.asked(None, queue=0)
    assert (made.wants, made.constraints_applied) == (None, [])
    assert "the server is on fire" in made.error
    every = LossyWorld("failureThreshold=1,replicas=16").asked(None, queue=0)
    assert every.wants == 16, "without metrics named it does"


def test_the_evaluations_in_which_a_named_metric_fails_are_counted_whatever_the_others_do() -> None:
    run = LossyWorld("failureThreshold=3,replicas=16,metric=queue_depth,metric=cpu")
    assert [run.asked(milli, queue).wants for milli, queue in ((50, None), (None, 0), (50, 1_000_000))] == [None] * 3
    found = [run.asked(milli, queue) for milli, queue in ((50, None), (None, 0), (50, None))]
    assert [each.wants for each in found] == [None, None, 16]
    names = "some of the metrics queue_depth, cpu have"
    assert found[-1].reason == f"fallback, as {names} failed in each of 3 evaluations in a row"
    assert found[-1].steps[-1].detail["metric"] == "queue_depth"


def test_it_is_explained_and_the_question_without_it_is_answered() -> None:
    run = LossyWorld(OF_QUEUE.format(16).replace(",metric", ",behavior=currentReplicasIfHigher,metric"))
    made = run.asked(50)
    shown = explained(made, None)
    (row,) = [row for row in shown.steps if row.name == "fallback"]
    assert row.value == "16"
    for part in ("10 → 16", "failures 1", "replicas 16", "behavior currentReplicasIfHigher", "metric queue_depth"):
        assert part in row.detail
    assert ("Fallback", 10) in [(each.limit, each.answer) for each in counterfactuals(run.inputs()).without]


def test_a_replay_falls_back_as_the_decider_and_a_backtest_by_the_metrics_of_its_own_spec() -> None:
    run = LossyWorld(OF_QUEUE.format(16))
    run.asked(50)
    run.asked(50, queue=0)
    recorded = run.recorded()
    without = make_hpa("web", "uid-web", metrics=[CPU], behavior=AT_ONCE, maxReplicas=1_000)
    kept = [each.candidate.constraints for each in open_loop(recorded, None)]
    assert kept == [each.recorded.constraints for each in open_loop(recorded, None)]
    assert ["Fallback" in each for each in kept[-2:]] == [True, False]
    tried = open_loop(recorded, candidate(HpaId("eu", "shop", "web"), without["spec"]))
    assert not any("Fallback" in each.candidate.constraints for each in tried), "it has no such metric"
