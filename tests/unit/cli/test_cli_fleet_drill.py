"""`fleethpa what-if --cluster-away` without a name: a drill of the whole fleet, on an archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleethpa.show.text import rfc3339
from schemas.capacity import CapacityGroupSet, CapacityLimit, CapacitySpec
from schemas.entries import WHOLE_PARTITION_KEY
from schemas.observed import AutoscalerList
from tests.kit.archive import write_archive
from tests.kit.cli import START_MS, Cli, hpa
from tests.kit.documented import ROOT
from tests.kit.generated_log import Fleet as Generated
from tests.kit.published import fits
from tests.kit.whole import WHOLE, WholeFleet

PERIODS = 40
JOB = ROOT / "compose" / "kubernetes" / "drill-cronjob.yaml"
OTHERS = (("west", "pay", 3, 600), ("west", "quiet", 20, 300), ("east", "lone", 20, 300), ("west", "blind", 20, 300))
"""HPAs of one cluster: their namespace, maxReplicas, and what each of their three pods uses (target: 300)."""


def _archive(root: Path, *, others: bool = True, **whole: Any) -> Path:
    """A FleetHPA with six replicas in east and in west, below a ceiling of 14, and HPAs of one cluster."""
    fleet = WholeFleet({"east": 6, "west": 6})
    fleet.whole(**whole)
    group = CapacitySpec(
        selector={"matchLabels": {"app": "checkout"}}, namespaces=["shop"], limit=CapacityLimit(count=14)
    )
    fleet.append(CapacityGroupSet(name="shop", revision=1, spec=group), key=WHOLE_PARTITION_KEY)
    for cluster, namespace, most, _ in OTHERS if others else ():
        fleet.cluster, fleet.namespace = cluster, namespace
        fleet.append(AutoscalerList(list_id="x", hpas=[hpa(namespace=namespace, maxReplicas=most)], session="s"))
    for _ in range(PERIODS):
        fleet.namespace = "shop"
        fleet.period({"east": 300, "west": 300})
        for cluster, namespace, _, used in OTHERS if others else ():
            fleet.cluster, fleet.namespace = cluster, namespace
            fleet.observe(3, used, error="no answer" if namespace == "blind" else None)
    return write_archive(root, Generated(partitions=1), topics=fleet.as_topics())


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By what becomes of the share of a cluster that is away; `roomy`: all have room, and all demand is known."""
    root = tmp_path_factory.mktemp("archives")
    return {
        "keep": _archive(root / "keep"),
        "spill": _archive(root / "spill", others=False, away_spill_after_ms=120_000),
        "roomy": _archive(root / "roomy", others=False, maximum=18),
    }


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, archives: dict[str, Path]) -> Any:
    """Run `what-if` on an archive."""
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    run = Cli(monkeypatch)
    return lambda name, *arguments: run("what-if", *arguments, "--from", str(archives[name]))


def test_who_has_no_room_is_listed_by_need_with_what_the_figures_rest_on(ask: Any) -> None:
    done = ask("keep", "--cluster-away", "east")
    lines = done.stdout.splitlines()
    assert done.exit_code == 1, done.output
    assert lines[0] == "Without east, at the recorded load, 2 of 4 have no room; 1 HPA of east alone is away with it."
    head = next(at for at, line in enumerate(lines) if line.startswith("WHO "))
    first, second = lines[head + 1].split(), lines[head + 2].split()
    assert first[:4] == [WHOLE, "12", "6", "6"]
    assert "maxReplicas 12, of which east keeps 6 (whenAway Keep)" in lines[head + 1]
    assert "its recorded load, all of it in its other clusters; whenAway Keep" in lines[head + 1]
    assert second[:4] == ["west/pay/checkout", "6", "3", "3"]
    assert "its recorded load" in lines[head + 2]
    assert "The figures are estimates, and rest on this:" in lines
    assert "an HPA of one cluster does not move" in done.stdout


def test_whose_demand_is_not_known_and_who_is_away_is_named_and_not_guessed(ask: Any) -> None:
    document = fits("FleetDrill", ask("keep", "--cluster-away", "east", "-o", "json").stdout)
    assert document["gone"] == ["east/lone/checkout"]
    blind = document["unknown"][0]
    assert (blind["name"], blind["isWhole"]) == ("west/blind/checkout", True)
    assert "no answer" in blind["why"]
    assert "west/blind/checkout" not in {each["name"] for each in document["items"]}


def test_the_factor_makes_the_load_larger(ask: Any) -> None:
    document = fits("FleetDrill", ask("keep", "--cluster-away", "east", "--factor", "1.3", "-o", "json").stdout)
    found = {each["name"]: (each["asks"], each["mayHave"], each["missing"]) for each in document["items"]}
    assert found == {WHOLE: (16, 6, 10), "west/pay/checkout": (8, 3, 5)}
    assert {each["name"]: each["assumed"] for each in document["items"]}["west/pay/checkout"] == "its load times 1.3"
    minutes = {each["name"]: each["minutes"] for each in document["items"]}
    assert minutes[WHOLE] == pytest.approx(PERIODS / 4, rel=0.2)


