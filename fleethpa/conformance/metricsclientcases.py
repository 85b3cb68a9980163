"""Answers of the metrics APIs: what is asked for, and the values that are read."""

from collections.abc import Iterable, Iterator
from typing import Any

from fleethpa.conformance.caseinputs import EPOCH_MS, Json
from fleethpa.conformance.compare import Difference, differences
from schemas.kubernetes.selectors import label_selector_text
from streams.hpa import metricsclient
from streams.hpa.observation import ExternalSamples, MetricAnswer, MetricFailure, ObjectSample, PodSamples

SELECTOR, NAMESPACE, METRIC = "app=x", "ns", "m"


def check(cases: Iterable[Json]) -> Iterator[tuple[int, list[Difference]]]:
    """Give (1, differences) of each case."""
    for case in cases:
        upstream = {key: case[key] for key in ("out", "error", "request") if key in case}
        ours = {**_out(_read(case)), "request": _request(case)}
        yield 1, list(differences(upstream, ours))


def _read(case: Json) -> MetricAnswer:
    body = case["response"] or {}
    match case["kind"]:
        case "resource":
            return metricsclient.resource_answer(body, case["resource"], case["container"])
        case "pods":
            return metricsclient.pods_answer(body)
        case "object":
            return metricsclient.object_answer(body)
        case "external":
            return metricsclient.external_answer(body)
        case kind:
            raise ValueError(f"unknown metrics client kind {kind!r}")


def _out(answer: MetricAnswer) -> Json:
    match answer:
        case MetricFailure(error):
            return {"error": error}
        case PodSamples(samples):
            return {"out": {pod: [milli, time - EPOCH_MS, window] for pod, (milli, time, window) in samples.items()}}
        case ObjectSample(value_milli):
            return {"out": value_milli}
        case ExternalSamples(values_milli):
            return {"out": list(values_milli)}


def _request(case: Json) -> Json:
    if case["kind"] == "resource":
        return {"labelSelector": SELECTOR}
    asked: dict[str, Any] = {"metric": METRIC, "metricSelector": label_selector_text(case["metricSelector"])}
    if case["kind"] == "pods":
        return asked | {"groupKind": "Pod", "scope": f"namespaced {NAMESPACE}", "selector": SELECTOR}
    if case["kind"] == "object":
        query = metricsclient.object_query(case["describedObject"], NAMESPACE)
        scope = "root" if query.root_scoped else f"namespaced {NAMESPACE}"
        return asked | {"groupKind": query.group_kind, "name": query.name, "scope": scope}
    return asked
