"""What prometheus-adapter makes of a Prometheus' answers, the odd ones among them."""

import json
from typing import Any

import pytest

from reconciler.prometheus.promanswers import (
    PromResult,
    external_answer,
    milli_of,
    object_answer,
    pod_answers,
    read_names,
    read_result,
    stated_error,
    usage_answers,
)
from reconciler.prometheus.promrules import ObjectResource, parse_rules
from schemas.answers import MetricAnswer, PodUsage, pod_value
from schemas.codec import encode
from tests.kit.answers import pods_of, usages_of

NOW_MS = 1_000_000
PODS_QUERY = MetricAnswer(api="pods", selector="app=web", metric="requests")
OBJECT_QUERY = MetricAnswer(api="object", metric="requests", group_kind="Service", object="web")
EXTERNAL_QUERY = MetricAnswer(api="external", metric="queue")
SERVICE = ObjectResource("services", "service")


def vector(*series: tuple[dict[str, str], Any], kind: str = "vector") -> PromResult:
    result = [{"metric": labels, "value": [990.5, str(value)]} for labels, value in series]
    return read_result(json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode())


@pytest.mark.parametrize(
    ("number", "milli"),
    [
        (1.0, 1000),
        (0.0019, 1),
        (-0.0019, -1),
        (1.1, 1100),
        (4.35, 4350),
        (9e15, 9_000_000_000_000_000_000),
        (9.3e15, None),
        (float("inf"), None),
        (float("nan"), None),
    ],
)
def test_a_number_becomes_milli_cut_off_toward_zero(number: float, milli: int | None) -> None:
    assert milli_of(number) == milli


@pytest.mark.parametrize(
    ("series", "values"),
    [
        pytest.param([({"pod": "a"}, 2.5), ({"pod": "b"}, 1)], {"a": 2500, "b": 1000}, id="one series each"),
        pytest.param([({"pod": "a"}, 2)], {"a": 2000}, id="no series of a pod"),
        pytest.param([], {}, id="no series"),
        pytest.param([({"pod": "a"}, "NaN")], {"a": 0}, id="NaN is 0"),
        pytest.param([({"pod": "a"}, "+Inf"), ({"pod": "b"}, 1)], {"b": 1000}, id="an infinity is no sample"),
        pytest.param([({"pod": "a", "x": "1"}, 1), ({"pod": "a", "x": "2"}, 2)], {"a": 2000}, id="the last of several"),
        pytest.param([({"pod": "c"}, 1)], {}, id="another pod's"),
        pytest.param([({}, 1)], {}, id="no label of a pod"),
    ],
)
def test_pods_have_the_values_of_their_series(series: list[tuple[dict[str, str], Any]], values: dict[str, int]) -> None:
    (answer,) = pod_answers([(PODS_QUERY, ["b", "a"])], vector(*series), "pod", NOW_MS)
    assert answer.error is None
    assert usages_of(answer.pods) == [pod_value(name, milli, NOW_MS) for name, milli in sorted(values.items())]


def test_one_result_answers_the_questions_of_several_hpas() -> None:
    other = MetricAnswer(api="pods", selector="app=api", metric="requests")
    result = vector(({"pod": "a"}, 1), ({"pod": "b"}, 2))
    first, second = pod_answers([(PODS_QUERY, ["a"]), (other, ["b"])], result, "pod", NOW_MS)
    assert (first.selector, pods_of(first.pods)) == ("app=web", ["a"])
    assert (second.selector, pods_of(second.pods)) == ("app=api", ["b"])


