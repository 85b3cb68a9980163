"""Each accepted format becomes the points it means."""

from typing import Any

import orjson
import pytest
from msgspec.structs import replace
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from schemas import topics
from schemas.answers import Answers
from schemas.observed import Point, Samples
from schemas.topics import Headers
from streams.ingest import convert as messageformats
from streams.ingest.convert import convert
from streams.ingest.mapping import Mapping, Resolver
from streams.ingest.pieces import Conversion, RawRecord
from streams.ingest.preflight import EXAMPLE_TIME_MS, example

NOW = EXAMPLE_TIME_MS
NANOS = str(NOW * 1_000_000)
RESOLVER = Resolver(Mapping())
IDENTITY = {"k8s.cluster.name": "prod-eu", "k8s.namespace.name": "shop", "k8s.pod.name": "checkout-1"}


def read(value: bytes, headers: Headers = (), topic: str = topics.SAMPLES) -> Conversion:
    return convert(RawRecord(topic, 1, 7, NOW, value, headers), RESOLVER)


def points(found: Conversion) -> list[Point]:
    return [point for piece in found.pieces if isinstance(piece.body, Samples) for point in piece.body.points]


def attributes(**named: str) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in named.items()]


def otlp_json(metric: dict[str, Any], identity: dict[str, str] = IDENTITY) -> bytes:
    resource = {"attributes": [{"key": key, "value": {"stringValue": value}} for key, value in identity.items()]}
    return orjson.dumps({"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": [metric]}]}]})


def otlp_proto(metric: dict[str, Any], identity: dict[str, str] = IDENTITY) -> bytes:
    """The same metric as protobuf, built from the few fields that the tests use."""
    data = MetricsData()
    resource_metrics = data.resource_metrics.add()
    for key, value in identity.items():
        resource_metrics.resource.attributes.add(key=key).value.string_value = value
    made = resource_metrics.scope_metrics.add().metrics.add(name=metric["name"])
    kind = next(key for key in ("gauge", "sum") if key in metric)
    target = getattr(made, kind)
    if kind == "sum":
        target.aggregation_temporality = metric["sum"].get("aggregationTemporality", 0)
        target.is_monotonic = metric["sum"].get("isMonotonic", False)
    for point in metric[kind]["dataPoints"]:
        _add_point(target.data_points.add(), point)
    written: bytes = data.SerializeToString()
    return written


def _add_point(made: Any, point: dict[str, Any]) -> None:
    made.time_unix_nano = int(point.get("timeUnixNano", 0))
    made.start_time_unix_nano = int(point.get("startTimeUnixNano", 0))
    made.flags = point.get("flags", 0)
    if "asInt" in point:
        made.as_int = int(point["asInt"])
    if "asDouble" in point:
        made.as_double = float(point["asDouble"])
    for pair in point.get("attributes", []):
        made.attributes.add(key=pair["key"]).value.string_value = pair["value"]["stringValue"]


GAUGE = {"name": "k8s.pod.cpu.usage", "gauge": {"dataPoints": [{"timeUnixNano": NANOS, "asDouble": 0.335}]}}
COUNTER = {
    "name": "requests",
    "sum": {
        "aggregationTemporality": 2,
        "isMonotonic": True,
        "dataPoints": [
            {
                "attributes": attributes(route="/pay"),
                "startTimeUnixNano": str((NOW - 15_000) * 1_000_000),
                "timeUnixNano": NANOS,
                "asInt": "1841",
            }
        ],
    },
}
CPU = Point(type="Resource", metric="cpu", milli=335, time=NOW, pod="checkout-1")
REQUESTS = Point(
    type="Pods",
    metric="requests",
    milli=1_841_000,
    time=NOW,
    pod="checkout-1",
    labels={"route": "/pay"},
    temporality="cumulative",
    start_time=NOW - 15_000,
)


def with_sum(**changes: Any) -> dict[str, Any]:
    return COUNTER | {"sum": COUNTER["sum"] | changes}  # type: ignore[operator]


@pytest.mark.parametrize("write", [pytest.param(otlp_json, id="JSON"), pytest.param(otlp_proto, id="protobuf")])
@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        pytest.param(GAUGE, CPU, id="a gauge of doubles"),
        pytest.param(COUNTER, REQUESTS, id="a cumulative counter passes as it is"),
        pytest.param(
            with_sum(aggregationTemporality=1), replace(REQUESTS, temporality="delta"), id="a delta passes as it is"
        ),
        pytest.param(
            with_sum(isMonotonic=False),
            replace(REQUESTS, temporality="gauge"),
            id="a cumulative sum that may fall is read unchanged",
        ),
    ],
)
def test_otlp_numbers(write: Any, metric: dict[str, Any], expected: Any) -> None:
    found = read(write(metric))
    assert found.result == "ok"
    assert points(found) == [expected]


