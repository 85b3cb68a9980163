"""Who has no room for a load at one moment: an HPA, a FleetHPA or a CapacityGroup."""

from collections.abc import Mapping
from typing import Any

import pytest

from fleethpa.questions.drilljudging import (
    Controller,
    DrillFleetHpa,
    DrillMember,
    Judged,
    asked_for,
    judged_alone,
    judged_fleet_hpa,
    judged_group,
)
from fleethpa.questions.drillloads import Load
from schemas.observed import FleetCluster, FleetSpec
from streams.hpa.calculator import bounds
from streams.hpa.rules import CURRENT

USUAL = Controller(bounds(0.1, 0.1), CURRENT, 15_000)


@pytest.mark.parametrize(
    ("pods", "most", "asks"),
    [
        pytest.param(8.2, 20, 9, id="whole pods"),
        pytest.param(10.9, 10, 10, id="above maxReplicas within the tolerance of 10 %"),
        pytest.param(11.1, 10, 12, id="above maxReplicas and the tolerance"),
        pytest.param(13.000000000000002, 10, 13, id="what doubles add asks for no pod"),
        pytest.param(0.0, 10, 0, id="no load"),
        pytest.param(2.0, 0, 2, id="where there may be none"),
        pytest.param(1e12, 10, 2_147_484, id="more than a controller can count is far too many, not negative"),
    ],
)
def test_what_a_load_asks_for(pods: float, most: int, asks: int) -> None:
    assert asked_for(pods, most, USUAL) == asks


@pytest.mark.parametrize(
    ("load", "factor", "judged"),
    [
        pytest.param(Load(8.0), 1.0, Judged(8, 10), id="room"),
        pytest.param(Load(10.0), 1.0, Judged(10, 10), id="just enough room"),
        pytest.param(Load(10.0, "memory: no"), 1.0, Judged(unknown="memory: no"), id="just enough by one metric"),
        pytest.param(Load(8.0), 1.5, Judged(12, 10, 2, "maxReplicas 10", "", 2, 2), id="none at the factor"),
        pytest.param(
            Load(8.0, "memory: no"), 1.0, Judged(unknown="memory: no"), id="the other metric may ask for more"
        ),
        pytest.param(
            Load(12.0, "memory: no"), 1.0, Judged(12, 10, 2, "maxReplicas 10", "", 2, 2), id="one metric is enough"
        ),
        pytest.param(Load(None, "no scale"), 9.0, Judged(unknown="no scale"), id="not known is not guessed"),
    ],
)
def test_an_hpa_of_one_cluster(load: Load, factor: float, judged: Judged) -> None:
    assert judged_alone(load, 10, factor, USUAL) == judged


EVEN = {"east": {"replicas": 6}, "west": {"replicas": 6}}


def _fleet(
    most: int = 12, of_west: int = 12, spill_ms: int = 0, names: tuple[str, ...] = ("east", "west")
) -> DrillFleetHpa:
    mosts = {"east": most, "west": of_west}
    clusters = [FleetCluster(name=name, max_replicas=mosts[name]) for name in names]
    return DrillFleetHpa(FleetSpec(clusters=clusters, away_spill_after_ms=spill_ms), 1, most)


