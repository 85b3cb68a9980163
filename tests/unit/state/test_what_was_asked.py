"""A decision names what a polled source was asked for each metric, and depends on it in nothing else."""

from typing import Any

import msgspec
from msgspec import structs

from fleethpa.fleet.decisionpage import explained, explanation_lines
from schemas.answers import Answers, MetricAnswer
from schemas.decisions import Decision
from schemas.observed import AutoscalerSet, PodList
from schemas.settings import SettingsSet
from tests.kit.partition import ENFORCING, LogBuilder, cpu_answer, make_hpa, make_pod, scale

QUERY = 'sum(queue_depth{namespace="shop"})'


def decided(*asked: str) -> list[dict[str, Any]]:
    """The decisions of an HPA of CPU and a queue after an answer with each of the queries."""
    log, target = LogBuilder(), {"type": "AverageValue", "averageValue": "5"}
    metrics = make_hpa()["spec"]["metrics"] + [
        {"type": "External", "external": {"metric": {"name": "queue"}, "target": target}}
    ]
    log.add(SettingsSet(cluster="*", settings=ENFORCING), AutoscalerSet(hpa=make_hpa(metrics=metrics)))
    log.add(scale(), PodList(list_id="a", pods=[make_pod("web-0"), make_pod("web-1")]))
    made = []
    for text in asked:
        failed = MetricAnswer(api="resource", selector="app=web", error="no metrics-server")
        queue = MetricAnswer(api="external", metric="queue", items=[(9_000, log.now_ms)], asked=text)
        made += log.add(Answers(items=[failed, queue]), after_ms=15_000)
    return made


def test_a_decision_and_its_explanation_name_the_query() -> None:
    (made,) = decided(QUERY)
    assert made["observed"]["asked"] == ["", QUERY]
    decision = msgspec.convert(made, Decision)
    lines = explanation_lines(explained(decision), now_ms=0)
    (named,) = [line for line in lines if QUERY in line]
    assert named.split()[0] == "asked"
    assert lines[lines.index(named) - 1].startswith("queue")


def test_nothing_else_of_a_decision_depends_on_the_query() -> None:
    (with_query,), (without,) = decided(QUERY), decided("")
    assert "asked" not in without["observed"]
    assert with_query["observed"].pop("asked")
    # The answer is another text, so that the log has another hash.
    assert with_query["input"].pop("hash") != without["input"].pop("hash")
    assert with_query == without


def test_each_record_has_its_own_query() -> None:
    _, first, same, other = decided(QUERY, QUERY, QUERY, "sum(queue_depth)")
    assert first["observed"]["asked"] == same["observed"]["asked"] == ["", QUERY]
    assert other["observed"]["asked"] == ["", "sum(queue_depth)"]


def test_a_query_that_is_asked_no_longer_is_in_no_record() -> None:
    log = LogBuilder()
    log.add(SettingsSet(cluster="*", settings=ENFORCING), AutoscalerSet(hpa=make_hpa()))
    log.add(scale(), PodList(list_id="a", pods=[make_pod("web-0"), make_pod("web-1")]))
    made = []
    for text in (QUERY, QUERY, QUERY, "", ""):
        answer = cpu_answer("web", {"web-0": 50, "web-1": 50}, log.now_ms)
        made += log.add(Answers(items=[structs.replace(answer, asked=text)]), after_ms=15_000)
    assert ["asked" in each["observed"] for each in made[1:]] == [True, True, False, False]
