"""Questions to a FleetHPA and to the HPAs in its clusters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleethpa.frame.errors import INTERNAL
from schemas.keys import FLEET, HpaId
from tests.kit.broken import break_for
from tests.kit.cli import Cli, FleetPast
from tests.kit.published import fits
from tests.kit.whole import WHOLE, WholeFleet

LOAD = {"east": 400, "west": 200}
"""Milli-CPU of each pod: 80 % and 40 % of its request."""


@pytest.fixture(scope="module")
def fleet() -> WholeFleet:
    """Two clusters of three pods each, at rest, and a FleetHPA over both."""
    made = WholeFleet({"east": 3, "west": 3})
    made.whole()
    for _ in range(4):
        made.period(LOAD)
    made.checkpoint()
    return made


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, fleet: WholeFleet) -> Any:
    return Cli(monkeypatch, fleet)


def test_what_if_decides_the_total_again_and_divides_it(ask: Any, fleet: WholeFleet) -> None:
    assert fleet.replicas == {"east": 3, "west": 3}
    made = ask("what-if", WHOLE, "--set", "cpu=40%")
    assert made.exit_code == 0, made.output
    document = fits("WhatIf", ask("what-if", WHOLE, "--set", "cpu=40%", "-o", "json").stdout)
    # Six pods at 60 % of their requests: nine at 40 %.
    assert document["recorded"]["finalDesiredReplicas"] == 6
    assert document["whatIf"]["finalDesiredReplicas"] == 9
    assert document["clusters"] == {"east": {"recorded": 3, "whatIf": 5}, "west": {"recorded": 3, "whatIf": 4}}
    assert "6 → 9" in made.stdout
    assert "CLUSTER" in made.stdout


def test_what_if_of_the_same_spec_gives_what_was_decided(ask: Any) -> None:
    document = fits("WhatIf", ask("what-if", WHOLE, "--set", "cpu=60%", "-o", "json").stdout)
    assert document["recorded"] == document["whatIf"]


def test_what_if_has_the_clusters_follow_another_maximum_of_the_whole(ask: Any) -> None:
    changes = ("--set", "maxReplicas=30", "--set", "cpu=15%")
    document = fits("WhatIf", ask("what-if", WHOLE, *changes, "-o", "json").stdout)
    assert document["whatIf"]["finalDesiredReplicas"] == 12  # upstream doubles at most
    assert document["whatIf"]["constraintsApplied"] == ["ScaleUpLimit"]
    document = fits("WhatIf", ask("what-if", WHOLE, "--set", "maxReplicas=5", "-o", "json").stdout)
    assert document["clusters"] == {"east": {"recorded": 3, "whatIf": 3}, "west": {"recorded": 3, "whatIf": 2}}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((WHOLE, "--metric", "cpu=90%"), "only the spec can be changed"),
        ((WHOLE, "--set", "minReplicas=25", "--set", "maxReplicas=3"), "minReplicas"),
        (("east/shop/checkout", "--set", "maxReplicas=3"), f"fleethpa what-if {WHOLE} --set"),
    ],
)
def test_what_if_says_what_cannot_be_changed(ask: Any, arguments: tuple[str, ...], text: str) -> None:
    made = ask("what-if", *arguments)
    assert (made.exit_code, text in made.stderr) == (2, True), made.output


# --- backtest ---------------------------------------------------------------------------------------------------------

SINCE = ("--since", "2026-11-20T00:00:00Z")


def test_backtest_of_a_deployed_whole_begins_with_the_verdict(ask: Any) -> None:
    made = ask("backtest", WHOLE, *SINCE)
    assert made.exit_code == 0, made.output
    assert made.stdout.startswith("One autoscaler over 2 clusters would have wanted")
    assert "were recorded" in made.stdout
    assert "separate" not in made.stdout
    (item,) = fits("FleetBacktestList", ask("backtest", WHOLE, *SINCE, "-o", "json").stdout)["items"]
    assert [each["hpa"] for each in item["members"]] == ["east/shop/checkout", "west/shop/checkout"]
    assert {each["candidate"] for each in item["series"]} == {6}


def test_backtest_of_a_deployed_whole_tries_a_changed_spec(ask: Any) -> None:
    made = ask("backtest", WHOLE, "--set", "cpu=40%", *SINCE)
    assert "over 2 clusters with cpu=40% would have wanted" in made.stdout
    (item,) = fits("FleetBacktestList", ask("backtest", WHOLE, "--set", "cpu=40%", *SINCE, "-o", "json").stdout)[
        "items"
    ]
    assert max(each["candidate"] for each in item["series"]) == 9


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((WHOLE, "--model", "closed"), 2, "in the open loop only"),
        ((WHOLE, "east/shop/checkout"), 2, "a FleetHPA is tried by itself"),
        (("@fleet/shop/nothing",), 4, "@fleet/shop/nothing"),
        ((WHOLE, "--set", "maxReplicas=3"), 2, "invalid"),
    ],
)
def test_backtest_says_what_does_not_go_with_a_whole(
    ask: Any, arguments: tuple[str, ...], code: int, text: str
) -> None:
    made = ask("backtest", *arguments, *SINCE)
    assert (made.exit_code, text in made.stderr) == (code, True), made.output


# --- every analysis ---------------------------------------------------------------------------------------------------

MEMBER = "east/shop/checkout"
ANALYSES = {
    "history": ((), 0, 0),
    "history --revision 1": ((), 0, 0),
    "history --revision 1 -o yaml": ((), 0, 0),
    "export decisions -o jsonl": ((), 0, 0),
    "export bundle": (("--since", "2026-11-20T00:00:00Z", "--out", "bundle.tar"), 0, 0),
    "decisions": (SINCE, 0, 0),
    "explain": ((), 0, 0),
    "describe": ((), 0, 0),
    "backtest --set cpu=50%": (SINCE, 0, 2),
    "what-if --set cpu=50%": ((), 0, 2),
    "tune": (SINCE, 2, 2),
    "upgrade-preview --to 1.33": (SINCE, 2, 2),
    "shadow-report": (SINCE, 4, 4),
    "rollout undo": ((), 1, 1),
}
"""Verb -> what it needs beside, and its exit code for the whole and for the HPA in a cluster; 2: a refusal."""


@pytest.mark.parametrize("verb", ANALYSES)
@pytest.mark.parametrize("name", [WHOLE, MEMBER])
def test_every_analysis_gives_an_answer_or_a_refusal_with_the_next_step(
    ask: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    more, of_whole, of_member = ANALYSES[verb]
    made = ask(*verb.split(), name, *more)
    assert made.exit_code == (of_whole if name == WHOLE else of_member), made.output
    assert "internal error" not in made.output
    if made.exit_code:
        assert "Next: fleethpa " in made.stderr
    if made.exit_code == 2:
        assert WHOLE in made.stderr.partition("Next: ")[2]


@pytest.mark.parametrize("verb", ["tune", "upgrade-preview --to 1.33", "backtest --set cpu=50%"])
def test_an_analysis_of_all_leaves_wholes_out_and_says_so(
    monkeypatch: pytest.MonkeyPatch, mixed: WholeFleet, verb: str
) -> None:
    made = Cli(monkeypatch, mixed)(*verb.split(), "-A", *SINCE)
    assert made.exit_code == 0, made.output
    assert "left out of" in made.stderr
    assert f"3 HPAs of FleetHPAs. Next: fleethpa backtest {WHOLE}" in made.stderr
    assert "north" in made.stdout or "1 HPA" in made.stdout
    assert "@fleet" not in made.stdout


@pytest.fixture(scope="module")
def mixed() -> WholeFleet:
    """A FleetHPA of two clusters, and an HPA by itself in a third."""
    made = WholeFleet({"east": 3, "west": 3, "north": 3})
    made.whole("east", "west")
    for _ in range(4):
        made.period(LOAD | {"north": 300})
    made.checkpoint()
    return made


def test_history_of_a_whole_shows_its_division_and_gives_its_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = WholeFleet({"east": 3, "west": 3})
    fleet.whole()
    fleet.whole(rebalance_after_ms=60_000)
    fleet.checkpoint()
    ask = Cli(monkeypatch, fleet)
    shown = ask("history", WHOLE).stdout
    assert "placement.rebalanceAfter 300s→60s" in shown
    manifest = yaml.safe_load(ask("history", WHOLE, "--revision", "1", "-o", "yaml").stdout)
    assert (manifest["kind"], manifest["spec"]["placement"]["rebalanceAfter"]) == ("FleetHPA", "300s")
    assert [each["name"] for each in manifest["spec"]["clusters"]] == ["east", "west"]
    back = ask("rollout", "undo", WHOLE)
    assert f"fleethpa history {WHOLE} --revision N -o yaml | fleethpa apply -f -" in back.stderr


# --- in shadow beside the clusters' own HPAs --------------------------------------------------------------------------


def _in_shadow(periods: int, load: dict[str, int] = LOAD, **natives: int) -> WholeFleet:
    """A FleetHPA in shadow; `natives`: what the cluster's own controllers make of it after ten periods."""
    made = WholeFleet({"east": 3, "west": 3})
    made.whole(beside=True, mode="shadow", minimum=2)
    for number in range(periods):
        if number == 10:
            made.replicas |= natives
        made.period(load)
    made.checkpoint()
    return made


