"""Pure parts of the simulated API server: patches, selectors, tables, protobuf."""

from typing import Any

import pytest

from fleethpa.simulator import patching
from fleethpa.simulator import requests as protobuf
from fleethpa.simulator.faults import StatusError
from fleethpa.simulator.model import parse_simulation
from fleethpa.simulator.requests import field_matcher, label_matcher, selector_string

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        pytest.param("", {}, True, id="nothing selects everything"),
        pytest.param("app=web,tier!=db", {"app": "web"}, True, id="an absent label is not equal"),
        pytest.param("app==web", {"app": "api"}, False, id="another value does not match"),
        pytest.param("app in (web, api),x", {"app": "api", "x": ""}, True, id="one of a set, and a key that exists"),
        pytest.param("app notin (web)", {}, True, id="an absent label is in no set"),
        pytest.param("!app", {"app": ""}, False, id="an empty label exists"),
    ],
)
def test_label_selectors(selector: str, labels: dict[str, str], matches: bool) -> None:
    assert label_matcher(selector)({"metadata": {"labels": labels}}) is matches


def test_a_broken_label_selector_is_a_bad_request() -> None:
    with pytest.raises(StatusError, match="unable to parse requirement"):
        label_matcher("app in web")


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param("metadata.name=a,status.phase!=Failed", True, id="all terms hold"),
        pytest.param("status.phase=Failed", False, id="one does not"),
        pytest.param("spec.nodeName=", True, id="an absent field is empty"),
    ],
)
def test_field_selectors(selector: str, matches: bool) -> None:
    assert field_matcher(selector)({"metadata": {"name": "a"}, "status": {"phase": "Running"}}) is matches


def test_the_selector_of_a_scale_is_written_as_text() -> None:
    expressions = [{"key": "tier", "operator": "In", "values": ["b", "a"]}, {"key": "old", "operator": "DoesNotExist"}]
    selector = {"matchLabels": {"app": "web"}, "matchExpressions": expressions}
    assert selector_string(selector) == "app=web,tier in (a,b),!old"


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        pytest.param({"a": None}, {"l": [{"name": "x", "v": 1}]}, id="null removes"),
        pytest.param({"l": []}, {"a": 1, "l": []}, id="a list is replaced"),
        pytest.param({"b": {"c": 2}}, {"a": 1, "l": [{"name": "x", "v": 1}], "b": {"c": 2}}, id="a map is created"),
    ],
)
def test_merge_patches(patch: Json, expected: Json) -> None:
    assert patching.merge({"a": 1, "l": [{"name": "x", "v": 1}]}, patch) == expected


def test_strategic_patches_join_containers_by_name_and_delete_them() -> None:
    old = {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}
    patch = {"containers": [{"name": "a", "image": "2"}, {"name": "b", "$patch": "delete"}, {"name": "c"}]}
    expected = {"containers": [{"name": "a", "image": "2"}, {"name": "c"}]}
    assert patching.strategic_merge(old, patch) == expected
    assert old["containers"][0]["image"] == "1", "the stored object is not changed in place"


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        pytest.param({"op": "replace", "path": "/a/b", "value": 2}, {"a": {"b": 2, "l": [1]}}, id="replace"),
        pytest.param({"op": "add", "path": "/a/l/-", "value": 2}, {"a": {"b": 1, "l": [1, 2]}}, id="append"),
        pytest.param({"op": "remove", "path": "/a/l"}, {"a": {"b": 1}}, id="remove"),
        pytest.param(
            {"op": "copy", "from": "/a/b", "path": "/x~1y"}, {"a": {"b": 1, "l": [1]}, "x/y": 1}, id="escapes"
        ),
        pytest.param({"op": "test", "path": "/a/b", "value": 1}, {"a": {"b": 1, "l": [1]}}, id="a test that holds"),
    ],
)
def test_json_patches(operation: Json, expected: Json) -> None:
    assert patching.json_patch({"a": {"b": 1, "l": [1]}}, [operation]) == expected


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param({"op": "test", "path": "/a", "value": 2}, id="a test that fails"),
        pytest.param({"op": "replace", "path": "/b", "value": 2}, id="nothing to replace"),
        pytest.param({"op": "remove", "path": "/b"}, id="nothing to remove"),
        pytest.param({"op": "jump", "path": "/a"}, id="an unknown operation"),
    ],
)
def test_json_patches_that_do_not_fit_are_refused(operation: Json) -> None:
    with pytest.raises(StatusError) as refused:
        patching.json_patch({"a": 1}, [operation])
    assert refused.value.code == 422


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        pytest.param(b"{}", 400, id="no magic bytes"),
        pytest.param(b"k8s\x00\x0a\xff", 400, id="a field longer than the message"),
        pytest.param(b"k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x00", 415, id="a kind that is read as JSON only"),
    ],
)
def test_protobuf_that_cannot_be_read(raw: bytes, code: int) -> None:
    with pytest.raises(StatusError) as refused:
        protobuf.decode(raw)
    assert refused.value.code == code


def test_protobuf_of_a_namespace() -> None:
    raw = b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x07\x0a\x05\x0a\x03foo"
    assert protobuf.decode(raw) == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "foo"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("lod: 3", "only load, pod and metrics are known", id="a misspelt section"),
        pytest.param("pod: {redy_ms: 3}", "redy_ms", id="a misspelt pod field"),
        pytest.param("metrics: [{type: Pod, name: x}]", "type Pods, Object or External", id="an unknown metric type"),
        pytest.param("load: [", "is not YAML", id="no YAML"),
    ],
)
def test_a_wrong_simulation_annotation_names_the_mistake(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_simulation(text)
