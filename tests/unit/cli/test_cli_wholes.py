"""Questions to a FleetHPA and to the HPAs in its clusters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.published import fits
from tests.unit.cli_kit import Cli
from tests.unit.whole_kit import WHOLE, WholeFleet

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
        ((WHOLE, "--forecast", "1d"), 2, "a FleetHPA is tried by itself"),
        (("@fleet/shop/nothing",), 4, "@fleet/shop/nothing"),
        ((WHOLE, "--set", "maxReplicas=3"), 2, "invalid"),
    ],
)
def test_backtest_says_what_does_not_go_with_a_whole(
    ask: Any, arguments: tuple[str, ...], code: int, text: str
) -> None:
    made = ask("backtest", *arguments, *SINCE)
    assert (made.exit_code, text in made.stderr) == (code, True), made.output
