"""What ingest takes of FleetHPAs, and what it refuses."""

from typing import Any

import pytest
from msgspec import structs

from schemas import topics
from schemas.codec import encode
from schemas.entries import Body, FleetAllotment, FleetReport, FleetReportItem, PublicRecord, central_name
from schemas.keys import FLEET
from schemas.observed import AutoscalerSet, Command, FleetCluster, FleetSpec
from schemas.settings import ClusterSettings, SettingsSet
from streams.ingest.convert import convert
from streams.ingest.mapping import Mapping, Resolver
from streams.ingest.pieces import Conversion, RawRecord
from tests.kit.partition import START_MS, make_hpa, scale

EAST, WEST = FleetCluster(name="east", max_replicas=8, min_replicas=2), FleetCluster(name="west", max_replicas=4)
ITEM = FleetReportItem("web", 1, 0, 2, 2, '[["Scale",2,2,"app=web"],[0,0,0],[]]')
REPORT = FleetReport(member="east", at=START_MS, items=[ITEM])


def _converted(*bodies: Body, cluster: str = FLEET, topic: str = topics.SPECS) -> Conversion:
    record = PublicRecord(v=1, entries=list(bodies), time=START_MS, cluster=cluster, namespace="shop")
    return convert(RawRecord(topic, 0, 0, START_MS, encode(record)), Resolver(Mapping()))


def _fleet(*clusters: FleetCluster, **fields: Any) -> AutoscalerSet:
    spec = FleetSpec(clusters=list(clusters or (EAST, WEST)))
    return AutoscalerSet(hpa=make_hpa(maxReplicas=10), origin="central", fleet=spec, revision=1, **fields)


def test_a_fleet_hpa_its_mode_and_reports_are_taken() -> None:
    assert _converted(_fleet()).result == "ok"
    assert _converted(_fleet(), Command(command="mode", name="web", mode="shadow")).result == "ok"
    assert _converted(REPORT, topic=topics.REPORTS).result == "ok"


def test_numbers_of_allotments_may_be_as_large_as_offsets() -> None:
    """After a loss of state they go on from the offset of the restart."""
    allotment = FleetAllotment(name="web", revision=1, number=2**40, replicas=None, decision="d")
    assert _converted(allotment, cluster="east", topic=topics.REPORTS).result == "ok"
    report = structs.replace(REPORT, items=[structs.replace(ITEM, obeys=2**40)])
    assert _converted(report, topic=topics.REPORTS).result == "ok"


@pytest.mark.parametrize(
    ("body", "cluster", "reason"),
    [
        pytest.param(_fleet(), "east", "a FleetHPA is of cluster @fleet, not of east", id="in a cluster"),
        pytest.param(
            AutoscalerSet(hpa=make_hpa(), origin="central"), FLEET, "needs fleet, which says among", id="an HPA"
        ),
        pytest.param(_fleet(EAST, EAST), FLEET, "names east twice", id="twice"),
        pytest.param(
            _fleet(structs.replace(EAST, min_replicas=9)), FLEET, "minReplicas 9 above its maximum 8", id="bounds"
        ),
        pytest.param(
            _fleet(structs.replace(EAST, max_replicas=20, min_replicas=11)), FLEET, "above spec.maxReplicas", id="sum"
        ),
        pytest.param(_fleet(structs.replace(EAST, name="@x")), FLEET, "must be 1-253 of letters", id="name"),
        pytest.param(
            _fleet(*[structs.replace(WEST, name=f"c{number}") for number in range(65)]),
            FLEET,
            "clusters of a FleetHPA of fleet.clusters: 65 clusters, the limit is 64",
            id="many",
        ),
        pytest.param(
            AutoscalerSet(hpa=make_hpa(), revision=3), "east", "go only with origin central", id="of a cluster"
        ),
    ],
)
def test_what_contradicts_itself_is_refused(body: Body, cluster: str, reason: str) -> None:
    topic = topics.AUTOSCALERS if central_name(body) is None else topics.SPECS
    found = _converted(body, cluster=cluster, topic=topic)
    assert found.result == "rejected"
    assert reason in found.reason()


def test_nothing_is_observed_of_the_whole() -> None:
    found = _converted(scale("web"), topic=topics.SCALES)
    assert "'scaleSet' is of a cluster, and @fleet is none" in found.reason()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"most": 1}, "web: most is 1, below replicas, which are 2"),
        ({"part": "[]"}, "web: part: Expected `array` of at least length 3, got 0"),
        ({"part": "x" * 70_000}, "70000 characters of JSON, the limit is 65536"),
    ],
)
def test_an_item_of_a_report_that_cannot_be_used_is_refused_by_itself(changed: dict[str, Any], reason: str) -> None:
    bad = structs.replace(ITEM, **changed)
    found = _converted(structs.replace(REPORT, items=[bad, ITEM]), topic=topics.REPORTS)
    assert found.result == "partial"
    assert reason in found.reason()
    assert [piece.body for piece in found.pieces] == [REPORT]
    found = _converted(structs.replace(REPORT, items=[bad, bad]), topic=topics.REPORTS)
    assert found.result == "rejected"
    assert reason in found.reason()


@pytest.mark.parametrize(
    ("changed", "cluster", "reason"),
    [
        ({}, "east", "a report goes to cluster @fleet, not to east"),
        ({"member": "@x"}, FLEET, "must be 1-253 of letters"),
    ],
)
def test_a_report_that_cannot_be_used_is_refused(changed: dict[str, Any], cluster: str, reason: str) -> None:
    found = _converted(structs.replace(REPORT, **changed), cluster=cluster, topic=topics.REPORTS)
    assert found.result == "rejected"
    assert reason in found.reason()


def test_settings_of_fleet_hpas_are_taken() -> None:
    body = SettingsSet(cluster=FLEET, settings=ClusterSettings(downscale_stabilization_ms=60_000))
    assert _converted(body, cluster="", topic=topics.SETTINGS).result == "ok"
