"""Hints are commands that the user can run: the program's name as it was called, and the options that were given."""

import re
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from fleethpa.cli.main import cli
from fleethpa.frame import errors as nextsteps
from fleethpa.frame.errors import completed, hinted
from tests.kit.cli import Cli, Fleet

ROOT = Path(__file__).parents[3]
ARCHIVE = {"source": "build/demo/archive"}
BROKERS = {"brokers": "kafka:9092", "kafka_config": "my client.properties"}


@pytest.fixture
def within() -> Any:
    with click.Context(cli, info_name="fleethpa") as context:
        yield context


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        pytest.param("fleethpa get hpa -A", {}, "fleethpa get hpa -A", id="nothing was given"),
        pytest.param(
            "fleethpa get hpa -A", ARCHIVE, "fleethpa get hpa -A --from build/demo/archive", id="an archive is kept"
        ),
        pytest.param("fleethpa get hpa -A", {"source": "kafka"}, "fleethpa get hpa -A", id="the default is left out"),
        pytest.param(
            "fleethpa audit verify", ARCHIVE, "fleethpa audit verify --from build/demo/archive", id="a verb of a group"
        ),
        pytest.param(
            "fleethpa audit verify --from a", ARCHIVE, "fleethpa audit verify --from a", id="it is there already"
        ),
        pytest.param("fleethpa apply -f hpa.yaml", ARCHIVE, "fleethpa apply -f hpa.yaml", id="the verb takes none"),
        pytest.param(
            "fleethpa run ingest",
            BROKERS,
            "fleethpa run ingest --brokers kafka:9092 --kafka-config 'my client.properties'",
            id="brokers, quoted for a shell",
        ),
        pytest.param(
            "fleethpa rollout -f hpa.yaml -C 'prod-*'",
            BROKERS | {"kafka_config": None},
            "fleethpa rollout -f hpa.yaml -C 'prod-*' --brokers kafka:9092",
            id="a group that is a verb, too",
        ),
        pytest.param("`fleethpa dev` starts a broker", BROKERS, "`fleethpa dev` starts a broker", id="its own brokers"),
        pytest.param(
            "fleethpa apply -f hpa.yaml, or fleethpa get clusters",
            BROKERS | {"kafka_config": None},
            "fleethpa apply -f hpa.yaml --brokers kafka:9092, or fleethpa get clusters --brokers kafka:9092",
            id="two commands",
        ),
        pytest.param(
            "fleethpa get hpa -A   (all of them).",
            ARCHIVE,
            "fleethpa get hpa -A --from build/demo/archive   (all of them).",
            id="a remark behind two spaces",
        ),
        pytest.param(
            "Look: fleethpa get clusters.",
            ARCHIVE,
            "Look: fleethpa get clusters --from build/demo/archive.",
            id="the end of a sentence",
        ),
        pytest.param(
            "fleethpa get hpa -C west,east -A, to see them",
            ARCHIVE,
            "fleethpa get hpa -C west,east -A --from build/demo/archive, to see them",
            id="a comma within a word",
        ),
        pytest.param("fleethpa decides", ARCHIVE, "fleethpa decides", id="prose"),
        pytest.param("fleethpa audit", ARCHIVE, "fleethpa audit", id="a group alone"),
        pytest.param("fleethpa get hpa --help", ARCHIVE, "fleethpa get hpa --help", id="a help text needs none"),
        pytest.param("/etc/fleethpa get", ARCHIVE, "/etc/fleethpa get", id="a path"),
    ],
)
def test_commands_in_hints_keep_what_was_given(
    within: click.Context, text: str, options: dict[str, Any], expected: str
) -> None:
    assert completed(text, options) == expected
    assert completed(expected, options) == expected


_OBSERVER = "fleethpa run observer --contexts east --kubeconfig FILE"


@pytest.mark.parametrize(
    ("options", "variable", "expected"),
    [
        pytest.param({}, "", _OBSERVER, id="none is configured: it is named as missing"),
        pytest.param({"kubeconfig": "a b"}, "", "fleethpa run observer --contexts east --kubeconfig 'a b'", id="given"),
        pytest.param({nextsteps.KUBECTL: "kube"}, "", "fleethpa run observer --contexts east", id="in the file"),
        pytest.param({}, "kube", "fleethpa run observer --contexts east", id="in the environment"),
    ],
)
def test_a_step_that_needs_a_kubeconfig_says_so_where_none_is_configured(
    within: click.Context, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], variable: str, expected: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", variable)
    assert completed(_OBSERVER, options) == expected
    assert completed(expected, options) == expected


