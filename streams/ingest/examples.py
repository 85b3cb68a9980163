"""A message of each accepted format, as its producer would send it: for `fleethpa ingest sample`, docs and tests."""

from collections.abc import Callable

import orjson
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from schemas.kubernetes.gotimes import rfc3339_seconds
from streams.ingest import messageformats

EXAMPLE_TIME_MS = 1_790_000_015_000
"""2026-09-21T14:13:35Z."""

_IDENTITY = {"k8s.cluster.name": "prod-eu", "k8s.namespace.name": "shop", "k8s.pod.name": "checkout-7c9-abc"}


def example(format_: str, now_ms: int = EXAMPLE_TIME_MS) -> bytes:
    """A message of that format (`formats.FORMATS`) whose samples are of `now_ms` (Unix ms).

    Raises:
        ValueError: no such format.
    """
    if format_ not in _EXAMPLES:
        raise ValueError(f"format must be one of {', '.join(_EXAMPLES)}, got {format_!r}")
    return _EXAMPLES[format_](now_ms)


def _pretty(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n"


def _sample(now_ms: int) -> bytes:
    return _pretty(
        {
            "v": 1,
            "ts": now_ms,
            "cluster": "prod-eu",
            "namespace": "shop",
            "type": "External",
            "metric": "queue_depth",
            "value": 610,
            "labels": {"queue": "pay"},
        }
    )


def _record(now_ms: int) -> bytes:
    usage = ["checkout-7c9-abc", now_ms, 15_000, [["app", {"cpu": 335, "memory": 201_326_592_000}]]]
    answer = {"api": "resource", "selector": "app=checkout", "usages": [usage]}
    return _pretty(
        {
            "v": 1,
            "cluster": "prod-eu",
            "namespace": "shop",
            "time": now_ms,
            "entries": [{"kind": "answers", "session": "observer-1", "items": [answer]}],
        }
    )


def _prometheus(now_ms: int) -> bytes:
    name = "http_requests_per_second"
    return _pretty(
        {
            "timestamp": rfc3339_seconds(now_ms),
            "value": "112.5",
            "name": name,
            "labels": {"__name__": name, "namespace": "shop", "pod": "checkout-7c9-abc", "cluster": "prod-eu"},
        }
    )


def _otlp_json(now_ms: int) -> bytes:
    attributes = [{"key": key, "value": {"stringValue": text}} for key, text in _IDENTITY.items()]
    time = str(now_ms * 1_000_000)
    gauge = {"dataPoints": [{"timeUnixNano": time, "asDouble": 0.335}]}
    requests = {
        "aggregationTemporality": 2,
        "isMonotonic": True,
        "dataPoints": [
            {
                "attributes": [{"key": "route", "value": {"stringValue": "/pay"}}],
                "startTimeUnixNano": str((now_ms - 15_000) * 1_000_000),
                "timeUnixNano": time,
                "asInt": "1841",
            }
        ],
    }
    metrics = [
        {"name": "k8s.pod.cpu.usage", "unit": "{cpu}", "gauge": gauge},
        {"name": "http.server.requests", "sum": requests},
    ]
    scope = {"scope": {"name": "example"}, "metrics": metrics}
    return _pretty({"resourceMetrics": [{"resource": {"attributes": attributes}, "scopeMetrics": [scope]}]})


def _otlp_proto(now_ms: int) -> bytes:
    data = MetricsData()
    resource_metrics = data.resource_metrics.add()
    for key, text in _IDENTITY.items():
        resource_metrics.resource.attributes.add(key=key).value.string_value = text
    metric = resource_metrics.scope_metrics.add().metrics.add(name="k8s.pod.cpu.usage", unit="{cpu}")
    metric.gauge.data_points.add(time_unix_nano=now_ms * 1_000_000, as_double=0.335)
    written: bytes = data.SerializeToString()
    return written


_EXAMPLES: dict[str, Callable[[int], bytes]] = {
    messageformats.SAMPLE: _sample,
    messageformats.OTLP_JSON: _otlp_json,
    messageformats.OTLP_PROTO: _otlp_proto,
    messageformats.PROMETHEUS: _prometheus,
    messageformats.RECORD: _record,
}
