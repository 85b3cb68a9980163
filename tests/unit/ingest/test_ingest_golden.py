"""What was ever written reads for ever; the published schemas say what the code reads."""

from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleethpa.cli.ingest import FORMATS
from schemas import topics
from schemas.codec import decode, encode
from schemas.entries import Body, LogRecord, PublicRecord
from streams.ingest import convert as messageformats
from streams.ingest import own as topickinds
from streams.ingest.bodies import kind_of
from streams.ingest.checks import is_object
from streams.ingest.convert import convert
from streams.ingest.mapping import Mapping, Resolver
from streams.ingest.pieces import Conversion, RawRecord
from streams.ingest.preflight import EXAMPLE_TIME_MS, check_record, example
from tests import publishedschemas
from tests.kit.hostile import places
from tests.kit.published import checker

GOLDEN = Path(__file__).parents[2] / "golden" / "public"
RECORDS = sorted(GOLDEN.glob("*.json"))


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in RECORDS])
def test_every_kind_reads_for_ever_and_writes_the_same_bytes(path: Path) -> None:
    value = path.read_bytes().rstrip(b"\n")
    record = decode(value, PublicRecord)
    assert {kind_of(body) for body in record.entries} == {path.stem}
    assert encode(record) == value


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in RECORDS])
def test_every_kind_passes_ingest(path: Path) -> None:
    found = _converted(path.stem, path.read_bytes())
    assert found.result == "ok", found.reason()


def _converted(kind: str, value: bytes) -> Conversion:
    """What ingest makes of a golden record, or of one that was made of it."""
    # The golden command is a pause of one HPA; the HPA that is deleted is a central one.
    of_last = ("command", "autoscalerDeleted")
    topic = topickinds.topics_of(kind)[-1 if kind in of_last else 0]
    return convert(RawRecord(topic, 0, 0, EXAMPLE_TIME_MS, value), Resolver(Mapping()))


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in RECORDS])
def test_no_text_of_any_kind_passes_ingest_in_any_length(path: Path) -> None:
    """Larger than the largest answer may be. It is refused or shortened; else rows, decisions and readers have it."""
    record = orjson.loads(path.read_bytes())
    texts = [place for place in places({"entries": record["entries"]}) if isinstance(_value_at(record, place), str)]
    assert texts
    for place in texts:
        changed = orjson.loads(path.read_bytes())
        _value_at(changed, place[:-1])[place[-1]] = "a" * 400_000
        found = _converted(path.stem, orjson.dumps(changed))
        assert max((len(encode(each.body)) for each in found.pieces), default=0) < 400_000, (
            f"{place} has no bound: give its type Meta(max_length=…), or check it in streams/ingest/bodies.py"
        )


def _value_at(record: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        record = record[key]
    return record


def test_there_is_a_golden_record_of_every_kind() -> None:
    known = {body.__struct_config__.tag for body in Body.__args__}
    assert {path.stem for path in RECORDS} == known


def test_no_kind_is_read_from_a_topic_of_another() -> None:
    for path in RECORDS:
        for topic in set(topics.PUBLIC_TOPICS) - set(topickinds.topics_of(path.stem)):
            found = convert(RawRecord(topic, 0, 0, EXAMPLE_TIME_MS, path.read_bytes()), Resolver(Mapping()))
            assert (found.result, found.code) == ("rejected", "wrongTopic")
            assert found.reason().endswith(f"send it to {' or '.join(topickinds.topics_of(path.stem))}")


def test_of_the_topic_of_another_producer_nothing_but_samples_is_read() -> None:
    taken = set()
    for path in RECORDS:
        found = convert(RawRecord("shop.samples", 0, 0, EXAMPLE_TIME_MS, path.read_bytes()), Resolver(Mapping()))
        assert found.result == "ok" or found.code == "wrongTopic"
        taken |= {path.stem} if found.result == "ok" else set()
    assert taken == {"samples"}


@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in publishedschemas.PUBLISHED])
def test_published_schemas_are_current(name: str) -> None:
    found = (publishedschemas.FOLDER / f"{name}.json").read_bytes()
    assert found == publishedschemas.schema(name), "run `make generated`"


def _schema(name: str) -> Any:
    return checker(publishedschemas.FOLDER / f"{name}.json")


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in RECORDS])
def test_records_fit_the_published_schema(path: Path) -> None:
    _schema("public-record").validate(orjson.loads(path.read_bytes()))


def test_the_sample_fits_its_published_schema_and_a_bad_one_does_not() -> None:
    sample = orjson.loads(example(messageformats.SAMPLE))
    _schema("sample").validate(sample)
    with pytest.raises(jsonschema.ValidationError):
        _schema("sample").validate(sample | {"type": "Custom"})


def test_the_log_record_fits_its_published_schema() -> None:
    log = orjson.loads(encode(LogRecord(v=1, entries=[])))
    _schema("log-record").validate(log)


@pytest.mark.parametrize("format_", [pytest.param(name, id=name) for name in FORMATS])
def test_every_example_is_read_whole(format_: str) -> None:
    report = check_record(example(format_))
    assert (report.format, report.result, report.reasons, report.left_out) == (format_, "ok", [], {})
    assert set(report.keys) == {"prod-eu/shop"}


