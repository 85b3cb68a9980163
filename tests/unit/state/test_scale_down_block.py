"""No scale-down while a metric of the HPA is above a value, as its annotation says."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleethpa.fleet.decisionpage import explained
from fleethpa.show import words
from schemas.answers import Answers, MetricAnswer
from schemas.decisions import Decision
from schemas.keys import HpaId
from streams import attachments
from streams.analysis.backtest import open_loop
from streams.analysis.candidate import candidate
from streams.analysis.counterfactual import counterfactuals
from streams.history.evaluations import Evaluated, events
from streams.partition import Partition
from streams.state.limits.limit import stopped
from streams.state.limits.scaledownblock import Block, ScaleDownBlock, parse_block
from streams.state.rowcodec import merge_rows
from tests.kit.brakes import AT_ONCE, SECOND, World, whole
from tests.kit.partition import cpu_answer, make_hpa

Json = dict[str, Any]
NAME = "fleethpa.io/scale-down-block"
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}


def external(name: str = "queue_depth", **target: str) -> Json:
    target = target or {"type": "Value", "value": "1000"}
    return {"type": "External", "external": {"metric": {"name": name}, "target": target}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("metric=queue_depth,above=0", Block("queue_depth", "0"), id="as documented"),
        pytest.param(" metric=queue_depth, above=0.5 ", Block("queue_depth", "0.5"), id="with spaces"),
        pytest.param("metric=a,b,above=10k", Block("a,b", "10k"), id="a comma in the name"),
        pytest.param("metric=x,above=-1", Block("x", "-1"), id="a quantity may be negative"),
    ],
)
def test_the_annotation(text: str, expected: Block) -> None:
    assert parse_block(text) == expected


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("", "'' must be such as metric=queue_depth,above=0", id="empty"),
        pytest.param("queue_depth>0", "'queue_depth>0' must be such as metric=queue_depth,above=0", id="another form"),
        pytest.param("metric=,above=0", "'metric=,above=0' must be such as", id="no name"),
        pytest.param("metric=q,above=many", "above='many' is not a quantity, such as 0, 0.5 or 10k:", id="no number"),
        pytest.param("metric=q,above=", "above='' is not a quantity", id="no threshold"),
        pytest.param("metric=q,above=1e999999", "is out of range", id="too large an exponent"),
    ],
)
def test_an_annotation_that_cannot_be_read_says_what_to_write(text: str, fault: str) -> None:
    assert fault in ScaleDownBlock().refuses(text, None)
    assert parse_block(text).fault


@given(st.text(max_size=3_000))
def test_any_text_is_a_block_or_has_a_short_fault(text: str) -> None:
    block = parse_block(text)
    assert bool(block.metric) != bool(block.fault)
    assert len(block.fault) < 2_000


class QueueWorld(World):
    """An HPA of CPU and a queue, whose scale has 10 replicas."""

    def __init__(self, text: str | None, *metrics: Json, **braking: Any) -> None:
        super().__init__("web", **braking)
        self.metrics = [CPU, *(metrics or (external(),))]
        self.put("web", None if text is None else {NAME: text}, metrics=self.metrics)

    def asked(self, queue: int | None, milli: int = 10, name: str = "queue_depth") -> Decision:
        """One period; `queue`: in milli; None: it cannot be read."""
        self.log.now_ms += 15 * SECOND
        usage = {f"web-{index}": milli for index in range(self.replicas["web"])}
        error = "no such series" if queue is None else None
        items = [] if queue is None else [(queue, self.log.now_ms)]
        answers = [
            MetricAnswer(api="external", metric=name, items=items, error=error),
            cpu_answer("web", usage, self.log.now_ms),
        ]
        return msgspec.convert(self.log.add(Answers(items=answers))[-1], Decision)

    def inputs(self) -> Any:
        read = [e for e in events(Partition.empty(0), self.log.records, lambda _: True) if isinstance(e, Evaluated)]
        return read[-1].inputs


BLOCK = "metric=queue_depth,above=0"


@pytest.mark.parametrize(
    ("text", "queue", "says"),
    [
        pytest.param(BLOCK, 0, "", id="at the value it is not blocked"),
        pytest.param(BLOCK, 1, "no scale-down while queue_depth is above 0: it is 1m", id="a little above it"),
        pytest.param("metric=queue_depth,above=1n", 1, "it is 1m", id="finer than the value is known"),
        pytest.param("metric=queue_depth,above=2", 2_000, "", id="another value"),
        pytest.param("metric=queue_depth,above=1Ki", 1_025_000, "is above 1Ki: it is 1025", id="a binary quantity"),
        pytest.param("metric=queue_depth,above=1e99", 2_000, "", id="more than any value"),
        pytest.param("metric=cpu,above=9", 0, "no scale-down while cpu is above 9%: it is 10%", id="a utilization"),
        pytest.param("metric=cpu,above=10", 0, "", id="its percentage exactly"),
    ],
)
def test_removals_are_blocked_while_the_value_is_above(text: str, queue: int, says: str) -> None:
    made = QueueWorld(text, external(type="Value", value="10000")).asked(queue)
    if not says:
        assert made.wants is not None
        assert made.wants < 10
        assert made.constraints_applied == []
        return
    assert made.paused.endswith(says)
    assert (made.wants, made.final_desired_replicas) == (None, 10)
    assert made.constraints_applied == ["ScaleDownBlock"]
    (step,) = [each for each in made.steps if each.step == "scaleDownBlock"]
    assert (step.in_, step.out, step.detail["above"]) == (made.raw_desired_replicas, 10, text.partition("above=")[2])


def test_a_value_per_pod_is_the_one_that_the_status_shows() -> None:
    per_pod = external(type="AverageValue", averageValue="10")
    blocked = QueueWorld("metric=queue_depth,above=0.1", per_pod).asked(1_001)
    assert blocked.paused == "no scale-down while queue_depth is above 0.1: it is 101m"
    assert QueueWorld("metric=queue_depth,above=0.1", per_pod).asked(1_000).wants is not None


def test_it_never_blocks_an_addition() -> None:
    assert QueueWorld(BLOCK).asked(5_000, milli=90).wants == 18


def test_of_several_metrics_with_the_name_each_has_to_be_low() -> None:
    other = {
        "type": "External",
        "external": external()["external"] | {"metric": {"name": "queue_depth", "selector": {}}},
    }
    world = QueueWorld(BLOCK, external(), other)
    assert "it is 5" in world.asked(5_000).paused


def failing(text: str | None, annotation: str = "fleethpa.io/fallback") -> Decision:
    """The queue cannot be read, and the fallback for lost metrics asks for 2 replicas."""
    world = QueueWorld(text)
    own = {} if text is None else {NAME: text}
    world.put("web", own | {annotation: "failureThreshold=1,replicas=2"}, metrics=world.metrics)
    return world.asked(None)


def test_a_metric_that_cannot_be_read_blocks_and_says_so() -> None:
    made = failing(BLOCK)
    assert (made.wants, made.constraints_applied) == (None, ["Fallback", "ScaleDownBlock"])
    assert made.paused.startswith("no scale-down while queue_depth is above 0: its value is not known: ")
    assert "no such series" in made.paused
    assert failing(None).wants == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(
            "metric=nope,above=0", "its value is not known, as the spec has no such metric", id="a typing error"
        ),
        pytest.param("queue_depth", f"annotation {NAME} cannot be read: 'queue_depth' must be", id="no block"),
    ],
)
def test_what_a_cluster_has_and_nobody_refused_blocks_and_says_why(text: str, says: str) -> None:
    world = QueueWorld(text)
    made = world.asked(0)
    assert made.wants is None
    names = stopped(attachments.LIMITS, world.inputs().limits)
    assert [name for name, _ in names] == (["ScaleDownBlock"] if "cannot be read" in made.paused else [])
    assert says in made.paused


def test_replicas_above_max_come_down_since_no_metric_is_evaluated_there() -> None:
    world = QueueWorld(BLOCK)
    world.put("web", {NAME: BLOCK}, metrics=world.metrics, maxReplicas=6)
    made = world.asked(5_000)
    assert (made.wants, made.constraints_applied) == (6, ["MaxReplicas"])


def test_a_change_of_the_annotation_alone_counts_from_the_next_evaluation_on() -> None:
    world = QueueWorld(BLOCK)
    assert world.asked(5_000).wants is None
    world.put("web", {NAME: "metric=queue_depth,above=5"}, metrics=world.metrics)
    assert world.asked(5_000).wants is not None


def test_it_is_said_by_explain_and_lists() -> None:
    made = QueueWorld(BLOCK).asked(5_000)
    shown = explained(made, None)
    assert shown.verdict.startswith("Stays at 10: no scale-down while queue_depth is above 0: it is 5")
    assert [row for row in shown.steps if "scale-down block" in repr(row)]
    assert words.braked(made) == "held by the scale-down block that its annotation sets (metrics ask for 2)"


def test_the_question_without_it_is_answered_from_what_it_read() -> None:
    world = QueueWorld(BLOCK)
    world.asked(5_000)
    would = counterfactuals(world.inputs())
    assert [(each.limit, each.answer) for each in would.without] == [("ScaleDownBlock", 2)]
    flips = [each for each in would.flips if "queue" in each.name]
    assert [(each.direction, each.value, each.answer) for each in flips if each.answer < 10] == [("lower", 0, 2)]


def test_without_the_annotation_the_limit_reads_nothing_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with_it = whole(made_by(None))
    monkeypatch.setattr(
        attachments, "LIMITS", tuple(each for each in attachments.LIMITS if each.name != "ScaleDownBlock")
    )
    assert whole(made_by(None)) == with_it
    assert QueueWorld(None).inputs().limits.of("ScaleDownBlock") is None


def made_by(text: str | None) -> Any:
    world = QueueWorld(text)
    for queue in (0, 5_000, None, 3):
        world.asked(queue)
    return world.log


def test_a_backtest_of_another_spec_is_blocked_by_its_own_value_and_a_replay_by_the_same() -> None:
    world = QueueWorld(BLOCK)
    world.asked(5_000)
    world.asked(0)
    recorded = list(events(Partition.empty(0), world.log.records, lambda _: True))
    hpa = HpaId("eu", "shop", "web")
    other = make_hpa("web", "uid-web", metrics=[CPU, external(type="Value", value="2000")], behavior=AT_ONCE)
    for tried in (None, candidate(hpa, other["spec"])):
        compared = open_loop(recorded, tried)
        blocked = ["ScaleDownBlock" in each.candidate.constraints for each in compared]
        assert (blocked[-2:], blocked) == (
            [True, False],
            ["ScaleDownBlock" in e.recorded.constraints for e in compared],
        )
    without = candidate(hpa, other["spec"] | {"metrics": [CPU]})
    assert open_loop(recorded, without)[-1].candidate.constraints == ["ScaleDownBlock"], "it has no such metric"


def test_a_decider_that_starts_again_from_its_rows_decides_the_same() -> None:
    log = made_by(BLOCK)
    half = len(log.records) // 2
    first, rows = Partition.empty(0), dict[bytes, bytes]()
    for offset, time_ms, value in log.records[:half]:
        first.apply(offset, time_ms, value)
    merge_rows(rows, first.checkpoint())
    second = Partition.restore(0, rows)
    made = [each.value for record in log.records[half:] for each in second.apply(*record)]
    assert made == [each.value for each in log.decisions][-len(made) :]
    assert any(b"ScaleDownBlock" in value for value in made)