def test_a_whole_in_shadow_that_agrees_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Cli(monkeypatch, _in_shadow(45))("shadow-report", WHOLE, *SINCE)
    assert made.exit_code == 0, made.output
    shown = " ".join(made.stdout.split())
    assert shown.startswith(f"READY: the total of {WHOLE} was that of the HPAs of 2 clusters in 100.0% of")
    assert "at most 0 below and 0 above; enforced now it would change nothing." in shown
    assert f"Next: fleethpa adopt {WHOLE} -C east,west --dry-run" in shown


def test_a_whole_in_shadow_that_wants_fewer_than_the_separate_hpas_is_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """East alone is busy: its own HPA has eight, and all pods together would do with fewer."""
    fleet = _in_shadow(80, {"east": 300, "west": 60}, east=6)
    ask = Cli(monkeypatch, fleet)
    made = ask("shadow-report", WHOLE, *SINCE)
    assert made.exit_code == 1, made.output
    assert made.stdout.startswith("NOT READY")
    assert "wanted fewer than the separate HPAs had" in " ".join(made.stdout.split())
    document = fits("WholeShadowReportList", ask("shadow-report", WHOLE, *SINCE, "-o", "json").stdout)
    (item,) = document["items"]
    assert (item["ready"], item["mostBelow"] > 1, item["members"][0]["nativeNow"]) == (False, True, 6)


