"""Pods and answers of metrics of a scenario as the log has them."""

from collections.abc import Iterator
from typing import Any

from schemas.answers import MetricAnswer, PodUsage, in_columns, pod_value
from schemas.kubernetes.metricspecs import metric_source
from schemas.kubernetes.selectors import SelectorError, label_selector_text
from schemas.kubernetes.shape import parse_group_version
from schemas.observed import Container, Pod
from tests.conformance.caseinputs import EPOCH_MS

Json = dict[str, Any]


class UntoldError(Exception):
    """A log cannot say this."""


def pod_of(pod: Json, case: Json) -> Pod:
    """Tell a pod of a scenario."""
    shape, start, ready_at = case["templates"][pod.get("template", 0)], pod.get("start"), pod.get("readyAt")
    return Pod(
        name=pod["name"],
        labels=pod["labels"] if "labels" in pod else case["labels"],
        phase=pod.get("phase", "Running"),
        start=None if start is None else EPOCH_MS + start,
        ready=pod.get("ready"),
        ready_at=None if ready_at is None else EPOCH_MS + ready_at,
        deleting=bool(pod.get("deleting")),
        containers=_containers(shape.get("containers")),
        init_containers=_containers(shape.get("initContainers")),
        pod_requests=shape.get("podRequests"),
        overhead=shape.get("overhead") or {},
    )


def hpa_of(metadata: Json, spec: Json) -> Json:
    """Tell an HPA."""
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}


def _containers(shapes: list[Json] | None) -> list[Container]:
    return [
        Container(
            name=each["name"], requests=each.get("requests") or {}, restart_always=bool(each.get("restartAlways"))
        )
        for each in shapes or ()
    ]


def answer_of(metric: Json, answer: Json, selector: str) -> MetricAnswer | None:
    """Tell a metric's answer as the API's; None: nobody asks, or the metric is one that nobody can ask for."""
    kind, source, error = metric.get("type", ""), metric_source(metric), answer.get("error")
    time_ms = EPOCH_MS + answer.get("ts", 0)
    if kind in ("Resource", "ContainerResource"):
        container = source.get("container") or "app"
        usages = [
            PodUsage(pod, at_ms, window_ms, [(container, {source["name"]: milli})])
            for pod, milli, at_ms, window_ms in _samples(answer)
        ]
        # A pod without containers has no sample, so an answer with only that is empty but no error.
        usages = usages or [PodUsage("none", time_ms, 0, [])]
        return MetricAnswer(api="resource", selector=selector, error=error, pods=None if error else in_columns(usages))
    try:
        labels = label_selector_text(source["metric"].get("selector")) if source else ""
    except SelectorError:
        return None
    values = [pod_value(*sample) for sample in _samples(answer)]
    items = [(milli, time_ms) for milli in answer.get("values") or ()]
    if not error and ((kind == "Pods" and not values) or (kind == "External" and not items)):
        raise UntoldError("an answer without a sample that is no error")
    asked: Json = {"metric": source["metric"]["name"], "metric_selector": labels, "error": error} if source else {}
    match kind:
        case "Pods":
            return MetricAnswer(api="pods", selector=selector, pods=in_columns(values), **asked)
        case "External":
            return MetricAnswer(api="external", items=items, **asked)
        case "Object":
            described = source["describedObject"]
            group, _ = parse_group_version(described.get("apiVersion", ""))
            group_kind = f"{described['kind']}.{group}" if group else described["kind"]
            about = {"group_kind": group_kind, "object": described["name"]}
            return MetricAnswer(api="object", milli=answer.get("value", 0), time=time_ms, **about, **asked)
        case _:
            return None


def _samples(answer: Json) -> Iterator[tuple[str, int, int, int]]:
    for pod, value in (answer.get("pods") or {}).items():
        milli, at, window_s = (
            value if isinstance(value, list) else (value, answer.get("ts", 0), answer.get("window", 0))
        )
        yield pod, milli, EPOCH_MS + at, window_s * 1000
