"""Whatever comes in, it ends in the log or in the topic of rejected records with a reason, and ingest continues."""

from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleethpa.cli.ingest import FORMATS
from reconciler.observer.observertopics import central_hpa
from runtime.records import hand_over
from schemas import limits, topics
from schemas.inforce import InForce
from schemas.limits import Refusal
from schemas.observed import ConflictingAutoscaler, Target
from streams.ingest import convert as messageformats
from streams.ingest.convert import convert
from streams.ingest.logwriter import log_entries, rejected
from streams.ingest.mapping import Mapping, Resolver
from streams.ingest.pieces import Conversion, RawRecord
from streams.ingest.preflight import EXAMPLE_TIME_MS, example
from tests.kit.hostile import GOLDEN, hostile_record
from tests.laws import examples

RESOLVER = Resolver(Mapping())
PROTO = example(messageformats.OTLP_PROTO)


def read(value: bytes | None, topic: str = topics.SAMPLES, headers: Any = ()) -> Conversion:
    return convert(RawRecord(topic, 1, 7, EXAMPLE_TIME_MS, value, headers), RESOLVER)


def sample(**changes: Any) -> bytes:
    return orjson.dumps(orjson.loads(example(messageformats.SAMPLE)) | changes)


def otlp(metric: Any) -> bytes:
    document = orjson.loads(example(messageformats.OTLP_JSON))
    document["resourceMetrics"][0]["scopeMetrics"][0]["metrics"] = [metric]
    return orjson.dumps(document)


def gauge(**point: Any) -> bytes:
    return otlp({"name": "depth", "gauge": {"dataPoints": [{"timeUnixNano": "1790000015000000000"} | point]}})


def labelled(**labels: str) -> bytes:
    """A series of which only its labels say whose it is."""
    document = orjson.loads(
        gauge(asDouble=1, attributes=[{"key": k, "value": {"stringValue": v}} for k, v in labels.items()])
    )
    document["resourceMetrics"][0]["resource"]["attributes"] = []
    return orjson.dumps(document)