@pytest.mark.parametrize(
    ("fleet_hpa", "clusters", "pods", "judged", "shares"),
    [
        pytest.param(_fleet(24), EVEN, 12.0, Judged(12, 12), {"west": 12}, id="room"),
        pytest.param(
            _fleet(),
            EVEN,
            12.0,
            Judged(12, 6, 6, "maxReplicas 12, of which east keeps 6 (whenAway Keep)", "", 6, 6),
            {"west": 6},
            id="what the cluster had counts",
        ),
        pytest.param(
            _fleet(spill_ms=1), EVEN, 12.0, Judged(12, 12, 0, "", "", 6, 0), {"west": 12}, id="room once it is spilled"
        ),
        pytest.param(
            _fleet(spill_ms=1),
            EVEN,
            15.0,
            Judged(15, 12, 3, "maxReplicas 12; until the spill 9 are missing", "", 9, 3),
            {"west": 12},
            id="none also then",
        ),
        pytest.param(_fleet(24, 24), EVEN, 12.5, Judged(13, 13), {"west": 13}, id="whole pods of the whole"),
        pytest.param(_fleet(12, spill_ms=1), EVEN, 13.0, Judged(12, 12, 0, "", "", 7, 0), {"west": 12}, id="tolerance"),
        pytest.param(
            _fleet(24, of_west=9),
            EVEN,
            12.0,
            Judged(12, 9, 3, "maxReplicas of its other clusters: 9", "", 3, 3),
            {"west": 9},
            id="the other's own maxReplicas",
        ),
        pytest.param(
            _fleet(24),
            {"east": {"replicas": 6}, "west": {"replicas": 6, "room": 7}},
            12.0,
            Judged(12, 7, 5, "west has nodes for 7", "", 5, 5),
            {"west": 12},
            id="no nodes",
        ),
        pytest.param(
            _fleet(names=("east",)),
            {"east": {"replicas": 6}},
            6.0,
            Judged(6, 0, 6, "it has no cluster but east", "", 6, 6),
            {},
            id="no other cluster",
        ),
        pytest.param(
            _fleet(12, names=("west",)),
            {"west": {"replicas": 12}},
            12.0,
            Judged(12, 12),
            {"west": 12},
            id="not in east",
        ),
        pytest.param(
            _fleet(),
            {"east": {"replicas": 6}, "west": {"replicas": 6, "away": True}},
            12.0,
            Judged(unknown="cluster west had not reported"),
            {},
            id="the load of another cluster is not known",
        ),
    ],
)
def test_a_fleet_hpa(
    fleet_hpa: DrillFleetHpa, clusters: Mapping[str, Any], pods: float, judged: Judged, shares: Mapping[str, int]
) -> None:
    assert judged_fleet_hpa(Load(pods), clusters, fleet_hpa, "east", 1.0, USUAL) == (judged, shares)
    assert judged_fleet_hpa(Load(pods / 2), clusters, fleet_hpa, "east", 2.0, USUAL) == (judged, shares)


def test_a_fleet_hpa_of_unknown_load_is_not_guessed() -> None:
    for load in (Load(None, "no metric"), Load(3.0, "no metric")):
        assert judged_fleet_hpa(load, EVEN, _fleet(), "east", 1.0, USUAL) == (Judged(unknown="no metric"), {})


@pytest.mark.parametrize(
    ("members", "judged", "held"),
    [
        pytest.param([DrillMember("w/n/a", 6, 10, 0, 1)], Judged(10, 12), {}, id="room"),
        pytest.param(
            [DrillMember("w/n/a", 6, 15, 0, 1)],
            Judged(15, 12, 3, "1 HPA held back, w/n/a by 3", "", 3, 3),
            {"w/n/a": 3},
            id="none",
        ),
        pytest.param(
            [DrillMember("w/n/a", 6, 10, 0, 1), DrillMember("e/n/a", 4, None, 0, 1, is_away=True)],
            Judged(10, 8, 2, "1 HPA held back, w/n/a by 2; what the cluster had still counts", "", 2, 0),
            {"w/n/a": 2},
            id="what the cluster had counts for an hour",
        ),
        pytest.param(
            [DrillMember("w/n/a", 4, 8, 0, 1), DrillMember("w/n/b", 4, 8, 9, 1)],
            Judged(16, 12, 4, "1 HPA held back, w/n/a by 4", "", 4, 4),
            {"w/n/a": 4},
            id="the higher priority first",
        ),
        pytest.param(
            [DrillMember("w/n/a", 4, 8, 0, 1), DrillMember("w/n/b", 6, None, 0, 1)],
            Judged(14, 12, 2, "1 HPA held back, w/n/a by 2; 1 HPA of unknown demand with what they have", "", 2, 2),
            {"w/n/a": 2},
            id="of unknown demand with what it has",
        ),
        pytest.param(
            [DrillMember("w/n/a", 2, 5, 0, 3)],
            Judged(15, 12, 3, "1 HPA held back, w/n/a by 1", "", 3, 3),
            {"w/n/a": 1},
            id="what a replica uses",
        ),
        pytest.param(
            [DrillMember("w/n/a", 10, 4, 0, 1), DrillMember("w/n/b", 2, 8, 0, 1)],
            Judged(12, 12),
            {},
            id="what one gives up is room for another",
        ),
        pytest.param([DrillMember("w/n/a", 9, 99, 0, 0)], Judged(0, 12), {}, id="one that uses nothing of it"),
    ],
)
def test_a_capacity_group(members: list[DrillMember], judged: Judged, held: dict[str, int]) -> None:
    assert judged_group(12, members) == (judged, held)
