"""`fleethpa tune` on an archive: proposals with their evidence, refusals with their cause, wrong use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleethpa.frame.errors import CommandError
from fleethpa.tuning import tunings as tuningruns
from fleethpa.tuning.specsearch import Within
from fleethpa.tuning.tune import changes
from fleethpa.tuning.tunings import Progress, parse_within
from schemas.kubernetes.versions import complete_behavior
from tests.kit.archive import write_archive
from tests.kit.cli import Cli
from tests.kit.generated_log import Fleet
from tests.kit.published import fits

SINCE = ("--since", "2025-12-31T00:00:00Z")
APP = "c0/ns0/app0"
FLEET = Fleet(hpas=2, namespaces=1, minutes=30, partitions=1, metrics=1, seed=3, pods=6)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("archive") / "a", FLEET, segment_ms=300_000)


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, archive: Path) -> Any:
    """Run a command on the archive."""
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    run = Cli(monkeypatch)
    return lambda *arguments: run(*arguments, "--from", str(archive))


def test_the_report_has_the_proposal_or_why_there_is_none_and_what_it_cannot_know(ask: Any) -> None:
    made = ask("tune", APP, *SINCE)

    assert made.exit_code == 0, made.output
    verdict, _, section = made.stdout.splitlines()[:3]
    assert " replica-hours ran where an ideal autoscaler runs " in verdict
    assert section.startswith(f"{APP}   ")
    assert "proposed:" in made.stdout or "no change proposed:" in made.stdout
    for text in (
        "ideal autoscaler ",
        "recorded ",
        "the deployed spec, in the model ",
        "TOO MANY",
        "A proposal cannot know:",
    ):
        assert text in made.stdout


def test_a_fleet_is_ranked_and_its_document_fits_the_schema(ask: Any) -> None:
    text = ask("tune", "-A", "--objective", "cost", *SINCE).stdout
    document = fits("TuningList", ask("tune", "-A", "--objective", "cost", *SINCE, "-o", "json").stdout)

    assert "2 HPAs: " in text
    assert [item["name"] for item in document["items"]] == ["app0", "app1"]
    for item in document["items"]:
        assert item["changed"] == (item["manifest"] is not None) == (item["proposed"] is not None)
        if item["changed"]:
            for half in ("firstHalf", "secondHalf"):
                assert item["proposed"][half]["replicaHours"] <= item["deployed"][half]["replicaHours"] * 1.000001
    (total,) = (line for line in text.splitlines() if line.startswith("all of them "))
    recorded = [item["recorded"] for item in document["items"]]
    assert total.split()[3] == f"{sum(each['replicaHours'] for each in recorded):,.2f}"


@pytest.mark.parametrize("objective", ["balanced", "safety"])
def test_of_many_hpas_those_are_searched_of_which_most_is_to_be_gained(ask: Any, objective: str) -> None:
    asked = ("tune", "-A", "--objective", objective, *SINCE)
    field = "tooFewReplicaHours" if objective == "safety" else "tooManyReplicaHours"
    costs = fits("CostList", ask("cost", "-A", *SINCE, "-o", "json").stdout)["items"]
    most = max(costs, key=lambda each: each["scores"][field])["name"]
    whole = fits("TuningList", ask(*asked, "-o", "json").stdout)
    assert whole["notSearched"] == 0

    document = fits("TuningList", ask(*asked, "--top", "1", "-o", "json").stdout)

    assert document["items"] == [each for each in whole["items"] if each["name"] == most]
    assert document["notSearched"] == 1


def test_how_many_were_not_searched_is_said_and_named_hpas_are_all_searched(ask: Any) -> None:
    assert "1 further HPA of which less is to be gained" in ask("tune", "-A", *SINCE, "--top", "1").stdout
    named = fits(
        "TuningList", ask("tune", *(f"c0/ns0/app{at}" for at in (0, 1)), *SINCE, "--top", "1", "-o", "json").stdout
    )
    assert named["notSearched"] == 0


def test_what_a_shard_has_not_searched_is_known_where_parts_are_put_together(ask: Any, tmp_path: Path) -> None:
    until, parts = ("--until", "2026-01-02T00:00:00Z"), ("--parts", str(tmp_path / "parts"))
    assert ask("tune", "-A", *SINCE, *until, "--top", "1", "--shard", "0/1", *parts).exit_code == 0
    merged = ask("tune", "-A", *parts, "-o", "json").stdout
    assert merged == ask("tune", "-A", *SINCE, *until, "--top", "1", "-o", "json").stdout


def test_a_proposed_manifest_is_one_that_lint_and_backtest_take(ask: Any, tmp_path: Path) -> None:
    made = ask("tune", "-A", "--objective", "cost", *SINCE, "--emit-yaml")
    assert "A proposal cannot know:" in made.stderr
    manifests = [each for each in yaml.safe_load_all(made.stdout) if each]
    assert manifests, made.stderr
    file = tmp_path / "hpa.yaml"
    file.write_text(made.stdout, encoding="utf-8")
    assert ask("backtest", "-f", str(file), *SINCE).exit_code == 0


def test_a_run_that_was_cut_off_goes_on_where_it_was(ask: Any, tmp_path: Path) -> None:
    file = tmp_path / "tuned.jsonl"
    whole = ask("tune", "-A", *SINCE, "--resume", str(file)).stdout
    lines = file.read_bytes().splitlines(keepends=True)
    assert len(lines) == 3

    file.write_bytes(lines[0] + lines[1] + lines[2][:40])  # killed while it wrote the second
    again = ask("tune", "-A", *SINCE, "--resume", str(file))

    assert again.stdout == whole
    assert "1 of 2 HPAs were tuned before" in again.stderr
    assert sorted(file.read_bytes().splitlines()) == sorted(line.rstrip() for line in lines)


def test_a_file_of_another_run_is_not_taken_up(ask: Any, tmp_path: Path) -> None:
    file = tmp_path / "tuned.jsonl"
    assert ask("tune", APP, *SINCE, "--resume", str(file)).exit_code == 0
    made = ask("tune", APP, *SINCE, "--resume", str(file), "--objective", "cost")
    assert (made.exit_code, "another --objective or --within" in made.stderr) == (2, True)

    for theirs in ("no such thing\n", "a line without an end"):
        file.write_text(theirs, encoding="utf-8")
        made = ask("tune", APP, *SINCE, "--resume", str(file))
        assert (made.exit_code, "not a file of this command" in made.stderr) == (2, True)
        assert file.read_text(encoding="utf-8") == theirs
    for place in (tmp_path, "/dev/null"):
        made = ask("tune", APP, *SINCE, "--resume", str(place))
        assert (made.exit_code, "is not a file" in made.stderr) == (2, True)
    made = ask("tune", APP, *SINCE, "--resume", str(tmp_path / "no" / "folder"))
    assert (made.exit_code, "cannot be used" in made.stderr) == (2, True)


@pytest.mark.slow
def test_all_cores_find_what_one_finds(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = ask("tune", "-A", *SINCE).stdout
    monkeypatch.setattr(tuningruns, "SMALL", 0)
    assert ask("tune", "-A", *SINCE).stdout == alone


def test_progress_is_a_bar_with_what_is_left() -> None:
    assert Progress(1, 0).text(5) == ""
    half = Progress(10, 1)
    half.done = 5
    assert half.text(40) == "[##########..........] tuned 5 of 10 HPAs, about 50 s left"


def test_the_report_as_a_page_has_the_proposal_and_all_scores(ask: Any, tmp_path: Path) -> None:
    file = tmp_path / "tune.html"
    assert ask("tune", "-A", "--objective", "cost", *SINCE, "--html", str(file)).exit_code == 0
    text = file.read_text(encoding="utf-8")

    assert "<h2>c0/ns0/app0</h2>" in text
    for stated in ("<td>ideal autoscaler</td>", "<td>proposed</td>", "SLACK", "minReplicas:", "latency"):
        assert stated in text
    assert "<script" not in text
    wrong = ask("tune", APP, "--html", str(tmp_path / "no" / "x.html"))
    assert (wrong.exit_code, "Its folder does not exist" in wrong.stderr) == (2, True)


def test_too_little_past_is_reported_and_is_no_error(ask: Any) -> None:
    made = ask("tune", APP, "--since", "5m")
    assert made.exit_code == 0, made.output
    assert "at least 120 are needed" in made.stdout
    document = fits("TuningList", ask("tune", APP, "--since", "5m", "-o", "json").stdout)
    assert "at least 120" in document["items"][0]["refused"]


@pytest.mark.parametrize(
    ("arguments", "code", "stated"),
    [
        (("tune", "c0/ns0/nobody"), 4, "nobody"),
        (("tune", APP, "--within", "speed=3"), 2, "Fields are target, minReplicas"),
        (("tune", APP, "--within", "maxReplicas=..30"), 2, "fleethpa backtest NAME --set maxReplicas=30"),
        (("regret", "-A"), 2, "tune compares what ran with an ideal autoscaler"),
        (("tune", APP, "--within", "target=high"), 2, "A range is 40..80"),
        (("tune", APP, "--within", "target=80..40"), 2, "first number is above the second"),
        (("tune", APP, "--within", "target=1..2,target=3"), 2, "given twice"),
        (("tune", APP, "--objective", "speed"), 2, "cost"),
    ],
)
def test_wrong_use_is_answered(ask: Any, arguments: tuple[str, ...], code: int, stated: str) -> None:
    made = ask(*arguments)
    assert made.exit_code == code
    assert stated in made.stderr


def test_within_reads_open_and_closed_ranges() -> None:
    found = parse_within("target=40..80, minReplicas=2..,window=300")
    assert found == Within(target=(40, 80), min_replicas=(2, None), window=(300, 300))
    assert parse_within(None) == Within()
    with pytest.raises(CommandError):
        parse_within("target=..")


def test_rules_that_are_upstreams_defaults_are_no_change_of_a_proposal() -> None:
    deployed: dict[str, Any] = {"minReplicas": 2, "maxReplicas": 40} | {
        "behavior": {"scaleUp": {}, "scaleDown": {"stabilizationWindowSeconds": 60}}
    }
    complete_behavior(deployed["behavior"])
    plain = {name: value for name, value in deployed.items() if name != "behavior"}
    assert changes(plain, deployed | {"maxReplicas": 9}) == [
        "maxReplicas 40→9",
        "scaleDown.stabilizationWindowSeconds (none)→60",
    ]
    assert changes(plain, plain) == []