@pytest.mark.parametrize(
    ("value", "code", "text"),
    [
        pytest.param(None, "empty", "no value", id="a tombstone"),
        pytest.param(b"", "empty", "no value", id="an empty value"),
        pytest.param(b"hello", "unknownFormat", "0x68", id="plain text"),
        pytest.param(b"\x00\x00\x00\x00\x07avro", "unknownFormat", "0x00", id="Avro of a schema registry"),
        pytest.param(b'{"v":1,"entries":[', "malformed", "not JSON", id="malformed JSON"),
        pytest.param(b"[1,2]", "unknownFormat", "JSON list", id="a JSON list"),
        pytest.param(b"{}", "unknownFormat", "keys none", id="an empty object"),
        pytest.param(b'{"fields":{},"tags":{}}', "unknownFormat", "fields, tags", id="Telegraf"),
        pytest.param(b'{"a":' * 200_000, "malformed", "not JSON", id="deep nesting, unfinished"),
        pytest.param(b'{"v":1,"x":' + b"[" * 5_000 + b"]" * 5_000 + b"}", "malformed", "not JSON", id="deep nesting"),
        pytest.param(
            b'{"v":1,"entries":[],"x":' + b"[" * 300 + b"]" * 300 + b"}",
            "malformed",
            "nested too deeply",
            id="nesting that can be read but not written",
        ),
        pytest.param(b'{"v":1,"v":1,"entries":[]}', "duplicateKey", "'v' occurs twice", id="duplicate keys"),
        pytest.param(
            b'{"v":1,"entries":[{"kind":"heartbeat","session":"a","session":"b"}]}',
            "duplicateKey",
            "'session' occurs twice",
            id="duplicate keys further in",
        ),
        pytest.param(b'{"v":NaN}', "malformed", "not JSON", id="a bare NaN"),
        pytest.param(b'{"v":"\xff"}', "malformed", "not JSON", id="not UTF-8"),
        pytest.param(b'{"v":2,"entries":[]}', "unknownVersion", "2 is not known", id="an unknown version"),
        pytest.param(b'{"v":"1","entries":[]}', "unknownVersion", "1 is not known", id="a version as text"),
        pytest.param(b'{"v":true,"entries":[]}', "unknownVersion", "True", id="a version that is a boolean"),
        pytest.param(b'{"v":1,"entries":{}}', "wrongType", "$.entries", id="entries that are no list"),
        pytest.param(b'{"v":1,"entries":[{"kind":"future"}]}', "wrongType", "future", id="an unknown kind"),
        pytest.param(b'{"v":1,"entries":[{}]}', "wrongType", "kind", id="an entry without kind"),
        pytest.param(b'{"v":1,"entries":[]}', "unmatched", "holds nothing", id="no entries"),
        pytest.param(b'{"v":1}', "wrongType", "entries", id="neither entries nor metric"),
        pytest.param(b'{"v":1,"time":-1,"entries":[]}', "wrongType", "$.time", id="a negative time"),
        pytest.param(b'{"v":1,"time":9e99,"entries":[]}', "wrongType", "time", id="a time that is no integer"),
        pytest.param(PROTO[:-3], "malformed", "OTLP protobuf", id="truncated protobuf"),
        pytest.param(b"\x0a" + b"\x0a\xff\xff\xff\xff" * 50, "malformed", "OTLP protobuf", id="protobuf of garbage"),
        pytest.param(b"\x0a\x00", "unmatched", "holds nothing", id="protobuf that holds nothing"),
        pytest.param(sample(value="NaN"), "notANumber", "NaN", id="NaN"),
        pytest.param(sample(value="Infinity"), "notANumber", "Infinity", id="infinity"),
        pytest.param(sample(value="1e2147483648"), "notANumber", "out of range", id="an absurd quantity"),
        pytest.param(sample(value="9" * 300), "outOfRange", "64 bit", id="a value beyond 64 bit"),
        pytest.param(sample(value=10**18), "outOfRange", "64 bit", id="an integer beyond 64 bit in milli units"),
        pytest.param(sample(value=None), "wrongType", "$.value", id="no value"),
        pytest.param(sample(value=True), "wrongType", "$.value", id="a boolean as value"),
        pytest.param(sample(value=[1]), "wrongType", "$.value", id="a list as value"),
        pytest.param(sample(cluster=""), "badName", "cluster ''", id="an empty cluster"),
        pytest.param(sample(cluster="a/b"), "badName", "cluster 'a/b'", id="a cluster with a slash"),
        pytest.param(sample(cluster="*"), "badName", "cluster '*'", id="every cluster"),
        pytest.param(sample(cluster="x" * 300), "badName", "1-253", id="a cluster's name too long"),
        pytest.param(sample(cluster="a\nb"), "badName", "cluster", id="a line feed in a cluster's name"),
        pytest.param(sample(cluster=7), "wrongType", "$.cluster", id="a cluster that is a number"),
        pytest.param(sample(namespace="Shop"), "badName", "DNS label", id="capitals in a namespace"),
        pytest.param(sample(namespace=""), "badName", "namespace ''", id="an empty namespace"),
        pytest.param(sample(metric=""), "badName", "metric", id="an empty metric"),
        pytest.param(sample(type="Custom"), "wrongType", "$.type", id="an unknown type"),
        pytest.param(sample(type="Resource"), "badName", "pod of a Resource sample", id="a resource without a pod"),
        pytest.param(sample(type="Object"), "badName", "objectKind", id="an object metric without its object"),
        pytest.param(sample(type="ContainerResource", pod="p"), "badName", "''", id="a container without a name"),
        pytest.param(
            sample(type="Resource", pod="p", metric="cpu", value=-1), "outOfRange", "negative", id="a negative resource"
        ),
        pytest.param(sample(utilization=True), "invalid", "utilization", id="utilization of an external metric"),
        pytest.param(sample(ts="yesterday"), "badTime", "yesterday", id="a time that is none"),
        pytest.param(sample(labels={"a": 1}), "wrongType", "labels", id="a label that is a number"),
        pytest.param(labelled(namespace="n"), "noIdentity", "names no cluster", id="no cluster label"),
        pytest.param(labelled(cluster="c"), "noIdentity", "names no namespace", id="no namespace label"),
        pytest.param(labelled(cluster="c", namespace="n", pod="A b"), "badName", "pod", id="an odd pod"),
        pytest.param(b'{"resourceMetrics":{}}', "wrongType", "resourceMetrics: expected `array`", id="OTLP: no list"),
        pytest.param(b'{"resourceMetrics":[7]}', "wrongType", "resourceMetrics[0]", id="OTLP: no object"),
        pytest.param(
            b'{"resourceMetrics":[{"resource":7}]}', "wrongType", "resourceMetrics[0].resource", id="OTLP: bad resource"
        ),
        pytest.param(
            b'{"resourceMetrics":[{"resource":{"attributes":[{"key":1}]}}]}',
            "wrongType",
            "key",
            id="OTLP: bad attribute",
        ),
        pytest.param(otlp(7), "wrongType", "metrics[0]", id="OTLP: metric that is none"),
        pytest.param(otlp({"name": 7}), "wrongType", "metrics[0].name: expected `str`", id="OTLP: name that is none"),
        pytest.param(otlp({"name": "depth"}), "malformed", "has no data", id="OTLP: no data"),
        pytest.param(
            otlp({"name": "depth", "sum": {"dataPoints": []}}),
            "wrongType",
            "aggregationTemporality",
            id="OTLP: sum of none",
        ),
        pytest.param(
            otlp({"name": "d", "gauge": {"dataPoints": [7]}}), "wrongType", "dataPoints[0]", id="OTLP: bad point"
        ),
        pytest.param(gauge(asDouble="NaN"), "notANumber", "NaN", id="OTLP: NaN"),
        pytest.param(gauge(asDouble="-Infinity"), "notANumber", "-Inf", id="OTLP: infinity"),
        pytest.param(gauge(asDouble=True), "wrongType", "asDouble", id="OTLP: boolean"),
        pytest.param(gauge(asInt=1.5), "wrongType", "asInt", id="OTLP: a fraction as integer"),
        pytest.param(gauge(asInt="9" * 30), "wrongType", "asInt", id="OTLP: an integer too long"),
        pytest.param(gauge(asInt="1", timeUnixNano="x"), "wrongType", "timeUnixNano", id="OTLP: time that is none"),
        pytest.param(gauge(asInt="1", timeUnixNano="0"), "badTime", "timeUnixNano", id="OTLP: no time"),
        pytest.param(gauge(), "unmatched", "without a value", id="OTLP: no value"),
    ],
)
def test_bad_input_is_rejected_with_a_reason(value: bytes | None, code: str, text: str) -> None:
    found = read(value)
    assert found.is_rejected
    assert not found.pieces
    assert (found.code, text in found.reason()) == (code, True), (found.code, found.reason())


