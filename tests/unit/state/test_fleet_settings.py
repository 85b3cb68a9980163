"""A FleetHPA decides by the settings of its clusters."""

import pytest

from fleethpa.fleet.state import _differing
from schemas.keys import FLEET
from schemas.settings import ClusterSettings, SettingsSet
from tests.kit.fleet import Fleet

SHORT = ClusterSettings(sync_period_ms=5_000, downscale_stabilization_ms=60_000)


def _set(run: Fleet, cluster: str, settings: ClusterSettings) -> None:
    for name in run.logs:
        run.add(name, SettingsSet(cluster=cluster, settings=settings))


def _differs(run: Fleet) -> list[str]:
    known = run.row(FLEET).fleet
    assert known is not None
    return list(_differing(run.logs[FLEET].partition.state, known))


def _begun() -> Fleet:
    run = Fleet({"east": 8, "west": 8}, 40)
    for _ in range(3):
        run.period({"east": 400, "west": 400})
    return run


@pytest.mark.parametrize("cluster", ["*", "each"])
def test_the_window_of_its_clusters_is_that_of_the_whole(cluster: str) -> None:
    run = _begun()
    for name in ("*",) if cluster == "*" else ("east", "west"):
        _set(run, name, SHORT)
    assert not _differs(run)
    for _ in range(8):
        run.period({"east": 200, "west": 200})
    assert run.replicas == {"east": 4, "west": 4}
    (hpa,) = run.logs[FLEET].partition.state.hpas.values()
    assert run.logs[FLEET].partition.state.settings_of(hpa).sync_period_ms == 5_000


def test_where_clusters_differ_the_longest_is_used_and_said() -> None:
    run = _begun()
    _set(run, "east", SHORT)
    for _ in range(8):
        run.period({"east": 200, "west": 200})
    assert run.replicas == {"east": 8, "west": 8}
    assert _differs(run) == [
        "its clusters differ in sync-period (east 5s, west 15s): 15s is used",
        "its clusters differ in downscale-stabilization (east 60s, west 300s): 300s is used",
    ]


def test_settings_of_its_own_come_first_and_are_said_where_clusters_have_others() -> None:
    run = _begun()
    _set(run, FLEET, ClusterSettings(downscale_stabilization_ms=60_000))
    assert _differs(run) == ["its clusters differ in downscale-stabilization (east 300s, west 300s): 60s is used"]
    for _ in range(8):
        run.period({"east": 200, "west": 200})
    assert run.replicas == {"east": 4, "west": 4}
