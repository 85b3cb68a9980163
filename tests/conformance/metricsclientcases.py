"""Answers of the metrics APIs: what is asked for, and the values that are read.

Question and answer go through the observer's own reader and the wire form, so what is measured here is what is
deployed.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from reconciler.core.metricanswers import fill
from schemas.answers import MetricAnswer, Query, is_root_scoped, metric_query
from schemas.codec import decode, encode
from schemas.kubernetes.shape import Json
from streams.hpa.observation import (
    ExternalSamples,
    MetricFailure,
    MetricReading,
    ObjectSample,
    PodSamples,
    compile_answer,
)
from tests.conformance.caseinputs import EPOCH_MS, rules_of_case
from tests.conformance.compare import AnswerDifference, differences

SELECTOR, NAMESPACE, METRIC = "app=x", "ns", "m"
_TYPES = {"resource": "Resource", "pods": "Pods", "object": "Object", "external": "External"}


def check(cases: Iterable[Json]) -> Iterator[tuple[int, list[AnswerDifference]]]:
    """Give (1, differences) of each case."""
    for case in cases:
        upstream = {key: case[key] for key in ("out", "error", "request") if key in case}
        query = _query(case)
        ours = {**_out(_read(case, query)), "request": _request(query)}
        yield 1, list(differences(upstream, ours))


def _query(case: Json) -> Query:
    kind = case["kind"]
    if kind not in _TYPES:
        raise ValueError(f"unknown metrics client kind {kind!r}")
    source: dict[str, Any] = {"name": case.get("resource")}
    if kind != "resource":
        source = {
            "metric": {"name": METRIC, "selector": case["metricSelector"]},
            "describedObject": case.get("describedObject"),
        }
    query = metric_query({"type": _TYPES[kind], kind: source}, SELECTOR)
    assert query is not None  # every type of _TYPES has its question
    return query


def _read(case: Json, query: Query) -> MetricReading:
    body = case["response"] or {}
    wire = fill(query, {"items": [body]} if query.api == "object" else body)
    answer = decode(encode(wire), MetricAnswer)
    return compile_answer(answer, case.get("resource", ""), case.get("container", ""), NAMESPACE, rules_of_case(case))


def _out(answer: MetricReading) -> Json:
    match answer:
        case MetricFailure(error):
            return {"error": error}
        case PodSamples(samples):
            return {"out": {pod: [milli, time - EPOCH_MS, window] for pod, (milli, time, window) in samples.items()}}
        case ObjectSample(value_milli):
            return {"out": value_milli}
        case ExternalSamples(values_milli):
            return {"out": list(values_milli)}


def _request(query: Query) -> Json:
    if query.api == "resource":
        return {"labelSelector": query.selector}
    asked: dict[str, Any] = {"metric": query.metric, "metricSelector": query.metric_selector}
    if query.api == "pods":
        return asked | {"groupKind": "Pod", "scope": f"namespaced {NAMESPACE}", "selector": query.selector}
    if query.api == "object":
        own = is_root_scoped(query)
        scope, name = ("root", NAMESPACE) if own else (f"namespaced {NAMESPACE}", query.object)
        return asked | {"groupKind": query.group_kind, "name": name, "scope": scope}
    return asked
