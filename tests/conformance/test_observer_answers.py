"""The observer's bodies give the values that upstream's metrics client gives for the same answers of a metrics API."""

import gzip
import json
from pathlib import Path
from typing import Any

from reconciler.core import metricanswers
from schemas.codec import decode, encode
from schemas.samples import MetricAnswer
from schemas.scales import Target
from streams.hpa.observation import ExternalSamples, MetricFailure, ObjectSample, PodSamples
from streams.state.gather import compile_answer

DATA = Path(__file__).parent / "data" / "metrics-client.jsonl.gz"
SCENARIO_START_MS = 946_684_800_000
TARGET = Target(group="apps", kind="Deployment", name="x")


def test_every_answer_means_what_upstream_makes_of_it() -> None:
    with gzip.open(DATA, "rt") as lines:
        cases = [json.loads(line) for line in lines if line.strip()]
    cases = [case for case in cases if "kind" in case]
    assert len(cases) > 100
    for case in cases:
        assert _observed(case) == (case.get("out"), case.get("error")), case


def _observed(case: dict[str, Any]) -> tuple[Any, str | None]:
    (query,) = metricanswers.queries([_hpa(case)], {TARGET: "app=x"})
    assert query.metric_selector == case["request"].get("metricSelector", query.metric_selector)
    response = {"items": [case["response"]]} if case["kind"] == "object" else case["response"]
    wire = decode(encode(metricanswers.fill(query, response)), MetricAnswer)
    match compile_answer(wire, case.get("resource", ""), case.get("container", "")):
        case MetricFailure(error=error):
            return None, error
        case PodSamples(samples=samples):
            found = {pod: [milli, time - SCENARIO_START_MS, window] for pod, (milli, time, window) in samples.items()}
            return found, None
        case ObjectSample(value_milli=milli):
            return milli, None
        case ExternalSamples(values_milli=values):
            return list(values), None


def _hpa(case: dict[str, Any]) -> dict[str, Any]:
    named = {"name": "m", "selector": case.get("metricSelector")}
    metric: dict[str, Any] = {
        "resource": {"type": "Resource", "resource": {"name": case.get("resource")}},
        "pods": {"type": "Pods", "pods": {"metric": named}},
        "object": {"type": "Object", "object": {"metric": named, "describedObject": case.get("describedObject")}},
        "external": {"type": "External", "external": {"metric": named}},
    }[case["kind"]]
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
    return {"metadata": {"name": "h"}, "spec": {"scaleTargetRef": reference, "metrics": [metric]}}
