"""Questions to the metrics APIs, their paths, their answers and error texts."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.clusters.answers import error_text
from reconciler.core import metricanswers
from reconciler.core.objects import Asking, asking_of
from schemas.answers import MetricAnswer
from schemas.codec import encode
from schemas.kubernetes.selectors import Selector, parse_selector
from schemas.limits import OverLimitError
from schemas.observed import Target
from tests.kit.answers import pods_of, usages_of

TARGET = Target(group="apps", kind="Deployment", name="web")
CPU = {"type": "Resource", "resource": {"name": "cpu"}}


def hpa(*metrics: dict[str, Any], name: str = "web") -> Asking:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return asking_of({"metadata": {"name": name}, "spec": {"scaleTargetRef": reference, "metrics": list(metrics)}})


def external(name: str, selector: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "External", "external": {"metric": {"name": name} | ({"selector": selector} if selector else {})}}


def described(kind: str, name: str, api_version: str = "") -> dict[str, Any]:
    about = {"kind": kind, "name": name} | ({"apiVersion": api_version} if api_version else {})
    return {"type": "Object", "object": {"metric": {"name": "m"}, "describedObject": about}}


def test_nothing_is_asked_about_metrics_that_are_pushed() -> None:
    hpas, selectors = [hpa(CPU, external("q"))], {TARGET: "app=web"}
    assert metricanswers.queries(hpas, selectors, {"Resource"}) == [MetricAnswer(api="external", metric="q")]
    assert metricanswers.queries(hpas, selectors, {"Resource", "External"}) == []


def test_a_question_that_several_metrics_share_is_asked_once() -> None:
    memory = {"type": "ContainerResource", "containerResource": {"name": "memory", "container": "c"}}
    asked = metricanswers.queries([hpa(CPU, memory, external("q")), hpa(external("q"))], {TARGET: "app=web"})
    assert asked == [MetricAnswer(api="resource", selector="app=web"), MetricAnswer(api="external", metric="q")]


def test_pod_metrics_wait_for_the_selector_others_do_not() -> None:
    assert metricanswers.queries([hpa(CPU, external("q"))], {}) == [MetricAnswer(api="external", metric="q")]
    assert metricanswers.queries([hpa(CPU)], {TARGET: ""}) == []


def test_a_metric_whose_selector_cannot_be_read_is_not_asked_for() -> None:
    bad = external("q", {"matchExpressions": [{"key": "a", "operator": "Near"}]})
    assert metricanswers.queries([hpa(bad)], {}) == []


@pytest.mark.parametrize(
    ("metric", "resource", "path"),
    [
        pytest.param(
            {"type": "Pods", "pods": {"metric": {"name": "rps", "selector": {"matchLabels": {"v": "1"}}}}},
            "",
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/rps"
            "?labelSelector=app%3Dweb&metricLabelSelector=v%3D1",
            id="pods",
        ),
        pytest.param(
            described("Ingress", "main", "networking.k8s.io/v1"),
            "ingresses.networking.k8s.io",
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/ingresses.networking.k8s.io/main/m",
            id="object of a group",
        ),
        pytest.param(
            described("Namespace", "other"),
            "",
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/metrics/m",
            id="the core Namespace is the HPA's own, under any name",
        ),
        pytest.param(
            described("Namespace", "other", "acme.io/v1"),
            "namespaces.acme.io",
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/namespaces.acme.io/other/m",
            id="a Namespace of another group is an object like others",
        ),
    ],
)
def test_custom_paths(metric: dict[str, Any], resource: str, path: str) -> None:
    (query,) = metricanswers.queries([hpa(metric)], {TARGET: "app=web"})
    assert metricanswers.custom_path(query, "shop", "v1beta2", resource) == path


def test_resource_and_external_paths() -> None:
    assert metricanswers.resource_path("shop") == "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods"
    assert metricanswers.resource_path("shop", "a in (x,y)").endswith("/pods?labelSelector=a+in+%28x%2Cy%29")
    (query,) = metricanswers.queries([hpa(external("queue", {"matchLabels": {"queue": "orders"}}))], {})
    expected = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue?labelSelector=queue%3Dorders"
    assert metricanswers.external_path(query, "shop") == expected


def usage(pod: str, **labels: str) -> dict[str, Any]:
    containers = [{"name": "app", "usage": {"cpu": "275538812n", "memory": "1Ki"}}]
    metadata = {"name": pod, "labels": labels}
    return {"metadata": metadata, "timestamp": "2026-11-21T12:00:00Z", "window": "15.5s", "containers": containers}


def pod_metrics(*items: dict[str, Any]) -> metricanswers.PodMetricsList:
    return msgspec.json.decode(encode({"items": items}), type=metricanswers.PodMetricsList)


def test_one_list_is_split_by_labels_and_no_match_is_an_empty_answer() -> None:
    asked = [MetricAnswer(api="resource", selector=text) for text in ("app=a", "app in (a,b)", "app=c")]
    found = metricanswers.split_usages(asked, pod_metrics(usage("p1", app="a"), usage("p2", app="b")))
    assert [pods_of(answer.pods) for answer in found] == [["p1"], ["p1", "p2"], []]
    assert all(answer.error is None for answer in found)
    first = usages_of(found[0].pods)[0]
    assert (first.time, first.window_ms) == (1_795_262_400_000, 15_500)
    assert first.containers == [("app", {"cpu": 276, "memory": 1_024_000})]


@given(st.lists(st.dictionaries(st.sampled_from("ab"), st.sampled_from("xyz")), max_size=12))
def test_each_selector_gets_its_items_in_their_order(labels: list[dict[str, str]]) -> None:
    asked = [MetricAnswer(api="resource", selector=text) for text in ("a=x", "a in (x,y)", "!a", "b!=z,a")]
    items = [usage(f"p{number}", **each) for number, each in enumerate(labels)]
    found = metricanswers.split_usages(asked, pod_metrics(*items))
    for query, answer in zip(asked, found, strict=True):
        matches = parse_selector(query.selector).matches
        assert pods_of(answer.pods) == [f"p{n}" for n, each in enumerate(labels) if matches(each)]


def with_proxy(pod: str, app: str, *, is_first: bool) -> dict[str, Any]:
    made, proxy = usage(pod, app=app), {"name": "proxy", "usage": {"cpu": "1500000n", "memory": "2Ki"}}
    made["containers"].insert(0 if is_first else 1, proxy)
    return made


@pytest.mark.parametrize("selectors", [["app=a", "app=b"], ["app in (a,b)"], ["app=b"]])
def test_pods_with_a_sidecar_have_the_same_columns_in_whichever_order_containers_come(selectors: list[str]) -> None:
    items = [with_proxy(f"p{number}", "ab"[number % 2], is_first=number % 3 == 0) for number in range(6)]
    asked = [MetricAnswer(api="resource", selector=text) for text in selectors]
    answers = metricanswers.split_usages(asked, pod_metrics(*items))
    whole = [("app", {"cpu": 276, "memory": 1_024_000}), ("proxy", {"cpu": 2, "memory": 2_048_000})]
    for query, answer in zip(asked, answers, strict=True):
        own = [item for item in items if parse_selector(query.selector).matches(item["metadata"]["labels"])]
        assert pods_of(answer.pods) == [item["metadata"]["name"] for item in own]
        assert all(each.containers == whole for each in usages_of(answer.pods))
        assert answer == metricanswers.fill(query, {"items": own})


def test_two_containers_of_one_name_are_not_taken_for_one() -> None:
    item = with_proxy("p1", "a", is_first=True)
    item["containers"][0]["name"] = "app"
    asked = [MetricAnswer(api="resource", selector="app=a")]
    (answer,) = metricanswers.split_usages(asked, pod_metrics(item))
    assert [used["cpu"] for _, used in usages_of(answer.pods)[0].containers] == [2, 276]


def test_an_answer_that_is_too_large_is_an_error_of_its_metric() -> None:
    query = MetricAnswer(api="pods", metric="rps", selector="app=web")
    items = [{"describedObject": {"name": f"web-{number:05}"}, "value": "1"} for number in range(10_001)]
    answer = metricanswers.within_limits(metricanswers.fill(query, {"items": items}))
    text = "pods in an answer of a metrics API of rps: 10001 pods, the limit is 10000"
    assert answer == metricanswers.failed(query, text)
    good = metricanswers.fill(query, {"items": items[:10_000]})
    assert metricanswers.within_limits(good) is good
    names = [{"metadata": {"name": str(n)}, "containers": [{"name": str(n), "usage": {"cpu": 1}}]} for n in range(999)]
    with pytest.raises(OverLimitError, match="so many containers"):
        metricanswers.fill(MetricAnswer(api="resource"), {"items": names})


@pytest.mark.parametrize("workloads", [1, 10, 300])
def test_each_workloads_question_looks_at_its_own_pods_alone(workloads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    looked, matches = [0], Selector.matches

    def counted(selector: Selector, labels: dict[str, str]) -> bool:
        looked[0] += 1
        return matches(selector, labels)

    monkeypatch.setattr(Selector, "matches", counted)
    asked = [MetricAnswer(api="resource", selector=f"app=web-{number},tier=a") for number in range(workloads)]
    items = [usage(f"p{number}", app=f"web-{number}", tier="a") for number in range(workloads)]
    found = metricanswers.split_usages(asked, pod_metrics(*items))
    assert [pods_of(answer.pods) for answer in found] == [[f"p{n}"] for n in range(workloads)]
    assert looked[0] == workloads


def test_items_without_labels_cannot_be_split() -> None:
    assert metricanswers.has_labels(pod_metrics(usage("p")))
    assert not metricanswers.has_labels(pod_metrics({"metadata": {"name": "p"}}))


@pytest.mark.parametrize(
    ("value", "milli"),
    [
        pytest.param(5, 5000, id="a number"),
        pytest.param(0.25, 250, id="a number with a fraction"),
        pytest.param(" 5m ", 5, id="a text with spaces around it"),
    ],
)
def test_a_quantity_is_read_as_gos_decoder_reads_it(value: Any, milli: int) -> None:
    external_item, pod_item = {"value": value}, {"metadata": {"name": "p"}, "containers": [_using(value)]}

    assert metricanswers.fill(MetricAnswer(api="external"), {"items": [external_item]}).items == [(milli, 0)]
    assert usages_of(metricanswers.fill(MetricAnswer(api="resource"), {"items": [pod_item]}).pods)[0].containers == [
        ("c", {"cpu": milli})
    ]


@pytest.mark.parametrize(("saturating", "milli"), [(False, 0), (True, 2**63 - 1)])
def test_a_huge_value_is_what_the_version_of_its_api_server_makes_of_it(saturating: bool, milli: int) -> None:
    item = {"metadata": {"name": "p", "labels": {"app": "web"}}, "containers": [_using("10P")]}
    asked = MetricAnswer(api="resource", selector="app=web")

    (split,) = metricanswers.split_usages([asked], pod_metrics(item), saturating=saturating)
    whole = metricanswers.fill(asked, {"items": [item]}, saturating=saturating)
    series = metricanswers.fill(MetricAnswer(api="external"), {"items": [{"value": "10P"}]}, saturating=saturating)
    value = metricanswers.fill(MetricAnswer(api="object"), {"items": [{"value": "10P"}]}, saturating=saturating)

    assert [usages_of(each.pods)[0].containers for each in (split, whole)] == [[("c", {"cpu": milli})]] * 2
    assert (series.items, value.milli) == ([(milli, 0)], milli)


def _using(value: Any) -> dict[str, Any]:
    return {"name": "c", "usage": {"cpu": value}}


@pytest.mark.parametrize(
    ("seconds", "window_ms"),
    [
        pytest.param(0, 0, id="none"),
        pytest.param(2**63 - 1, -1000, id="beyond 64 bit of nanoseconds it wraps, as Go's duration does"),
    ],
)
def test_a_pods_window_is_a_go_duration(seconds: int, window_ms: int) -> None:
    item = {"describedObject": {"name": "p"}, "value": "1", "windowSeconds": seconds}

    assert metricanswers.fill(MetricAnswer(api="pods"), {"items": [item]}).pods.window_ms == window_ms  # type: ignore[union-attr]


@pytest.mark.parametrize("count", [0, 2])
def test_an_object_answer_must_be_exactly_one(count: int) -> None:
    item = {"value": "5", "timestamp": "2026-11-21T12:00:00Z"}
    answer = metricanswers.fill(MetricAnswer(api="object", metric="m"), {"items": [item] * count})
    text = f"the custom metrics API server returned {count} results when we asked for exactly one"
    assert answer.error == text


STATUS = b'{"kind":"Status","status":"Failure","message":"metrics backend says no","code":503}'


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        pytest.param(503, STATUS, "metrics backend says no", id="the Status' own message"),
        pytest.param(
            503,
            b"service unavailable\n",
            "the server is currently unable to handle the request (get pods.metrics.k8s.io)",
            id="a body that is no Status",
        ),
        pytest.param(
            404,
            b"404 page not found",
            "the server could not find the requested resource (get pods.metrics.k8s.io)",
            id="an API that is not there",
        ),
        pytest.param(
            500,
            b"boom",
            'an error on the server ("boom") has prevented the request from succeeding (get pods.metrics.k8s.io)',
            id="any other error of the server quotes it",
        ),
        pytest.param(
            500,
            b"",
            'an error on the server ("unknown") has prevented the request from succeeding (get pods.metrics.k8s.io)',
            id="a server that says nothing",
        ),
        pytest.param(403, b"Forbidden: no", "Forbidden: no (get pods.metrics.k8s.io)", id="a proxy that forbids"),
    ],
)
def test_error_texts_are_the_api_servers_or_client_gos(status: int, body: bytes, text: str) -> None:
    assert error_text(status, body, "get", "pods.metrics.k8s.io") == text
