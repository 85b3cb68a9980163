"""Questions to the log: explain, what-if, backtest, history, shadow-report; on archives and in memory."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from inspect import isfunction, signature
from pathlib import Path
from typing import Any, get_args

import orjson
import pytest
import yaml

from fleethpa.fleet.decisionfinding import short_id
from fleethpa.frame.options import parse_fail_if
from fleethpa.show.report import Curve, step_plot
from fleethpa.show.text import axis_labels
from schemas.keys import HpaId
from schemas.observed import AutoscalerDeleted, AutoscalerList, AutoscalerSet, Command
from streams.analysis import revisions
from streams.analysis.measures import Measures
from streams.analysis.revisions import CHANGE_KINDS, Revision, What
from streams.archive.layout import LOG, ArchivedRecord
from streams.history.evaluations import events_between
from tests.kit.archive import SMALL, decided, write_archive
from tests.kit.cli import Cli, Fleet, hpa, table_rows
from tests.kit.published import SCHEMAS, fits
from tests.kit.shadow import ShadowWorld

SINCE = ("--since", "2025-12-31T00:00:00Z")
APP = "c0/ns0/app0"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("archive") / "a")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    return Cli(monkeypatch)


@pytest.fixture
def ask(run: Cli, archive: Path) -> Any:
    """Run a command on the archive."""
    return lambda *arguments: run(*arguments, "--from", str(archive))


# --- every command on an archive, with -o json ------------------------------------------------------------------------


def test_explain_has_checked_counterfactuals(ask: Any) -> None:
    document = fits("Decision", ask("explain", APP, "-o", "json").stdout)
    found = document["counterfactuals"]
    assert found["final"] == document["finalDesiredReplicas"]
    assert found["flips"] or found["unmoved"]
    text = ask("explain", APP).stdout
    assert "Would change the answer (each checked by evaluating it):" in text
    assert f"fleethpa replay {document['id']}" in text


def test_verify_takes_a_short_id(ask: Any) -> None:
    id_ = orjson.loads(ask("explain", APP, "-o", "json", "--no-counterfactuals").stdout)["id"]
    made = ask("replay", id_[:-4], "-o", "json")
    assert orjson.loads(made.stdout)["id"] == id_
    assert made.exit_code == 0
    none = ask("replay", id_[:-12] + "ffff")
    assert (none.exit_code, "no decision" in none.stderr) == (4, True)


def test_explain_takes_a_time_behind_the_name(ask: Any) -> None:
    newest = orjson.loads(ask("explain", APP, "-o", "json", "--no-counterfactuals").stdout)
    assert "counterfactuals" not in newest
    earlier = fits("Decision", ask("explain", f"{APP}@2026-01-01T00:02:00Z", "-o", "json").stdout)
    assert earlier["time"] <= "2026-01-01T00:02:00" < newest["time"]
    assert earlier["counterfactuals"]["final"] == earlier["finalDesiredReplicas"]


def test_what_if_answers_with_another_spec_and_other_values(ask: Any) -> None:
    made = fits("WhatIf", ask("what-if", APP, "--set", "maxReplicas=2", "--metric", "cpu=+300%", "-o", "json").stdout)
    assert made["whatIf"]["finalDesiredReplicas"] == 2
    assert "MaxReplicas" in made["whatIf"]["constraintsApplied"]
    same = fits("WhatIf", ask("what-if", APP, "--metric", "cpu=+0%", "-o", "json").stdout)
    assert same["whatIf"] == same["recorded"]
    text = ask("what-if", APP, "--set", "cpu=80%", "--set", "scaleDown.stabilizationWindowSeconds=0").stdout
    assert "(recorded " in text
    assert "winner" in text


def test_what_if_says_when_no_metric_is_looked_at_and_what_kept_the_count(ask: Any) -> None:
    text = ask("what-if", APP, "--set", "minReplicas=1", "--set", "maxReplicas=1").stdout
    assert "metrics ignored: there are more replicas than maxReplicas" in text
    assert "METRIC" not in text
    kept = ask("what-if", APP, "--set", "cpu=1000%", "--set", "memory=1000%", "--metric", "cpu=1000%").stdout
    assert "ratio 1.000: within tolerance" in kept, kept


def test_what_if_varies_every_metric_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.settle()
    target = {"type": "Utilization", "averageUtilization": 60}
    metrics = [
        {"type": "Resource", "resource": {"name": "cpu", "target": target}},
        {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "main", "target": target}},
    ]
    fleet.append(AutoscalerSet(hpa=hpa(metrics=metrics)))
    fleet.append(after_ms=16_000)
    fleet.observe(3, 300)
    text = Cli(monkeypatch, fleet)("what-if", "east/shop/checkout", "--metric", "cpu=+100%").stdout
    assert text.count("  with cpu: the total of the 3 counted pods 900m → 1800m") == 2, text
    assert text.splitlines()[-2].split()[:3] == ["cpu", "3", "6"]
    assert text.splitlines()[-1].split()[:3] == ["cpu", "3", "6"]


@pytest.mark.parametrize("model", ["closed", "open"])
def test_backtest_compares_any_number_of_hpas(ask: Any, model: str) -> None:
    arguments = ("backtest", "-A", "--set", "cpu=200%", "--set", "memory=200%", *SINCE, "--model", model)
    done = ask(*arguments, "-o", "json")
    made = fits("BacktestList", done.stdout)
    # What a pod of this log uses is the same at any count: where that changes much, nothing is judged.
    assert "1 HPA left out: " in done.stderr
    assert "the total of cpu grows with the pods" in done.stderr
    assert len(made["items"]) == SMALL.hpas - 1
    assert all(item["model"] == model for item in made["items"])
    assert sum(item["candidate"]["replicaHours"] for item in made["items"]) > 0
    text = ask(*arguments, "--plot").stdout
    assert f"model: {model} loop:" in text
    assert "all 7 HPAs" in text
    assert "This model cannot know:" in text
    assert "█ both" in text
    wide = ask(*arguments, "-o", "wide").stdout
    rows = ("direction flips", "under-provisioned time share", "slack")
    assert [(row in text, row in wide) for row in rows] == [(False, True)] * 3
    assert all(row in text for row in ("replica-hours", "time above target", "worst overload", "scale events"))


@pytest.mark.parametrize("model", ["closed", "open"])
def test_a_backtest_names_the_decisions_that_bound_it_and_the_first_that_differs(ask: Any, model: str) -> None:
    arguments = ("backtest", APP, "--set", "maxReplicas=3", *SINCE, "--model", model)
    [item] = fits("BacktestList", ask(*arguments, "-o", "json").stdout)["items"]
    made = fits("DecisionList", ask("decisions", APP, *SINCE, "-o", "json").stdout)["items"]
    ids = [each["id"] for each in made if each.get("kind", "evaluation") == "evaluation"]
    first, last, other = (item["decisions"][name] for name in ("first", "last", "firstDifferent"))
    assert (first, last) == (ids[0], ids[-1])
    assert other in ids
    text = ask(*arguments).stdout
    assert f"recorded decisions: {short_id(first)} … {short_id(last)}" in text
    [named] = [line for line in text.splitlines() if "first difference" in line]
    assert f"(decision {short_id(other)})" in named
    assert "the deployed spec wants" in named
    assert named.strip() == item["firstDifference"]
    assert ask("explain", other, "--no-counterfactuals").exit_code == 0
    if model == "open":
        # Before it the candidate answers as recorded: the count is at most what it allows.
        finals = {each["id"]: each["finalDesiredReplicas"] for each in made}
        assert [finals[each] <= 3 for each in ids[: ids.index(other) + 1]] == [True] * ids.index(other) + [False]


def test_a_backtest_of_the_deployed_spec_differs_at_no_decision(ask: Any) -> None:
    most = orjson.loads(ask("get", "hpa", APP, "-o", "json").stdout)["items"][0]["spec"]["maxReplicas"]
    arguments = ("backtest", APP, "--set", f"maxReplicas={most}", *SINCE)
    [item] = fits("BacktestList", ask(*arguments, "-o", "json").stdout)["items"]
    assert sorted(item["decisions"]) == ["first", "last"]
    assert item["firstDifference"] == "at no evaluation do the two want other replicas"


def test_a_backtest_names_no_decision_that_is_not_recorded_yet(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    recorded = fleet.values[:]
    last = _evaluated(fleet)
    arguments = ("backtest", "east/shop/checkout", "--set", "minReplicas=4", "--since", "2026-01-01T00:00:00Z")
    run = Cli(monkeypatch, fleet)
    [item] = fits("BacktestList", run(*arguments, "-o", "json").stdout)["items"]
    assert item["decisions"]["last"] == last
    fleet.values = recorded  # the log holds what it follows from
    [item] = fits("BacktestList", run(*arguments, "-o", "json").stdout)["items"]
    first = fleet.decisions()[0].decision.id
    assert item["decisions"] == {"first": first, "firstDifferent": first}
    assert f"recorded decisions: {short_id(first)} …" in run(*arguments).stdout
    fleet.values = []
    [item] = fits("BacktestList", run(*arguments, "-o", "json").stdout)["items"]
    assert (item["decisions"], item["firstDifference"].count("decision")) == ({}, 0)
    assert "recorded decisions" not in run(*arguments).stdout


def test_a_backtest_of_more_than_can_be_held_reads_the_log_again(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("backtest", "-A", "--set", "cpu=200%", "--set", "memory=200%", *SINCE, "-o", "json")
    at_once = ask(*arguments).stdout
    readings, most = 0, 40

    async def counted(*arguments: Any, **options: Any) -> AsyncGenerator[Any, None]:
        nonlocal readings
        readings += 1
        async with aclosing(events_between(*arguments, **options)) as events:
            async for event in events:
                yield event

    monkeypatch.setattr("streams.history.evaluations.events_between", counted)
    monkeypatch.setattr("streams.history.evaluations.MOST_HELD", most)
    assert ask(*arguments).stdout == at_once
    assert readings > SMALL.partitions


def test_two_candidates_for_one_hpa_are_refused(ask: Any, tmp_path: Path) -> None:
    body = ask("backtest", APP, "--set", "maxReplicas=3", *SINCE, "--emit-yaml").stdout
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(body, encoding="utf-8")
    result = ask("backtest", "-f", str(tmp_path), *SINCE)
    assert result.exit_code == 2
    assert f"b.yaml: a second candidate for {APP}" in result.stderr


def test_the_deployed_spec_in_the_open_loop_is_the_recording(ask: Any) -> None:
    made = fits(
        "BacktestList", ask("backtest", "-A", "--set", "minReplicas=2", *SINCE, "--model", "open", "-o", "json").stdout
    )
    for item in made["items"]:
        assert item["agreed"] == item["evaluations"]
        assert item["candidate"] == item["recorded"]


def test_a_late_window_starts_from_a_snapshot(ask: Any) -> None:
    window = ("--since", "2026-01-01T00:03:00Z")
    made = fits(
        "BacktestList", ask("backtest", APP, "--set", "minReplicas=2", *window, "--model", "open", "-o", "json").stdout
    )
    assert made["items"][0]["since"] >= "2026-01-01T00:03:00"
    assert made["items"][0]["agreed"] == made["items"][0]["evaluations"]


def test_the_report_needs_no_other_file(ask: Any, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    assert ask("backtest", APP, "--set", "maxReplicas=3", *SINCE, "--html", str(target)).exit_code == 0
    page = target.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "prefers-color-scheme: dark" in page
    assert page.count('<path class="') == 3
    assert "candidate: maxReplicas 12→3" in page, page
    assert "self-check: the deployed spec in this model gives" in page
    assert "pods take load after" in page
    assert "all 1 HPAs" not in page
    labels = re.findall(r'<text x="[\d.]+" y="252"[^>]*>([^<]+)<', page)
    assert len(labels) > 1
    assert len(set(labels)) == len(labels)
    assert not re.search(r"(?:src|href)=|url\(|@import|<link", page)  # it loads nothing: its script is in it


def test_the_report_of_several_hpas_has_their_totals(ask: Any, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    made = ask("backtest", "-n", "ns0", "-C", "c0", "--set", "maxReplicas=3", *SINCE, "--html", str(target))
    heading = next(line for line in made.stdout.splitlines() if re.fullmatch(r"all \d+ HPAs", line))
    assert f"<h2>{heading}</h2>" in target.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("length_ms", "labels"),
    [
        pytest.param(2_000, ["14:00:00", "14:00:01", "14:00:02"], id="seconds: no label twice"),
        pytest.param(90_000, ["14:00:00", "14:00:22", "14:00:45", "14:01:07", "14:01:30"], id="some minutes"),
        pytest.param(4 * 3_600_000, ["14:00", "15:00", "16:00", "17:00", "18:00"], id="hours of one day"),
        pytest.param(
            86_400_000,
            ["11-21 14:00", "11-21 20:00", "11-22 02:00", "11-22 08:00", "11-22 14:00"],
            id="more than one day",
        ),
        pytest.param(0, ["14:00:00"], id="a moment"),
    ],
)
def test_labels_of_a_time_axis_differ(length_ms: int, labels: list[str]) -> None:
    begin = 1_795_269_600_000
    assert [text for _, text in axis_labels(begin, begin + length_ms, 5)] == labels


def test_the_candidate_can_be_emitted_and_tried_as_a_file(ask: Any, tmp_path: Path) -> None:
    made = ask("backtest", APP, "--set", "maxReplicas=3", *SINCE, "--emit-yaml")
    body = yaml.safe_load(made.stdout)
    assert body["spec"]["maxReplicas"] == 3
    assert "replica-hours" in made.stderr
    file = tmp_path / "candidate.yaml"
    file.write_text(made.stdout, encoding="utf-8")
    assert ask("backtest", "-f", str(file), *SINCE).exit_code == 0


def test_history_names_each_change(ask: Any) -> None:
    made = fits("RevisionList", ask("history", APP, "-o", "json").stdout)
    assert [each["what"] for each in made["items"]] == ["created"]


def test_decisions_are_filtered(ask: Any) -> None:
    def listed(*filters: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = fits("DecisionList", ask("decisions", "-A", *filters, "-o", "json").stdout)[
            "items"
        ]
        return items

    everything = listed(*SINCE)
    for option in ("--limited-by", "--limit"):
        limited = listed(option, "Tolerance", *SINCE)
        assert limited == [item for item in everything if "Tolerance" in item["constraintsApplied"]] != []
    ups = listed("--direction", "up", *SINCE)
    assert ups == [item for item in everything if item["direction"] == "ScaleUp"] != []
    middle = everything[len(everything) // 2]["time"]
    assert listed(*SINCE, "--until", middle) == [item for item in everything if item["time"] < middle]
    assert listed(*SINCE, "--last", "3") == everything[-3:]
    none = ask("decisions", "-A", "--reason", "NoSuchReason*", *SINCE)
    assert (none.stdout, none.exit_code) == ("", 0)


def test_a_shadow_report_of_an_archive(run: Cli, tmp_path: Path) -> None:
    from tests.kit.generated_log import GeneratedRecord

    log = ShadowWorld().run(8)
    records = [GeneratedRecord(0, *record) for record in log.records]
    topics: dict[tuple[str, int], list[ArchivedRecord]] = {(LOG, 0): [], ("decisions", 0): []}
    for topic, number, record in decided(records, 1):
        topics[topic, number].append(record)
    folder = write_archive(tmp_path / "shadow", SMALL.__class__(partitions=1), topics=topics)
    made = run("shadow-report", "-A", *SINCE, "-o", "json", "--from", str(folder))
    document = fits("ShadowReportList", made.stdout)
    assert made.exit_code == 1
    assert not document["items"][0]["ready"]
    text = run("shadow-report", "-A", *SINCE, "--from", str(folder)).stdout
    assert "NOT READY to enforce: only" in text
    assert "0 of 1 HPAs are ready" in text


# --- gates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        pytest.param("replica_hours<-1%", 1, id="a condition that is met fails the gate"),
        pytest.param("replica_hours>+1%", 0, id="one that is not passes"),
        pytest.param("scale_events>1000", 0, id="an absolute value"),
        pytest.param("time_at_max>+1s", 1, id="a time"),
        pytest.param("time_at_max>+10", 2, id="a time without its unit"),
        pytest.param("time_at_max>0", 1, id="no time at all"),
        pytest.param("nonsense>1", 2, id="no such measure"),
        pytest.param("replica_hours", 2, id="no condition"),
        pytest.param("replica_hours>5%", 2, id="a percentage without a sign"),
        pytest.param("replica_hours>5m", 2, id="a time of what is no time"),
    ],
)
def test_fail_if_is_a_gate(ask: Any, condition: str, code: int) -> None:
    made = ask("backtest", APP, "--set", "maxReplicas=2", *SINCE, "--fail-if", condition)
    assert made.exit_code == code, made.output
    assert ("FAILED: c0/ns0/app0" in made.output) == (code == 1)


def test_any_growth_of_nothing_is_beyond_every_percentage() -> None:
    nothing = Measures(
        replica_hours=1, above_target_minutes=0, worst_overload=1, at_max_minutes=0,
        scale_events=0, direction_flips=0, unknown_minutes=0, hours=1,
    )  # fmt: skip
    from msgspec import structs

    more = structs.replace(nothing, above_target_minutes=0.5)
    assert parse_fail_if("time_above_target>+10%").holds(nothing, more)
    assert not parse_fail_if("time_above_target>+10%").holds(nothing, nothing)
    assert parse_fail_if("time_above_target > 20s").holds(nothing, more)


# --- wrong input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "stated"),
    [
        pytest.param(("explain", "c0/ns0/nobody"), 4, "no HPA c0/ns0/nobody", id="explain: an unknown HPA"),
        pytest.param(("explain", f"{APP}@yesterday"), 2, "is not a valid time", id="explain: no time"),
        pytest.param(("what-if", APP), 2, "what-if what?", id="what-if: nothing to change"),
        pytest.param(("what-if", APP, "--set", "maxReplicas"), 2, "is not NAME=VALUE", id="what-if: no value"),
        pytest.param(("what-if", APP, "--set", "speed=3"), 2, "no such field or metric", id="what-if: no such field"),
        pytest.param(("what-if", APP, "--set", "maxReplicas=1"), 2, "is invalid", id="what-if: max below min"),
        pytest.param(("what-if", APP, "--metric", "speed=3"), 2, "has no such metric", id="what-if: no such metric"),
        pytest.param(("what-if", APP, "--metric", "cpu=much"), 2, "not a quantity", id="what-if: no quantity"),
        pytest.param(("backtest",), 2, "backtest what?", id="backtest: no candidate"),
        pytest.param(("backtest", "-f", "/nowhere.yaml"), 2, "cannot be read", id="backtest: a missing file"),
        pytest.param(
            ("backtest", APP, "--set", "maxReplicas=3", "--since", "1h", "--until", "2h"),
            2,
            "window is empty",
            id="backtest: empty window",
        ),
        pytest.param(
            ("backtest", APP, "--set", "maxReplicas=3", *SINCE, "--until", "2025-12-31T01:00:00Z"),
            4,
            "has no evaluation in this window",
            id="backtest: nothing in the window",
        ),
        pytest.param(
            ("backtest", "c0/ns0/x", "--set", "maxReplicas=3"), 4, "no HPA c0/ns0/x", id="backtest: unknown HPA"
        ),
        pytest.param(("history", "c0/ns0/nobody"), 4, "no HPA c0/ns0/nobody", id="history: an unknown HPA"),
        pytest.param(
            ("shadow-report", "-n", "none"), 4, "no HPA matches namespace none", id="shadow-report: nothing there"
        ),
        pytest.param(("decisions", "-A", "--since", "1h", "--until", "3h"), 2, "empty", id="decisions: empty window"),
        pytest.param(("decisions", "-A", "--since", "soon"), 2, "is not a valid time", id="decisions: no time"),
    ],
)
def test_wrong_input_says_what_is_wrong(ask: Any, arguments: tuple[str, ...], code: int, stated: str) -> None:
    made = ask(*arguments)
    assert made.exit_code == code, made.output
    assert stated in made.stderr
    assert "Traceback" not in made.output


def test_two_hpas_of_that_name_need_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.settle(3, 300)
    fleet.cluster = "west"
    fleet.append(AutoscalerSet(hpa=hpa(), session="s"))
    fleet.observe(3, 300)
    run = Cli(monkeypatch, fleet)
    for arguments in (
        ("explain", "checkout", "-n", "shop"),
        ("what-if", "checkout", "-n", "shop", "--set", "maxReplicas=9"),
    ):
        made = run(*arguments)
        assert made.exit_code == 2
        assert "matches 2 HPAs" in made.stderr
    made = run("history", "checkout", "-n", "shop")
    assert made.exit_code == 2


# --- a fleet in memory: edits, commands, fights -----------------------------------------------------------------------


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    made.settle(3, 300)
    return made


def test_history_says_who_why_and_what(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    changed = hpa(maxReplicas=30, behavior={"scaleDown": {"stabilizationWindowSeconds": 60}})
    changed["metadata"]["generation"] = 2
    fleet.append(AutoscalerSet(hpa=changed, session="s", author="anna", reason="PAY-311"))
    fleet.append(Command(command="pause", name="checkout", author="ben", reason="INC-1"))
    run = Cli(monkeypatch, fleet)
    made = fits("RevisionList", run("history", "east/shop/checkout", "-o", "json").stdout)["items"]
    assert [each["what"] for each in made] == ["created", "spec", "pause"]
    assert made[1]["author"] == "anna"
    assert made[1]["reason"] == "PAY-311"
    assert "maxReplicas 20→30" in made[1]["changes"]
    assert "scaleDown.stabilizationWindowSeconds (none)→60" in made[1]["changes"]
    text = run("history", "hpa", "east/shop/checkout").stdout
    assert "REVISION  DATE" in text
    assert "maxReplicas 20→30" in text


def _changed(generation: int, **spec: Any) -> AutoscalerSet:
    changed = hpa(**spec)
    changed["metadata"]["generation"] = generation
    return AutoscalerSet(hpa=changed, session="s")


def _evaluated(fleet: Fleet) -> str:
    """Let the HPA be evaluated once more; the ID of that decision."""
    fleet.append(after_ms=16_000)
    fleet.observe(3, 300)
    return [each.decision.id for each in fleet.decisions() if each.decision.kind == "evaluation"][-1]


def test_history_names_the_first_recorded_decision_under_each_change(
    monkeypatch: pytest.MonkeyPatch, fleet: Fleet
) -> None:
    first = fleet.decisions()[0].decision.id
    fleet.append(_changed(2, maxReplicas=30))
    fleet.append(Command(command="pause", name="checkout", author="ben", reason="INC-1"))
    fleet.append(Command(command="pause", name="checkout", author="eva", reason="INC-2"))
    at_once, later = fleet.decisions()[-1].decision.id, _evaluated(fleet)
    fleet.append(Command(command="resume", name="checkout", author="ben"))
    recorded, last = fleet.values[:], _evaluated(fleet)
    run = Cli(monkeypatch, fleet)

    def named() -> list[tuple[str, str]]:
        items = fits("RevisionList", run("history", "east/shop/checkout", "-o", "json").stdout)["items"]
        return [(each["what"], each.get("firstDecision", "")) for each in items]

    known = [("created", first), ("spec", at_once), ("pause", later), ("pause", later)]
    assert named() == [*known, ("resume", last)]
    assert run("explain", last).exit_code == 0
    fleet.values = recorded  # the log holds what the last one follows from, and no decider has recorded it
    assert named() == [*known, ("resume", "")]
    rows = table_rows(run("history", "east/shop/checkout", "-o", "wide").stdout)
    assert [row["FIRST DECISION"] for row in rows] == [*(short_id(each) for _, each in known), "-"]
    assert "FIRST DECISION" not in run("history", "east/shop/checkout").stdout


def test_history_names_no_decision_of_the_hpa_that_was_made_again(
    monkeypatch: pytest.MonkeyPatch, fleet: Fleet
) -> None:
    fleet.append(Command(command="pause", name="checkout", author="ben", reason="INC-1"))
    fleet.append(AutoscalerDeleted(name="checkout", session="s"))
    again = hpa()
    again["metadata"]["uid"] = "uid-another"
    fleet.append(AutoscalerSet(hpa=again, session="s"))
    anew = fleet.decisions()[-1].decision.id
    assert anew.endswith("uid-another")
    items = fits("RevisionList", Cli(monkeypatch, fleet)("history", "east/shop/checkout", "-o", "json").stdout)["items"]
    assert [(each["what"], each.get("firstDecision", "")) for each in items] == [
        ("created", "0-2-uid-checkout"),
        ("pause", ""),
        ("deleted", ""),
        ("created", anew),
    ]


def test_the_published_schema_of_history_knows_every_change() -> None:
    items = orjson.loads((SCHEMAS / "RevisionList.json").read_bytes())["properties"]["items"]["items"]["properties"]
    assert items["what"]["enum"] == list(get_args(What)) == list(CHANGE_KINDS)
    assert items.keys() - {"cluster", "namespace", "name"} == set(Revision.__struct_encode_fields__)
    tell = {
        each
        for each in vars(revisions).values()
        if isfunction(each) and [*signature(each).parameters] == ["body", "place"]
    }
    assert tell == set(revisions._TOLD_BY.values()), "each function that tells of an entry has its line in _TOLD_BY"


def test_history_names_the_field_manager_of_a_clusters_hpa_and_who_deleted_a_central_one(
    monkeypatch: pytest.MonkeyPatch, fleet: Fleet
) -> None:
    changed = hpa(maxReplicas=30)
    changed["metadata"]["generation"] = 2
    fleet.append(AutoscalerSet(hpa=changed, session="s", manager="argocd-controller", manager_time=fleet.now_ms))
    changed = hpa(maxReplicas=40)
    changed["metadata"]["generation"] = 3
    listed = {"checkout": ("kubectl-edit", fleet.now_ms), "another": ("helm", fleet.now_ms)}
    fleet.append(AutoscalerList(list_id="b", hpas=[changed], session="s", managers=listed))
    fleet.append(AutoscalerSet(hpa=changed | {"status": {}}, session="s", manager="kubectl-edit"))
    central = hpa("search")
    fleet.append(AutoscalerSet(hpa=central, origin="central", author="anna", manager="nobody"))
    fleet.append(AutoscalerDeleted(name="search", origin="central", author="ben", reason="PAY-4"))
    run = Cli(monkeypatch, fleet)
    made = fits("RevisionList", run("history", "east/shop/checkout", "-o", "json").stdout)["items"]
    assert [(each["what"], each.get("manager", "")) for each in made] == [
        ("created", ""),
        ("spec", "argocd-controller"),
        ("spec", "kubectl-edit"),
    ]
    assert "argocd-controller" in run("history", "east/shop/checkout").stdout
    for name in (("east/shop/search",), ("search", "-n", "shop"), ("search", "-A")):
        gone = fits("RevisionList", run("history", *name, "-o", "json").stdout)["items"]
        assert [(each["what"], each["author"], each.get("manager", "")) for each in gone] == [
            ("created", "anna", ""),
            ("deleted", "ben", ""),
        ]
    assert gone[1]["reason"] == "PAY-4"


def test_a_fight_shows_in_get_and_describe(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    for replicas in (3, 6, 3, 6):
        fleet.append(after_ms=16_000)
        fleet.observe(replicas, 300)
        wanted = fleet.decisions()[-1].decision
        if wanted.wants is not None:
            fleet.applied(wanted.wants)
    run = Cli(monkeypatch, fleet)
    item = fits("HpaList", run("get", "hpa", "-A", "-o", "json").stdout)["items"][0]
    assert item["moves"]
    assert all(move["by"] in ("fleethpa", "another hand") for move in item["moves"])
    assert "Moved by:" in run("describe", "east/shop/checkout").stdout
    if item["fight"] is not None:
        assert "fight:" in run("get", "hpa", "-A", "-o", "wide").stdout


def test_explain_without_the_log_still_explains(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    fleet.checkpoint()
    fleet.log[:5] = []
    made = Cli(monkeypatch, fleet)("explain", "east/shop/checkout")
    assert made.exit_code == 0
    assert "STEP" in made.stdout
    assert "what would have changed the answer cannot be found out" in made.stderr


def test_a_step_plot_shows_where_the_two_differ() -> None:
    recorded = Curve("recorded", "recorded", [(0, 2), (50_000, 4)])
    candidate = Curve("candidate", "candidate", [(0, 2), (80_000, 3)])
    plot = step_plot(recorded, candidate, width=48)
    text = "\n".join(plot)
    assert "█" in text
    assert "░" in text
    assert "recorded only" in text
    assert max(map(len, plot)) <= 60
    assert step_plot(Curve("a", "need", []), Curve("b", "need", [])) == []


def test_the_hpa_of_the_fixture_is_known() -> None:
    assert str(HpaId("c0", "ns0", "app0")) == APP
