"""What is in force beside the log: settings of a cluster and of the fleet, pauses, and who may state what."""

import orjson
import pytest

from reconciler.core.writeplan import guards_of
from runtime.records import hand_over
from schemas.agentknowledge import KnownPause
from schemas.agents import AgentSet
from schemas.entries import Body
from schemas.inforce import InForce
from schemas.observed import Command
from schemas.settings import ClusterSettings, SettingsSet
from schemas.syncperiods import StatedPeriod

NOW_MS = 1_000_000
PAUSE = Command(command="pause", name="web", pause_kind="scaleDown", until=NOW_MS + 60_000)
KNOWN = KnownPause(kind="scaleDown", namespace="shop", name="web", until=NOW_MS + 60_000)


def change(in_force: InForce, cluster: str, *unset: str, **settings: object) -> None:
    made = ClusterSettings(**settings)  # type: ignore[arg-type]
    in_force.apply(SettingsSet(cluster=cluster, settings=made, unset=list(unset)), NOW_MS)


def test_settings_of_a_cluster_go_before_the_fleets_and_frozen_holds_from_either() -> None:
    found = InForce()
    assert not found.of("east").frozen
    change(found, "*", max_step=10, frozen=True, sync_period_ms=30_000)
    change(found, "east", max_step=3, frozen=False)
    east = guards_of(found, "east", NOW_MS)
    west = guards_of(found, "west", NOW_MS)
    assert (east.settings.frozen, east.settings.max_step, west.settings.max_step) == (True, 3, 10)
    assert found.sync_period_ms("east", 15_000) == 30_000


def test_settings_that_ingest_rejects_leave_what_holds_and_no_api_is_hammered() -> None:
    found = InForce()
    change(found, "east", max_step=3, sync_period_ms=30_000)
    for wrong in ({"maxStep": 0}, {"maxStep": -1, "syncPeriodMs": 20_000}, {"syncPeriodMs": 99}):
        entry = {"kind": "settings", "cluster": "east", "settings": wrong}
        hand_over(orjson.dumps({"v": 1, "cluster": "east", "entries": [entry]}), NOW_MS, found.apply)
    right = {"kind": "settings", "cluster": "west", "settings": {"maxStep": 7}}
    hand_over(orjson.dumps({"v": 1, "cluster": "west", "entries": [right]}), NOW_MS, found.apply)
    assert found.of("west").max_step == 7
    assert (found.of("east").max_step, found.sync_period_ms("east", 15_000)) == (3, 30_000)
    change(found, "east", sync_period_ms=100)
    assert found.sync_period_ms("east", 15_000) == 1_000


CENTRAL, NATIVE = StatedPeriod(5_000, "central"), StatedPeriod(5_000, "cluster")
ALLOWED, ABSENT = {"min_sync_period_ms": 2_000}, {"native_controller": "absent"}


@pytest.mark.parametrize(
    ("settings", "stated", "asked_every_ms"),
    [
        pytest.param({}, [CENTRAL], 15_000, id="nobody has allowed a shorter one"),
        pytest.param(ALLOWED, [], 15_000, id="none is stated"),
        pytest.param(ALLOWED, [CENTRAL], 5_000, id="of a central HPA"),
        pytest.param(ALLOWED, [NATIVE], 15_000, id="of the cluster, beside its native controller"),
        pytest.param(ALLOWED | ABSENT, [NATIVE], 5_000, id="of the cluster, without one"),
        pytest.param(ALLOWED, [CENTRAL, StatedPeriod(4_000, "central")], 4_000, id="the shortest"),
        pytest.param(ALLOWED, [StatedPeriod(100, "central")], 2_000, id="not below what is allowed"),
        pytest.param({"min_sync_period_ms": 100}, [StatedPeriod(100, "central")], 1_000, id="no API is hammered"),
        pytest.param({"min_sync_period_ms": 60_000}, [CENTRAL], 15_000, id="more is allowed than the cluster's"),
        pytest.param(ALLOWED, [StatedPeriod(60_000, "central")], 15_000, id="a longer one: others need answers"),
        pytest.param(ALLOWED | {"sync_period_ms": 1_500}, [CENTRAL], 1_500, id="the cluster's is shorter"),
        pytest.param(
            {"min_sync_period_ms": 100, "sync_period_ms": 500}, [CENTRAL], 1_000, id="the cluster's is too short, too"
        ),
    ],
)
def test_metrics_are_asked_for_in_the_shortest_period_that_the_cluster_allows(
    settings: dict[str, object], stated: list[StatedPeriod], asked_every_ms: int
) -> None:
    found = InForce()
    change(found, "east", **settings)
    assert found.sync_period_ms("east", 15_000, stated) == asked_every_ms