MANIFEST_WITH_FIVE_ERRORS = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "checkout"},
    "spec": {
        "minReplicas": -1,
        "maxReplicas": 0,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "", "name": "checkout"},
        "metrics": [{"type": "Resource"}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 9_999}},
    },
}


def test_all_errors_of_a_manifest_are_reported_together_as_kubectl_would() -> None:
    body = {"kind": "autoscalerSet", "hpa": MANIFEST_WITH_FIVE_ERRORS}
    report = check_record(orjson.dumps({"v": 1, "cluster": "east", "namespace": "shop", "entries": [body]}))
    assert report.result == "rejected"
    assert report.reasons == [
        'entries[0]: HorizontalPodAutoscaler.autoscaling "checkout" is invalid: '
        "[spec.scaleTargetRef.kind: Required value, "
        "spec.metrics[0].resource: Required value: must populate information for the given metric source, "
        "spec.behavior.scaleDown.stabilizationWindowSeconds: Invalid value: 9999: must be less than or equal to 3600, "
        "spec.minReplicas: Invalid value: -1: must be greater than or equal to 0, "
        "spec.maxReplicas: Required value]"
    ]


def test_a_bad_hpa_of_a_list_does_not_cost_the_others() -> None:
    good = MANIFEST_WITH_FIVE_ERRORS | {
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "c"}}
    }
    bad = MANIFEST_WITH_FIVE_ERRORS | {"metadata": {"name": "other"}}
    body = {"kind": "autoscalerList", "listId": "1", "hpas": [bad, good]}
    value = orjson.dumps({"v": 1, "cluster": "east", "namespace": "shop", "entries": [body]})
    found = convert(RawRecord(topics.AUTOSCALERS, 0, 0, EXAMPLE_TIME_MS, value), Resolver(Mapping()))
    assert found.result == "partial"
    [hpa] = found.pieces[0].body.hpas  # type: ignore[union-attr]
    assert (hpa["metadata"]["namespace"], hpa["spec"]["minReplicas"]) == ("shop", 1), "defaulted"


def about_pods(
    prefix: str = "web-",
    names: str = "a,b",
    time_ms: int = 9,
    ages: tuple[int, ...] = (0, 1),
    shorter: tuple[int, ...] = (),
    columns: tuple[tuple[Any, ...], ...] = (("app", "cpu", 1, (3, 4)),),
    **fields: Any,
) -> dict[str, Any]:
    return {"api": "resource", "pods": [prefix, names, time_ms, ages, 15_000, shorter, columns], **fields}


CPU = ("app", "cpu", 1, (3, 4))
RPS = ("", "", 1, (3, 4))
LONG = ",".join(["a" * 99] * 3_500)
BAD_PODS: list[tuple[dict[str, Any], str]] = [
    (about_pods(api="external", metric="lag"), "pods: an answer of api external has none"),
    (about_pods(names="a,_"), "pod 'web-_' must be a DNS subdomain"),
    (about_pods(names="a,"), "pod 'web-' must be a DNS subdomain"),
    (about_pods(prefix="w" * 254), "the prefix of pods has 254 characters"),
    (about_pods(names="a," * 10_000 + "a"), "pods in an answer of a metrics API of resource: 10001 pods"),
    (about_pods(names=LONG, columns=()), "answer of a metrics API of resource: 350056 bytes of JSON, the limit"),
    (about_pods(time_ms=-1, ages=()), ">= 0 - at `$.entries[0].items[0].pods[2]`"),
    (about_pods(ages=(0,)), "ages of pods: none, or one of 0 to 9 for each of 2 pods"),
    (about_pods(ages=(0, 10)), "ages of pods: none, or one of 0 to 9 for each of 2 pods"),
    (about_pods(ages=(0, -1)), "ages of pods: none, or one of 0 to 9 for each of 2 pods"),
    (about_pods(shorter=(0,)), "shorter of pods: none, or one of 0 to"),
    (about_pods(shorter=(0, -1)), "shorter of pods: none, or one of 0 to"),
    (about_pods(shorter=(0, 2**62)), "shorter of pods: none, or one of 0 to"),
    (about_pods(columns=(), api="pods", metric="rps"), "columns of pods: one without container and resource"),
    (about_pods(columns=(RPS, RPS), api="pods", metric="rps"), "columns of pods: one without container and resource"),
    (about_pods(columns=(CPU,), api="pods", metric="rps"), "columns of pods: one without container and resource"),
    (about_pods(columns=(("", "", 1, (3, None)),), api="pods", metric="rps"), "1 values for 2 pods"),
    (about_pods(columns=(("app", "cpu", 1, (3,)),)), "cpu of app: 1 values for 2 pods"),
    (about_pods(columns=(("app", "cpu", 0, (3, 4)),)), "cpu of app: factor below 1, or beyond 64 bit"),
    (about_pods(columns=(("app", "cpu", 2**32, (None, 2**31)),)), "cpu of app: factor below 1, or beyond 64 bit"),
    (about_pods(columns=(("app", "cpu", 1, (3, 2**63)),)), "cpu of app: factor below 1, or beyond 64 bit"),
]


