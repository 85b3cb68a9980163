"""Mapping files: which series become which metric, and errors that name file and field."""

import pytest

from schemas.limits import Refusal
from schemas.observed import Point
from streams.ingest.mapping import Mapping, MappingError, Resolver, load_mapping
from streams.ingest.otlp import SourceSeries

WHERE = {"cluster": "east", "namespace": "shop"}


def resolve(text: str, series: SourceSeries, topic: str = "metrics") -> Point:
    return Resolver(load_mapping(text, "mapping.yaml")).resolve(series, topic).point


def series(name: str = "depth", value: float = 2.5, **labels: str) -> SourceSeries:
    return SourceSeries(name, WHERE | labels, value, 1_000)


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        pytest.param(
            "rules: [{match: 'hpa:*', type: External, metric: depth, labels: [queue]}]",
            series("hpa:queue", queue="pay", host="h1"),
            Point(type="External", metric="depth", milli=2_500, time=1_000, labels={"queue": "pay"}),
            id="a rule renames and keeps chosen labels",
        ),
        pytest.param(
            "rules: [{match: depth, type: Object, objectKind: Ingress.networking.k8s.io, object: ingress}]",
            series(ingress="front"),
            Point(
                type="Object",
                metric="depth",
                milli=2_500,
                time=1_000,
                object_kind="Ingress.networking.k8s.io",
                object="front",
                labels={"ingress": "front"},
            ),
            id="an attribute names the object",
        ),
        pytest.param(
            "rules: [{match: depth, temporality: cumulative}]",
            series(pod="p-1"),
            Point(type="Pods", metric="depth", milli=2_500, time=1_000, pod="p-1", temporality="cumulative"),
            id="a rule says that Prometheus' series counts up",
        ),
        pytest.param(
            "attributes: {pod: [instance]}",
            series(instance="p-1", pod="ignored"),
            Point(type="Pods", metric="depth", milli=2_500, time=1_000, pod="p-1", labels={"pod": "ignored"}),
            id="other labels for the identity",
        ),
        pytest.param(
            "rules: [{match: depth, where: {queue: 'pay*'}, metric: a}, {match: depth, metric: b}]",
            series(queue="refund"),
            Point(type="External", metric="b", milli=2_500, time=1_000, labels={"queue": "refund"}),
            id="labels choose between rules",
        ),
        pytest.param(
            "rules: [{match: my.cpu, type: Resource, metric: cpu, utilization: true}]",
            series("my.cpu", 0.67, pod="p-1"),
            Point(type="Resource", metric="cpu", milli=670, time=1_000, pod="p-1", utilization=True),
            id="a share of the request",
        ),
    ],
)
def test_rules(text: str, given: SourceSeries, expected: Point) -> None:
    assert resolve(text, given) == expected


def test_the_topic_can_name_the_cluster() -> None:
    resolver = Resolver(load_mapping("topics: {metrics: {cluster: west}}", "m"))
    found = resolver.resolve(SourceSeries("depth", {"namespace": "shop"}, 1, 1_000), "metrics")
    assert found.cluster == "west"
    assert resolver.resolve(series(), "metrics").cluster == "east", "the series' own comes first"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        pytest.param("rules: [{match: depth, drop: true}]", "dropped", id="a rule that drops"),
        pytest.param("defaults: false", "unmatched", id="no rule at all"),
        pytest.param("rules: [{match: depth, type: Resource, metric: cpu}]", "unmatched", id="a resource without pod"),
        pytest.param(
            "rules: [{match: depth, type: Object, objectKind: A, object: b}]",
            "unmatched",
            id="no attribute of that name",
        ),
    ],
)
def test_what_is_not_wanted_is_left_out(text: str, code: str) -> None:
    with pytest.raises(Refusal) as refused:
        resolve(text, series())
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("rules: [", "m.yaml: not YAML", id="not YAML"),
        pytest.param("[]", "m.yaml: Expected `object`", id="a list"),
        pytest.param("version: 2", "m.yaml: version: invalid enum value 2", id="an unknown version"),
        pytest.param("rulez: []", "m.yaml: Object contains unknown field `rulez`", id="an unknown field"),
        pytest.param("rules: [{}]", "m.yaml: rules[0]: object missing required field `match`", id="no match"),
        pytest.param("rules: [{match: ''}]", "m.yaml: rules[0].match: must not be empty", id="an empty match"),
        pytest.param("rules: [{match: a, type: Node}]", "m.yaml: rules[0].type: invalid enum value", id="unknown type"),
        pytest.param("rules: [{match: 7}]", "m.yaml: rules[0].match: expected `str`, got `int`", id="a number"),
        pytest.param("rules: [{match: a, type: Object}]", "m.yaml: rules[0].type: Object needs", id="no object"),
        pytest.param("rules: [{match: a, object: b}]", "m.yaml: rules[0].object: only for", id="an object too many"),
        pytest.param("rules: [{match: a, utilization: true}]", "m.yaml: rules[0].utilization", id="share of nothing"),
        pytest.param("rules: [{match: a, type: Resource}]", "m.yaml: rules[0].metric", id="which resource"),
        pytest.param("topics: {t: {cluster: a/b}}", "m.yaml: topics.t.cluster: 'a/b'", id="a cluster with a slash"),
    ],
)
def test_errors_name_file_and_field(text: str, error: str) -> None:
    with pytest.raises(MappingError) as raised:
        load_mapping(text, "m.yaml")
    assert str(raised.value).startswith(error)


def test_an_empty_file_is_the_default() -> None:
    assert load_mapping("", "m.yaml") == Mapping()
