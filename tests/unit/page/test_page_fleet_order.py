"""The list of the fleet is sorted by its heads, clusters without a problem fold, and a fleet without one shows what
is closest to its maximum.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from fleethpa.page.fleetview import SORTS, fleet_view
from fleethpa.page.stripview import MOST_CLUSTERS, strip_view
from fleethpa.show.text import rfc3339
from schemas.entries import WHOLE_PARTITION_KEY
from schemas.settings import ClusterSettings, SettingsSet
from tests.kit.cli import SETTINGS, Fleet
from tests.kit.page import Shown, browsing, over
from tests.unit.page.test_page_strip import NOON_MS, fleet_of, one

STATE = fleet_of([one("east/a", 9), one("east/b", 10), one("west/c", None), one("west/d", 2)])


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        pytest.param("REPLICAS", ["d", "a", "b", "c"], id="the smallest first, what is not known last"),
        pytest.param("-REPLICAS", ["b", "a", "d", "c"], id="the largest first"),
        pytest.param("-HPA", ["d", "c", "b", "a"], id="by name, backwards"),
        pytest.param("HPA", ["a", "b", "c", "d"], id="by name"),
        pytest.param("TARGETS", ["a", "b", "c", "d"], id="no column that it can be sorted by"),
        pytest.param("-WANTS", ["a", "b", "c", "d"], id="what nobody knows keeps its order"),
    ],
)
def test_the_list_is_sorted_by_a_column(sort: str, names: list[str]) -> None:
    found = fleet_view(STATE, "", 1, NOON_MS, sort)
    assert [view.id.name for view in found["rows"]] == names
    assert found["sort"] == (sort if sort.removeprefix("-") in SORTS else "")


def test_a_count_that_is_not_known_comes_last_in_either_order() -> None:
    state = fleet_of([one("east/a", 4, wants=9), one("east/b", 4), one("east/c", 4, wants=3)])
    for sort, names in (("WANTS", ["c", "a", "b"]), ("-WANTS", ["a", "c", "b"])):
        assert [view.id.name for view in fleet_view(state, "", 1, NOON_MS, sort)["rows"]] == names


async def test_a_head_is_a_link_that_keeps_the_filter_and_says_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    over(fleet, monkeypatch)
    fleet.settle()
    async with browsing() as client:
        view = Shown(await (await client.get("/?q=checkout&sort=-REPLICAS")).text())
    links = [str(attributes.get("href")) for tag, attributes in view.tags if tag == "a"]
    assert "/?q=checkout&sort=REPLICAS#found" in links
    assert "/?q=checkout&sort=-MAXPODS#found" in links
    (head,) = [attributes for tag, attributes in view.tags if tag == "th" and attributes.get("aria-sort")]
    assert (head["data-column"], head["aria-sort"]) == ("REPLICAS", "descending")
    assert {"type": "hidden", "name": "sort", "value": "-REPLICAS"} in [
        found for tag, found in view.tags if tag == "input"
    ]


def test_of_many_clusters_those_without_a_problem_fold() -> None:
    views = [one(f"c{number:02}/a", 5) for number in range(MOST_CLUSTERS + 5)]
    state = fleet_of(views)
    last = f"c{MOST_CLUSTERS + 4:02}"
    state.clusters[last] = replace(state.clusters[last], reported_ms=None)
    found = strip_view(state, None, NOON_MS)
    assert [row["name"] for row in found["strip"]] == [*(f"c{number:02}" for number in range(MOST_CLUSTERS - 1)), last]
    assert [row["name"] for row in found["folded"]] == [
        f"c{number:02}" for number in range(MOST_CLUSTERS - 1, MOST_CLUSTERS + 4)
    ]
    few = strip_view(fleet_of(views[:MOST_CLUSTERS]), None, NOON_MS)
    assert (len(few["strip"]), few["folded"]) == (MOST_CLUSTERS, [])


def test_a_fleet_without_a_problem_shows_what_is_closest_to_its_maximum_with_its_cost() -> None:
    state = fleet_of([one("east/a", 4), one("east/b", 9), one("west/c", 7), one("east/d", None), one("east/e", 2)])
    state.settings["east"] = ClusterSettings(price="0.05")
    found = strip_view(state, None, NOON_MS)
    assert [(each.hpa.name, each.text, each.cost) for each in found["nearest"]] == [
        ("b", "9 of at most 10", "0.45 per hour"),
        ("c", "7 of at most 10", ""),
        ("a", "4 of at most 10", "0.20 per hour"),
    ]
    assert strip_view(fleet_of([one("east/a", 4, paused="by anna: INC-1")]), None, NOON_MS)["nearest"] == []


async def test_what_is_empty_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    over(fleet, monkeypatch)
    fleet.settle()
    shadow = SettingsSet(cluster="*", settings=structs.replace(SETTINGS, default_mode="shadow"))
    async with browsing() as client:
        troubled = Shown(await (await client.get("/")).text()).text
        fleet.append(shadow, key=WHOLE_PARTITION_KEY)
        at = rfc3339(fleet.now_ms)
        quiet = Shown(await (await client.get(f"/?at={at}")).text()).text
    assert "What needs a look cluster east no reconciler serves it" in troubled
    assert "Nothing needs a look" not in troubled
    assert "Nothing needs a look; closest to maxReplicas east / shop / checkout " in quiet
    assert "Latest changes" not in troubled + quiet