@pytest.mark.parametrize(
    ("kind", "changes", "text"),
    [
        pytest.param(
            "podSet", {"pod": {"name": "p", "start": -1}}, ">= 0 - at `$.entries[0].pod.start`", id="a negative time"
        ),
        pytest.param(
            "podSet",
            {"pod": {"name": "p", "containers": [{"name": "app", "requests": {"cpu": "-1"}}]}},
            "cpu '-1': must not be negative",
            id="a negative request",
        ),
        pytest.param(
            "podSet",
            {"pod": {"name": "p", "containers": [{"name": "app", "requests": {"cpu": "1e2147483648"}}]}},
            "requests of p/app: cpu",
            id="an absurd request",
        ),
        pytest.param("podList", {"chunk": 3, "chunks": 2}, "chunk is 3, must be 0 to 1", id="a chunk beyond the last"),
        pytest.param("scaleSet", {"specReplicas": -1}, ">= 0 - at `$.entries[0].specReplicas`", id="negative replicas"),
        pytest.param(
            "scaleSet",
            {"specReplicas": 2**31},
            "<= 2147483647 - at `$.entries[0].specReplicas`",
            id="too many replicas",
        ),
        pytest.param(
            "outcome",
            {"statusReplicas": -1},
            ">= 0 - at `$.entries[0].statusReplicas`",
            id="negative replicas of an outcome",
        ),
        pytest.param("settings", {"cluster": "a/b"}, "cluster 'a/b'", id="settings of an impossible cluster"),
        pytest.param("settings", {"settings": {"tolerance": "-0.1"}}, "not below 0", id="negative tolerance"),
        pytest.param("settings", {"settings": {"tolerance": "x"}}, "settings.tolerance 'x'", id="tolerance of text"),
        pytest.param(
            "settings", {"settings": {"syncPeriodMs": 0}}, ">= 100 - at `$.entries[0].settings", id="no period"
        ),
        pytest.param("settings", {"settings": {"namespaces": {"A": "off"}}}, "namespace 'A'", id="an odd namespace"),
        pytest.param("engine", {"engine": 0}, ">= 1 - at `$.entries[0].engine`", id="engine zero"),
        pytest.param("restart", {"reason": ""}, "reason ''", id="a restart without reason"),
        pytest.param(
            "watermarkReset",
            {"sourcePartition": -1},
            ">= 0 - at `$.entries[0].sourcePartition`",
            id="a negative partition",
        ),
        pytest.param("heartbeat", {"session": ""}, "session ''", id="a heartbeat of nobody"),
        pytest.param("command", {"command": "mode", "mode": None}, "needs mode", id="a mode command without mode"),
        pytest.param("autoscalerSet", {"mode": "off"}, "only with origin central", id="a mode of a cluster's HPA"),
        pytest.param(
            "autoscalerList",
            {"conflicting": [{"kind": "X"}]},
            "$.entries[0].conflicting[0]",
            id="a conflicting autoscaler without target",
        ),
        pytest.param(
            "autoscalerList",
            {"conflicting": [{"kind": "X", "name": "x", "target": {"kind": "Y", "name": "y", "group": [1]}}]},
            "$.entries[0].conflicting[0].target.group",
            id="a conflicting autoscaler whose target's group is no text",
        ),
        pytest.param(
            "autoscalerList",
            {"managers": {"a": ["m", -1]}},
            ">= 0 - at `$.entries[0].managers[...][1]`",
            id="a manager of no time",
        ),
        pytest.param("autoscalerSet", {"managerTime": -1}, "managerTime", id="a manager's time before all time"),
        *[pytest.param("answers", {"items": [made]}, text, id=f"pods: {text}") for made, text in BAD_PODS],
        pytest.param("answers", {"items": [{"api": "external"}]}, "items[0]: metric ''", id="an answer to nothing"),
    ],
)
def test_impossible_bodies_are_refused(kind: str, changes: dict[str, Any], text: str) -> None:
    record = orjson.loads((GOLDEN / f"{kind}.json").read_bytes())
    record["entries"][0] |= changes
    report = check_record(orjson.dumps(record))
    assert report.result == "rejected"
    assert text in report.reasons[0]


NAME_PARTS = st.text("a0-._A,", max_size=3) | st.sampled_from(["w" * 100, "w" * 101, "w-" * 76, "web-", "é", "a\n"])


@given(prefix=NAME_PARTS, names=st.lists(NAME_PARTS, min_size=1, max_size=3))
def test_names_of_pods_are_good_if_each_of_them_is(prefix: str, names: list[str]) -> None:
    rest = ",".join(names)
    columns = (("app", "cpu", 1, (1,) * (rest.count(",") + 1)),)
    record = orjson.loads((GOLDEN / "answers.json").read_bytes())
    record["entries"][0]["items"] = [about_pods(prefix, rest, ages=(), columns=columns)]
    is_good = all(is_object(prefix + name) for name in rest.split(","))
    assert (check_record(orjson.dumps(record)).result == "ok") == is_good
