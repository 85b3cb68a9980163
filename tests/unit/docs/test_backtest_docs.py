"""docs/backtest.md: its table is that of the score, and its workflow is one that runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleethpa.frame.options import MEASURES
from tests.experiments.closed_loop import CHANGES, SHAPES
from tests.kit.archive import write_archive
from tests.kit.cli import Cli

PAGE = (Path(__file__).parents[3] / "docs" / "backtest.md").read_text(encoding="utf-8")
HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: app0, namespace: ns0}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: app0}
  minReplicas: 2
  maxReplicas: 9
  metrics:
    - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 75}}}
"""


def _workflow() -> dict[str, Any]:
    match = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None
    found: dict[str, Any] = yaml.safe_load(match[1])
    return found


def test_every_change_on_every_load_is_in_the_table() -> None:
    for shape in SHAPES:
        for change in CHANGES:
            assert f"| {shape} | {change} |" in PAGE
    assert all(f"`{name}`" in PAGE for name in MEASURES)


def test_the_workflow_runs_a_backtest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (job,) = _workflow()["jobs"].values()
    (command,) = [step["run"] for step in job["steps"] if "fleethpa backtest" in step.get("run", "")]
    write_archive(tmp_path / "archive")
    (tmp_path / "deploy" / "hpa").mkdir(parents=True)
    (tmp_path / "deploy" / "hpa" / "app0.yaml").write_text(HPA, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    done = Cli(monkeypatch)(*shlex.split(command)[1:])
    assert done.exit_code in (0, 1), done.output
    assert "c0/ns0/app0" in done.stdout
    assert (tmp_path / "backtest.html").exists()
