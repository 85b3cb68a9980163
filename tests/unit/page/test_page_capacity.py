"""A CapacityGroup on the page: a view of its own, its row in the fleet, and the HPAs that it holds back."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fleethpa.fleet.capacity import GroupView
from schemas.capacity import CapacityGroupSet, CapacityLimit, CapacityPriority, CapacitySpec, WhenUnknown
from schemas.entries import WHOLE_PARTITION_KEY
from schemas.observed import AutoscalerSet
from schemas.settings import SettingsSet
from streams.state.acrossrows import GroupRow
from tests.kit.cli import SETTINGS, Fleet, hpa
from tests.kit.page import browsing, over
from tests.unit.page.test_page_division import CLUSTERS, AcrossClusters, shown


class UnderCeiling(AcrossClusters):
    """An HPA `checkout` in east and in west, each with 3 replicas, that share a limit of 8; later both want 6."""

    def __init__(self, limit: CapacityLimit | None = None, **spec: Any) -> None:
        Fleet.__init__(self)
        self.replicas = dict.fromkeys(CLUSTERS, 3)
        self.away: set[str] = set()
        self.append(SettingsSet(cluster="*", settings=SETTINGS), key=WHOLE_PARTITION_KEY)
        selector = {"matchLabels": {"app": "checkout"}}
        made = CapacitySpec(selector=selector, limit=limit or CapacityLimit(count=8), **({"namespaces": ["*"]} | spec))
        self.append(CapacityGroupSet(name="search", revision=1, spec=made), key=WHOLE_PARTITION_KEY)
        for name in CLUSTERS:
            self.append(AutoscalerSet(hpa=hpa(), origin="central", mode="enforce"), key=f"{name}/shop")


@pytest.fixture
def ceiling(monkeypatch: pytest.MonkeyPatch) -> UnderCeiling:
    made = UnderCeiling()
    made.periods(8)
    made.periods(4, usage_milli=600)
    over(made, monkeypatch)
    return made


async def test_the_view_names_the_group_that_holds_it_with_limit_use_and_share(ceiling: UnderCeiling) -> None:
    assert sum(ceiling.replicas.values()) == 8
    text = (await shown("/hpa/east/shop/checkout")).text
    assert "capacity group" in text
    assert "group search; capacity 8 replicas; used 8 replicas; share 4 replicas" in text
    assert (
        "Stays at 4: CapacityGroup search leaves no more: its limit is 8 replicas; cpu 120% of 60% asks for 8" in text
    )


async def test_the_view_of_a_group_has_its_use_and_its_members_by_need(ceiling: UnderCeiling) -> None:
    page = await shown("/capacity/search")
    text = page.text
    assert "CapacityGroup search limit 8 replicas whenUnknown Hold" in text
    assert "8 of 8 replicas in 2 HPAs: 2 HPAs want 8 replicas more" in text
    assert "holds 2 HPAs back" in text
    assert "east / shop / checkout 4 8 4 CapacityGroup search leaves no more: its limit is 8 replicas" in text
    assert "The same as a command: fleethpa capacity describe search" in text


async def test_the_group_is_reached_from_the_fleet_from_its_members_and_from_the_search(ceiling: UnderCeiling) -> None:
    for path in ("/", "/hpa/west/shop/checkout"):
        assert "/capacity/search" in {attrs.get("href") for tag, attrs in (await shown(path)).tags if tag == "a"}
    assert "search 8 of 8 replicas holds 2 HPAs back" in (await shown("/")).text
    async with browsing() as client:
        found = await client.get("/find?q=search", allow_redirects=False)
        assert found.headers["Location"] == "/capacity/search"
        missing = await client.get("/capacity/serch")
        assert missing.status == 404
        assert "no CapacityGroup &#39;serch&#39;" in await missing.text()


async def test_a_fleet_without_groups_has_no_list_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    over(AcrossClusters(), monkeypatch)
    assert "Capacity groups" not in (await shown("/")).text


@pytest.mark.parametrize(("when_unknown", "what"), [("Hold", "add nothing"), ("Open", "add what they want")])
async def test_a_new_group_says_until_when_it_settles(
    monkeypatch: pytest.MonkeyPatch, when_unknown: WhenUnknown, what: str
) -> None:
    made = UnderCeiling(when_unknown=when_unknown)
    over(made, monkeypatch)
    text = (await shown("/capacity/search")).text
    assert re.search(r"settling until [\d-]* ?\d\d:\d\d:\d\d: ", text)
    assert f"HPAs {what}" in text
    assert text.count("has not reported") == 2
    assert "0 of 8 replicas in 2 HPAs: 2 have not reported" in text


async def test_states_of_a_group_and_of_its_members(monkeypatch: pytest.MonkeyPatch) -> None:
    made = UnderCeiling(CapacityLimit(count=5), priorities=[CapacityPriority(selector={}, namespaces=["*"], value=10)])
    made.periods(8)
    over(made, monkeypatch)
    text = (await shown("/capacity/search")).text
    assert "above its limit: nothing is added until HPAs want fewer" in text
    assert "6 of 5 replicas in 2 HPAs: all have what they want" in text
    assert "east / shop / checkout 3 3 0 10 has what it wants" in text
    made.away = {"west"}
    made.periods(6)
    assert "silent: counted, and gets nothing" in (await shown("/capacity/search")).text


async def test_a_limit_of_units_shows_what_a_replica_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    made = UnderCeiling(CapacityLimit(kind="units", name="gpu", count=8_000))
    made.periods(8)
    over(made, monkeypatch)
    text = (await shown("/capacity/search")).text
    assert "unknown not bounded: what it uses is not known" in text
    assert "0 of 8 gpu" in text


def test_a_group_that_a_partition_has_lost_says_how_it_is_put_back() -> None:
    row = GroupRow(1, CapacitySpec(selector={}, limit=CapacityLimit(count=1)), 0)
    text, style = GroupView("search", row, 0, {}, is_scattered=True).state
    assert style == "trouble"
    assert "fleethpa get capacitygroups search -o yaml | fleethpa apply -f - --yes" in text
