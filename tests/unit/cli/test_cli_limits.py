"""`fleethpa limits test`: other limits over the recorded past of a fleet in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemas.entries import WHOLE_PARTITION_KEY
from schemas.observed import AutoscalerList
from schemas.settings import ClusterSettings, SettingsSet
from tests.kit.brakes import AT_ONCE
from tests.kit.cli import Cli, Fleet, hpa
from tests.kit.published import fits

SINCE = ("--since", "2026-11-20T00:00:00Z")


@pytest.fixture
def fleet() -> Fleet:
    """Two clusters with 3 replicas each, in enforce; the load doubles at once, and for a minute the scale stays."""
    made = Fleet()
    for cluster in ("west", "east"):
        made.cluster = cluster
        made.settle(replicas=3)
    for _ in range(4):
        made.now_ms += 15_000
        made.observe(3, 600)
    made.now_ms += 15_000
    made.observe(3, 300)
    return made


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> Any:
    run = Cli(monkeypatch, fleet)
    return lambda *arguments: run("limits", "test", *arguments, *SINCE)


def test_it_says_which_limit_would_have_held_back_whom_and_for_how_long(ask: Any) -> None:
    made = ask("max-step=1", "-o", "json")
    document = fits("LimitsReport", made.stdout)
    (held,) = document["held"]
    assert (document["tried"], document["hpas"]) == (["max-step=1"], 2)
    assert (held["limit"], held["hpa"], held["times"]) == ("MaxStep", "east/shop/checkout", 1)
    assert held["mostReplicas"] == 2, "6 are wanted, and one step of 1 is left"
    assert 0.9 < held["minutes"] < 1.2


def test_the_verdict_is_a_sentence(ask: Any) -> None:
    made = ask("max-step=1")
    assert "With max-step=1, limits would have held back 1 of 2 HPAs, 1 time." in made.stdout, made.output
    assert "the max-step setting of the cluster" in made.stdout
    assert "With max-step=9, no limit would have held anything back." in ask("max-step=9").stdout


def test_only_clusters_that_are_named_are_tried(ask: Any) -> None:
    assert "no limit would have held anything back" in ask("max-step=1", "-C", "west").stdout
    assert "limits would have held back 1 of 1 HPA, 1 time" in ask("max-step=1", "-C", "ea*").stdout


def test_a_recorded_change_of_settings_does_not_end_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.settle(replicas=3)
    fleet.append(SettingsSet(cluster="east", settings=ClusterSettings(max_step=50)), key=WHOLE_PARTITION_KEY)
    fleet.now_ms += 15_000
    fleet.observe(3, 600)
    fleet.now_ms += 15_000
    fleet.observe(3, 300)
    made = Cli(monkeypatch, fleet)("limits", "test", "max-step=1", *SINCE, "-o", "json")
    (held,) = fits("LimitsReport", made.stdout)["held"]
    assert (held["limit"], held["mostReplicas"]) == ("MaxStep", 2)


def test_a_file_of_settings_and_conditions_for_a_pipeline(ask: Any, tmp_path: Path) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text("max-step: 1\naddition-budget: 100%/10m\n")
    assert ask("-f", str(file), "--fail-if", "held>0").exit_code == 1
    assert ask("-f", str(file), "--fail-if", "held>1").exit_code == 0
    assert ask("-f", str(file), "--fail-if", "time_held>2m").exit_code == 0


def test_a_budget_that_holds_is_tried_with_the_pause_that_it_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.settle(replicas=10)
    for _ in range(80):
        fleet.now_ms += 15_000
        fleet.observe(10, 60)
    run = Cli(monkeypatch, fleet)
    made = run("limits", "test", "removal-budget=10%/1m,then=hold", *SINCE, "-o", "json")
    found = {each["limit"]: each for each in fits("LimitsReport", made.stdout)["held"]}
    assert found.keys() == {"RemovalBudget", "Paused"}
    assert found["Paused"]["longestMinutes"] > found["RemovalBudget"]["longestMinutes"]


def test_what_is_in_shadow_is_not_bounded_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.settle(replicas=3)
    fleet.append(SettingsSet(cluster="*", settings=ClusterSettings(default_mode="shadow")), key=WHOLE_PARTITION_KEY)
    fleet.now_ms += 15_000
    fleet.observe(3, 600)
    since = ("--since", "2026-11-21T14:00:08Z")
    made = Cli(monkeypatch, fleet)("limits", "test", "max-step=1", *since)
    assert "No HPA was in enforce in this window" in made.stdout, made.output


def test_what_begins_with_the_last_evaluation_counts_and_has_no_length(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.settle(replicas=3)
    fleet.now_ms += 15_000
    fleet.observe(3, 600)
    run = Cli(monkeypatch, fleet)
    shown = run("limits", "test", "max-step=1", *SINCE)
    assert "limits would have held back 1 of 1 HPA, 1 time." in shown.stdout, shown.output
    (row,) = [line for line in shown.stdout.splitlines() if line.startswith("east/shop/checkout")]
    assert " 1  " in row
    assert row.count("just began") == 2
    (held,) = fits("LimitsReport", run("limits", "test", "max-step=1", *SINCE, "-o", "json").stdout)["held"]
    assert (held["times"], held["minutes"], held["longestMinutes"]) == (1, 0, 0)


BLOCK = "fleethpa.io/scale-down-block"


@pytest.fixture
def falling(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two clusters of 10 replicas whose load falls to 20 % of what is requested; west has a block already."""
    fleet = Fleet()
    for cluster in ("west", "east"):
        fleet.cluster = cluster
        fleet.settle(replicas=10)
        own = hpa(behavior=AT_ONCE)
        if cluster == "west":
            own["metadata"]["annotations"] = {BLOCK: "metric=cpu,above=10"}
        fleet.append(AutoscalerList(list_id="b", hpas=[own], session="s"))
    for cluster in ("west", "east", "west", "east"):
        fleet.cluster = cluster
        fleet.now_ms += 15_000
        fleet.observe(10, 100)
    run = Cli(monkeypatch, fleet)
    return lambda *arguments: run("limits", "test", *arguments, *SINCE)