def test_only_what_follows_a_mark_is_a_hint_on_a_page(within: click.Context) -> None:
    page = "Changed by:  fleethpa get (a test)\nNext: fleethpa explain a/b/c\nx   Recompute: fleethpa replay 0-1-u"
    assert hinted(page, ARCHIVE).splitlines() == [
        "Changed by:  fleethpa get (a test)",
        "Next: fleethpa explain a/b/c --from build/demo/archive",
        "x   Recompute: fleethpa replay 0-1-u --from build/demo/archive",
    ]


@pytest.mark.parametrize(
    ("called", "expected"),
    [
        pytest.param("bin/fleethpa", ["{here}/bin/fleethpa"], id="by its name, so that the child knows it"),
        pytest.param("pytest", [sys.executable, "-m", "fleethpa"], id="within another program"),
        pytest.param("fleethpa/__main__.py", [sys.executable, "-m", "fleethpa"], id="by -m"),
    ],
)
def test_a_child_is_started_as_the_program_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, called: str, expected: list[str]
) -> None:
    path = tmp_path / called
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [called])
    assert nextsteps.own_command() == [each.format(here=tmp_path) for each in expected]


@pytest.mark.parametrize(
    ("called", "on_path", "expected"),
    [
        pytest.param("{here}/.venv/bin/fleethpa", False, ".venv/bin/fleethpa", id="by its path"),
        pytest.param("{here}/.venv/bin/fleethpa", True, "fleethpa", id="found by the shell"),
        pytest.param("{other}/fleethpa", False, "{other}/fleethpa", id="from another folder"),
        pytest.param("{here}/pytest", False, "fleethpa", id="within another program"),
    ],
)
def test_the_program_is_named_as_it_can_be_called_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, called: str, on_path: bool, expected: str
) -> None:
    here, other = tmp_path / "here", tmp_path / "other"
    path = Path(called.format(here=here, other=other))
    for folder in (here, path.parent):
        folder.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.chdir(here)
    monkeypatch.setenv("PATH", str(path.parent) if on_path else "/nowhere")
    monkeypatch.setattr("sys.argv", [str(path)])
    nextsteps.program.cache_clear()
    try:
        assert nextsteps.program() == expected.format(other=other)
    finally:
        nextsteps.program.cache_clear()


def test_a_hint_that_names_the_program_already_is_completed_once(within: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nextsteps, "program", lambda: "/venv/bin/python -m fleethpa")
    once = completed("fleethpa get hpa -A", ARCHIVE)
    assert once == "/venv/bin/python -m fleethpa get hpa -A --from build/demo/archive"
    assert completed(once, {}) == once
    assert completed("/venv/bin/fleethpa rollout --help", {}) == "/venv/bin/fleethpa rollout --help"


def test_errors_remarks_and_pages_name_commands_that_keep_the_connection(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    fleet = Fleet()
    fleet.settle()
    fleet.checkpoint()
    run = Cli(monkeypatch, fleet)
    given = ("--brokers", "kafka:9092")
    assert "Next: fleethpa get hpa -A --brokers kafka:9092" in run(*given, "describe", "east/shop/none").stderr
    assert "fleethpa get hpa -A --brokers kafka:9092" in run("get", "hpa", *given).stderr
    assert (
        "Next: fleethpa explain east/shop/checkout --brokers kafka:9092"
        in run("describe", "east/shop/checkout", *given).stdout
    )
    assert (
        "Recompute: fleethpa replay 0-2-uid-checkout --brokers kafka:9092"
        in run("explain", "east/shop/checkout", *given).stdout
    )


def test_kubectl_in_a_hint_knows_the_clusters_that_the_command_knew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fleet = Fleet()
    fleet.settle()
    fleet.checkpoint()
    run = Cli(monkeypatch, fleet)
    kubeconfig = tmp_path / "my kubeconfig"
    kubeconfig.write_text("{}")
    asked = ("delete", "east/shop/checkout", "--yes")
    given = run(*asked, "--kubeconfig", str(kubeconfig)).stderr
    assert f"Next: kubectl --kubeconfig '{kubeconfig}' --context east delete hpa checkout -n shop" in given, given
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    assert "Next: kubectl --context east delete hpa checkout -n shop" in run(*asked).stderr


def test_no_hint_is_a_pipe_by_accident() -> None:
    """Who pastes `A   |   B` runs both: alternatives are joined by words."""
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "fleethpa").rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"fleethpa .*(?: {2,}\| {2,}| \| -)", line)
    ]
    assert found == []
