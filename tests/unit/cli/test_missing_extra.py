"""What an extra of the wheel brings is missed by name, with what installs it; nothing else needs it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fleethpa.frame.errors import EXTRAS

PROMETHEUS = "clusters: {'*': {url: 'http://a', rules: rules.yaml, sources: {Pods: prometheus}}}"
MODULES = {"google-re2": "re2"}
"""Distributions whose module has another name; without extras they are not there to be asked."""
WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
from fleethpa.cli.main import run
sys.exit(run(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("package", "command", "extra"),
    [
        pytest.param("confluent_kafka", "demo", "lab", id="the embedded broker"),
        pytest.param("jinja2", "page --brokers 127.0.0.1:1 --port 0", "page", id="the page"),
        pytest.param(
            "re2", "metrics try a --prometheus {folder}/prometheus.yaml", "prometheus", id="rules of the adapter"
        ),
        pytest.param("mcp", "mcp --from {folder}", "mcp", id="the server of tools"),
        pytest.param("jinja2", "tune -A --from {folder} --html {folder}/report.html", "page", id="a report"),
    ],
)
def test_a_verb_that_needs_an_extra_says_what_to_install(
    tmp_path: Path, package: str, command: str, extra: str
) -> None:
    (tmp_path / "prometheus.yaml").write_text(PROMETHEUS)
    (tmp_path / "rules.yaml").write_text("rules: [{seriesQuery: x, metricsQuery: y, name: {matches: z}}]")
    arguments = command.format(folder=tmp_path).split()
    done = subprocess.run([sys.executable, "-c", WITHOUT, package, *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert f"this needs {package}, which is not installed" in done.stderr
    assert f"Next: pip install 'fleet-hpa[{extra}]'" in done.stderr


def test_each_extra_of_the_wheel_brings_what_is_missed_by_its_name() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    modules = {
        MODULES.get(name.partition(">")[0], name.partition(">")[0].replace("-", "_")): extra
        for extra, names in project["optional-dependencies"].items()
        if extra not in ("dev", "docs")
        for name in names
    }
    assert modules == EXTRAS
    assert not modules.keys() & {name.partition(">")[0].replace("-", "_") for name in project["dependencies"]}