@pytest.mark.parametrize(
    ("text", "options", "held"),
    [
        pytest.param("metric=cpu,above=10", (), ["east/shop/checkout", "west/shop/checkout"], id="tried on all"),
        pytest.param("metric=cpu,above=30", (), [], id="a value that is not passed, in place of the recorded one"),
        pytest.param("metric=cpu,above=10", ("-C", "east"), ["east/shop/checkout"], id="other clusters are not shown"),
        pytest.param("", (), [], id="without it"),
    ],
)
def test_an_annotation_that_limits_is_tried(falling: Any, text: str, options: tuple[str, ...], held: list[str]) -> None:
    document = fits("LimitsReport", falling(f"{BLOCK}={text}", *options, "-o", "json").stdout)
    assert sorted({each["hpa"] for each in document["held"]}) == held
    assert {each["limit"] for each in document["held"]} <= {"ScaleDownBlock"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param((f"{BLOCK}=cpu>10",), "must be such as metric=queue_depth,above=0", id="another form"),
        pytest.param((f"{BLOCK}=metric=cpu,above=x",), "above='x' is not a quantity", id="no quantity"),
        pytest.param((f"{BLOCK}=metric=nope,above=0",), "has such a metric in its spec", id="a metric of no HPA"),
        pytest.param((f"{BLOCK}=", f"{BLOCK}="), "is given twice", id="twice"),
        pytest.param(("fleethpa.io/fallback=x",), "fleethpa.io/fallback", id="an annotation that is no limit"),
    ],
)
def test_an_annotation_that_cannot_be_tried_is_refused(falling: Any, arguments: tuple[str, ...], says: str) -> None:
    refused = falling(*arguments)
    assert refused.exit_code == 2, refused.output
    assert says in refused.stderr