@pytest.mark.parametrize(
    ("point", "milli"),
    [
        pytest.param({"timeUnixNano": NANOS, "asInt": "9007199254740993"}, 9_007_199_254_740_993_000, id="beyond 2^53"),
        pytest.param({"timeUnixNano": int(NANOS), "asInt": 3}, 3_000, id="integers as numbers"),
        pytest.param({"timeUnixNano": NANOS, "asDouble": 2}, 2_000, id="a double without a point"),
        pytest.param({"timeUnixNano": NANOS, "asDouble": "0.25"}, 250, id="a double as text"),
        pytest.param({"timeUnixNano": NANOS, "asInt": "0", "newField": {}}, 0, id="unknown fields are passed over"),
    ],
)
def test_otlp_json_spellings(point: dict[str, Any], milli: int) -> None:
    found = read(otlp_json({"name": "depth", "gauge": {"dataPoints": [point]}}))
    assert [point.milli for point in points(found)] == [milli]


def test_otlp_attributes_that_are_no_texts_become_texts_and_lists_are_left_out() -> None:
    pairs = [
        {"key": "b", "value": {"boolValue": True}},
        {"key": "i", "value": {"intValue": "7"}},
        {"key": "d", "value": {"doubleValue": 1}},
        {"key": "l", "value": {"arrayValue": {"values": []}}},
    ]
    metric = {"name": "depth", "gauge": {"dataPoints": [{"attributes": pairs, "timeUnixNano": NANOS, "asInt": "1"}]}}
    assert points(read(otlp_json(metric)))[0].labels == {"b": "true", "d": "1.0", "i": "7"}


def test_otlp_json_and_protobuf_attributes_give_the_same_labels() -> None:
    data = MetricsData()
    made = data.resource_metrics.add()
    for key, value in IDENTITY.items():
        made.resource.attributes.add(key=key).value.string_value = value
    point = (
        made.scope_metrics.add().metrics.add(name="depth").gauge.data_points.add(time_unix_nano=int(NANOS), as_int=1)
    )
    point.attributes.add(key="b").value.bool_value = True
    point.attributes.add(key="i").value.int_value = 7
    point.attributes.add(key="d").value.double_value = 1
    point.attributes.add(key="l").value.array_value.SetInParent()
    assert points(read(data.SerializeToString()))[0].labels == {"b": "true", "d": "1.0", "i": "7"}


@pytest.mark.parametrize("write", [pytest.param(otlp_json, id="JSON"), pytest.param(otlp_proto, id="protobuf")])
def test_a_point_without_a_recorded_value_is_missing_not_zero(write: Any) -> None:
    ended = {"timeUnixNano": NANOS, "asDouble": 0.0, "flags": 1}
    there = {"timeUnixNano": NANOS, "asDouble": 1.0, "attributes": attributes(a="1")}
    found = read(write({"name": "depth", "gauge": {"dataPoints": [ended, there]}}))
    assert [point.milli for point in points(found)] == [1_000]
    assert found.result == "ok"
    assert sum(found.left_out.values()) == 1


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("histogram", id="histogram"),
        pytest.param("exponentialHistogram", id="exponential histogram"),
        pytest.param("summary", id="summary"),
    ],
)
def test_points_without_a_single_value_are_refused_and_the_rest_go_on(kind: str) -> None:
    document = orjson.loads(otlp_json({"name": "latency", kind: {"dataPoints": [{"timeUnixNano": NANOS}]}}))
    document["resourceMetrics"] += orjson.loads(otlp_json(GAUGE))["resourceMetrics"]
    found = read(orjson.dumps(document))
    assert found.result == "partial"
    assert points(found) == [CPU]
    assert found.code == "unsupported"
    assert "send a gauge or a sum" in found.reason()


def scraped(name: str, labels: dict[str, str]) -> bytes:
    """A series as an OpenTelemetry Collector sends it that scrapes in place of a Prometheus."""
    point = {"timeUnixNano": NANOS, "asDouble": 2.5, "attributes": attributes(**labels)}
    return otlp_json({"name": name, "gauge": {"dataPoints": [point]}}, {})


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        pytest.param(
            "container_cpu_usage_seconds_total",
            {"container": "app", "pod": "p-1", "image": "x"},
            Point(
                type="ContainerResource",
                metric="cpu",
                milli=2_500,
                time=NOW,
                pod="p-1",
                container="app",
                temporality="cumulative",
            ),
            id="cAdvisor's CPU counter is a container's cpu",
        ),
        pytest.param(
            "queue_depth",
            {"queue": "pay"},
            Point(type="External", metric="queue_depth", milli=2_500, time=NOW, labels={"queue": "pay"}),
            id="a series without a pod is external",
        ),
    ],
)
def test_series_of_a_prometheus_become_metrics(name: str, labels: dict[str, str], expected: Point) -> None:
    identity = {"cluster": "prod-eu", "namespace": "shop"}
    assert points(read(scraped(name, identity | labels))) == [expected]


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        pytest.param("container_cpu_usage_seconds_total", {"pod": "p"}, id="the sum over a pod's cgroup"),
        pytest.param("container_cpu_usage_seconds_total", {"pod": "p", "container": "POD"}, id="the pause container"),
        pytest.param("node_load1", {}, id="a node's metric"),
        pytest.param("up", {"job": "x"}, id="scrape health"),
    ],
)
def test_series_of_no_use_are_left_out_and_named(name: str, labels: dict[str, str]) -> None:
    found = read(scraped(name, {"cluster": "c", "namespace": "n"} | labels))
    assert found.result == "unmatched"
    assert found.is_rejected
    assert name in found.reason()


