"""Which questions the HPAs of a namespace have for the metrics APIs, and their answers as bodies.

Source: k8s.io/metrics clients and pkg/controller/podautoscaler/metrics/client.go; paths as in recorded requests.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import structs

from reconciler.core.objectbodies import group_of, target_of, time_ms
from schemas.kubernetes.selectors import SelectorError, label_selector_text, parse_selector
from schemas.kubernetes.shape import json_milli
from schemas.samples import MetricAnswer, PodUsage, PodValue, query_of, window_of_seconds_ms
from schemas.scales import Target

Json = Mapping[str, Any]
Query = MetricAnswer
"""A question: an answer whose values are not filled in yet."""

_DEFAULT_WINDOW_MS = 60_000
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|h|m|s)")
_UNIT_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6}


# --- questions --------------------------------------------------------------------------------------------------------


def queries(hpas: Iterable[Json], selectors: Mapping[Target, str]) -> list[Query]:
    """The questions of these HPAs, each once, in the order in which they first occur.

    `selectors`: status.selector of the targets whose scale is known. A question that needs the selector of an unknown
    or
    empty one is not asked, as upstream does not get that far; nor is one whose own selector cannot be read.
    """
    found: dict[Any, Query] = {}
    for hpa in hpas:
        selector = selectors.get(target_of(hpa), "")
        for metric in hpa["spec"].get("metrics") or ():
            query = _query(metric, selector)
            if query is not None:
                found.setdefault(query_of(query), query)
    return list(found.values())


def _query(metric: Json, selector: str) -> Query | None:
    try:
        match metric.get("type"):
            case "Resource" | "ContainerResource":
                return MetricAnswer(api="resource", selector=selector) if selector else None
            case "Pods":
                return _pods_query(metric["pods"]["metric"], selector) if selector else None
            case "Object":
                return _object_query(metric["object"])
            case "External":
                named = metric["external"]["metric"]
                return MetricAnswer(
                    api="external", metric=named["name"], metric_selector=label_selector_text(named.get("selector"))
                )
            case _:
                return None
    except SelectorError:
        return None


def _pods_query(named: Json, selector: str) -> Query:
    text = label_selector_text(named.get("selector"))
    return MetricAnswer(api="pods", selector=selector, metric=named["name"], metric_selector=text)


def _object_query(source: Json) -> Query:
    described, named = source["describedObject"], source["metric"]
    group = group_of(described.get("apiVersion") or "")
    return MetricAnswer(
        api="object",
        metric=named["name"],
        metric_selector=label_selector_text(named.get("selector")),
        group_kind=f"{described['kind']}.{group}" if group else described["kind"],
        object=described["name"],
    )


def resource_path(namespace: str, selector: str = "") -> str:
    """Path of metrics.k8s.io; without a selector for the whole namespace."""
    return f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods{_asked({'labelSelector': selector})}"


def custom_path(query: Query, namespace: str, version: str, resource: str = "") -> str:
    """Path of custom.metrics.k8s.io for a `pods` or `object` question.

    `resource`: plural and group of the described object, such as `ingresses.networking.k8s.io`. The core group's
    Namespace is asked for at the root, under the HPA's own namespace, whatever the described object is called.
    """
    base = f"/apis/custom.metrics.k8s.io/{version}/namespaces/{namespace}"
    metric = quote(query.metric, safe="")
    if query.api == "pods":
        asked = {"labelSelector": query.selector, "metricLabelSelector": query.metric_selector}
        return f"{base}/pods/*/{metric}{_asked(asked)}"
    asked = {"metricLabelSelector": query.metric_selector}
    if query.group_kind == "Namespace":
        return f"{base}/metrics/{metric}{_asked(asked)}"
    return f"{base}/{resource}/{quote(query.object, safe='')}/{metric}{_asked(asked)}"


def external_path(query: Query, namespace: str) -> str:
    """Path of external.metrics.k8s.io."""
    base = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{quote(query.metric, safe='')}"
    return base + _asked({"labelSelector": query.metric_selector})


def _asked(parameters: Mapping[str, str]) -> str:
    given = {name: value for name, value in parameters.items() if value}
    return f"?{urlencode(given)}" if given else ""


# --- answers ----------------------------------------------------------------------------------------------------------


def failed(query: Query, error: str) -> MetricAnswer:
    """The API's error as the answer."""
    return structs.replace(query, error=error)


