"""Answers of API servers and metrics APIs that no client expects are a trouble of that cluster, not the end of all."""

from typing import Any
from unittest.mock import AsyncMock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from reconciler.clusters.answers import (
    ApiError,
    ClusterError,
    UnreachableError,
    error_text,
    read_as,
    read_object,
    read_page,
    version_of,
    watch_event,
)
from reconciler.clusters.client import retry_after_ms
from reconciler.core.metricanswers import PodMetricsList, fill, fill_usages
from reconciler.core.statuses import HpaAnswer, body_of, live_hpa
from reconciler.observer.clusterview import ObserverMetrics
from reconciler.observer.metricpolls import MetricsPoller
from reconciler.observer.troubles import Troubles
from schemas.answers import MetricAnswer
from schemas.codec import decode, encode
from schemas.kubernetes.apirules import CURRENT_API
from tests.kit.answers import pods_of

QUERY = MetricAnswer(api="resource", selector="app=web")
# Python 3.14 reads 100,000 levels.
DEEP = b'{"items": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"
IGNORED_DEEP = DEEP.replace(b"items", b"other")


@pytest.mark.parametrize("data", [DEEP, IGNORED_DEEP])
def test_an_answer_that_is_nested_without_end_is_none(data: bytes) -> None:
    with pytest.raises(UnreachableError, match="GET /x: the answer is not JSON: it is nested too deeply"):
        read_object(data, "GET /x")
    with pytest.raises(UnreachableError, match="GET /x: the answer is not JSON: it is nested too deeply"):
        read_as(PodMetricsList, data, "GET /x")
    with pytest.raises(UnreachableError, match="GET /x: the answer is not JSON: it is nested too deeply"):
        read_page(data, "GET /x")
    with pytest.raises(UnreachableError, match="an event is not what it should be"):
        watch_event(data)
    assert error_text(403, data, "get", "pods").startswith('{"')


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"metadata": {"resourceVersion": "7"}, "items": [{"a": 1}, {"b": [null, "x"]}]}', id="a list"),
        pytest.param(b'{"metadata": {"resourceVersion": "7", "continue": "t"}, "items": []}', id="empty"),
        pytest.param(b'{"metadata": {"resourceVersion": "7"}, "items": null}', id="null"),
        pytest.param(b'{"metadata": {"resourceVersion": "7"}}', id="without items"),
        pytest.param(
            rb'{"metadata": {"resourceVersion": "7"}, "items": [{"a": "\ud800"}]}', id="half a pair in an item"
        ),
        pytest.param(rb'{"metadata": {"resourceVersion": "7", "continue": "\ud800"}, "items": [1]}', id="half a pair"),
        pytest.param(b'{"metadata": {"resourceVersion": "7"}, "items": {"a": 1}}', id="items are no list"),
    ],
)
def test_a_page_has_the_items_of_the_whole_answer(body: bytes) -> None:
    page, whole = read_page(body, "GET /x"), read_object(body, "GET /x")
    assert (page.metadata, list(page.items)) == (whole["metadata"], list(whole.get("items") or ()))


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"metadata": 7, "items": []}', b'{"metadata": {}, "items": []}'])
def test_a_page_of_something_else_is_none(body: bytes) -> None:
    with pytest.raises(UnreachableError, match="GET /x: the answer is not a"):
        read_page(body, "GET /x")


def test_an_item_that_is_not_text_is_found_when_it_is_read() -> None:
    page = read_page(b'{"metadata": {"resourceVersion": "7"}, "items": [{"a": "\xff"}]}', "GET /x")
    with pytest.raises(UnreachableError, match="GET /x: the answer is not JSON"):
        list(page.items)


def test_half_a_surrogate_pair_is_a_replacement_character_as_in_upstreams_client() -> None:
    data = rb'{"items": [{"metadata": {"name": "web\ud800", "labels": {"\udc00": "\ud83d\ude00"}}}]}'
    items = read_as(PodMetricsList, data, "GET /x").items
    assert items is not None
    (item,) = items
    assert (item.metadata.name, decode(bytes(item.metadata.labels), dict)) == ("web\ufffd", {"\ufffd": "😀"})
    assert encode(fill_usages(QUERY, read_as(PodMetricsList, data, "GET /x"))) == encode(
        fill(QUERY, read_object(data, "GET /x"))
    )
    text = error_text(404, rb'{"kind": "Status", "message": "no \ud800"}', "get", "pods")
    assert text == "no \ufffd"


def test_an_hpa_with_half_a_surrogate_pair_can_be_kept_for_the_next_write_of_its_status() -> None:
    head = b'{"metadata": {"uid": "u", "resourceVersion": "5", "annotations": {"note": "\\ud83d"}}, '
    kept = live_hpa(read_as(HpaAnswer, head + b'"spec": {"maxReplicas": 5}, "status": {}}', "GET /x"))
    sent = decode(body_of(kept), dict)
    assert (kept.uid, sent["spec"]) == ("u", {"maxReplicas": 5})
    assert sent["metadata"]["annotations"] == {"note": "\ufffd"}


HPA = '{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2",'


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        pytest.param(HPA + '"metadata":{"name":"web","uid":"u","resourceVersion":"17","labels":{}},"spec":{}}', "17"),
        pytest.param(
            '{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"resourceVersion":"1"}}', "1"
        ),
        pytest.param(HPA + '"metadata":{"labels":{"resourceVersion":"3"},"resourceVersion":"17"}}', "17", id="behind"),
        pytest.param(HPA + '"metadata":{"name":"\\"","resourceVersion":"17"}}', "17", id="an escaped name"),
        pytest.param(HPA + '"metadata":{"resourceVersion":"1\\u0037"}}', "17", id="an escaped version"),
        pytest.param('{"metadata": {"resourceVersion": "17"}}', "17", id="spaces"),
        pytest.param(HPA + '"metadata":{"resourceVersion":""}}', "", id="empty"),
    ],
)
def test_the_version_in_the_answer_to_a_write_is_found_wherever_it_is(answer: str, version: str) -> None:
    assert version_of(answer.encode(), "/x") == version