def test_json_of_prometheus_says_what_takes_its_place() -> None:
    labels = {"__name__": "queue_depth", "namespace": "shop", "cluster": "prod-eu"}
    document = {"timestamp": "2026-09-21T14:13:35Z", "value": "112.5", "name": "queue_depth", "labels": labels}
    found = read(orjson.dumps(document))
    assert (found.result, found.code) == ("rejected", "unknownFormat")
    assert "send OTLP from an OpenTelemetry Collector" in found.reason()


def sample(**changes: Any) -> bytes:
    return orjson.dumps(orjson.loads(example(messageformats.SAMPLE)) | changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, {}, id="as printed by ingest sample"),
        pytest.param({"value": "2Gi"}, {"milli": 2 * 2**30 * 1000}, id="a quantity"),
        pytest.param({"ts": "2026-09-21T14:13:35Z"}, {}, id="RFC 3339 time"),
        pytest.param({"ts": None}, {}, id="no time: Kafka's"),
        pytest.param({"pod": None, "unit": "1", "target": {"kind": "Deployment"}}, {}, id="fields for readers"),
        pytest.param(
            {"type": "Object", "object": {"kind": "Ingress", "group": "networking.k8s.io", "name": "front"}},
            {"type": "Object", "object_kind": "Ingress.networking.k8s.io", "object": "front"},
            id="an object of a group",
        ),
        pytest.param(
            {"type": "Object", "object": {"kind": "Service", "name": "front"}},
            {"type": "Object", "object_kind": "Service", "object": "front"},
            id="an object of the core group",
        ),
        pytest.param(
            {"type": "Resource", "metric": "cpu", "pod": "p-1", "value": 0.67, "utilization": True, "labels": {}},
            {"type": "Resource", "metric": "cpu", "pod": "p-1", "milli": 670, "utilization": True, "labels": {}},
            id="a share of the request",
        ),
        pytest.param({"value": -5}, {"milli": -5_000}, id="an external metric may be negative"),
    ],
)
def test_own_samples(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    plain = Point(type="External", metric="queue_depth", milli=610_000, time=NOW, labels={"queue": "pay"})
    found = read(sample(**changes))
    assert found.result == "ok", found.reason()
    assert points(found) == [replace(plain, **expected)]
    assert [(piece.cluster, piece.namespace) for piece in found.pieces] == [("prod-eu", "shop")]


def test_own_record() -> None:
    found = read(example(messageformats.RECORD))
    assert (found.format, found.result, found.time_ms) == (messageformats.RECORD, "ok", NOW)
    assert isinstance(found.pieces[0].body, Answers)


@pytest.mark.parametrize(
    ("value", "headers", "expected"),
    [
        pytest.param(example(messageformats.OTLP_PROTO), (), messageformats.OTLP_PROTO, id="0x0a begins protobuf"),
        pytest.param(
            example(messageformats.OTLP_PROTO),
            (("Content-Type", b"application/x-protobuf; q=1"),),
            messageformats.OTLP_PROTO,
            id="the header names protobuf",
        ),
        pytest.param(
            example(messageformats.SAMPLE),
            (("content-type", b"application/x-protobuf"),),
            messageformats.OTLP_PROTO,
            id="the header comes before the content",
        ),
        pytest.param(b"\n\n" + example(messageformats.SAMPLE), (), messageformats.SAMPLE, id="JSON after line feeds"),
        pytest.param(
            b"\n" + example(messageformats.SAMPLE),
            (("content-type", b"application/json"),),
            messageformats.SAMPLE,
            id="JSON after a line feed, named by the header",
        ),
        pytest.param(example(messageformats.OTLP_JSON), (), messageformats.OTLP_JSON, id="resourceMetrics"),
    ],
)
def test_formats_are_distinguished(value: bytes, headers: Headers, expected: str) -> None:
    assert read(value, headers).format == expected


def test_the_cluster_can_stand_in_a_header() -> None:
    identity = {key: value for key, value in IDENTITY.items() if key != "k8s.cluster.name"}
    found = read(otlp_json(GAUGE, identity), (("cluster", b"prod-us"),))
    assert [piece.cluster for piece in found.pieces] == ["prod-us"]


def test_one_record_of_many_namespaces_is_split() -> None:
    one, other = (orjson.loads(otlp_json(GAUGE, IDENTITY | {"k8s.namespace.name": name})) for name in ("a", "b"))
    one["resourceMetrics"] += other["resourceMetrics"] + one["resourceMetrics"]
    found = read(orjson.dumps(one))
    assert [(piece.namespace, len(piece.body.points)) for piece in found.pieces] == [("a", 2), ("b", 1)]  # type: ignore[union-attr]
