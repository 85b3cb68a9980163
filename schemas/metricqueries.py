"""The query that one metric of an HPA sends to a metrics API: sent by the observer, looked up by the evaluation.

Source: k8s.io/metrics clients and pkg/controller/podautoscaler/metrics/client.go.
"""

from typing import Final

from schemas.answers import AnswerIdentity, MetricAnswer, MetricsApiName
from schemas.kubernetes.hpa import metric_source
from schemas.kubernetes.selectors import label_selector_text
from schemas.kubernetes.shape import JsonView, group_of

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