@pytest.mark.parametrize("answer", [HPA + '"metadata":{}}', HPA + '"metadata":{"name":"resourceVersion"}}', "{}"])
def test_an_answer_to_a_write_without_a_version_is_refused(answer: str) -> None:
    with pytest.raises(ValueError, match=r"resourceVersion|metadata"):
        version_of(answer.encode(), "/x")
    with pytest.raises(UnreachableError, match="PUT /x: the answer is not"):
        version_of(b"<html>", "/x")


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        ('{"code": 410, "message": "too old", "reason": "Expired"}', 410, "too old"),
        ('{"code": "410", "message": "too old"}', 410, "too old"),
        ('{"code": "gone", "message": "too old"}', 500, "too old"),
        ('{"code": {}, "message": ["too", "old"], "reason": 7}', 500, "['too', 'old']"),
        ("{}", 500, "{}"),
    ],
)
def test_an_error_event_of_a_watch_is_an_error_whatever_it_says(status: str, code: int, text: str) -> None:
    with pytest.raises(ApiError) as reported:
        watch_event(b'{"type": "ERROR", "object": %s}' % status.encode())
    assert (reported.value.status, str(reported.value), type(reported.value.reason)) == (code, text, str)


@pytest.mark.parametrize("found", ["null", "[]", "7", "{}", '{"metadata": null}', '{"metadata": "web"}'])
def test_an_event_of_a_watch_without_metadata_is_none(found: str) -> None:
    with pytest.raises(UnreachableError, match="an event is not what it should be"):
        watch_event(b'{"type": "ADDED", "object": %s}' % found.encode())


@pytest.mark.parametrize(
    ("header", "details", "found_ms"),
    [
        ("7", {"retryAfterSeconds": 9}, 7_000),
        ("Sun, 22 Nov 2026 23:00:00 GMT", {"retryAfterSeconds": 9}, 9_000),
        ("", {"retryAfterSeconds": "soon"}, None),
        ("", {"retryAfterSeconds": None}, None),
        ("", ["retryAfterSeconds"], None),
        ("", "later", None),
        ("-1", None, None),
    ],
)
def test_how_long_a_server_asks_to_wait(header: str, details: object, found_ms: int | None) -> None:
    assert retry_after_ms(header, {"kind": "Status", "details": details}) == found_ms


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
QUANTITIES = st.sampled_from(["1n", "n", "", "0", "12345678901n", "123456789Ki", "Ki", "1e3", "1E-3", " 5m ", "-1"])


def odd(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(*[usual] * 6, ANY_JSON)


def fields(**usual: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={name: odd(each) for name, each in usual.items()})


CONTAINERS = st.lists(
    odd(fields(name=st.sampled_from("ab"), usage=st.dictionaries(st.just("cpu"), odd(QUANTITIES)))), max_size=3
)
ITEMS = fields(
    metadata=fields(name=st.text(max_size=5), labels=st.dictionaries(st.just("app"), st.text(max_size=3))),
    timestamp=st.sampled_from(["2026-11-22T10:00:00Z", "0001-01-01T00:00:00Z", "now", ""]),
    window=st.sampled_from(["10s", "1m30.5s", "-3s", "", "99999999h"]),
    containers=CONTAINERS,
)


@given(body=fields(items=st.lists(odd(ITEMS), max_size=3), other=ANY_JSON))
def test_whatever_a_metrics_api_answers_gives_usages_or_an_error_that_is_reported(body: dict[str, Any]) -> None:
    try:
        answer = fill_usages(QUERY, read_as(PodMetricsList, encode(body), "GET /x"))
    except (ClusterError, ValueError, KeyError, TypeError, AttributeError):
        return
    assert pods_of(answer.pods) == [item["metadata"]["name"] for item in body.get("items") or ()]
    assert encode(answer) == encode(fill(QUERY, body))


class Adapter:
    """A custom metrics API that answers every question with these bytes."""

    name = "east"

    def __init__(self, data: bytes) -> None:
        self.data = data

    async def get_patiently(self, path: str, *, timeout_s: float) -> dict[str, Any]:
        return read_object(self.data, f"GET {path}")

    async def versions(self, group: str) -> list[str]:
        return ["v1beta1"]


@pytest.mark.parametrize("seconds", [b"Infinity", b"1e999", b"NaN", b"[]", b'"soon"'])
async def test_a_window_without_end_is_an_answer_that_cannot_be_read(seconds: bytes) -> None:
    data = b'{"items": [{"describedObject": {"name": "web"}, "value": "1", "windowSeconds": %s}]}' % seconds
    poller = MetricsPoller(
        Adapter(data),  # type: ignore[arg-type]
        Adapter(data),  # type: ignore[arg-type]
        metrics=ObserverMetrics(CollectorRegistry()),
        troubles=Troubles(lambda: 1, lambda: None),
        timeout_s=5.0,
        at_once=1,
        answers=AsyncMock(return_value=True),
        rules=lambda: CURRENT_API,
    )
    (answer,) = await poller.ask("shop", [MetricAnswer(api="pods", selector="app=web", metric="requests")])
    assert answer.error is not None
    assert answer.error.startswith("the answer cannot be read: ")
