"""Pure parts of the simulated API server: patches, selectors, the simulation annotation."""

from typing import Any

import pytest

from fleethpa.lab.simulator.model import parse_simulation
from fleethpa.lab.simulator.requests import MERGE_PATCH, PATCHES, StatusError, field_matcher, label_matcher, patched

Json = dict[str, Any]


def test_a_broken_label_selector_is_a_bad_request() -> None:
    with pytest.raises(StatusError, match="parse"):
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


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        pytest.param({"a": None}, {"l": [{"name": "x", "v": 1}]}, id="null removes"),
        pytest.param({"l": []}, {"a": 1, "l": []}, id="a list is replaced"),
        pytest.param({"b": {"c": 2}}, {"a": 1, "l": [{"name": "x", "v": 1}], "b": {"c": 2}}, id="a map is created"),
    ],
)
def test_merge_patches(patch: Json, expected: Json) -> None:
    assert patched({"a": 1, "l": [{"name": "x", "v": 1}]}, MERGE_PATCH, patch) == expected


def test_strategic_patches_join_containers_by_name_and_delete_them() -> None:
    old = {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}
    patch = {"containers": [{"name": "a", "image": "2"}, {"name": "b", "$patch": "delete"}, {"name": "c"}]}
    expected = {"containers": [{"name": "a", "image": "2"}, {"name": "c"}]}
    assert patched(old, PATCHES[1], patch) == expected
    assert old["containers"][0]["image"] == "1", "the stored object is not changed in place"


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