@pytest.mark.parametrize(
    ("place", "whose"),
    [
        ("fleethpa.questions.fleetshadow.seen_of", lambda recorded: recorded.hpa),
        ("fleethpa.questions.fleetshadow._fleet_hpa_report", lambda state, view, seen: view.id),
    ],
)
def test_a_fault_with_one_whole_leaves_the_shadow_report_of_the_others(
    monkeypatch: pytest.MonkeyPatch, place: str, whose: Callable[..., HpaId]
) -> None:
    fleet = _in_shadow(3)
    fleet.whole(name="search", beside=True, mode="shadow")
    for _ in range(45):
        fleet.period(LOAD)
    fleet.checkpoint()
    break_for(monkeypatch, HpaId(FLEET, "shop", "search"), place, whose)
    ask = Cli(monkeypatch, fleet)
    done = ask("shadow-report", WHOLE, f"{FLEET}/shop/search", *SINCE)
    assert done.exit_code == INTERNAL, done.output
    assert done.stderr.startswith(f"Error: {FLEET}/shop/search: internal error: BrokenError: here\n"), done.stderr
    assert "Next: run it again with --debug" in done.stderr
    assert (f"READY: the total of {WHOLE}" in done.stdout, "search" in done.stdout) == (True, False)
    alone = ask("shadow-report", f"{FLEET}/shop/search", *SINCE)
    assert (alone.exit_code, alone.stdout) == (INTERNAL, "")