@pytest.mark.parametrize(
    ("series", "milli", "error"),
    [
        ([({"service": "web"}, 7)], 7000, None),
        ([({"service": "web"}, "NaN")], 0, None),
        ([({"service": "web", "x": "1"}, 1), ({"service": "web", "x": "2"}, 2)], 2000, None),
        ([], 0, "the server could not find the metric requests for services web (the query gives no series)"),
        (
            [({"service": "api"}, 1)],
            0,
            "the server could not find the metric requests for services web (no series has service=web)",
        ),
        ([({"service": "web"}, "-Inf")], 0, "the value -inf of metric requests is not a quantity"),
    ],
)
def test_an_object_has_the_value_of_its_series(
    series: list[tuple[dict[str, str], Any]], milli: int, error: str | None
) -> None:
    answer = object_answer(OBJECT_QUERY, vector(*series), "service", "web", SERVICE, NOW_MS)
    assert (answer.milli, answer.error) == (milli, error)
    assert answer.time == (0 if error else NOW_MS)


@pytest.mark.parametrize(
    ("series", "items", "error"),
    [
        ([({"name": "a"}, 3.5), ({"name": "b"}, 1)], [(3500, 990_500), (1000, 990_500)], None),
        ([], [], None),
        ([({"name": "a"}, "NaN")], [], 'the value nan of series {name="a"} is not a quantity'),
        ([({}, "+Inf")], [], "the value inf of series {} is not a quantity"),
    ],
)
def test_an_external_metric_has_a_value_per_series(
    series: list[tuple[dict[str, str], Any]], items: list[tuple[int, int]], error: str | None
) -> None:
    answer = external_answer(EXTERNAL_QUERY, vector(*series))
    assert (answer.items, answer.error) == (items, error)


def test_a_scalar_is_an_external_metric_and_no_metric_of_objects() -> None:
    scalar = read_result(b'{"status":"success","data":{"resultType":"scalar","result":[990.5,"4"]}}')
    assert external_answer(EXTERNAL_QUERY, scalar).items == [(4000, 990_500)]
    wrong = "the query gives a scalar, and must give a vector"
    assert pod_answers([(PODS_QUERY, ["a"])], scalar, "pod", NOW_MS)[0].error == wrong
    assert object_answer(OBJECT_QUERY, scalar, "service", "web", SERVICE, NOW_MS).error == wrong


def test_a_range_is_no_metric() -> None:
    matrix = read_result(b'{"status":"success","data":{"resultType":"matrix","result":[{"values":[]}]}}')
    wrong = "the query gives a matrix, and must give a vector or a scalar"
    assert external_answer(EXTERNAL_QUERY, matrix).error == wrong


def test_pods_have_usages_where_both_resources_have_series() -> None:
    part = {"containerQuery": "x", "containerLabel": "container", "resources": {"template": "<<.Resource>>"}}
    text = encode({"resourceRules": {"cpu": part, "memory": part, "window": "5m"}}).decode()
    rules = parse_rules(text, "a.yaml").resource
    assert rules is not None
    cpu = vector(
        ({"pod": "a", "container": "app"}, 0.25),
        ({"pod": "a", "container": "log"}, "NaN"),
        ({"pod": "b", "container": "app"}, 1),
        ({"pod": "c", "container": "app"}, -1),
    )
    memory = vector(({"pod": "a", "container": "app"}, 1024), ({"pod": "c", "container": "side"}, 2))
    query = MetricAnswer(api="resource", selector="app=web")
    (answer,) = usage_answers([(query, ["a", "b", "c", "d"])], cpu, memory, rules)
    nothing = {"cpu": 0, "memory": 0}
    assert usages_of(answer.pods) == [
        PodUsage("a", 990_500, 300_000, [("app", {"cpu": 250, "memory": 1_024_000}), ("log", nothing)]),
        PodUsage("c", 990_500, 300_000, [("app", nothing), ("side", {"cpu": 0, "memory": 2000})]),
    ]


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b'{"status":"success"}', b'{"status":"success","data":[1]}'])
def test_a_body_of_something_else_cannot_be_read(body: bytes) -> None:
    for read in (read_result, read_names):
        with pytest.raises(ValueError, match=r".+"):
            read(body)


def test_an_error_is_stated_by_its_type() -> None:
    assert stated_error(b'{"status":"error","errorType":"bad_data","error":"no"}') == "bad_data: no"
    assert stated_error(b'{"status":"success","data":[]}') == stated_error(b"<html>") == ""