def test_a_record_of_ten_megabytes_is_rejected_unread_and_cut() -> None:
    value = b'{"v":1,"entries":[' + b"1," * (5 * 1024 * 1024) + b"1]}"
    found = read(value)
    assert found.code == "overLimit"
    assert str(limits.PUBLIC_RECORD.most) in found.reason()
    reject = rejected(RawRecord("t", 0, 9, 5, value), found.code, found.reason(), found.format)
    assert len(reject.value) == topics.REJECTED_KEPT_BYTES


@pytest.mark.parametrize(
    ("fields", "topic", "namespace", "code", "text"),
    [
        ({"name": "web", "replicas": 3, "until": 9}, topics.SETTINGS, "shop", "", ""),
        ({"name": "web"}, topics.SETTINGS, "shop", "", ""),
        ({"replicas": 3, "until": 9}, topics.SETTINGS, "shop", "invalid", "is of one HPA"),
        ({"name": "web", "replicas": 3, "until": 9}, topics.SETTINGS, "", "invalid", "is of one HPA"),
        ({"cluster": "*", "replicas": 3, "until": 9}, topics.SETTINGS, "", "invalid", "is of one HPA"),
        ({"name": "web", "replicas": 0, "until": 9}, topics.SETTINGS, "shop", "wrongType", "replicas"),
        ({"name": "web", "replicas": 2**31, "until": 9}, topics.SETTINGS, "shop", "wrongType", "replicas"),
        ({"name": "web", "replicas": 3}, topics.SETTINGS, "shop", "outOfRange", "until"),
        ({"name": "web", "replicas": 3, "until": 9}, topics.AUTOSCALERS, "shop", "wrongTopic", "command override"),
    ],
)
def test_an_override_is_of_one_hpa_and_ends(
    fields: dict[str, Any], topic: str, namespace: str, code: str, text: str
) -> None:
    place = {"cluster": "east", "namespace": namespace} if namespace else {}
    entry = {"kind": "command", "command": "override"} | fields
    found = read(orjson.dumps({"v": 1, "entries": [entry], **place}), topic)
    assert (found.code, text in found.reason()) == (code, True), (found.code, found.reason())


