"""`fleethpa upgrade-preview` on an archive: text, document, gate, wrong use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.archive import write_archive
from tests.kit.cli import Cli
from tests.kit.generated_log import Fleet
from tests.kit.published import fits

SINCE = ("--since", "2025-12-31T00:00:00Z")
FLEET = Fleet(hpas=3, namespaces=2, minutes=20, partitions=2, metrics=2, seed=5, pods=6)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("archive") / "a", FLEET, segment_ms=600_000)


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, archive: Path) -> Any:
    """Preview an upgrade of all HPAs of the archive."""
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    run = Cli(monkeypatch)
    return lambda *arguments: run("upgrade-preview", *arguments, *SINCE, "--from", str(archive))


def test_the_version_that_decided_would_have_decided_the_same(ask: Any) -> None:
    document = fits("UpgradePreview", ask("-A", "--to", "1.37", "-o", "json").stdout)

    assert (document["to"], document["changed"], len(document["items"])) == ("1.37", 0, 3)
    assert all(each["first"] is None and each["applied"] == [] for each in document["items"])


def test_the_text_begins_with_the_verdict_and_ends_with_the_limits(ask: Any) -> None:
    made = ask("-A", "--to", "1.37")

    assert made.exit_code == 0, made.output
    assert made.stdout.startswith("Upgrade to Kubernetes 1.37")
    assert "No decision would have been different" in made.stdout
    assert "the recorded load no longer is" in made.stdout


def test_an_unreleased_version_is_named_as_such(ask: Any) -> None:
    assert "Kubernetes 1.38 is not released" in ask("-A", "--to", "1.38").stdout


@pytest.mark.parametrize(("gate", "code"), [("changed>0", 0), ("changed>=0", 1)])
def test_a_gate_decides_the_exit_code(ask: Any, gate: str, code: int) -> None:
    assert ask("-A", "--to", "1.37", "--fail-if", gate).exit_code == code


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        pytest.param(("-A", "--to", "1.26"), 2, "the oldest known version is 1.27", id="too old"),
        pytest.param(("--to", "1.37"), 4, "no HPA matches namespace default", id="a namespace without HPAs"),
        pytest.param(("-A", "--to", "1.39"), 2, "the newest known version is 1.38", id="not known yet"),
        pytest.param(("-A", "--to", "next"), 2, "is no version of Kubernetes; write it as 1.37", id="no version"),
        pytest.param(("-A", "--to", "1.37", "--gates", "X=true"), 2, "is no feature gate", id="no gate"),
        pytest.param(("-A", "--to", "1.37", "--fail-if", "cost>1"), 2, "Measures are changed", id="no measure"),
        pytest.param(("nosuch", "--to", "1.37"), 4, "nosuch", id="no HPA"),
    ],
)
def test_wrong_use_is_answered_with_what_is_wrong(ask: Any, arguments: tuple[str, ...], code: int, text: str) -> None:
    made = ask(*arguments)

    assert (made.exit_code, text in made.stderr) == (code, True), made.stderr


def test_the_report_is_one_html_file(ask: Any, tmp_path: Path) -> None:
    file = tmp_path / "preview.html"
    assert ask("-A", "--to", "1.32", "--html", str(file)).exit_code == 0
    assert "Upgrade to Kubernetes 1.32" in file.read_text()
