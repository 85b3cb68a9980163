"""OTLP metrics, protobuf or JSON: each number data point becomes a series. Source: opentelemetry-proto,
metrics/v1/metrics.proto.

JSON is read into structs with the attributes of protobuf's messages, so that one walk reads both; that is some thirty
times faster than protobuf's own reader of JSON. The collector writes 64-bit integers as texts, NaN and infinities too,
enums as integers, and leaves out what is zero or empty; other producers write numbers. Unknown fields are ignored.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, cast

import msgspec
import orjson
from google.protobuf.json_format import Parse
from google.protobuf.message import DecodeError, Message
from msgspec import Meta, Struct
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from schemas.codec import in_words
from schemas.limits import Int64, Refusal
from streams.ingest.checks import nanos_to_ms

T = TypeVar("T")
Temporality = Literal["gauge", "delta", "cumulative"]


class SourceSeries(NamedTuple):
    """`resource` describes who sent it (OpenTelemetry only), `attributes` (labels) distinguish series of one name.

    `value` is still what the producer wrote; `unsupported` names a kind of point that has no single value.
    """

    name: str
    attributes: Mapping[str, str]
    value: int | float | str
    time_ms: int
    resource: Mapping[str, str] = {}
    start_ms: int = 0
    temporality: Temporality = "gauge"
    unsupported: str = ""

    def attribute(self, name: str) -> str:
        """The value of a label or resource attribute; the point's own wins; empty when absent."""
        return self.attributes.get(name) or self.resource.get(name) or ""


NO_RECORDED_VALUE = 1
"""Bit of `flags`: the series has ended; its value means nothing."""

TEMPORALITIES: dict[int | str, Temporality] = {
    1: "delta",
    2: "cumulative",
    "AGGREGATION_TEMPORALITY_DELTA": "delta",
    "AGGREGATION_TEMPORALITY_CUMULATIVE": "cumulative",
}
UNSUPPORTED = ("histogram", "exponential_histogram", "summary")
_KINDS = ("gauge", "sum", *UNSUPPORTED)
_NUMBERS = ("as_int", "as_double")
_TEXTS = ("string_value", "bool_value", "int_value", "double_value")

# --- JSON, with the attributes of protobuf's messages; of lists, each item is read by itself --------------------------

_Nanos = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class _Value(Struct, frozen=True, rename="camel"):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: Int64 | None = None
    double_value: float | None = None


class _KeyValue(Struct, frozen=True):
    key: str
    value: _Value = _Value()


class _Point(Struct, frozen=True, rename="camel"):
    time_unix_nano: _Nanos = 0
    start_time_unix_nano: _Nanos = 0
    flags: Int64 = 0
    as_int: Int64 | None = None
    as_double: float | str | None = None
    attributes: list[_KeyValue] = []


class _Data(Struct, frozen=True, rename="camel"):
    data_points: list[Any] = []
    aggregation_temporality: int | str = 0
    is_monotonic: bool = False


class _Metric(Struct, frozen=True, rename="camel"):
    name: str = ""
    gauge: _Data | None = None
    sum: _Data | None = None
    histogram: _Data | None = None
    exponential_histogram: _Data | None = None
    summary: _Data | None = None


class _Scope(Struct, frozen=True):
    metrics: list[Any] = []


class _Resource(Struct, frozen=True):
    attributes: list[_KeyValue] = []


class _ResourceMetrics(Struct, frozen=True, rename="camel"):
    resource: _Resource = _Resource()
    scope_metrics: list[Any] = []


class _Batch(Struct, frozen=True, rename="camel"):
    resource_metrics: list[Any] = []


def _made(item: object, type_: type[T], place: str, index: int | None = None) -> T:
    """Return a message as it is, and JSON as `type_`. Raises Refusal: `wrongType`, naming the field."""
    if isinstance(item, Message):
        return cast(T, item)
    try:
        return msgspec.convert(item, type_, strict=False)
    except msgspec.ValidationError as error:
        at = place if index is None else f"{place}[{index}]"
        raise Refusal("wrongType", in_words(error, at)) from error


def _set_field(message: Any, group: str, names: tuple[str, ...]) -> str | None:
    """Name the field of a group that is set, if it is one of these."""
    if isinstance(message, Message):
        name: str | None = message.WhichOneof(group)
        return name if name in names else None
    return next((name for name in names if getattr(message, name) is not None), None)


# --- both -------------------------------------------------------------------------------------------------------------


def read_protobuf(value: bytes) -> Iterator[SourceSeries | Refusal]:
    """Read every data point of a batch; one that cannot be read is given as a refusal, and the rest go on.

    Raises Refusal: `malformed`: not OTLP protobuf.
    """
    try:
        return _batch(MetricsData.FromString(value))
    except DecodeError as error:
        raise Refusal("malformed", f"not OTLP protobuf (truncated, or another format): {error}") from error


