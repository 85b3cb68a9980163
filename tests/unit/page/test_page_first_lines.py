"""What is the first line of every view, and one row per change with its outcome and who."""

from __future__ import annotations

import asyncio
import re

import pytest
from msgspec import structs

from fleethpa.page.fleetview import changes_view
from schemas.entries import WHOLE_PARTITION_KEY, Outcome
from schemas.observed import AutoscalerList, Command, Mode
from schemas.settings import SettingsSet
from tests.kit.cli import SETTINGS, Cli, Fleet, hpa
from tests.kit.page import Shown, browsing, over


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """`checkout` runs 3 pods at 100% of 60%: 5 are wanted and written."""
    made = Fleet()
    made.settle(replicas=3, usage_milli=500)
    made.applied(5)
    over(made, monkeypatch)
    return made


def test_a_change_is_one_row_with_its_outcome_and_who(fleet: Fleet) -> None:
    made = fleet.decisions()
    ended = {each.decision.completes for each in made if each.decision.kind == "completion"}
    assert ended
    found = changes_view(made, "", 0, fleet.now_ms, None)
    assert found["verdict"] == "1 change applied: 1 up, 0 down"
    rows = {each.decision.id: each for each in found["rows"]}
    assert {each.decision.kind for each in found["rows"]} == {"evaluation"}
    cells = {column.header: column for column in found["columns"]}
    for wanted in ended:
        assert cells["APPLIED"].cell(rows[wanted]) == "applied"
        assert cells["SPEC BY"].cell(rows[wanted]) == "-"  # nobody is known who made the spec


@pytest.mark.parametrize(
    ("mode", "query", "verdict", "rows", "in_shadow"),
    [
        pytest.param("shadow", "", "No change was applied", 0, 2, id="shadow is left out"),
        pytest.param("shadow", "mode:shadow", "No change was applied; 2 decided in shadow", 2, 0, id="asked for"),
        pytest.param("enforce", "", "No change was applied; 2 decided and not applied", 2, 0, id="never written"),
    ],
)
def test_changes_count_what_was_applied(mode: Mode, query: str, verdict: str, rows: int, in_shadow: int) -> None:
    fleet = Fleet()
    settings = structs.replace(SETTINGS, default_mode=mode)
    fleet.append(SettingsSet(cluster="*", settings=settings), key=WHOLE_PARTITION_KEY)
    fleet.append(AutoscalerList(list_id="a", hpas=[hpa()], session="s"))
    for _ in range(2):
        fleet.append(after_ms=16_000)
        fleet.observe(3, 500)
        fleet.append(Outcome(decision=fleet.decisions()[-1].decision.id, name="checkout", uid="u", result="failed"))
    found = changes_view(fleet.decisions(), query, 0, fleet.now_ms, None)
    assert (found["verdict"], found["found"], found["in_shadow"]) == (verdict, rows, in_shadow)


def test_the_end_of_a_write_has_a_row_where_its_change_has_none(fleet: Fleet) -> None:
    alone = [each for each in fleet.decisions() if each.decision.kind == "completion"]
    assert changes_view(alone, "", 0, fleet.now_ms, None)["found"] == len(alone) == 1


async def test_a_pause_of_the_whole_fleet_is_the_first_line_of_every_view(
    monkeypatch: pytest.MonkeyPatch, fleet: Fleet
) -> None:
    fleet.append(Command(command="pause", cluster="*", author="anna", reason="INC-7"), key=WHOLE_PARTITION_KEY)
    for path in ("/", "/clusters", "/changes", "/hpa/east/shop/checkout"):
        async with browsing() as client:
            found = Shown(await (await client.get(path)).text())
        assert "all clusters are paused (both directions, by anna" in found.text, path
    run = Cli(monkeypatch, fleet)
    for arguments in (("get", "clusters"), ("get", "hpa", "-A"), ("describe", "east/shop/checkout")):
        stated = (await asyncio.to_thread(run, *arguments)).stderr
        assert stated.startswith("warning: all clusters are paused (both directions, by anna"), (arguments, stated)
        assert "Next: fleethpa resume --all" in stated


async def test_what_is_wrong_in_a_cluster_has_a_time_where_one_is_known(fleet: Fleet) -> None:
    async with browsing() as client:
        missing = Shown(await (await client.get("/clusters")).text())
    assert "Cluster What Next east no reconciler serves it" in missing.text
    for _ in range(5):
        fleet.append(after_ms=10_000, by="ingest")
    fleet.checkpoint()
    async with browsing() as client:
        silent = Shown(await (await client.get("/clusters")).text())
    assert "Cluster Since What Next" in silent.text
    assert re.search(r"east \S+ \d\d:\d\d:\d\d \(\w+ ago\) its observer has been silent fleethpa run", silent.text)
    assert "east - no reconciler serves it" in silent.text