def test_one_bad_entry_does_not_cost_the_others() -> None:
    entries = [
        {"kind": "podDeleted", "name": "a"},
        {"kind": "podDeleted", "name": "B"},
        {"kind": "podDeleted", "name": "c"},
    ]
    value = orjson.dumps({"v": 1, "cluster": "c", "namespace": "n", "entries": entries})
    found = read(value, topics.PODS)
    assert [piece.body.name for piece in found.pieces] == ["a", "c"]  # type: ignore[union-attr]
    assert found.result == "partial"
    assert found.reason().startswith("entries[1]: name 'B'")


def test_an_entry_that_does_not_fit_its_type_takes_no_other_with_it() -> None:
    def scale(name: str, replicas: object) -> dict[str, Any]:
        target = {"kind": "Deployment", "name": name, "group": "apps"}
        return {"kind": "scaleSet", "target": target, "specReplicas": replicas}

    entries = [scale("a", 1), scale("b", -1), scale("c", 2), {"kind": "future"}, scale("D", 3)]
    record = {"v": 1, "cluster": "east", "namespace": "shop", "entries": entries}
    found = read(orjson.dumps(record), topics.SCALES)
    assert [piece.body.target.name for piece in found.pieces] == ["a", "c"]  # type: ignore[union-attr]
    assert [refusal.code for refusal in found.refusals] == ["wrongType", "wrongType", "badName"]
    bad_number, unknown_kind, bad_name = [refusal.text for refusal in found.refusals]
    assert "`$.entries[1].specReplicas`" in bad_number
    assert "`$.entries[3].kind`" in unknown_kind
    assert bad_name.startswith("entries[4]: ")


def test_reasons_are_reported_once_and_a_great_many_are_counted() -> None:
    points = [{"timeUnixNano": "1790000015000000000", "asDouble": f"{n}x"} for n in range(100)]
    found = read(otlp({"name": "depth", "gauge": {"dataPoints": points}}))
    assert found.reason().endswith("; and 80 more")
    found = read(otlp({"name": "depth", "gauge": {"dataPoints": points[:1] * 100}}))
    assert "more" not in found.reason()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["cpu", "Pods"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            [
                "v", "entries", "kind", "metric", "value", "timestamp", "labels", "name", "pod", "items", "cluster",
                "resourceMetrics", "resource", "attributes", "scopeMetrics", "metrics", "gauge", "sum", "dataPoints",
                "asInt", "asDouble", "timeUnixNano", "key", "stringValue", "namespace", "type", "ts", "points", "hpa",
            ]
        ),
        inner,
        max_size=6,
    ),
    max_leaves=30,
)  # fmt: skip


def check_all_is_accounted_for(value: bytes, topic: str) -> None:
    """Conversion never raises, and what it gives is in the log or rejected."""
    raw = RawRecord(topic, 1, 7, EXAMPLE_TIME_MS, value)
    found = convert(raw, RESOLVER)
    logged = 0
    for entry in log_entries(found.pieces, raw, found.time_ms, 24):
        assert not isinstance(entry, Refusal)
        logged += 1
    assert logged or found.is_rejected
    assert not found.is_rejected or rejected(raw, found.code, found.reason(), found.format).value == value