def test_a_setting_that_is_taken_away_is_the_fleets_or_the_default_again() -> None:
    found = InForce()
    change(found, "*", max_step=10)
    change(found, "east", max_step=3, sync_period_ms=30_000, frozen=True)
    change(found, "east", "maxStep", "syncPeriodMs", "frozen")
    assert (found.of("east").frozen, found.of("east").max_step) == (None, 10)
    assert found.sync_period_ms("east", 15_000) == 15_000


def test_which_metrics_are_pushed_is_set_per_type_for_a_cluster_or_for_the_fleet() -> None:
    found = InForce()
    assert found.pushed("east") == frozenset()
    change(found, "*", sources={"Pods": "samples"})
    change(found, "east", sources={"External": "samples"})
    assert (found.pushed("east"), found.pushed("west")) == (frozenset({"Pods", "External"}), frozenset({"Pods"}))
    change(found, "east", sources={"Pods": "api"})
    assert found.pushed("east") == frozenset()
    change(found, "*", "sources")
    assert found.pushed("west") == frozenset()


def test_how_often_values_are_shown_is_set_per_cluster_or_for_the_fleet() -> None:
    found = InForce()
    assert found.status_every_ms("east") == 0
    change(found, "*", status_every_ms=60_000)
    change(found, "east", status_every_ms=0)
    assert (found.status_every_ms("east"), found.status_every_ms("west")) == (0, 60_000)


@pytest.mark.parametrize(
    ("commands", "known"),
    [
        pytest.param([("east", "shop", PAUSE)], [KNOWN], id="an HPA"),
        pytest.param([("west", "shop", PAUSE)], [], id="elsewhere"),
        pytest.param([("east", "shop", Command(command="pause"))], [KnownPause(namespace="shop")], id="a namespace"),
        pytest.param([("", "", Command(command="pause", cluster="*"))], [KnownPause()], id="the fleet"),
        pytest.param(
            [("", "", Command(command="pause", cluster="east", pause_kind="scaleUp"))],
            [KnownPause(kind="scaleUp")],
            id="a direction in a cluster",
        ),
        pytest.param(
            [("east", "shop", PAUSE), ("east", "shop", Command(command="resume", name="web"))], [], id="resumed"
        ),
        pytest.param(
            [("east", "shop", PAUSE), ("east", "shop", Command(command="resume", name="web", pause_kind="scaleUp"))],
            [KNOWN],
            id="only the other direction is resumed",
        ),
        pytest.param([("east", "shop", Command(command="mode", mode="off"))], [], id="a mode"),
        pytest.param(
            [("east", "shop", Command(command="pause", name="web", until=NOW_MS))], [], id="one that has ended"
        ),
        pytest.param(
            [("east", "shop", Command(command="override", name="web", replicas=3, until=NOW_MS + 1))],
            [KnownPause(kind="override", namespace="shop", name="web", until=NOW_MS + 1, replicas=3)],
            id="an override",
        ),
        pytest.param(
            [
                ("east", "shop", Command(command="override", name="web", replicas=3, until=NOW_MS + 1)),
                ("east", "shop", Command(command="override", name="web")),
            ],
            [],
            id="an override that was ended",
        ),
        pytest.param(
            [("east", "shop", Command(command="override", name="web", replicas=3, until=NOW_MS))],
            [],
            id="an override that has ended",
        ),
        pytest.param(
            [("east", "shop", PAUSE), ("east", "shop", Command(command="override", name="web"))],
            [KNOWN],
            id="and its end ends no pause",
        ),
        pytest.param([("", "", Command(command="pause"))], [], id="of no cluster, which ingest rejects"),
        pytest.param([("", "", Command(command="pause", cluster="east", name="web"))], [], id="of an HPA nowhere"),
    ],
)
def test_the_pauses_in_force_in_a_cluster(commands: list[tuple[str, str, Command]], known: list[KnownPause]) -> None:
    found = InForce()
    for cluster, namespace, command in commands:
        found.apply(command, NOW_MS, cluster, namespace)
    assert found.pauses("east", NOW_MS) == known
    assert guards_of(found, "east", NOW_MS).pauses == tuple(known)


def states(found: InForce) -> list[object]:
    return [found.settings, found.pauses("east", NOW_MS), found.agents.agents()]


SETTINGS: list[Body] = [
    SettingsSet(cluster="east", settings=ClusterSettings(frozen=True)),
    AgentSet(cluster="east", incarnation=7),
    Command(command="resume", cluster="east"),
]


def test_what_concerns_whole_clusters_is_not_stated_by_a_record_of_a_namespace() -> None:
    found = InForce()
    found.apply(Command(command="pause", cluster="east"), NOW_MS)
    before = states(found)
    assert [found.apply(body, NOW_MS + 1, "east", "shop") for body in SETTINGS[:2]] == [None] * 2
    assert states(found) == before
    assert [change.of for body in SETTINGS if (change := found.apply(body, NOW_MS + 1))] == [
        "settings",
        "agents",
        "pauses",
    ]
    assert found.pauses("east", NOW_MS) == []
