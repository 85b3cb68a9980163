"""HPA manifests of every version: decoding, defaults, conversion, equality, what is refused."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from schemas.kubernetes.hpa import (
    ManifestError,
    decode_and_default,
    hpa_from_manifest,
    semantically_equal_spec,
    semantically_equal_status,
)
from schemas.kubernetes.validation import api_error_message, validate_create, validate_update
from schemas.limits import Refusal
from streams.ingest import hpamanifests
from streams.ingest.hpamanifests import checked_hpa
from tests.conformance.strategy import generation_after_update
from tests.conformance.v1 import v2_to_v1

PREFIX = "autoscaling.alpha.kubernetes.io"
PODS = {"type": "Pods", "value": 4, "periodSeconds": 15}
PERCENT = {"type": "Percent", "value": 100, "periodSeconds": 15}
UP = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [PODS, PERCENT]}
CURRENT_CPU = [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7}}}]
OWNER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u"}
DOWN = {"selectPolicy": "Max", "policies": [PERCENT]}


def manifest(version: str = "autoscaling/v2", annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    metadata: dict[str, Any] = {"name": "web", "namespace": "shop"} | (
        {"annotations": annotations} if annotations else {}
    )
    return {
        "apiVersion": version,
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": {"scaleTargetRef": target, "maxReplicas": 10, **spec},
    }


def resource(**target: Any) -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def test_the_least_manifest_gets_every_default_in_upstreams_order() -> None:
    given = manifest()
    del given["metadata"]["namespace"]

    assert json.dumps(hpa_from_manifest(given)) == json.dumps(
        {
            "kind": "HorizontalPodAutoscaler",
            "apiVersion": "autoscaling/v2",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
                "minReplicas": 1,
                "maxReplicas": 10,
                "metrics": [resource(type="Utilization", averageUtilization=80)],
            },
            "status": {"desiredReplicas": 0, "currentMetrics": None},
        }
    )


@pytest.mark.parametrize(
    ("behavior", "expected"),
    [
        pytest.param({}, {"scaleUp": UP, "scaleDown": DOWN}, id="an empty behavior is completed"),
        pytest.param({"scaleDown": None}, {"scaleUp": UP, "scaleDown": DOWN}, id="null is absent"),
        pytest.param(
            {"scaleUp": {"policies": [PODS]}},
            {"scaleUp": UP | {"policies": [PODS]}, "scaleDown": DOWN},
            id="a policy list is not merged",
        ),
        pytest.param(
            {"scaleDown": {"stabilizationWindowSeconds": 0, "tolerance": 0.05}},
            {"scaleUp": UP, "scaleDown": {"stabilizationWindowSeconds": 0} | DOWN | {"tolerance": "50m"}},
            id="zero is set, a number is a quantity",
        ),
    ],
)
def test_behavior_is_defaulted_field_by_field(behavior: dict[str, Any], expected: dict[str, Any]) -> None:
    assert hpa_from_manifest(manifest(behavior=behavior))["spec"]["behavior"] == expected


def test_defaults_are_not_shared_between_objects() -> None:
    first = hpa_from_manifest(manifest(behavior={}))
    first["spec"]["behavior"]["scaleUp"]["policies"].clear()
    first["spec"]["metrics"].clear()

    assert hpa_from_manifest(manifest(behavior={}))["spec"]["behavior"]["scaleUp"] == UP


def test_defaulting_again_changes_nothing() -> None:
    once = decode_and_default(manifest(behavior={"scaleUp": {"selectPolicy": "Min"}}))

    assert decode_and_default(once) == once


# --- v2beta2: as v2, but tolerances stand in annotations --------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "behavior", "tolerances"),
    [
        pytest.param({}, {"scaleUp": {"tolerance": "1"}}, (None, None), id="v2beta2 has no tolerance field"),
        pytest.param({"scale-up-tolerance": "0.3"}, {"scaleUp": {}}, ("300m", None), id="up"),
        pytest.param({"scale-down-tolerance": "50m"}, {}, (None, "50m"), id="down, though only defaults are there"),
        pytest.param(
            {"scale-up-tolerance": "much"}, {"scaleUp": {}}, (None, None), id="what cannot be read is ignored"
        ),
        pytest.param({"scale-up-tolerance": "0.3"}, None, (None, None), id="no behavior, no tolerance"),
    ],
)
def test_v2beta2_takes_tolerances_from_annotations(
    annotations: dict[str, str], behavior: dict[str, Any] | None, tolerances: tuple[str | None, str | None]
) -> None:
    named = {f"{PREFIX}/{key}": value for key, value in annotations.items()}

    hpa = hpa_from_manifest(manifest("autoscaling/v2beta2", named, behavior=behavior))

    rules = hpa["spec"].get("behavior") or {}
    assert tuple(rules.get(side, {}).get("tolerance") for side in ("scaleUp", "scaleDown")) == tolerances
    assert hpa["apiVersion"] == "autoscaling/v2"
    assert "annotations" not in hpa["metadata"]


def test_v2beta2_reads_all_metric_types_and_defaults_as_v2() -> None:
    metric = {"name": "m", "selector": {"matchLabels": {"a": "b"}}}
    metrics = [
        resource(type="AverageValue", averageValue="0.5"),
        {"type": "Pods", "pods": {"metric": metric, "target": {"type": "AverageValue", "averageValue": 5}}},
        {"type": "External", "external": {"metric": metric, "target": {"type": "Value", "value": "1k"}}},
    ]

    old = hpa_from_manifest(manifest("autoscaling/v2beta2", metrics=metrics, behavior={}))

    assert old == hpa_from_manifest(manifest(metrics=metrics, behavior={}))
    assert old["spec"]["metrics"][0]["resource"]["target"]["averageValue"] == "500m"
    assert old["spec"]["metrics"][1]["pods"]["target"]["averageValue"] == "5"


# --- v2beta1 and v2alpha1: the metrics of v1's annotations ------------------------------------------------------------

OLD_METRICS = [
    {"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": 50}},
    {"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "0.5Gi"}},
    {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "a", "targetAverageValue": "1"}},
    {"type": "Pods", "pods": {"metricName": "m", "targetAverageValue": 5, "selector": {"matchLabels": {"a": "b"}}}},
    {"type": "Object", "object": {"target": {"kind": "Ingress", "name": "i"}, "metricName": "m", "targetValue": "1k"}},
    {"type": "External", "external": {"metricName": "m", "metricSelector": {}, "targetValue": 30}},
]


@pytest.mark.parametrize("version", ["autoscaling/v2beta1", "autoscaling/v2alpha1"])
def test_the_metrics_of_older_versions_are_those_of_the_annotation_of_v1(version: str) -> None:
    behavior = {"autoscaling.alpha.kubernetes.io/behavior": json.dumps({"ScaleUp": {"SelectPolicy": "Min"}})}
    carried = {"autoscaling.alpha.kubernetes.io/metrics": json.dumps(OLD_METRICS)} | behavior

    old = hpa_from_manifest(manifest(version, behavior, metrics=OLD_METRICS))

    v1 = manifest("autoscaling/v1", carried)
    assert old == hpa_from_manifest(v1)
    assert old["spec"]["metrics"][0] == resource(type="Utilization", averageUtilization=50)
    assert old["spec"]["metrics"][5]["external"]["target"] == {"type": "Value", "value": "30"}


def test_older_versions_without_metrics_have_the_default_one_and_keep_their_status() -> None:
    current = [{"type": "Resource", "resource": {"name": "cpu", "currentAverageValue": "1"}}]
    status = {"currentReplicas": 3, "desiredReplicas": 4, "currentMetrics": current}

    hpa = hpa_from_manifest(manifest("autoscaling/v2beta1") | {"status": status})

    assert hpa["spec"]["metrics"] == [resource(type="Utilization", averageUtilization=80)]
    assert (hpa["status"]["currentReplicas"], hpa["status"]["desiredReplicas"]) == (3, 4)
    assert hpa["status"]["currentMetrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": "1"}}}
    ]


# --- v1 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "types"),
    [
        pytest.param(
            '[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":1}}]', ["Pods", "Resource"], id="first"
        ),
        pytest.param('[{"TYPE":"Pods","PODS":{"metricname":"m"}}]', ["Pods", "Resource"], id="keys in any case"),
        pytest.param('[{"type":"Pods","pods":{"metricName":5}}]', ["Resource"], id="a wrong type spoils the whole"),
        pytest.param('[{"type":"Pods","pods":{"targetAverageValue":"x"}}]', ["Resource"], id="a wrong quantity too"),
        pytest.param("[" * 100_000, ["Resource"], id="nested without end"),
        pytest.param('[{"type":NaN}]', ["Resource"], id="what Python takes for JSON and Go does not"),
        pytest.param("[null]", ["", "Resource"], id="null is an empty metric"),
    ],
)
def test_v1_metrics_come_from_the_annotation(text: str, types: list[str]) -> None:
    given = manifest("autoscaling/v1", {f"{PREFIX}/metrics": text, "kept": "yes"}, targetCPUUtilizationPercentage=50)

    hpa = hpa_from_manifest(given)

    assert [metric["type"] for metric in hpa["spec"]["metrics"]] == types
    assert hpa["spec"]["metrics"][-1] == resource(type="Utilization", averageUtilization=50)
    assert hpa["metadata"]["annotations"] == {"kept": "yes"}


def test_v1_behavior_is_completed_when_read_as_v2() -> None:
    given = manifest("autoscaling/v1", {f"{PREFIX}/behavior": '{"ScaleUp":{"SelectPolicy":"Min"}}'})

    assert hpa_from_manifest(given)["spec"]["behavior"] == {"scaleUp": UP | {"selectPolicy": "Min"}, "scaleDown": DOWN}


@pytest.mark.parametrize(
    ("text", "current"),
    [
        pytest.param(None, CURRENT_CPU, id="absent"),
        pytest.param("bad", CURRENT_CPU, id="unreadable"),
        pytest.param("null", [], id="null is an empty list, and wins"),
        pytest.param('[{"type":""}]', [{"type": ""}], id="what it holds wins"),
    ],
)
def test_v1_current_metrics_come_from_the_annotation(text: str | None, current: list[Any]) -> None:
    given = manifest("autoscaling/v1", {} if text is None else {f"{PREFIX}/current-metrics": text})
    given["status"] = {"currentReplicas": 1, "desiredReplicas": 1, "currentCPUUtilizationPercentage": 7}

    assert hpa_from_manifest(given)["status"]["currentMetrics"] == current


def test_half_a_surrogate_pair_in_an_annotation_is_a_replacement_character() -> None:
    hpa = hpa_from_manifest(
        manifest("autoscaling/v1", {f"{PREFIX}/metrics": r'[{"type":"\ud800x\ud83d\ude00\udc00"}]'})
    )

    assert hpa["spec"]["metrics"][0]["type"] == "\ufffdx\U0001f600\ufffd"


def test_labels_of_a_selector_are_in_order_in_an_annotation() -> None:
    selector = {"matchLabels": {"b": "1", "a": "2"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]}
    pods = {"type": "Pods", "pods": {"metric": {"name": "m", "selector": selector}}}

    old = v2_to_v1(hpa_from_manifest(manifest(metrics=[pods])))

    assert '"selector":{"matchLabels":{"a":"2","b":"1"},"match' in old["metadata"]["annotations"][f"{PREFIX}/metrics"]


def test_a_generation_of_zero_in_a_condition_is_kept() -> None:
    condition = {"type": "A", "status": "True", "lastTransitionTime": None, "observedGeneration": 0}

    old = v2_to_v1(hpa_from_manifest(manifest() | {"status": {"conditions": [condition]}}))

    assert json.loads(old["metadata"]["annotations"][f"{PREFIX}/conditions"]) == [condition]


def test_an_annotation_keeps_the_digits_of_a_number() -> None:
    text = '[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":1.500}}]'

    hpa = hpa_from_manifest(manifest("autoscaling/v1", {f"{PREFIX}/metrics": text}))

    assert hpa["spec"]["metrics"][0]["pods"]["target"]["averageValue"] == "1.500"


# --- what cannot be decoded -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(
            {"maxReplicas": "10"},
            'spec.maxReplicas: expected an integer of 32 bits, got the string "10"',
            id="text for a number",
        ),
        pytest.param(
            {"maxReplicas": 2**31},
            "spec.maxReplicas: expected an integer of 32 bits, got the number 2147483648",
            id="beyond 32 bits",
        ),
        pytest.param(
            {"maxReplicas": True},
            "spec.maxReplicas: expected an integer of 32 bits, got the boolean true",
            id="a boolean is no number",
        ),
        pytest.param(
            {"minReplicas": 1.5},
            "spec.minReplicas: expected an integer of 32 bits, got the number 1.5",
            id="half a replica",
        ),
        pytest.param({"metrics": {}}, "spec.metrics: expected a list, got an object", id="an object for a list"),
        pytest.param(
            {"metrics": [resource(averageValue="5K")]},
            'unable to parse quantity\'s suffix, got the string "5K"',
            id="no quantity",
        ),
        pytest.param(
            {"metrics": [resource(averageValue=[])]},
            "averageValue: expected a quantity, got a list",
            id="a list for a quantity",
        ),
        pytest.param(
            {"behavior": "fast"}, 'spec.behavior: expected an object, got the string "fast"', id="text for an object"
        ),
    ],
)
def test_a_wrong_type_is_named_with_its_field(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ManifestError) as raised:
        hpa_from_manifest(manifest(**change))
    assert len(raised.value.problems) == 1
    assert raised.value.problems[0].endswith(problem)
    assert str(raised.value) == f"HorizontalPodAutoscaler shop/web: {raised.value.problems[0]}"


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(ManifestError) as raised:
        hpa_from_manifest(manifest(maxReplicas="x", minReplicas="y", metrics=[{"type": 5}]))
    assert len(raised.value.problems) == 3


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(
            {"kind": "Deployment"}, "kind: expected HorizontalPodAutoscaler, got 'Deployment'", id="another kind"
        ),
        pytest.param({"apiVersion": "autoscaling/v2beta3"}, "apiVersion: expected one of", id="an unknown version"),
        pytest.param({"apiVersion": ["x"]}, "apiVersion: expected one of", id="no text"),
        pytest.param({"metadata": "web"}, "metadata: expected an object", id="no metadata"),
    ],
)
def test_another_object_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ManifestError, match=problem.replace("[", r"\[")):
        hpa_from_manifest(manifest() | change)


def test_unknown_fields_are_dropped() -> None:
    assert hpa_from_manifest(manifest(maxSurge=3)) == hpa_from_manifest(manifest())


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        pytest.param("2001-02-03T04:05:06Z", "2001-02-03T04:05:06Z", id="UTC"),
        pytest.param("2001-02-03T04:05:06.999+02:00", "2001-02-03T02:05:06Z", id="another zone, part seconds cut off"),
        pytest.param("2001-02-03T04:05:06-00:30", "2001-02-03T04:35:06Z", id="west"),
        pytest.param("2001-02-03T4:05:06+24:60", "2001-02-02T03:05:06Z", id="as far as Go's parser goes"),
        pytest.param("0001-01-01T00:00:00Z", None, id="the zero time is none"),
        pytest.param(None, None, id="null is none"),
    ],
)
def test_times_are_utc_seconds(given: str | None, shown: str | None) -> None:
    source = manifest()
    source["metadata"]["creationTimestamp"] = given

    assert hpa_from_manifest(source)["metadata"].get("creationTimestamp") == shown


@pytest.mark.parametrize(
    "time",
    [
        "2001-02-30T00:00:00Z",
        "2001-02-03",
        "0001-01-01T00:00:00+23:00",
        "٢001-02-03T00:00:00Z",
        "2001-02-03T04:05:06+25:00",
        "2001-02-03T04:05:06+00:61",
    ],
)
def test_what_is_no_time_is_refused(time: str) -> None:
    source = manifest()
    source["metadata"]["creationTimestamp"] = time

    with pytest.raises(ManifestError, match=r"metadata\.creationTimestamp: expected a time"):
        hpa_from_manifest(source)


# --- equality ---------------------------------------------------------------------------------------------------------


def current(**values: Any) -> list[dict[str, Any]]:
    return [{"type": "Resource", "resource": {"name": "cpu", "current": values}}]


STATUS: dict[str, Any] = {
    "currentReplicas": 2,
    "desiredReplicas": 2,
    "currentMetrics": current(averageValue="400m"),
    "conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": "2001-02-03T04:05:06Z"}],
}


@pytest.mark.parametrize(
    ("change", "equal"),
    [
        pytest.param({}, True, id="the same"),
        pytest.param({"desiredReplicas": 3}, False, id="a count"),
        pytest.param({"observedGeneration": 0}, False, id="null is not zero where null can be"),
        pytest.param({"conditions": []}, False, id="no conditions"),
        pytest.param({"currentMetrics": current(averageValue="0.4")}, True, id="a quantity by value"),
        pytest.param({"currentMetrics": current(averageValue="401m")}, False, id="another quantity"),
        pytest.param({"currentMetrics": current()}, False, id="no quantity"),
    ],
)
def test_statuses_are_compared_by_meaning(change: dict[str, Any], equal: bool) -> None:
    other = copy.deepcopy(STATUS) | change

    assert semantically_equal_status(STATUS, other) is equal
    assert semantically_equal_status(other, STATUS) is equal


def test_missing_lists_and_zero_counts_equal_empty_ones() -> None:
    assert semantically_equal_status(
        {"desiredReplicas": 0, "currentMetrics": None}, {"currentMetrics": [], "currentReplicas": 0}
    )
    assert semantically_equal_spec(manifest()["spec"], manifest(metrics=[])["spec"])
    assert not semantically_equal_spec(manifest()["spec"], manifest(behavior={})["spec"])


# --- validation -------------------------------------------------------------------------------------------------------


def container(name: str) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": 50}
    return {"type": "ContainerResource", "containerResource": {"name": name, "container": "app", "target": target}}


STANDARD = "must be a standard resource type or fully qualified"
NOT_EXTENDED = "doesn't follow extended resource name standard"
FOR_CONTAINERS = "must be a standard resource for containers"


@pytest.mark.parametrize(
    ("name", "details"),
    [
        pytest.param("cpu", [], id="cpu"),
        pytest.param("hugepages-2Mi", [], id="huge pages"),
        pytest.param("nvidia.com/gpu", [], id="an extended resource"),
        pytest.param("storage", [FOR_CONTAINERS], id="standard, but not of containers"),
        pytest.param("requests.hugepages-2Mi", [FOR_CONTAINERS], id="a quota's name"),
        pytest.param("gpu", [STANDARD, FOR_CONTAINERS], id="neither"),
        pytest.param("x.kubernetes.io/anything", [], id="a native name with a prefix"),
        pytest.param("requests.example.com/gpu", [NOT_EXTENDED], id="a quota's prefix"),
        pytest.param(f"{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 61}/x", [NOT_EXTENDED], id="too long for a quota"),
    ],
)
def test_container_resource_names(name: str, details: list[str]) -> None:
    assert [error.detail for error in validate_create(manifest(metrics=[container(name)]))] == details


def test_an_explicit_empty_policy_list_is_refused_and_an_absent_one_is_not() -> None:
    refused = validate_create(manifest(behavior={"scaleUp": {"policies": []}, "scaleDown": {}}))

    assert [error.string for error in refused] == [
        "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy"
    ]


def test_an_update_looks_at_declared_minimums_only_where_they_changed() -> None:
    bad = manifest(maxReplicas=0, minReplicas=0, metrics=[container("cpu"), {"type": "Object"}])
    bad["metadata"]["resourceVersion"] = "1"
    before = copy.deepcopy(bad)
    changed = copy.deepcopy(bad)
    before["spec"]["maxReplicas"] = 5

    unchanged = [error.string for error in validate_update(bad, changed)]
    assert unchanged[0] == "spec.maxReplicas: Required value: must be set and greater than 0"
    assert [error.string for error in validate_update(bad, before)][-1] == "spec.maxReplicas: Required value"


def test_an_update_tolerates_what_was_stored() -> None:
    old = manifest()
    old["metadata"]["resourceVersion"] = "1"
    old["spec"]["scaleTargetRef"]["apiVersion"] = "a/b/c"
    described = {"kind": "Service", "name": "svc", "apiVersion": "x/y/z"}
    target = {"type": "Value", "value": "1"}
    old["spec"]["metrics"] = [
        {"type": "Object", "object": {"describedObject": described, "metric": {"name": "m"}, "target": target}}
    ]

    assert validate_update(old, old) == []
    assert [error.field for error in validate_create(old)] == [
        "spec.scaleTargetRef.apiVersion",
        "spec.metrics[0].object.describedObject.apiVersion",
    ]


def test_an_update_must_name_the_version_it_saw() -> None:
    assert [error.string for error in validate_update(manifest(), manifest())] == [
        'metadata.resourceVersion: Invalid value: "": must be specified for an update'
    ]


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        pytest.param(
            {"annotations": {"a": "x" * 262_144}},
            "metadata.annotations: Too long: may not be more than 262144 bytes",
            id="annotations",
        ),
        pytest.param({"generateName": "web-", "name": None}, None, id="a generated name"),
        pytest.param(
            {"name": "a\nb"},
            'metadata.name: Invalid value: "a\\nb": a lowercase RFC 1123 subdomain',
            id="a line end in a name",
        ),
        pytest.param(
            {"labels": {"é/x": "1"}}, 'metadata.labels: Invalid value: "é/x": prefix part a lowercase', id="a prefix"
        ),
        pytest.param(
            {"finalizers": ["a b"]}, 'metadata.finalizers: Invalid value: "a b": name part must', id="a finalizer"
        ),
        pytest.param(
            {"finalizers": ["orphan", "foregroundDeletion"]},
            'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and'
            " foregroundDeletion cannot be both set",
            id="two ways of deletion",
        ),
        pytest.param(
            {"ownerReferences": [OWNER | {"apiVersion": ""}]},
            "metadata.ownerReferences[0].apiVersion: Required value: must not be empty",
            id="an owner without a version",
        ),
        pytest.param(
            {"ownerReferences": [OWNER | {"apiVersion": "a/b/c"}]},
            'metadata.ownerReferences[0].apiVersion: Invalid value: "a/b/c": must be <group>/<version> or <version>',
            id="an owner of too many groups",
        ),
        pytest.param(
            {"ownerReferences": [OWNER | {"apiVersion": "apps/"}]},
            'metadata.ownerReferences[0].apiVersion: Invalid value: "apps/": must be <group>/<version> or <version>',
            id="an owner with a group alone",
        ),
        pytest.param(
            {"ownerReferences": [OWNER | {"uid": None}]},
            "metadata.ownerReferences[0].uid: Required value: must not be empty",
            id="an owner without a uid",
        ),
        pytest.param(
            {"ownerReferences": [OWNER | {"apiVersion": "v1", "kind": "Event"}]},
            'metadata.ownerReferences[0]: Invalid value: {"apiVersion":"v1","kind":"Event","name":"web","uid":"u"}:'
            " /v1, Kind=Event is disallowed from being an owner",
            id="an event as owner",
        ),
        pytest.param(
            {"ownerReferences": [OWNER | {"controller": True}, OWNER | {"controller": True, "name": "x"}]},
            'metadata.ownerReferences: Invalid value: [{"apiVersion":"apps/v1","kind":"Deployment","name":"web",'
            '"uid":"u","controller":true},{"apiVersion":"apps/v1","kind":"Deployment","name":"x","uid":"u",'
            '"controller":true}]: Only one reference can have Controller set to true. Found "true" in references for'
            " Deployment/web and Deployment/x",
            id="two controllers",
        ),
        pytest.param(
            {"ownerReferences": [OWNER, OWNER | {"controller": True}, OWNER | {"controller": False}]},
            None,
            id="one controller",
        ),
    ],
)
def test_metadata_is_checked(metadata: dict[str, Any], error: str | None) -> None:
    given = manifest()
    given["metadata"] |= metadata

    found = [each.string for each in validate_create(given)]
    assert len(found) == (error is not None)
    assert "".join(found).startswith(error or "")


@pytest.mark.parametrize(
    ("new", "old", "errors"),
    [
        pytest.param(
            {"uid": "<x>"}, {"uid": "u"}, ['uid: Invalid value: "\\u003cx\\u003e": field is immutable'], id="uid"
        ),
        pytest.param({}, {"uid": "u", "creationTimestamp": "2001-01-01T00:00:00Z"}, [], id="what is stored stays"),
        pytest.param(
            {"creationTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30},
            {},
            [
                'creationTimestamp: Invalid value: "2001-01-01T00:00:00Z": field is immutable',
                "deletionGracePeriodSeconds: Invalid value: 30: field is immutable",
            ],
            id="what only the server sets",
        ),
        pytest.param(
            {"finalizers": ["x/b", "a", "x/é"]},
            {"finalizers": ["a"], "deletionTimestamp": "2001-01-01T00:00:00Z"},
            [
                'finalizers: Invalid value: "x/é": name part must consist of alphanumeric characters',
                "finalizers: Forbidden: no new finalizers can be added if the object is being deleted,"
                ' found new finalizers []string{"x/b", "x/é"}',
            ],
            id="finalizers of what is being deleted",
        ),
        pytest.param({"generateName": "."}, {}, [], id="a prefix may be a dot"),
    ],
)
def test_an_update_leaves_what_is_stored(new: dict[str, Any], old: dict[str, Any], errors: list[str]) -> None:
    given, stored = manifest(), manifest()
    given["metadata"] |= {"resourceVersion": "1"} | new
    stored["metadata"] |= {"resourceVersion": "1"} | old

    found = [each.string for each in validate_update(given, stored)]
    assert len(found) == len(errors)
    assert all(one.startswith(f"metadata.{error}") for one, error in zip(found, errors, strict=True))


def test_a_type_is_shown_as_json_and_a_name_quoted() -> None:
    odd = "<\x7f\b\n"
    refused = manifest(
        metrics=[
            {"type": odd},
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": odd, "averageValue": "1"}}},
            container(f"cpu{odd}"),
        ],
        behavior={"scaleUp": {"selectPolicy": odd, "policies": [{"type": odd, "value": 1, "periodSeconds": 1}]}},
    )
    refused["spec"]["scaleTargetRef"]["kind"] = f"/{odd}"

    shown = {error.field: error.body.split(": ")[1] for error in validate_create(refused)}
    assert shown == {
        "spec.scaleTargetRef.kind": '"/<\\x7f\\b\\n"',
        "spec.metrics[0].type": '"\\u003c\x7f\\b\\n"',
        "spec.metrics[1].resource.target.type": '"\\u003c\x7f\\b\\n"',
        "spec.metrics[2].containerResource.name": '"cpu\\u003c\x7f\\b\\n"',
        "spec.behavior.scaleUp.selectPolicy": '"\\u003c\x7f\\b\\n"',
        "spec.behavior.scaleUp.policies[0].type": '"\\u003c\x7f\\b\\n"',
    }


def test_the_refusal_reads_as_the_api_servers() -> None:
    errors = validate_create(manifest(maxReplicas=-1, minReplicas=-1))

    assert api_error_message("web", errors) == (
        'HorizontalPodAutoscaler.autoscaling "web" is invalid: ['
        "spec.minReplicas: Invalid value: -1: must be greater than or equal to 0, "
        "spec.maxReplicas: Invalid value: -1: must be greater than or equal to 1]"
    )
    assert api_error_message("web", []) == ""


def test_the_generation_rises_with_the_meaning_of_the_spec() -> None:
    old = manifest(metrics=[resource(type="AverageValue", averageValue="0.5")])
    old["metadata"]["generation"] = 7

    assert generation_after_update(manifest(metrics=[resource(type="AverageValue", averageValue="500m")]), old) == 7
    assert generation_after_update(manifest(metrics=[resource(type="AverageValue", averageValue="501m")]), old) == 8


def nested(levels: int) -> list[Any]:
    return [nested(levels - 1)] if levels > 1 else []


STATUSES = [
    pytest.param({}, id="empty"),
    pytest.param({"desiredReplicas": 3, "currentMetrics": None, "observedGeneration": 2}, id="no metrics"),
    pytest.param({"currentMetrics": CURRENT_CPU, "desiredReplicas": 0, "currentReplicas": 4}, id="metrics"),
    pytest.param({"lastScaleTime": "2026-01-01T00:00:00Z", "nosuch": 1, "conditions": []}, id="an unknown field"),
    pytest.param(
        {"desiredReplicas": 1, "conditions": [{"type": "A", "status": "True", "reason": "R"}]}, id="condition"
    ),
    pytest.param({"desiredReplicas": "x"}, id="a wrong type"),
    pytest.param({"conditions": 7}, id="no list"),
    pytest.param({"desiredReplicas": 0, "currentMetrics": CURRENT_CPU}, id="as upstream shows it"),
    pytest.param({"desiredReplicas": 3, "nosuch": nested(40)}, id="an unknown field that is too deep"),
    pytest.param(None, id="absent"),
]


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("spec", [{}, {"minReplicas": 20}, {"metrics": 5}, {"metrics": nested(40)}])
def test_an_hpa_of_which_only_the_status_changed_is_checked_as_the_whole_would_be(
    status: dict[str, Any] | None, spec: dict[str, Any]
) -> None:
    for version in ("7", "8"):
        hpa = manifest(**spec) | ({} if status is None else {"status": status})
        hpa["metadata"]["resourceVersion"] = version
        whole, parts = (_checked(copy.deepcopy(hpa), check) for check in (_whole, checked_hpa))
        assert parts == whole
        if isinstance(whole, dict):
            assert json.dumps(parts) == json.dumps(whole), "in the same order"
            assert whole["metadata"]["resourceVersion"] == version


METADATA: list[Any] = [
    pytest.param({}, id="none"),
    pytest.param({"labels": {"app": "web"}, "annotations": {"a/b": "c"}, "uid": "u"}, id="usual"),
    pytest.param({"annotations": {f"{PREFIX}/behavior": "{}"}}, id="an annotation of another version alone"),
    pytest.param(
        {"annotations": {f"{PREFIX}/behavior": "{}", "z": "1", "a": ""}, "finalizers": ["a/b"]}, id="and more"
    ),
    pytest.param({"annotations": {"no key": "1"}}, id="a wrong annotation"),
    pytest.param({"labels": {}, "deletionTimestamp": None, "generation": 0, "nosuch": 1}, id="empty and unknown"),
    pytest.param({"namespace": "shop", "creationTimestamp": "2026-01-01T01:00:00+01:00"}, id="a namespace and a time"),
    pytest.param({"namespace": "other"}, id="another namespace"),
    pytest.param({"namespace": None}, id="no namespace"),
    pytest.param({"uid": 7}, id="a wrong type"),
    pytest.param({"resourceVersion": 7}, id="a version of a wrong type"),
    pytest.param({"resourceVersion": ""}, id="an empty version"),
    pytest.param({"managedFields": nested(30)}, id="deep"),
    pytest.param({"managedFields": nested(31)}, id="too deep"),
    pytest.param({"ownerReferences": [{"kind": "App", "name": "a", "controller": False}]}, id="a wrong owner"),
]


@pytest.mark.parametrize("metadata", METADATA)
@pytest.mark.parametrize("more", [{}, {"nosuch": 1}, {"kind": "Hpa"}, {"apiVersion": "autoscaling/v1"}, {"spec": None}])
def test_metadata_are_checked_as_in_the_whole(metadata: dict[str, Any], more: dict[str, Any]) -> None:
    hpa = manifest() | {"status": {"desiredReplicas": 3}} | more
    hpa["metadata"] |= {"resourceVersion": "7"} | metadata
    whole, parts = (_checked(copy.deepcopy(hpa), check) for check in (_whole, checked_hpa))
    assert json.dumps(parts) == json.dumps(whole)


def versioned(hpa: dict[str, Any]) -> dict[str, Any]:
    return hpa | {"metadata": hpa["metadata"] | {"resourceVersion": "7"}, "status": {}}


@pytest.mark.parametrize("target", ["web", "any", "", "a/b", "..", "\u00fc", "\ud800", 7, None])
@pytest.mark.parametrize("spec", [{}, {"minReplicas": 20}, {"behavior": {}}, {"scaleTargetRef": None}])
def test_what_an_hpa_scales_is_checked_where_the_rest_of_its_spec_is_known(target: Any, spec: dict[str, Any]) -> None:
    assert isinstance(_checked(versioned(manifest()), checked_hpa), dict), "its spec is known from here on"
    hpa = versioned(manifest(**spec))
    if hpa["spec"]["scaleTargetRef"]:
        hpa["spec"]["scaleTargetRef"] = hpa["spec"]["scaleTargetRef"] | {"name": target}
    for _ in range(2):
        whole, parts = (_checked(copy.deepcopy(hpa), check) for check in (_whole, checked_hpa))
        assert json.dumps(parts) == json.dumps(whole)


@pytest.mark.parametrize(
    ("levels", "is_refused"), [pytest.param(30, False, id="within"), pytest.param(31, True, id="one more")]
)
def test_how_deep_an_hpa_may_be_nested(levels: int, is_refused: bool) -> None:
    hpa = manifest() | {"status": {"nosuch": nested(levels)}}
    hpa["metadata"]["resourceVersion"] = "7"
    assert (_checked(hpa, checked_hpa) == "web: nested more than 32 deep") is is_refused


def test_an_hpa_that_is_too_deep_for_the_encoder_is_refused() -> None:
    hpa = manifest(metrics=nested(950)) | {"status": {}}
    hpa["metadata"]["resourceVersion"] = "7"
    assert _checked(hpa, checked_hpa) == "web: nested more than 32 deep"


def _whole(hpa: dict[str, Any], namespace: str) -> dict[str, Any]:
    return hpamanifests._checked_manifest(hpa["metadata"]["name"], hpa, namespace)


def _checked(hpa: dict[str, Any], check: Callable[[dict[str, Any], str], dict[str, Any]]) -> dict[str, Any] | str:
    try:
        return check(hpa, "shop")
    except Refusal as refusal:
        return refusal.text
