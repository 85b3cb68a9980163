"""Texts of manifests: documents, lists, YAML as Kubernetes takes it, and errors that say where."""

from typing import Any

import pytest

from schemas.kubernetes.manifests import MAX_DEPTH, ManifestSyntaxError, load_manifests


def test_documents_and_lists_are_distinguished_and_placed() -> None:
    text = """# a comment
kind: One
---
---
kind: PodList
items:
- {apiVersion: v1, kind: Two}
- {apiVersion: v1, kind: Three}
---
{"kind": "Four", "items": 5}
"""
    found = [(each.kind, each.where) for each in load_manifests(text)]

    assert found == [
        ("One", "document 1 (line 2)"),
        ("Two", "document 3 (line 5, items[0])"),
        ("Three", "document 3 (line 5, items[1])"),
        ("Four", "document 4 (line 10)"),
    ]
    assert load_manifests("") == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("2001-01-01", "2001-01-01", id="a date stays text"),
        pytest.param("1:30", "1:30", id="no base 60"),
        pytest.param("010", 8, id="octal"),
        pytest.param("0x1F", 31, id="hexadecimal"),
        pytest.param("-0b11", -3, id="binary"),
        pytest.param("1_000", 1000, id="underscores"),
        pytest.param("08", 8.0, id="no octal, so a float"),
        pytest.param("1e3", 1000.0, id="a float without a dot"),
        pytest.param(".5", 0.5, id="a float without a digit before the dot"),
        pytest.param("0X1F", 31, id="hexadecimal, in capitals"),
        pytest.param("0x10000000000000000", "0x10000000000000000", id="beyond 64 bits, and no decimals"),
        pytest.param("9" * 5000, "9" * 5000, id="beyond a double"),
        pytest.param("!!binary aGk=", "hi", id="bytes"),
        pytest.param("|\n  b", "b\n", id="a block text at the end of the file"),
        pytest.param("yes", True, id="yes"),
        pytest.param("Off", False, id="off"),
        pytest.param("y", True, id="one letter for yes"),
        pytest.param("N", False, id="one letter for no"),
        pytest.param("9223372036854775807", 9223372036854775807, id="the largest integer"),
        pytest.param("9223372036854775808", 9223372036854775808.0, id="a double beyond it"),
        pytest.param("1e400", "1e400", id="a number beyond a double stays text"),
        pytest.param("~", None, id="null"),
        pytest.param("", None, id="nothing"),
        pytest.param('"10"', "10", id="quoted"),
        pytest.param("500m", "500m", id="a quantity"),
    ],
)
def test_values_are_read_as_kubernetes_reads_them(text: str, value: Any) -> None:
    body = load_manifests(f"kind: X\nvalue: {text}")[0].body

    assert body["value"] == value
    assert type(body["value"]) is type(value)


def test_keys_are_text_and_merges_give_way() -> None:
    text = "base: &b {1: a, k: b}\nother: &o {k: c, true: d}\nkind: X\nall: {<<: [*b, *o], z: e, 1e3: f}"

    assert load_manifests(text)[0].body["all"] == {"1": "a", "k": "b", "true": "d", "z": "e", "1000": "f"}


def test_of_a_key_and_a_merge_the_later_wins_and_of_an_anchor_the_later_is_meant() -> None:
    text = (
        "a: &a {x: 1}\nb: &b {x: 2}\nkind: X\nv: {x: 3, <<: *a}\nw: {<<: *a, x: 3}\nu: {<<: *a, <<: *b}\nt: &a 4\ns: *a"
    )

    (found,) = load_manifests(text)
    assert [found.body[name] for name in "vwuts"] == [{"x": 1}, {"x": 3}, {"x": 2}, 4, 4]
    assert found.duplicates == ()


def bomb() -> str:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]\n" for n in range(1, 8))
    return "l0: &l0 [1]\n" + levels


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("a: [", "line 1, column 5: ", id="no YAML"),
        pytest.param("kind: X\n---\n- 1", r"document 2 \(line 3\): expected an object with apiVersion", id="a list"),
        pytest.param("kind: List\nitems: [x]", r"document 1 \(line 1\), items\[0\]: expected an object", id="an item"),
        pytest.param("kind: List\nitems: [null]", r"items\[0\]: expected an object with .*, got null$", id="no item"),
        pytest.param("? [a]\n: b", "line 1: a key must be text", id="a key that is a list"),
        pytest.param("kind: !!int x", "line 1: 'x' is no int", id="a wrong tag"),
        pytest.param("k: .inf", "line 1: '.inf' is no float", id="JSON has no infinity"),
        pytest.param('k: "\\ud800"', "line 1: found an escape of no character", id="half a character"),
        pytest.param('k: "\\UFFFFFFFF"', "line 1: found an escape of no character", id="no character"),
        pytest.param("k: |\n \tb", "line 2, column 2: found a tab where blanks indent", id="a tab in a block text"),
        pytest.param('{"kind": "X", "k": 1e400}', "line 1: the number 1e400 is beyond a double", id="beyond a double"),
        pytest.param("k: \0", "character 0 at position 3 is not allowed", id="a control character"),
        pytest.param("a: &a [*a]", f"line 1: nested deeper than {MAX_DEPTH} levels", id="a loop"),
        pytest.param("[" * 1000, "nested too deep", id="nested without end"),
        pytest.param(bomb(), "more than 1000000 values", id="aliases of aliases", marks=pytest.mark.slow),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, error: str) -> None:
    with pytest.raises(ManifestSyntaxError, match=error):
        load_manifests(text)
