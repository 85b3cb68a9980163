"""What ingest would read from a message, before it is sent; and an example of each format, for docs and tests too."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson
from google.protobuf.json_format import Parse
from msgspec import Struct
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from schemas import topics
from schemas.answers import Answers, unpacked
from schemas.keys import namespace_key
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.limits import Refusal
from schemas.observed import Samples
from schemas.topics import Headers
from streams.ingest import convert as messageformats
from streams.ingest import own as topickinds
from streams.ingest.bodies import kind_of
from streams.ingest.convert import convert
from streams.ingest.logwriter import log_entries
from streams.ingest.mapping import Mapping, Resolver
from streams.ingest.pieces import Conversion, RawRecord

EXAMPLE_TIME_MS = 1_790_000_015_000
"""2026-09-21T14:13:35Z."""

_IDENTITY = {"k8s.cluster.name": "prod-eu", "k8s.namespace.name": "shop", "k8s.pod.name": "checkout-7c9-abc"}


def example(format_: str, now_ms: int = EXAMPLE_TIME_MS) -> bytes:
    """A message of that format (`formats.FORMATS`) whose samples are of `now_ms` (Unix ms).

    Raises ValueError: no such format.
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
    written: bytes = Parse(_otlp_json(now_ms), MetricsData()).SerializeToString()
    return written


_EXAMPLES: dict[str, Callable[[int], bytes]] = {
    messageformats.SAMPLE: _sample,
    messageformats.OTLP_JSON: _otlp_json,
    messageformats.OTLP_PROTO: _otlp_proto,
    messageformats.PROMETHEUS: _prometheus,
    messageformats.RECORD: _record,
}


_LONG_AGO_MS = 1
"""Kafka's timestamp of a record that no broker has stamped."""


class CheckReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer of `check_record`.

    `result`: `ok`, `partial` (some of it refused), `rejected`, or `unmatched` (nothing of it is wanted). `keys`: key in
    the log (`cluster/namespace`, `*` for every partition) → entries. `entries`: kind → count. `left_out`: reason →
    points that are not taken and not wrong. `reasons`: what is wrong. `metrics`: the HPA metrics that samples became.
    """

    format: str
    topic: str
    result: str
    samples: int
    entries: dict[str, int]
    keys: dict[str, int]
    metrics: dict[str, int]
    left_out: dict[str, int]
    reasons: list[str]

    @property
    def is_rejected(self) -> bool:
        """Whether the message, or a part of it, would go to the topic of rejected records."""
        return self.result != "ok"


def check_record(value: bytes, headers: Headers = (), mapping: Mapping | None = None, topic: str = "") -> CheckReport:
    """Say what ingest would make of a message.

    Args:
        topic: where it would be sent; empty: the topic that takes its first entry.
    """
    topic = topic or _fitting_topic(value, headers)
    raw = RawRecord(topic, 0, 0, _LONG_AGO_MS, value, headers)
    found = convert(raw, Resolver(mapping or Mapping()))
    for entry in log_entries(found.pieces, raw, found.time_ms, topics.DEFAULT_PARTITIONS):
        if isinstance(entry, Refusal):
            found.refuse(entry)
    why_nothing = [] if found.pieces else [found.reason()]
    return CheckReport(
        format=found.format,
        topic=topic,
        result=found.result,
        samples=found.points + _answered(found),
        entries=dict(Counter(kind_of(piece.body) for piece in found.pieces)),
        keys=dict(
            Counter("*" if p.is_whole_partition else namespace_key(p.cluster, p.namespace) for p in found.pieces)
        ),
        metrics=_metrics(found),
        left_out=dict(found.left_out),
        reasons=list(dict.fromkeys(refusal.text for refusal in found.refusals)) or why_nothing,
    )


def _fitting_topic(value: bytes, headers: Headers) -> str:
    """The public topic of a record of ours; the topic of samples for everything else."""
    if messageformats.is_protobuf(value, headers):
        return topics.SAMPLES
    try:
        document: dict[str, Any] = messageformats.parse_document(value) if value else {}
    except Refusal:
        return topics.SAMPLES  # the conversion names the fault
    entries = document.get("entries")
    first = entries[0] if isinstance(entries, list) and entries else {}
    kind = str(first.get("kind", "")) if isinstance(first, dict) else ""
    if kind == "command" and not (document.get("namespace") and first.get("command") == "mode"):
        return topics.SETTINGS
    if isinstance(first, dict) and first.get("origin") == "central":
        return topics.SPECS
    return next(iter(topickinds.topics_of(kind)), topics.SAMPLES)


def _answered(found: Conversion) -> int:
    answers = [unpacked(item) for piece in found.pieces if isinstance(piece.body, Answers) for item in piece.body.items]
    return sum(len(answer.usages) + len(answer.values) + len(answer.items) for answer in answers)


def _metrics(found: Conversion) -> dict[str, int]:
    points = [point for piece in found.pieces if isinstance(piece.body, Samples) for point in piece.body.points]
    return dict(Counter(f"{point.type} {point.metric}" for point in points))
