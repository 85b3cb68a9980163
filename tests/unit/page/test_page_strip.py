"""The fleet as a picture: places between min and max, tiles, problems by cause, and the last day that is replayed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from fleethpa.fleet.lists import cluster_state, hpa_listing
from fleethpa.fleet.troubles import ClusterView, HungProcess
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.page.fleetview import clusters_verdict, verdict
from fleethpa.page.livereader import _unread
from fleethpa.page.stripview import BUCKETS, TOP_LEVEL, level, replay, strip_view
from schemas.entries import WHOLE_PARTITION_KEY
from schemas.keys import HpaId
from schemas.kubernetes.gotimes import parse_time_ms
from schemas.observed import Heartbeat, Serving
from schemas.settings import ClusterSettings
from streams.state.moves import KEPT_MOVES, Move
from streams.state.needs import Blocked
from tests.kit.cli import Fleet
from tests.kit.page import Shown, browsing, over

NOON_MS = parse_time_ms("2026-11-28T12:00:00Z")
MINUTE_MS = 60_000


def one(
    name: str, count: int | None = 4, moves: Iterable[tuple[int, int, int]] = (), *, failing: str = "", **given: Any
) -> HpaView:
    """An HPA between 2 and 10; `moves`: (minutes ago, before, after); `failing`: the message of a failed metric."""
    failed = {"type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric", "message": failing}
    status: dict[str, Any] = {"conditions": [failed] if failing else []}
    if count is not None:
        status |= {"currentReplicas": count, "desiredReplicas": count}
    cluster, _, bare = name.partition("/")
    return HpaView(
        HpaId(cluster, "shop", bare),
        {"spec": {"minReplicas": 2, "maxReplicas": 10}, "status": status},
        "enforce",
        "cluster",
        0,
        moves=tuple(Move(NOON_MS - ago * MINUTE_MS, before, after, "fleethpa") for ago, before, after in moves),
        clock_ms=NOON_MS,
        **given,
    )


def fleet_of(views: Sequence[HpaView]) -> FleetState:
    names = sorted({view.id.cluster for view in views})
    clusters = {
        name: ClusterView(
            name, hpas=sum(view.id.cluster == name for view in views), clock_ms=NOON_MS, reported_ms=NOON_MS - 5_000
        )
        for name in names
    }
    return FleetState({view.id: view for view in sorted(views, key=lambda each: each.id)}, clusters, clock_ms=NOON_MS)


@pytest.mark.parametrize(
    ("count", "least", "most", "found"),
    [
        (2, 2, 10, 0),
        (1, 2, 10, 0),
        (3, 2, 10, 1),
        (6, 2, 10, 2),
        (9, 2, 10, 3),
        (10, 2, 10, TOP_LEVEL),
        (12, 2, 10, TOP_LEVEL),
        (5, 5, 5, 0),
        (0, 1, 0, 0),
    ],
)
def test_a_place_between_min_and_max_has_its_level(count: int, least: int, most: int, found: int) -> None:
    assert level(count, least, most) == found


def cells_of(picture: str, cell: int = 22, step: int = 25) -> list[set[str]]:
    """The classes of each cell, in order; what is drawn lies within the edges of its cell."""
    found: list[set[str]] = []
    for height, block in re.findall(r'<svg width="\d+" height="(\d+)">(.*?)</svg>', picture):
        places: dict[tuple[int, int], set[str]] = {}
        for class_, drawn in re.findall(r'<path class="(\w+)" d="(.*?)"/>', block):
            for x, y in re.findall(r"M([\d.]+) ([\d.]+)", drawn):
                assert float(x) % step < cell
                assert float(y) % step < cell
                places.setdefault((int(float(y) // step), int(float(x) // step)), set()).add(class_)
        assert max(row for row, _ in places) == int(height) // step - 1
        found += [places[place] for place in sorted(places)]
    return found


def test_many_cells_are_a_few_pictures_in_the_order_of_their_hpas() -> None:
    counts = [2 + number % 9 for number in range(120)]
    (row,) = strip_view(fleet_of([one(f"east/a{at:03}", count) for at, count in enumerate(counts)]), None, NOON_MS)[
        "strip"
    ]
    assert (row["rows"], str(row["picture"]).count("<svg")) == (2, 6)
    assert cells_of(row["picture"], 13, 16) == [{f"l{level(count, 2, 10)}"} for count in counts]


def test_each_hpa_has_a_cell_with_its_place_and_a_mark_for_what_is_wrong() -> None:
    views = [one("east/a", 2), one("east/b", 10), one("east/c", None), one("east/d", 6, paused="by anna: INC-1")]
    views += [one("west/e", 6, failing="unreachable")]
    east, west = strip_view(fleet_of(views), None, NOON_MS)["strip"]
    assert cells_of(east["picture"]) == [{"l0"}, {"l4"}, {"none"}, {"l2", "kept"}]
    assert cells_of(west["picture"]) == [{"l2", "bad"}]
    assert east["label"] == "4 HPAs: 1 at max, 1 at min, 0 in trouble"


def test_the_tiles_count_the_fleet() -> None:
    views = [one("east/a", 4, [(120, 9, 8), (30, 8, 6), (10, 6, 4)]), one("east/b", 10, wants=32)]
    views += [one("east/c", 3, failing="x"), one("east/e", 10, wants=7)]
    views += [one("east/d", 2, [(minute, 1, 2) for minute in range(KEPT_MOVES, 0, -1)], paused="by anna: INC-1")]
    tiles = {tile.name: tile for tile in strip_view(fleet_of(views), 12.34, NOON_MS)["tiles"]}
    assert {name: tile.value for name, tile in tiles.items()} == {
        "HPAs": "5",
        "Replicas": "29",
        "Changes in 1 h": "many",
        "Saturated": "1",
        "Held": "1",
        "Problems": "3",
        "Clusters": "1",
        "Decisions": "12",
    }
    assert tiles["Changes in 1 h"].about == "more than are kept; see Changes"
    assert (tiles["Saturated"].about, tiles["Saturated"].style) == ("ask for more; 1 at max with enough", "trouble")
    assert "Decisions" not in {tile.name for tile in strip_view(fleet_of(views), None, NOON_MS)["tiles"]}


def test_what_metrics_ask_for_is_not_counted_while_nothing_is_known_now() -> None:
    state = fleet_of([one("east/a", 10, wants=32)])
    state.hung = (HungProcess("ingest", NOON_MS, "ingest hangs or does not run", "fleethpa run ingest"),)
    tiles = {tile.name: tile for tile in strip_view(state, None, NOON_MS)["tiles"]}
    assert (tiles["Saturated"].value, tiles["Saturated"].about) == ("?", "not known now")


@pytest.mark.parametrize(
    ("silent", "replicas", "saturated"),
    [
        pytest.param([], ("14", "as decided"), ("1", "ask for more than max"), id="all clusters are seen"),
        pytest.param(
            ["west"], ("14", "1 HPA as last known"), ("1", "ask for more than max; 1 HPA not known"), id="one"
        ),
        pytest.param(["east"], ("14", "1 HPA as last known"), ("0", "none; 1 HPA not known"), id="the saturated one"),
        pytest.param(["east", "west"], ("14", "as last known"), ("?", "not known now"), id="none"),
    ],
)
def test_what_is_not_seen_now_is_not_counted_as_it_is_now(
    silent: list[str], replicas: tuple[str, str], saturated: tuple[str, str]
) -> None:
    state = fleet_of([one("east/a", 10, wants=32), one("west/b", 4)])
    for name in silent:
        state.clusters[name].reported_ms = NOON_MS - 120_000
    tiles = {tile.name: (tile.value, tile.about) for tile in strip_view(state, None, NOON_MS)["tiles"]}
    assert (tiles["Replicas"], tiles["Saturated"]) == (replicas, saturated)
    seen = f"{', '.join(silent)} not seen now" if silent else "none with a problem"
    assert clusters_verdict(state) == f"2 clusters, {seen}"


def test_replicas_that_could_not_be_written_are_not_called_decided() -> None:
    failed = {"type": "AbleToScale", "status": "False", "reason": "FailedUpdateScale", "message": "x"}
    view = one("east/a", 4)
    view.status["conditions"] = [failed]
    (tile,) = [each for each in strip_view(fleet_of([view]), None, NOON_MS)["tiles"] if each.name == "Replicas"]
    assert (tile.value, tile.about, tile.style) == ("4", "1 HPA not written", "trouble")


@pytest.mark.parametrize(
    ("conditions", "has"),
    [
        pytest.param([], None, id="nobody has read its scale"),
        pytest.param([("AbleToScale", "FailedGetScale")], None, id="its scale could not be read"),
        pytest.param([("AbleToScale", "SucceededGetScale")], 0, id="the API leaves a zero out"),
    ],
)
def test_a_count_that_is_not_there_is_a_zero_only_where_the_scale_was_read(
    conditions: list[tuple[str, str]], has: int | None
) -> None:
    view = one("east/a", None)
    view.status["conditions"] = [{"type": name, "reason": reason} for name, reason in conditions]
    assert view.has == has
    listing = hpa_listing([view], NOON_MS, namespaces=True, problems=lambda _: [])
    shown = next(column.cell(view) for column in listing.columns if column.header == "REPLICAS")
    assert shown == ("?" if has is None else str(has))


def test_a_cause_says_its_label_once_and_has_the_colour_of_its_row() -> None:
    blocked = Blocked(0, 78, 1, 0)
    views = [one("east/a", 10, wants=32), one("east/b", 6, paused="by anna: INC-1"), one("east/c", 6, blocked=blocked)]
    found = {cause.problem.label: cause for cause in strip_view(fleet_of(views), None, NOON_MS)["causes"]}
    assert found["saturated"].text == "at max 10, asks for 32"
    assert found["paused"].text == "by anna: INC-1"
    assert {label: cause.style for label, cause in found.items()} == {
        "saturated": "trouble",
        "paused": "held",
        "blocked": "held",
    }
    assert {view.weight for view in views if view.blocked} == {1}


@pytest.mark.parametrize(
    ("held", "failing", "value", "about", "style"),
    [
        pytest.param(0, 0, "0", "none", "", id="nothing"),
        pytest.param(2, 0, "2", "none waits for replicas", "", id="what is held waits for nothing"),
        pytest.param(2, 1, "3", "1 waits for replicas", "trouble", id="both"),
        pytest.param(0, 2, "2", "in 1 cause", "trouble", id="one cause of two"),
    ],
)
def test_the_tile_of_problems_counts_what_the_verdict_counts(
    held: int, failing: int, value: str, about: str, style: str
) -> None:
    views = [one(f"east/h{number}", held="held: the removal budget") for number in range(held)]
    views += [one(f"east/f{number}", failing="x") for number in range(failing)] + [one("east/free")]
    state = fleet_of(views)
    tiles = {tile.name: tile for tile in strip_view(state, None, NOON_MS)["tiles"]}
    assert (tiles["Problems"].value, tiles["Problems"].about, tiles["Problems"].style) == (value, about, style)
    assert (f"{value} HPAs of" in verdict(state)) == (int(value) > 1)


@pytest.mark.parametrize(
    ("paused", "braked", "value", "about", "query"),
    [
        pytest.param(0, 0, "0", "none", "problem:held", id="nothing"),
        pytest.param(2, 0, "2", "2 paused", "problem:paused", id="pauses"),
        pytest.param(0, 1, "1", "1 by a brake", "problem:held", id="a brake"),
        pytest.param(1, 2, "3", "1 paused, 2 by a brake", "problem:any", id="both, and the link leaves none out"),
    ],
)
def test_what_pauses_and_brakes_hold(paused: int, braked: int, value: str, about: str, query: str) -> None:
    text = "held: the removal budget of cluster east (30%/10m) allows 3, and 3 were removed"
    views = [one(f"east/p{number}", paused="by anna: INC-1") for number in range(paused)]
    views += [one(f"east/b{number}", held=text) for number in range(braked)] + [one("east/free")]
    tiles = {tile.name: tile for tile in strip_view(fleet_of(views), None, NOON_MS)["tiles"]}
    assert (tiles["Held"].value, tiles["Held"].about, tiles["Held"].query) == (value, about, query)


def test_what_the_replicas_cost_is_a_tile_where_a_price_is_set() -> None:
    state = fleet_of([one("east/a", 4), one("east/b", 6)])
    state.settings["*"] = ClusterSettings(price="0.04")
    tiles = {tile.name: tile.value for tile in strip_view(state, None, NOON_MS)["tiles"]}
    assert tiles["Cost"] == "0.40"


def test_problems_with_one_cause_are_one_line_and_alike_ones_too() -> None:
    views = [one(f"north/n{number}", failing="the server is away") for number in range(3)]
    views += [one(f"east/m{number}", 10, wants=12) for number in range(5)]
    views += [one("west/alone", failing="no such metric")]
    found = strip_view(fleet_of(views), None, NOON_MS)
    assert [(each.problem.label, each.hpas, each.cluster) for each in found["causes"]] == [
        ("no metrics", 3, "north"),
        ("saturated", 5, ""),
        ("no metrics", 1, "west"),
    ]
    assert [str(each.hpa) for each in found["causes"] if each.hpa] == ["west/shop/alone"]


def test_a_cause_of_several_hpas_says_nothing_that_only_one_of_them_has() -> None:
    views = [one(f"north/n{count}", count, failing="unanswered", cut_off="cluster north away") for count in (5, 8)]
    texts = [each.problem.text for each in strip_view(fleet_of(views), None, NOON_MS)["causes"] if each.hpas == 2]
    assert texts == ["no metric: cluster north away"]
    assert [view.problems[0].text for view in views] == [f"{texts[0]}; replicas held at {count}" for count in (5, 8)]


def test_what_waits_comes_before_pauses_and_pauses_of_many_clusters_are_one_line() -> None:
    clusters = ("a", "b", "c", "d", "e")
    views = [one(f"{name}/app{number}", paused="by anna: INC-1") for name in clusters for number in range(4)]
    views += [one(f"e/broken{number}", failing="unreachable") for number in range(5)]
    found = [
        (each.problem.label, each.hpas, each.cluster, each.problem.text)
        for each in strip_view(fleet_of(views), None, NOON_MS)["causes"]
        if each.hpas
    ]
    assert [each[:3] for each in found] == [("no metrics", 5, "e"), ("paused", 20, "")]
    assert found[1][3] == "paused"
    few = strip_view(fleet_of([view for view in views if view.id.cluster in ("a", "b")]), None, NOON_MS)["causes"]
    assert [(each.hpas, each.cluster) for each in few if each.hpas] == [(4, "a"), (4, "b")]


def test_the_last_day_is_replayed_from_the_newest_moves() -> None:
    views = [one("east/a", 4, [(30 * 60, 2, 3), (90, 3, 8), (10, 8, 4)]), one("east/b", None)]
    found = replay(fleet_of(views))
    a, b = found.clusters["east"]
    assert (found.end, found.span) == (NOON_MS // 1000, 86_400)
    assert (a.name, a.least, a.most, a.count, a.is_whole) == ("shop/a", 2, 10, 4, True)
    assert a.moves == [(NOON_MS // 1000 - 5_400, 3, 8), (NOON_MS // 1000 - 600, 8, 4)]
    assert (b.count, b.moves) == (None, [])
    moved = strip_view(fleet_of(views), None, NOON_MS)["moved"]
    assert moved == f"M{BUCKETS - 7} 20h.8v-20.0h-.8zM{BUCKETS - 1} 20h.8v-20.0h-.8z"


async def test_the_replay_is_read_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.settle(replicas=3, usage_milli=300)
    over(fleet, monkeypatch)
    async with browsing() as client:
        answer = await client.get("/fleet/replay")
        found = await answer.json()
    assert answer.content_type == "application/json"
    assert [hpa[0] for hpa in found["clusters"]["east"]] == ["shop/checkout"]


def test_while_ingest_hangs_nothing_is_up_and_the_hung_process_is_the_verdict() -> None:
    state = fleet_of([one("east/a", 4), one("west/b", 4)])
    found = strip_view(state, None, NOON_MS)
    assert {tile.name: (tile.value, tile.about) for tile in found["tiles"]}["Clusters"] == ("2", "up")
    assert verdict(state) == "No HPA has a problem."
    state.hung = (HungProcess("ingest", NOON_MS, "ingest hangs or does not run", "fleethpa run ingest"),)
    for cluster in state.clusters.values():
        cluster.is_cut_off = True
    found = strip_view(state, None, NOON_MS + 94_000)
    assert {tile.name: (tile.value, tile.about) for tile in found["tiles"]}["Clusters"] == ("?/2", "not known now")
    assert {tile.name: tile.about for tile in found["tiles"]}["Replicas"] == "as last known"
    assert not any(row["has_watch_problem"] for row in found["strip"])
    assert {(row["cells"]["STATE"], row["cells"]["REPORTED"]) for row in found["strip"]} == {("unknown", "99s")}
    assert "green" not in {row["style"] for row in found["strip"]}
    assert verdict(state) == "Ingest hangs or does not run: 2 HPAs shown as last known."
    assert clusters_verdict(state) == "2 clusters, none of them known now: ingest hangs or does not run"


async def test_a_cluster_whose_process_hangs_has_a_problem_that_is_said_above(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.settle()
    fleet.append(Serving(session="r", clusters=["east"]), key=WHOLE_PARTITION_KEY)
    for _ in range(6):
        fleet.append(Heartbeat(session="s", watches=["pods", "autoscalers", "scales"]), after_ms=10_000)
        fleet.append(after_ms=100)
    fleet.checkpoint()
    over(fleet, monkeypatch)
    monkeypatch.setattr("tests.kit.page.GrowingPast.now_ms", lambda _: fleet.now_ms)
    async with browsing() as client:
        shown = Shown(await (await client.get("/clusters")).text())
    assert "the reconciler of east hangs or does not run" in shown.text
    assert "1 cluster, 1 with a problem" in shown.text
    assert shown.cells["PROBLEMS"] == ["above"]


def test_while_the_source_cannot_be_read_nothing_is_said_of_processes() -> None:
    state = fleet_of([one("east/a", 4)])
    state.hung = (HungProcess("archiver", NOON_MS, "the archiver hangs", "fleethpa admin archive --to DIR"),)
    state.unread, state.is_late = "It has not answered for 2s.", True
    assert state.ills == ("the source has not answered",), "it may yet"
    assert verdict(state) == "The source has not answered: 1 HPA shown as last known."
    state.unread, state.is_late = "no broker accepts a connection", False
    assert state.ills == ("the source cannot be read",)
    state.remarks = (state.hung[0].text, "all clusters are paused (both directions, by anna)")
    unread = _unread(state, "It has not answered for 2s.", is_late=True)
    assert (unread.hung, unread.remarks) == ((), ("all clusters are paused (both directions, by anna)",))
    assert [cluster_state(each) for each in unread.clusters.values()] == ["unknown"]


def test_a_process_that_hides_nothing_is_named_before_what_hpas_need() -> None:
    state = fleet_of([one("east/a", 4)])
    state.hung = (HungProcess("router", NOON_MS, "the router hangs", "fleethpa run router"),)
    assert verdict(state) == "Router hangs or does not run. No HPA has a problem."
