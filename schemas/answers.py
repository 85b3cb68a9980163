"""What metrics APIs are asked, and what they answer, as one record per namespace and poll holds it.

The query of a metric is sent by the observer and looked up by the evaluation. Source: k8s.io/metrics clients and
pkg/controller/podautoscaler/metrics/client.go.
"""

from typing import Final, Literal

from msgspec import Struct

from schemas.kubernetes.hpa import metric_source
from schemas.kubernetes.quantity import wrap_i64
from schemas.kubernetes.selectors import label_selector_text
from schemas.kubernetes.shape import JsonView, group_of
from schemas.limits import Count, Int64, PartCount, TimeMs, WindowMs
from schemas.observed import EntryBody

MetricsApiName = Literal["resource", "pods", "object", "external"]
DEFAULT_WINDOW_MS: Final = 60_000
"""The window of a value that comes without one. Source: `metricServerDefaultMetricWindow` of the same file."""


class PodUsage(Struct, frozen=True, gc=False, array_like=True):
    """One PodMetrics item: `[pod, time, windowMs, [[container, {resource: milli}], …]]`, containers by name or in
    answered order.
    """

    pod: str
    time: TimeMs
    window_ms: WindowMs
    containers: list[tuple[str, dict[str, Int64]]]


class PodValue(Struct, frozen=True, gc=False, array_like=True):
    """One MetricValue of a pod: `[pod, milli, time, windowMs]`."""

    pod: str
    milli: Int64
    time: TimeMs
    window_ms: WindowMs = DEFAULT_WINDOW_MS


class PackedPods(Struct, frozen=True, gc=False, array_like=True):
    """The items of an answer about pods as columns, in answered order (`schemas.packed` makes and reads them).

    A pod is called `prefix` and its part of `names`, which commas divide; its time is `time` less its part of `ages`
    (ms), and its window `window_ms` less its part of `shorter` (ms), which are empty where all have the same. A column
    is `[container, resource, factor, values]`: the milli values are `factor` times these. Of a custom metric there is
    one column, without container and resource.
    """

    version: Literal[1]
    prefix: str
    names: str
    time: TimeMs
    ages: list[int]
    window_ms: WindowMs
    shorter: list[int]
    columns: list[tuple[str, str, int, list[int]]]


def window_of_seconds_ms(seconds: int) -> int:
    """Give a MetricValue's `windowSeconds` in milliseconds: through Go's 64 bit of nanoseconds, which wrap."""
    nanoseconds = wrap_i64(seconds * 10**9)
    return nanoseconds // 10**6 if nanoseconds >= 0 else -(-nanoseconds // 10**6)


class AnswerIdentity(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """What a metrics API was asked (see `MetricAnswer`)."""

    api: MetricsApiName
    selector: str = ""
    metric: str = ""
    metric_selector: str = ""
    group_kind: str = ""
    object: str = ""


class MetricAnswer(AnswerIdentity, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One answer of a metrics API to one query; replaces the previous answer to the same query completely.

    `api` says which API and so which fields matter:
    - `resource`: `selector` (string form of the target's pod selector) → `usages`;
    - `pods`: `metric`, `metricSelector`, `selector` → `values`;
    both come as `packed` where all pods have the same containers and resources;
    - `object`: `metric`, `metricSelector`, `groupKind` (`Kind.group`, no dot for the core group), `object` → `milli`,
      `time`;
    - `external`: `metric`, `metricSelector` → `items` (`[milli, time]`, in answered order).
    `error`: the API's own message, without the controller's prefixes; then nothing else counts. An empty list is a
    valid answer, not an error.

    An answer that is too large for one record comes in `parts` of one `answerId`, which no other answer has, numbered
    by `part` from 0, each with a share of the items. It replaces the former answer when all parts have come; one that
    lacks a part replaces nothing.

    `promql`: the query that a Prometheus was asked in place of the metrics API; without the names of pods, which
    change. No decision depends on it.
    """

    error: str | None = None
    usages: list[PodUsage] = []
    values: list[PodValue] = []
    milli: Int64 = 0
    time: TimeMs = 0
    items: list[tuple[Int64, TimeMs]] = []
    answer_id: str = ""
    part: Count = 0
    parts: PartCount = 1
    packed: PackedPods | None = None
    promql: str = ""


def query_of(answer: MetricAnswer) -> tuple[str, str, str, str, str, str]:
    """What was asked: the identity under which a newer answer replaces this one."""
    return (answer.api, answer.selector, answer.metric, answer.metric_selector, answer.group_kind, answer.object)


class Answers(EntryBody, frozen=True, gc=False, kw_only=True):
    """Answers of the metrics APIs for one namespace, asked together."""

    items: list[MetricAnswer]
    session: str = ""


API_OF: Final[dict[str, MetricsApiName]] = {
    "Resource": "resource",
    "ContainerResource": "resource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}
"""Metric type: the `api` of its question."""

Query = MetricAnswer
"""A question: an answer whose values are not filled in yet."""


def metric_query(metric: JsonView, pod_selector: str) -> Query | None:
    """Give the query of one metric (an item of an autoscaling/v2 `spec.metrics`); None for an unknown type.

    `pod_selector`: string form of the target's pod selector, which Resource, ContainerResource and Pods metrics ask by.

    Raises SelectorError: the metric's own selector cannot be read.
    """
    kind = metric.get("type")
    if kind in ("Resource", "ContainerResource"):
        return MetricAnswer(api="resource", selector=pod_selector)
    if kind not in ("Pods", "Object", "External"):
        return None
    source = metric_source(metric)
    named = source["metric"]
    name, text = named["name"], label_selector_text(named.get("selector"))
    if kind == "Pods":
        return MetricAnswer(api="pods", selector=pod_selector, metric=name, metric_selector=text)
    if kind == "External":
        return MetricAnswer(api="external", metric=name, metric_selector=text)
    described = source["describedObject"]
    return MetricAnswer(
        api="object",
        metric=name,
        metric_selector=text,
        group_kind=_group_kind(described),
        object=described.get("name", ""),
    )


def is_root_scoped(query: AnswerIdentity) -> bool:
    """Say whether an Object metric describes a Namespace, asked for at the root, always the HPA's own."""
    return query.api == "object" and query.group_kind == "Namespace"


def _group_kind(described: JsonView) -> str:
    group = group_of(described.get("apiVersion") or "")
    return f"{described['kind']}.{group}" if group else str(described["kind"])
