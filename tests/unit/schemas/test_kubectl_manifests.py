"""Manifests are read as kubectl reads them: its recorded answers."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any, Final

import pytest

from schemas.kubernetes.manifests import ManifestSyntaxError, load_manifests
from schemas.kubernetes.manifesttext import JsonStart, TextPart
from schemas.textfiles import decode_text
from tests.kubectlanswers import RECORDED, KubectlAnswer, contents


def integer(text: str) -> int | float:
    """One beyond 64 bits was a double, and is shown without an exponent."""
    return int(text) if -(2**63) <= int(text) < 2**63 else float(text)


ANSWERS: list[KubectlAnswer] = json.loads(RECORDED.read_text(), parse_int=integer)
NOT_LOST: Final = {
    "yaml, then json in a row": "kubectl reads the first one only",
    "directives": "kubectl refuses them; other tools write them",
    "an object on a separator's line": "kubectl refuses it; it is YAML",
}
"""Texts of which more is read than by kubectl."""


def read(content: bytes) -> list[Any] | None:
    """What our reader answers; an object without a kind is refused by all that use it."""
    try:
        found = [each.body for each in load_manifests(decode_text(content))]
    except ManifestSyntaxError:
        return None
    return found if all(each.get("kind") for each in found) else None


@pytest.mark.parametrize("asked", [pytest.param(each, id=each["name"]) for each in ANSWERS])
def test_a_file_is_read_as_kubectl_reads_it(asked: KubectlAnswer) -> None:
    found = read(b64decode(asked["content"]))

    if asked["name"] in NOT_LOST:
        assert found is not None
        assert len(found) > len(asked["answer"] or [])
    else:
        assert found == asked["answer"]


def test_the_record_is_of_these_files() -> None:
    assert {each["name"]: b64decode(each["content"]) for each in ANSWERS} == contents()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param('---\n{"a": 1}\n\n{"b": [}', "line 4, column 8: Expecting value", id="JSON, by its own rules"),
        pytest.param("---\n{a: 1}\n---\n\n{a: [}", "line 5, column 6: ", id="YAML, by its own"),
        pytest.param("a: 1\n---\nb:\n\tc: 1", "line 4, column 1: found character", id="a tab that indents"),
        pytest.param("a: 1\n---\nb: \0", "character 0 at position 12 is not allowed", id="a control character"),
        pytest.param('{"items": [{"items": []}]}', "a list is in a list", id="a list in a list"),
        pytest.param('{"a": ' * 300 + "1" + "}" * 300, "nested deeper than 200", id="too deep"),
        pytest.param('{"a": ' * 100_000, "nested too deep", id="without end"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place_in_the_file(text: str, error: str) -> None:
    with pytest.raises(ManifestSyntaxError, match=error):
        load_manifests(text)


def test_each_object_in_a_row_has_its_line_and_its_duplicate_keys() -> None:
    found = load_manifests('\n{"kind": "A", "a": {"b": 1, "b": 2}}\n{"kind": "B"} {"kind": "C", "kind": "D"}')

    assert [(each.kind, each.line, each.duplicates) for each in found] == [
        ("A", 2, ("a.b",)),
        ("B", 3, ()),
        ("D", 3, ("kind",)),
    ]


@pytest.mark.parametrize(
    ("before", "broken"),
    [
        pytest.param('{"items": [', '{"a": [1', id="cut off"),
        pytest.param('{"items": [', '{"a": 1 "b": 2}]}', id="a comma is missing"),
        pytest.param('[{"k": "]}", "items": [', '{"a": "b\n', id="a quote is missing"),
        pytest.param('{"items": [', '{"a": 1}}', id="another bracket"),
        pytest.param('{"items": [', '1, {"a" 1}', id="a colon is missing"),
    ],
)
def test_what_is_whole_before_an_error_of_json_is_read_once(before: str, broken: str) -> None:
    """YAML might make something of the error; its reader, a hundred times slower, does not begin at the beginning."""
    whole = '{"x": ["y", {}], "z": "[{"}, '
    part = TextPart(f"{before}{whole * 1000}{broken}", 0, 0)
    start = JsonStart(part)
    assert list(start) == []
    assert start.problem
    assert len(start.open_rest) <= len(before) + len(broken) + 1
    with pytest.raises(ManifestSyntaxError, match=r"line \d+, column \d{5}: "):
        load_manifests(part.text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param('{"kind": "X", "a": [{"b": 1}, {"c": d}, 2]}', [{"b": 1}, {"c": "d"}, 2], id="a word"),
        pytest.param('{"kind": "X", "a": ["{[", "b\tc", {}]}', ["{[", "b\tc", {}], id="a tab"),
        pytest.param('{"kind": "X", "a": [{"b": [1]}, # why\n {"c": 2}]}', [{"b": [1]}, {"c": 2}], id="a comment"),
        pytest.param('{"kind": "X", "a": [1, 2,],}', [1, 2], id="commas"),
    ],
)
def test_what_is_no_json_and_yet_yaml_is_read_whole(text: str, value: object) -> None:
    assert [each.body["a"] for each in load_manifests(text)] == [value]