def test_it_agrees_with_the_question_about_one_fleet_hpa(ask: Any) -> None:
    (item, *_) = fits("FleetDrill", ask("keep", "--cluster-away", "east", "-o", "json").stdout)["items"]
    alone = fits("ClusterAway", ask("keep", WHOLE, "--cluster-away", "east", "-o", "json").stdout)
    assert (item["asks"], item["missing"]) == (alone["keep"]["needed"], alone["keep"]["missing"])


def test_after_the_spill_a_ceiling_holds_the_others_back_while_it_counts_what_was_lost(ask: Any) -> None:
    done = ask("spill", "--cluster-away", "east", "-o", "json")
    document = fits("FleetDrill", done.stdout)
    (group,) = document["items"]
    assert (done.exit_code, group["kind"], group["name"]) == (1, "CapacityGroup", "shop")
    assert (group["asks"], group["mayHave"], group["missing"], group["laterMissing"]) == (12, 8, 4, 0)
    assert group["held"] == {"west/shop/checkout": 4}
    assert document["untilSpill"] == [{"name": WHOLE, "missing": 6, "seconds": 120}]
    shown = ask("spill", "--cluster-away", "east").stdout
    assert "CapacityGroup shop" in shown
    assert f"{WHOLE}: 6 replicas, for 120s" in shown


def test_where_all_have_room_the_exit_code_is_0(ask: Any) -> None:
    done = ask("roomy", "--cluster-away", "west", "--factor", "0.5")
    assert (done.exit_code, done.stdout.splitlines()[0]) == (
        0,
        "Without west, at 0.5 times the recorded load, all 2 whose demand is known have room.",
    ), done.output


def test_where_nobody_lacks_room_and_a_demand_is_unknown_it_is_neither_yes_nor_no(ask: Any) -> None:
    done = ask("keep", "--cluster-away", "east", "--factor", "0.2")
    assert done.exit_code == 5
    assert (
        "all 4 whose demand is known have room; of 1 the demand is not known; 1 HPA of east alone is away"
        in done.stdout
    )


def test_an_hour_is_named_by_its_end_or_by_since(ask: Any) -> None:
    middle = rfc3339(START_MS + 300_000)
    document = fits("FleetDrill", ask("keep", "--cluster-away", "east", "--at", middle, "-o", "json").stdout)
    assert (document["since"], document["until"]) == (rfc3339(START_MS - 3_300_000), middle)
    assert document["items"][0]["knownMinutes"] < 6
    late = fits("FleetDrill", ask("keep", "--cluster-away", "east", "--since", "2m", "-o", "json").stdout)
    assert late["items"][0]["knownMinutes"] < 3


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        pytest.param(("--cluster-away", "eats"), 4, "Did you mean east?", id="unknown cluster"),
        pytest.param(("--cluster-away", ""), 4, "no cluster", id="empty cluster"),
        pytest.param(("--cluster-away", "east", "--factor", "0"), 2, "--factor 0 is not a factor", id="factor 0"),
        pytest.param(("--cluster-away", "east", "--factor", "lots"), 2, "a number above 0", id="factor nonsense"),
        pytest.param(("--cluster-away", "east", "--since", "noon"), 2, "not a valid time", id="no time"),
        pytest.param(("--cluster-away", "east", "--at", "noon"), 2, "not a valid time", id="no moment"),
        pytest.param(
            ("--cluster-away", "east", "--at", "2026-11-21T14:05:00Z", "--since", "2026-11-21T14:06:00Z"),
            2,
            "--since is not before",
            id="since after at",
        ),
        pytest.param(
            ("--cluster-away", "east", "--at", "2026-11-22T14:05:00Z"),
            4,
            "no HPA was evaluated",
            id="hour without data",
        ),
        pytest.param(
            ("--cluster-away", "east", "--at", "2026-11-20T14:05:00Z"), 4, "no record as old as", id="before the log"
        ),
        pytest.param(("--cluster-away", "east", "--set", "maxReplicas=3"), 2, "goes with no other change", id="--set"),
        pytest.param(("--cluster-away", "east", "-n", "shop"), 2, "whole fleet, not one namespace", id="a namespace"),
        pytest.param((WHOLE, "--cluster-away", "east", "--factor", "2"), 2, "--factor is for the drill", id="a name"),
        pytest.param((WHOLE, "--set", "cpu=50%", "--at", "2m"), 2, "--at is for the drill", id="--at beside a name"),
        pytest.param(("--factor", "2"), 2, "what-if of which HPA?", id="nothing"),
    ],
)
def test_wrong_use_says_what_is_wrong(ask: Any, arguments: tuple[str, ...], code: int, text: str) -> None:
    done = ask("keep", *arguments)
    assert (done.exit_code, text in done.stderr) == (code, True), done.output


def test_the_documented_job_asks_what_the_program_answers(ask: Any) -> None:
    (job,) = yaml.safe_load_all(JOB.read_text())
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    verb, *words = container["args"]
    at = words.index("--from")
    assert (verb, job["kind"]) == ("what-if", "CronJob")
    done = ask("keep", *[word for number, word in enumerate(words) if number not in (at, at + 1)])
    assert (done.exit_code, done.stderr) == (1, "")
