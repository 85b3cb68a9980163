"""OTLP metrics, protobuf: each number data point becomes a series.

Source: opentelemetry-proto, metrics/v1/metrics.proto. An ExportMetricsServiceRequest has the same bytes.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from streams.ingest.pieces import Refusal
from streams.ingest.points import nanos_to_ms
from streams.ingest.series import SourceSeries, Temporality

NO_RECORDED_VALUE = 1
"""Bit of `flags`: the series has ended; its value means nothing."""

TEMPORALITIES: dict[int, Temporality] = {1: "delta", 2: "cumulative"}
UNSUPPORTED = ("histogram", "exponential_histogram", "summary")


def read_protobuf(value: bytes) -> Iterator[SourceSeries | Refusal]:
    """Read every data point of a batch; one that cannot be read is given as a refusal, and the rest go on.

    Raises:
        Refusal: `malformed`: not OTLP protobuf.
    """
    try:
        data = MetricsData.FromString(value)
    except DecodeError as error:
        raise Refusal("malformed", f"not OTLP protobuf (truncated, or another format): {error}") from error
    for resource_metrics in data.resource_metrics:
        resource = _attributes(resource_metrics.resource.attributes)
        for scope in resource_metrics.scope_metrics:
            for metric in scope.metrics:
                yield from _metric(metric, resource)


def _metric(metric: Any, resource: dict[str, str]) -> Iterator[SourceSeries | Refusal]:
    kind = metric.WhichOneof("data")
    if kind is None:
        yield Refusal("malformed", f"metric {metric.name!r} has no data")
        return
    data = getattr(metric, kind)
    unsupported = kind.replace("_", " ") if kind in UNSUPPORTED else ""
    temporality: Temporality = "gauge"
    if kind == "sum":
        temporality = temporality_of(data.aggregation_temporality, data.is_monotonic)
    for point in data.data_points:
        try:
            yield _point(metric.name, point, resource, temporality, unsupported)
        except Refusal as refusal:
            yield refusal


def temporality_of(number: int, is_monotonic: bool) -> Temporality:
    """How the points of a sum add up. A sum that may fall (a queue's length) is read like a gauge.

    Raises:
        Refusal: `wrongType`: neither delta nor cumulative.
    """
    if number not in TEMPORALITIES:
        raise Refusal("wrongType", f"aggregationTemporality is {number}: expected 1 (delta) or 2 (cumulative)")
    temporality = TEMPORALITIES[number]
    return "gauge" if temporality == "cumulative" and not is_monotonic else temporality


def _point(name: str, point: Any, resource: dict[str, str], temporality: Temporality, unsupported: str) -> SourceSeries:
    field = f"timeUnixNano of {name}"
    time_ms = nanos_to_ms(point.time_unix_nano, field)
    if point.flags & NO_RECORDED_VALUE:
        raise Refusal("noValue", f"{name}: flags say that no value was recorded")
    value = 0 if unsupported else _number(name, point)
    start_ms = point.start_time_unix_nano // 1_000_000
    return SourceSeries(
        name, _attributes(point.attributes), value, time_ms, resource, start_ms, temporality, unsupported
    )


def _number(name: str, point: Any) -> int | float:
    kind = point.WhichOneof("value")
    if kind is None:
        raise Refusal("noValue", f"{name}: a data point without a value")
    number: int | float = getattr(point, kind)
    return number


def _attributes(pairs: Iterable[Any]) -> dict[str, str]:
    """Attributes that are single values, as texts; lists, maps and bytes are ignored."""
    texts = ((pair.key, _text(pair.value)) for pair in pairs)
    return {key: text for key, text in texts if text is not None}


def _text(value: Any) -> str | None:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return str(value.string_value)
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    if kind in ("int_value", "double_value"):
        return repr(getattr(value, kind))
    return None
