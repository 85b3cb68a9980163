"""The whole recorded day, as `fleethpa demo day` writes it: every analysis has a success in it, over every HPA."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleethpa.lab.demo.day import HOURS, apps

pytestmark = pytest.mark.slow
HPAS = [str(app.id) for app in apps()]


class _Day:
    """The archive, and a terminal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fleethpa(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environ = os.environ | {"FLEETHPA_RUNTIME_DIR": str(self.folder), "FLEETHPA_CONFIG": "", "COLUMNS": "200"}
        command = [sys.executable, "-m", "fleethpa", *arguments]
        done = subprocess.run(command, env=environ, cwd=self.folder, capture_output=True, text=True, timeout=600)
        assert "internal error" not in done.stderr, (arguments, done.stderr)
        assert "Traceback" not in done.stderr, (arguments, done.stderr)
        return done

    def ask(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        done = self.fleethpa(*arguments, "--from", "archive")
        assert done.returncode in codes, (arguments, done.stdout, done.stderr)
        return done.stdout

    def answer(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> Any:
        return json.loads(self.ask(*arguments, "-o", "json", codes=codes))


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> _Day:
    made = _Day(tmp_path_factory.mktemp("day"))
    done = made.fleethpa("demo", "day", "--dir", ".")
    assert done.returncode == 0, done.stderr
    assert "a day of 20 HPAs in 2 clusters" in done.stdout
    return made


def test_tune_says_what_is_wasted_most_and_proposes_what_is_worse_in_neither_half_of_the_day(day: _Day) -> None:
    items = day.answer("tune", "-A")["items"]
    assert len(items) == len(HPAS)
    assert HOURS == 24
    costliest = sorted(items, key=lambda each: -each["recorded"]["tooManyReplicaHours"])[:3]
    assert {each["name"] for each in costliest} == {"stream", "api", "reports"}
    proposals = [each for each in items if each["changed"]]
    assert len(proposals) >= 15
    assert "refused" not in {name for each in items for name in each}
    for each in proposals:
        for half in ("firstHalf", "secondHalf"):
            was, own = each["deployed"][half], each["proposed"][half]
            assert own["replicaHours"] <= was["replicaHours"] * 1.001, each["name"]
            assert own["tooFewShare"] <= was["tooFewShare"] + 1e-9, each["name"]


def test_shadow_report_is_ready_for_most_and_not_for_the_one_that_is_set_otherwise(day: _Day) -> None:
    items = day.answer("shadow-report", "-A", "-C", "north", codes=(0, 1))["items"]
    ready = {each["name"]: each["ready"] for each in items}
    assert sum(ready.values()) >= 5
    assert not ready["invoice"]


def test_a_removal_budget_holds_where_the_load_breaks_down(day: _Day) -> None:
    limited = day.ask("decisions", "-A", "-C", "east", "--limited-by", "RemovalBudget", "--since", "24h")
    held = {hpa for line in limited.splitlines() for hpa in HPAS if f" {hpa} " in line}
    assert held == {"east/batch/reports", "east/batch/mailer", "east/batch/export"}
    assert "the removal budget of namespace east/batch (25%/10m)" in limited


def test_a_rollout_is_reverted_in_its_second_wave(day: _Day) -> None:
    [rollout] = day.answer("rollout", "status")["items"]
    assert (rollout["state"], rollout["wave"]) == ("reverted", 2)
    assert rollout["reverted"].startswith("wave 2: at_max")


def test_every_question_about_every_hpa_is_answered(day: _Day) -> None:
    for hpa in HPAS:
        assert "STEP" in day.ask("explain", hpa)
        assert day.ask("history", hpa)
        assert day.ask("what-if", hpa, "--set", "maxReplicas=30")
    assert len(day.answer("backtest", "-A", "--set", "cpu=70%", "--since", "2h")["items"]) == len(HPAS)
    rows = day.ask("export", "decisions", "-A", "--since", "10m", "-o", "csv")
    assert len(rows.splitlines()) > 10 * len(HPAS)