def read_json(document: dict[str, Any]) -> Iterator[SourceSeries | Refusal]:
    """Read every data point of a batch; what cannot be read is given as a refusal, and the rest go on.

    Raises Refusal: `wrongType`: it is no batch.
    """
    return _batch(_made(document, _Batch, ""))


def _batch(batch: Any) -> Iterator[SourceSeries | Refusal]:
    refused: list[Refusal] = []
    for at, made in _parts(batch.resource_metrics, _ResourceMetrics, "resourceMetrics", refused.append):
        resource, scopes = _attributes(made.resource.attributes), f"resourceMetrics[{at}].scopeMetrics"
        for within, scope in _parts(made.scope_metrics, _Scope, scopes, refused.append):
            metrics = f"{scopes}[{within}].metrics"
            for number, metric in _parts(scope.metrics, _Metric, metrics, refused.append):
                yield from _metric(metric, f"{metrics}[{number}]", resource, refused.append)
    yield from refused


def _parts(
    items: Iterable[object], type_: type[T], place: str, refuse: Callable[[Refusal], None]
) -> Iterator[tuple[int, T]]:
    """The items of a list that can be read, with their indices."""
    for index, item in enumerate(items):
        try:
            part = _made(item, type_, place, index)
        except Refusal as refusal:
            refuse(refusal)
        else:
            yield index, part


def _metric(
    metric: _Metric, place: str, resource: dict[str, str], refuse: Callable[[Refusal], None]
) -> Iterator[SourceSeries]:
    kind = _set_field(metric, "data", _KINDS)
    if kind is None:
        refuse(Refusal("malformed", f"metric {metric.name!r} at {place} has no data (gauge, sum, …)"))
        return
    data: _Data = getattr(metric, kind)
    try:
        temporality = temporality_of(data) if kind == "sum" else "gauge"
    except Refusal as refusal:
        refuse(refusal)
        return
    unsupported = kind.replace("_", " ") if kind in UNSUPPORTED else ""
    for _, point in _parts(data.data_points, _Point, f"{place}.{kind}.dataPoints", refuse):
        try:
            yield _point(metric.name, point, resource, temporality, unsupported)
        except Refusal as refusal:
            refuse(refusal)


def temporality_of(data: _Data) -> Temporality:
    """How the points of a sum add up. A sum that may fall (a queue's length) is read like a gauge.

    Raises Refusal: `wrongType`: neither delta nor cumulative.
    """
    temporality = TEMPORALITIES.get(data.aggregation_temporality)
    if temporality is None:
        number = data.aggregation_temporality
        raise Refusal("wrongType", f"aggregationTemporality is {number}: expected 1 (delta) or 2 (cumulative)")
    return "gauge" if temporality == "cumulative" and not data.is_monotonic else temporality


def _point(
    name: str, point: _Point, resource: dict[str, str], temporality: Temporality, unsupported: str
) -> SourceSeries:
    time_ms = nanos_to_ms(point.time_unix_nano, f"timeUnixNano of {name}")
    if point.flags & NO_RECORDED_VALUE:
        raise Refusal("noValue", f"{name}: flags say that no value was recorded")
    kind = None if unsupported else _set_field(point, "value", _NUMBERS)
    if kind is None and not unsupported:
        raise Refusal("noValue", f"{name}: a data point without a value")
    value = 0 if kind is None else getattr(point, kind)
    start_ms = point.start_time_unix_nano // 1_000_000
    return SourceSeries(
        name, _attributes(point.attributes), value, time_ms, resource, start_ms, temporality, unsupported
    )


def _attributes(pairs: Iterable[_KeyValue]) -> dict[str, str]:
    """Attributes that are single values, as texts; lists, maps and bytes are ignored."""
    attributes: dict[str, str] = {}
    for pair in pairs:
        kind = _set_field(pair.value, "value", _TEXTS)
        if kind is not None:
            value = getattr(pair.value, kind)
            attributes[pair.key] = str(value).lower() if kind == "bool_value" else str(value)
    return attributes


# --- examples ---------------------------------------------------------------------------------------------------------

_IDENTITY = {"k8s.cluster.name": "prod-eu", "k8s.namespace.name": "shop", "k8s.pod.name": "checkout-7c9-abc"}


def pretty(value: object) -> bytes:
    """Return a JSON document as people read it."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n"


def example_json(now_ms: int) -> bytes:
    """Return a message whose samples are of `now_ms` (Unix ms)."""
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
    return pretty({"resourceMetrics": [{"resource": {"attributes": attributes}, "scopeMetrics": [scope]}]})


def example_protobuf(now_ms: int) -> bytes:
    """Return the same message as protobuf."""
    written: bytes = Parse(example_json(now_ms), MetricsData()).SerializeToString()
    return written