def has_labels(items: Sequence[Json]) -> bool:
    """Whether PodMetrics carry their pods' labels, so that one list can be split by selectors."""
    return all("labels" in (item.get("metadata") or {}) for item in items)


def split_usages(asked: Sequence[Query], items: Sequence[Json]) -> list[MetricAnswer]:
    """Answer several `resource` questions from one list of a namespace, by the labels of its items."""
    usages = [((item["metadata"].get("labels") or {}), pod_usage(item)) for item in items]
    return [_select(query, usages) for query in asked]


def _select(query: Query, usages: Sequence[tuple[dict[str, str], PodUsage]]) -> MetricAnswer:
    try:
        matches = parse_selector(query.selector).matches
    except SelectorError as error:
        return failed(query, str(error))
    return structs.replace(query, usages=[usage for labels, usage in usages if matches(labels)])


def fill(query: Query, body: Json) -> MetricAnswer:
    """The answer to one question from the body of a 200.

    Raises:
        ValueError: the body is not what the API promises; KeyError and TypeError likewise.
    """
    items = body.get("items") or ()
    match query.api:
        case "resource":
            return structs.replace(query, usages=[pod_usage(item) for item in items])
        case "pods":
            return structs.replace(query, values=[_pod_value(item) for item in items])
        case "object":
            return _object_answer(query, body)
        case _:
            return structs.replace(query, items=[_series(item) for item in items])


def _object_answer(query: Query, body: Json) -> MetricAnswer:
    items: list[Json] = body.get("items") or []
    if len(items) != 1:
        return failed(
            query, f"the custom metrics API server returned {len(items)} results when we asked for exactly one"
        )
    value = items[0]
    return structs.replace(query, milli=json_milli(value["value"]), time=time_ms(value.get("timestamp")) or 0)


def pod_usage(item: Json) -> PodUsage:
    """One PodMetrics item."""
    containers = [
        (each["name"], {name: json_milli(value) for name, value in (each.get("usage") or {}).items()})
        for each in item.get("containers") or ()
    ]
    return PodUsage(
        pod=item["metadata"]["name"],
        time=time_ms(item.get("timestamp")) or 0,
        window_ms=duration_ms(item.get("window") or "0s"),
        containers=containers,
    )


def _pod_value(item: Json) -> PodValue:
    seconds = item.get("windowSeconds")
    if seconds is None:
        seconds = item.get("window")  # v1beta1 of some adapters
    return PodValue(
        pod=item["describedObject"]["name"],
        milli=json_milli(item["value"]),
        time=time_ms(item.get("timestamp")) or 0,
        window_ms=_DEFAULT_WINDOW_MS if seconds is None else window_of_seconds_ms(int(seconds)),
    )


def _series(item: Json) -> tuple[int, int]:
    return json_milli(item["value"]), time_ms(item.get("timestamp")) or 0


def duration_ms(text: str) -> int:
    """Milliseconds of a Go duration such as `1m0.5s`, cut to whole ones.

    Raises:
        ValueError: not a duration.
    """
    if text == "0":
        return 0
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"not a duration: {text!r}")
    nanoseconds = sum(round(float(number) * _UNIT_MS[unit] * 1e6) for number, unit in parts)
    if nanoseconds >= 2**63:
        raise ValueError(f"not a duration: {text!r} is beyond 64 bit of nanoseconds")
    return nanoseconds // 1_000_000
