"""YAML that cannot be read is an error in words wherever people or other systems write it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fleethpa.changes.settings import settings_in
from fleethpa.frame.configuration import load
from fleethpa.frame.errors import CommandError, read_text
from reconciler.clusters.answers import ConfigError
from reconciler.clusters.credentials import clusters_of
from reconciler.core.foundclusters import FindingError, from_kubeconfig
from reconciler.prometheus.connections import read_connections
from schemas.kubernetes.manifests import YamlTextError, parse_yaml
from streams.ingest.mapping import MappingError, load_mapping

UNREADABLE = {
    "nested": "{a: " * 600 + "}" * 600,
    "infinite": "a: .inf",
    "noCharacter": 'a: "\\UFFFFFFFF"',
    "halfACharacter": 'a: "\\ud800"',
    "noKey": "{~: a}",
    "tab": "a:\n\tb: 1",
    "twoDocuments": "a: 1\n---\nb: 2",
}
READERS: dict[str, tuple[Callable[[Path], object], type[Exception]]] = {
    "configuration": (lambda file: load({"config": str(file)}), CommandError),
    "settings": (settings_in, CommandError),
    "mapping": (lambda file: load_mapping(file.read_text(), file.name), MappingError),
    "kubeconfig": (lambda file: clusters_of(str(file)), ConfigError),
    "foundKubeconfig": (lambda file: from_kubeconfig(file.read_text(), file.name), FindingError),
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_names_the_file(reader: str, text: str, tmp_path: Path) -> None:
    read, error = READERS[reader]
    file = tmp_path / "given.yaml"
    file.write_text(text)
    with pytest.raises(error, match=r"given\.yaml"):
        read(file)


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        pytest.param("{a: " * 600 + "}" * 600, "nested too deep: at most 200 levels", id="nested"),
        pytest.param("{a: " * 60_000, "nested too deep", id="nested without end"),
        pytest.param("a: {b: 1, c: 2, b: 3}", "a.b is given twice", id="a key twice"),
        pytest.param("a: 1\n---\n# b\n---\nb: 2\n", "line 5: a second document", id="two documents"),
        pytest.param('a: "\\UFFFFFFFF"', "line 1: found an escape of no character", id="no character"),
    ],
)
def test_the_error_says_what_is_wrong(text: str, stated: str) -> None:
    with pytest.raises(YamlTextError, match=stated):
        parse_yaml(text)


def test_what_is_yaml_is_read() -> None:
    assert parse_yaml("a: [1, x]") == {"a": [1, "x"]}
    assert parse_yaml("") is None
    assert parse_yaml("---\n# a\n---\na: 2024-13-45\n...\n---\n") == {"a": "2024-13-45"}
    assert parse_yaml("{a: 1, a: 2}", last_key_wins=True) == {"a": 2}
    assert parse_yaml("{a: 010, b: y, c: ~, d: 1e3, on: x}", texts=True) == {
        **{"a": "010", "b": "y", "c": None, "d": "1e3", "on": "x"}
    }
    assert parse_yaml('{"a": true, "b": 1}', texts=True) == {"a": "true", "b": "1"}


def connections(file: Path) -> object:
    Path(file.parent, "rules.yaml").write_bytes(file.read_bytes())
    file.write_text("clusters: {a: {url: 'http://a', rules: rules.yaml, sources: {Pods: prometheus}}}")
    (made,) = read_connections(str(file), lambda path: read_text(path, path)).clusters.values()
    return [each.as_ for each in made.rules.custom]


RULE = "{seriesQuery:\tx,\tmetricsQuery:\ty}"
HANDED_OVER: dict[str, tuple[str, Callable[[Path], object], object]] = {
    "configuration": ("brokers:\ta:1\t# é\n", lambda file: load({"config": str(file)}).brokers, "a:1"),
    "settings": ("default-mode:\tshadow\t# é\n", settings_in, ("default-mode=shadow",)),
    "kubeconfig": (
        "contexts:\t# é\n- name:\teast\n",
        lambda file: [each.name for each in clusters_of(str(file))],
        ["east"],
    ),
    "rules": (f"rules:\t# é\n- {RULE}\n", connections, ["$0"]),
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("kind", HANDED_OVER)
def test_tabs_and_byte_order_marks_are_read_as_go_reads_them(kind: str, encoding: str, tmp_path: Path) -> None:
    text, read, result = HANDED_OVER[kind]
    file = tmp_path / "given.yaml"
    file.write_bytes(text.replace("\n", "\r\n").encode(encoding))
    assert read(file) == result


@pytest.mark.parametrize("contexts", ["[5]", "east", "{name: east}", "[{}]", "[{name: 5}]", "7"])
def test_contexts_of_another_shape_are_an_error_of_the_kubeconfig(contexts: str, tmp_path: Path) -> None:
    file = tmp_path / "given.yaml"
    file.write_text(f"contexts: {contexts}")
    with pytest.raises(ConfigError, match=r"given\.yaml: `contexts` must be a list"):
        clusters_of(str(file))


def test_a_manifest_that_is_given_as_kubeconfig_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text("{apiVersion: apps/v1, kind: Deployment}")
    with pytest.raises(ConfigError, match=r"web\.yaml: its kind is Deployment, and not Config"):
        clusters_of(str(file))