def test_a_whole_that_is_new_or_has_nothing_beside_it_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    few = Cli(monkeypatch, _in_shadow(5))("shadow-report", WHOLE, *SINCE)
    assert (few.exit_code, "40 are needed" in few.stdout) == (1, True), few.output
    fleet = WholeFleet({"east": 3, "west": 3})
    fleet.whole(mode="shadow")
    for _ in range(45):
        fleet.period(LOAD)
    fleet.checkpoint()
    made = Cli(monkeypatch, fleet)("shadow-report", WHOLE, *SINCE)
    assert "cluster east has no HPA of its own to compare with" in " ".join(made.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((WHOLE,), 4, "was not decided on in shadow"),
        ((WHOLE, "east/shop/checkout"), 2, "by itself"),
        ((WHOLE, "-o", "jsonl"), 2, "has no jsonl"),
        ((MEMBER,), 4, f"fleethpa shadow-report {WHOLE}"),
        (("-A",), 4, f"fleethpa shadow-report {WHOLE}"),
    ],
)
def test_shadow_report_says_what_it_needs(ask: Any, arguments: tuple[str, ...], code: int, text: str) -> None:
    made = ask("shadow-report", *arguments, *SINCE)
    assert (made.exit_code, text in made.stderr) == (code, True), made.output


def test_clusters_are_not_away_where_it_is_ingest_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    made = WholeFleet({"east": 3, "west": 3})
    made.whole()
    made.period(LOAD)
    made.append(after_ms=0, by="ingest")
    made.append(after_ms=120_000)
    made.checkpoint()
    run = Cli(monkeypatch, made)
    assert "cluster west is away" in run("get", "hpa", WHOLE, "--problem").stdout
    monkeypatch.setattr("tests.kit.cli.FleetPast.now_ms", lambda _: made.now_ms)
    shown = run("get", "hpa", WHOLE, "--problem")
    assert "ingest hangs or does not run" in shown.stderr
    assert "is away" not in shown.stdout


@pytest.fixture
def without_west(monkeypatch: pytest.MonkeyPatch) -> Any:
    """West has not been seen for a minute; east asks for more than maxReplicas leaves beside what west has."""
    made = WholeFleet({"east": 3, "west": 3})
    made.whole(maximum=9)
    made.period(LOAD)
    for _ in range(4):
        made.period({"east": 1_000})
    made.checkpoint()
    return Cli(monkeypatch, made)


def test_a_bound_says_that_clusters_which_are_away_keep_a_part_of_it(without_west: Any) -> None:
    shown = without_west("explain", WHOLE)
    assert "Stays at maxReplicas 5 (less what west keeps while away)" in shown.stdout


def test_a_fleet_hpa_without_one_of_its_clusters_is_a_partial_answer(without_west: Any) -> None:
    shown = without_west("get", "hpa", WHOLE)
    assert (shown.exit_code, "away" in shown.stdout) == (5, True), shown.output


def test_what_a_cluster_that_is_away_already_carries_is_not_said_to_be_known(without_west: Any) -> None:
    shown = without_west("what-if", WHOLE, "--cluster-away", "east")
    assert shown.exit_code == 5, shown.output
    text = " ".join(shown.stdout.split())
    assert text.startswith(
        "The load of east takes 17 replicas now; that of west, away already, is not known; without east no cluster is "
        "left to take it."
    )
    assert "west 3 (last known) away away" in text
    document = fits("ClusterAway", without_west("what-if", WHOLE, "--cluster-away", "west", "-o", "json").stdout)
    assert (document["unknown"], document["keep"]["needed"]) == (["west"], 17)


@pytest.mark.parametrize(("arguments", "is_whole"), [((WHOLE,), True), (("east/shop/checkout",), False)])
def test_a_fleet_hpa_is_explained_by_all_partitions_since_its_clusters_report_to_any(
    monkeypatch: pytest.MonkeyPatch, fleet: WholeFleet, arguments: tuple[str, ...], is_whole: bool
) -> None:
    ask, asked = Cli(monkeypatch, fleet), []
    read = FleetPast.fleet

    async def noted(self: FleetPast, partitions: Iterable[int] | None = None) -> Any:
        asked.append(partitions)
        return await read(self, partitions)

    monkeypatch.setattr(FleetPast, "fleet", noted)
    monkeypatch.setattr(FleetPast, "now_ms", lambda _: fleet.now_ms)
    shown = ask("explain", *arguments, "-o", "json")
    assert asked == [None if is_whole else [0]], shown.output
    asked.clear()
    ask("explain", json.loads(shown.stdout)["id"])
    assert asked == [None if is_whole else [0]]
