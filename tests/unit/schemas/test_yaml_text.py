"""YAML that cannot be read is an error in words wherever people or other systems write it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fleethpa.changes.settings import settings_in
from fleethpa.frame.configuration import load
from fleethpa.frame.errors import CommandError
from reconciler.clusters.answers import ConfigError
from reconciler.clusters.credentials import clusters_of
from reconciler.core.foundclusters import FindingError, from_kubeconfig
from schemas.kubernetes.manifests import YamlTextError, parse_yaml
from streams.ingest.mapping import MappingError, load_mapping

UNREADABLE = {
    "nested": "{a: " * 600 + "}" * 600,
    "noSuchDay": "a: 2024-13-45",
    "noSuchTime": "a: 9999-99-99T99:99:99Z",
    "hugeNumber": "a: " + "9" * 5_000,
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
        pytest.param("{a: " * 600 + "}" * 600, "nested too deeply", id="nested without end"),
        pytest.param("a: 2024-13-45", "month must be in", id="a month that there is not"),
    ],
)
def test_the_error_says_what_is_wrong(text: str, stated: str) -> None:
    with pytest.raises(YamlTextError, match=stated):
        parse_yaml(text)


def test_what_is_yaml_is_read() -> None:
    assert parse_yaml("a: [1, x]") == {"a": [1, "x"]}
    assert parse_yaml("") is None


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
