"""`fleethpa what-if --cluster-away`: what the other clusters of a FleetHPA could have."""

from typing import Any

import pytest

from schemas.entries import FleetReport, FleetReportItem
from schemas.observed import AutoscalerSet, Command, FleetCluster, FleetSpec
from streams.hpa.observation import ExternalSamples, PodCounts, Scale
from streams.hpa.parts import PartObservation, written_part
from tests.kit.cli import Cli, Fleet, hpa
from tests.kit.published import fits

WHOLE = "@fleet/shop/web"
METRIC = {
    "type": "External",
    "external": {"metric": {"name": "jobs"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}
HAD = {"east": 6, "west": 3, "north": 3}


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ask of a FleetHPA over three clusters, whose load takes twelve replicas."""

    def asked(*arguments: str, maximum: int = 14, spill_ms: int = 0) -> Any:
        fleet = Fleet()
        clusters = [FleetCluster(name=name, max_replicas=maximum) for name in HAD]
        body = AutoscalerSet(
            hpa=hpa("web", maxReplicas=maximum, metrics=[METRIC]),
            origin="central",
            fleet=FleetSpec(clusters=clusters, away_spill_after_ms=spill_ms),
            revision=1,
        )
        fleet.append(body, Command(command="mode", name="web", mode="enforce"), key="@fleet/shop")
        for name, count in HAD.items():
            scale = Scale(count, count, "app=web")
            part = PartObservation(scale, PodCounts(count, count), (ExternalSamples((12_000,)),))
            item = FleetReportItem("web", 1, 0, count, count, written_part(part))
            fleet.append(FleetReport(member=name, at=fleet.now_ms, items=[item]), key="@fleet/shop")
        for _ in range(20):
            fleet.append(after_ms=1_000)
        fleet.checkpoint()
        return Cli(monkeypatch, fleet)("what-if", WHOLE, *arguments)

    return asked


def test_the_verdict_says_what_is_missing_and_what_spill_would_change(ask: Any) -> None:
    shown = ask("--cluster-away", "east")
    assert shown.exit_code == 0, shown.output
    assert " ".join(shown.stdout.split()).startswith(
        "The load of all clusters takes 12 replicas now; without east the others could have 8: 4 are missing "
        "(maxReplicas 14 counts what east had). With whenAway Spill they could have 12."
    )
    assert "CLUSTER" in shown.stdout
    document = fits("ClusterAway", ask("--cluster-away", "east", "-o", "json").stdout)
    assert (document["policy"], document["keep"]["missing"], document["spill"]["missing"]) == ("Keep", 4, 0)
    assert document["spill"]["shares"] == {"west": 6, "north": 6}


def test_with_spill_the_verdict_says_when(ask: Any) -> None:
    assert "After 120s (whenAway Spill) they could have 12." in ask("--cluster-away", "east", spill_ms=120_000).stdout
    assert "have room for all of them." in ask("--cluster-away", "east", maximum=30).stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--cluster-away", "south"), f"{WHOLE} has no cluster south"),
        (("--cluster-away", "east", "--set", "maxReplicas=3"), "goes with no other change"),
    ],
)
def test_wrong_use_says_what_is_wrong(ask: Any, arguments: tuple[str, ...], text: str) -> None:
    made = ask(*arguments)
    assert (made.exit_code, text in made.stderr) == (2, True), made.output


def test_an_hpa_of_one_cluster_is_no_fleet_hpa(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.settle()
    fleet.checkpoint()
    made = Cli(monkeypatch, fleet)("what-if", "east/shop/checkout", "--cluster-away", "east")
    assert (made.exit_code, "is no FleetHPA" in made.stderr) == (2, True), made.output
