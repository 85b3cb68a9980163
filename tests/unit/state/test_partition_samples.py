"""Pushed samples: rates, shares of requests, age; metrics of every type by API and by samples."""

from typing import Any

import pytest

from schemas.answers import Answers, MetricAnswer, PodUsage, in_columns, pod_value
from schemas.observed import AutoscalerSet, MetricType, PodDeleted, PodSet, Point, Samples
from schemas.settings import ClusterSettings, SettingsSet
from streams.partition import Partition
from streams.state.answers import fold_point
from streams.state.rows import SampleRow
from tests.kit.partition import KEY, START_MS, LogBuilder, make_hpa, make_pod, scale

Json = dict[str, Any]
SECOND = 1_000
T = START_MS


def point(milli: int, after_ms: int, temporality: Any = "cumulative", start_ms: int = 0) -> Point:
    return Point(
        type="Resource",
        metric="cpu",
        pod="web-0",
        milli=milli,
        time=T + after_ms,
        temporality=temporality,
        start_time=start_ms,
    )


@pytest.mark.parametrize(
    ("points", "milli"),
    [
        pytest.param([point(7, 0, "gauge")], 7, id="a gauge is its value"),
        pytest.param([point(5_000, 0)], None, id="a counter's first point is no value"),
        pytest.param([point(5_000, 0), point(8_000, 10_000)], 300, id="two points are a rate per second"),
        pytest.param([point(5_000, 0), point(5_001, 10_000)], 0, id="a rate is cut toward zero"),
        pytest.param([point(5_000, 0), point(4_000, 10_000)], None, id="a counter that fell begins anew"),
        pytest.param(
            [point(5_000, 0), point(4_000, 10_000, start_ms=T + 2_000)],
            500,
            id="after a reset it counts from its start",
        ),
        pytest.param(
            [point(5_000, 0, start_ms=T - 9_000), point(6_000, 10_000, start_ms=T + 5_000)],
            1_200,
            id="a later start is a reset even if the value is higher",
        ),
        pytest.param([point(6_000, 30_000, "delta", T)], 200, id="a sum over an interval that is given"),
        pytest.param([point(1, 0, "delta"), point(6_000, 30_000, "delta")], 200, id="a sum since the last point"),
        pytest.param([point(1, 0, "delta")], None, id="a sum over nobody knows what is no value"),
        pytest.param(
            [point(9, 10_000, "gauge"), point(5, 10_000, "gauge")], 9, id="a point of the same time is not newer"
        ),
        pytest.param([point(9, 10_000, "gauge"), point(5, 9_000, "gauge")], 9, id="an older point is dropped"),
    ],
)
def test_counters_and_sums_become_rates(points: list[Point], milli: int | None) -> None:
    row: SampleRow | None = None
    for each in points:
        row = fold_point(row, each, "", T + 60_000) or row
    assert row is not None
    assert row.milli == milli


def test_a_point_of_more_than_an_hour_ago_is_as_if_it_had_never_come() -> None:
    assert fold_point(None, point(1, 0, "gauge"), "", T + 3_600_001) is None
    old = fold_point(None, point(5_000, 0), "", T)
    fresh = fold_point(old, point(6_000, 3_600_001), "", T + 3_600_001)
    assert fresh is not None
    assert fresh.milli is None


def pushed(kinds: list[MetricType], **hpa: Any) -> LogBuilder:
    log = LogBuilder()
    log.add(SettingsSet(cluster="eu", settings=ClusterSettings(sources={kind: "samples" for kind in kinds})))
    log.add(AutoscalerSet(hpa=make_hpa(**hpa)), scale(), PodSet(pod=make_pod("web-0")), PodSet(pod=make_pod("web-1")))
    return log


def sample(log: LogBuilder, pod: str, milli: int, **fields: Any) -> Point:
    return Point(type="Resource", metric="cpu", pod=pod, milli=milli, time=log.now_ms, **fields)


def evaluate(log: LogBuilder, *points: Point) -> Json:
    made = log.add(Samples(points=list(points)))
    assert len(made) == 1
    return made[0]


def test_pushed_samples_decide_where_settings_say_so() -> None:
    log = pushed(["Resource"])
    decision = evaluate(log, sample(log, "web-0", 100), sample(log, "web-1", 100))
    assert decision["metrics"][0]["utilization"] == 100
    assert decision["input"]["sources"] == ["t-0@6"]


def test_a_share_of_the_request_is_a_usage_of_that_share() -> None:
    log = pushed(["Resource"])
    decision = evaluate(log, sample(log, "web-0", 670, utilization=True), sample(log, "web-1", 670, utilization=True))
    assert decision["metrics"][0]["utilization"] == 67


def test_an_old_sample_is_missing() -> None:
    log = pushed(["Resource"])
    log.add(Samples(points=[sample(log, "web-0", 100), sample(log, "web-1", 100)]))
    log.now_ms += 120_001
    decision = evaluate(log, sample(log, "web-1", 100))
    assert (decision["metrics"][0]["podsUsed"], decision["metrics"][0]["podsMissing"]) == (1, 1)


def test_without_a_fresh_sample_the_metric_fails() -> None:
    log = pushed(["Resource"])
    log.add(Samples(points=[sample(log, "web-0", 100), sample(log, "web-1", 100)]))
    assert "no sample pushed within the last 120s" in log.add(after_ms=135_000)[-1]["error"]