@pytest.mark.parametrize("depth", [30, 240, 250, 254, 260, 1_000])
def test_what_a_conflicting_autoscaler_holds_beside_its_name_and_target_is_not_logged_however_deep(depth: int) -> None:
    target = b'"target":{"group":"apps","kind":"Deployment","name":"web"}'
    other = b'{"kind":"ScaledObject","name":"web",' + target + b',"x":' + b"[" * depth + b"]" * depth + b"}"
    entry = b'{"kind":"autoscalerList","listId":"1","hpas":[],"conflicting":[' + other + b"]}"
    value = b'{"v":1,"cluster":"east","namespace":"shop","entries":[' + entry + b"]}"
    check_all_is_accounted_for(value, topics.AUTOSCALERS)
    for piece in read(value, topics.AUTOSCALERS).pieces:
        assert piece.body.conflicting == [  # type: ignore[union-attr]
            ConflictingAutoscaler(
                kind="ScaledObject", name="web", target=Target(group="apps", kind="Deployment", name="web")
            )
        ]


@pytest.mark.parametrize(
    "selector",
    [
        pytest.param({"matchLabels": {"tier": 1}}, id="a label that is no text"),
        pytest.param({"matchLabels": [["tier"]]}, id="labels that are a list"),
        pytest.param({"matchLabels": "tier"}, id="labels that are a text"),
        pytest.param({"matchExpressions": [1]}, id="an expression that is a number"),
        pytest.param({"matchExpressions": [{"key": "tier", "operator": "In", "values": "a"}]}, id="values as text"),
        pytest.param({"matchExpressions": [{"key": "tier", "operator": ["In"]}]}, id="an operator that is a list"),
        pytest.param({"labels": {}}, id="an unknown field"),
    ],
)
def test_a_capacity_group_of_which_a_selector_has_another_shape_is_rejected(selector: Any) -> None:
    document = orjson.loads((GOLDEN / "capacityGroup.json").read_bytes())
    priority = document["entries"][0]["spec"]["priorities"][0]
    found = read(orjson.dumps(document), topics.SETTINGS)
    assert found.result == "ok", found.reason()
    priority["selector"] = selector
    found = read(orjson.dumps(document), topics.SETTINGS)
    assert (found.result, found.code) == ("rejected", "invalid")
    assert "CapacityGroup search: a selector cannot be read" in found.reason()


@settings(max_examples=examples(150))
@given(st.binary(max_size=200), st.sampled_from(topics.PUBLIC_TOPICS))
def test_random_bytes_never_raise(value: bytes, topic: str) -> None:
    check_all_is_accounted_for(value, topic)


@settings(max_examples=examples(150))
@given(JSON, st.sampled_from(topics.PUBLIC_TOPICS), st.booleans())
def test_random_json_never_raises(document: Any, topic: str, is_ours: bool) -> None:
    body = document if isinstance(document, dict) else {"entries": document}
    value = orjson.dumps({"v": 1} | body if is_ours else body, option=orjson.OPT_NON_STR_KEYS) if _fits(body) else b"x"
    check_all_is_accounted_for(value, topic)


@settings(max_examples=examples(1_000))
@given(st.integers(0, 2**32))
def test_records_of_every_kind_with_hostile_values_never_raise(seed: int) -> None:
    value = hostile_record(Random(seed))
    hand_over(value, 0, lambda body, _, __, namespace: central_hpa(body, namespace))
    hand_over(value, 0, (in_force := InForce()).apply)
    assert in_force.pauses("eu", 0) is not None
    for topic in topics.PUBLIC_TOPICS:
        check_all_is_accounted_for(value, topic)


def _fits(value: Any) -> bool:
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


@settings(max_examples=examples(150))
@given(st.sampled_from(FORMATS), st.data())
def test_damaged_messages_never_raise(format_: str, data: st.DataObject) -> None:
    value = bytearray(example(format_))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(value) - 1))
        value[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(value)))
    check_all_is_accounted_for(bytes(value[:cut]), topics.SAMPLES)