def test_the_samples_of_a_deleted_pod_go_with_it() -> None:
    log = pushed(["Resource"])
    log.add(Samples(points=[sample(log, "web-0", 100), sample(log, "web-1", 100)]))
    log.add(PodDeleted(name="web-0"))
    series = log.partition.state.namespaces[KEY].series
    assert [sorted(samples) for samples in series.values()] == [["web-1"]]


def external(selector: Json | None) -> list[Json]:
    metric = {"name": "queue"} | ({"selector": selector} if selector else {})
    return [{"type": "External", "external": {"metric": metric, "target": {"type": "Value", "value": "10"}}}]


def test_external_series_are_chosen_by_their_labels() -> None:
    log = pushed(["External"], metrics=external({"matchLabels": {"q": "a"}}))
    values = [
        Point(type="External", metric="queue", milli=milli, time=log.now_ms, labels={"q": name, "x": "1"})
        for name, milli in (("a", 20_000), ("b", 70_000))
    ]
    assert evaluate(log, *values)["metrics"][0]["value"] == 20_000


@pytest.mark.parametrize("selector", [None, {}], ids=["none, as kubectl writes it", "an empty one"])
def test_without_a_selector_all_external_series_are_summed_up_as_the_metrics_api_does(selector: Json | None) -> None:
    metrics = external(selector)
    metrics[0]["external"]["metric"] |= {} if selector is None else {"selector": selector}
    log = pushed(["External"], metrics=metrics)
    values = [
        Point(type="External", metric="queue", milli=milli, time=log.now_ms, labels={"q": name})
        for name, milli in (("a", 20_000), ("b", 70_000))
    ]
    assert evaluate(log, *values)["metrics"][0]["value"] == 90_000


def test_tidying_away_old_samples_changes_no_decision() -> None:
    log = pushed(["Resource"])
    log.add(Samples(points=[sample(log, "web-0", 100)]))
    log.add(after_ms=3_700_000)
    rows = dict(log.partition.checkpoint())
    assert log.partition.state.namespaces[KEY].series == {}
    again = Partition.restore(0, rows)
    log.add(Samples(points=[sample(log, "web-0", 100), sample(log, "web-1", 100)]), after_ms=15_000)
    assert [made.value for made in again.apply(*log.records[-1])] == [log.decisions[-1].value]


def metric(kind: str, target: Json, **source: Any) -> list[Json]:
    return [{"type": kind, kind[0].lower() + kind[1:]: {"target": target, **source}}]


AVERAGE = {"type": "AverageValue", "averageValue": "50m"}
INGRESS = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"}


@pytest.mark.parametrize(
    ("metrics", "answer", "value"),
    [
        pytest.param(
            metric("Pods", AVERAGE, metric={"name": "rps", "selector": {"matchLabels": {"verb": "GET"}}}),
            MetricAnswer(
                api="pods",
                selector="app=web",
                metric="rps",
                metric_selector="verb=GET",
                pods=in_columns([pod_value("web-0", 40, T), pod_value("web-1", 60, T)]),
            ),
            50,
            id="a Pods metric",
        ),
        pytest.param(
            metric("Object", {"type": "Value", "value": "1"}, metric={"name": "rps"}, describedObject=INGRESS),
            MetricAnswer(
                api="object", metric="rps", group_kind="Ingress.networking.k8s.io", object="main", milli=1_500, time=T
            ),
            1_500,
            id="an Object metric",
        ),
        pytest.param(
            metric(
                "Object",
                {"type": "Value", "value": "1"},
                metric={"name": "rps"},
                describedObject={"kind": "Namespace", "name": "whatever"},
            ),
            MetricAnswer(api="object", metric="rps", group_kind="Namespace", object="shop", milli=1_500, time=T),
            1_500,
            id="an Object metric of a Namespace is about the HPA's own",
        ),
        pytest.param(
            metric("External", {"type": "AverageValue", "averageValue": "1"}, metric={"name": "queue"}),
            MetricAnswer(api="external", metric="queue", items=[(500, T), (1_500, T)]),
            1_000,
            id="an External metric",
        ),
    ],
)
def test_every_type_of_metric_finds_its_answer(metrics: list[Json], answer: MetricAnswer, value: int) -> None:
    log = pushed([], metrics=metrics)
    (decision,) = log.add(Answers(items=[answer]), after_ms=SECOND)
    assert "error" not in decision
    assert decision["metrics"][0]["value"] == value


def test_a_container_metric_reads_one_container() -> None:
    log = pushed([], metrics=metric("ContainerResource", AVERAGE, name="cpu", container="main"))
    usages = [PodUsage(f"web-{i}", T, 15_000, [("side", {"cpu": 900}), ("main", {"cpu": 40})]) for i in range(2)]
    (decision,) = log.add(Answers(items=[MetricAnswer(api="resource", selector="app=web", pods=in_columns(usages))]))
    assert decision["metrics"][0]["value"] == 40


def test_a_metric_whose_spec_is_invalid_is_not_asked_for() -> None:
    log = pushed([], metrics=metric("Pods", {"type": "AverageValue"}, metric={"name": "rps"}))
    decision = log.add(after_ms=30_000)[0]
    assert decision["metrics"][0]["reason"] == "FailedGetPodsMetric"
