"""`get clusters` shows the version of each cluster and, where they are another's, the rules that decide."""

from typing import Any

import pytest

from fleethpa.fleet.lists import cluster_listing
from fleethpa.fleet.troubles import ClusterView
from schemas.settings import ClusterSettings


@pytest.mark.parametrize(
    ("version", "gates", "document"),
    [
        pytest.param("v1.36.1", "not read", None, id="no right to read them"),
        pytest.param("", "not read", None, id="nothing is known"),
        pytest.param("v1.36.1 HPAScaleToZero=false", "default", {"HPAScaleToZero": False}, id="as by default"),
        pytest.param("v1.36.1 HPAScaleToZero=true", "HPAScaleToZero=true", {"HPAScaleToZero": True}, id="another"),
        pytest.param(
            "v1.36.1 HPALater=true,HPAScaleToZero=true",
            "HPAScaleToZero=true",
            {"HPAScaleToZero": True},
            id="one that a newer observer reports",
        ),
    ],
)
def test_the_gates_of_a_cluster(version: str, gates: str, document: dict[str, bool] | None) -> None:
    view = ClusterView("eu", kubernetes=version)
    listing = cluster_listing([view], 0)

    (column,) = [each for each in listing.columns if each.header == "GATES"]
    assert column.cell(view) == gates
    assert listing.document(view)["gates"] == document
    assert listing.document(view)["kubernetes"] == version.partition(" ")[0]


@pytest.mark.parametrize(
    ("version", "settings", "shown", "rules"),
    [
        pytest.param("v1.33.4", {}, "v1.33.4", "1.33", id="its own rules"),
        pytest.param("", {}, "unknown, decided as 1.37", "1.37", id="no version known"),
        pytest.param("v9", {}, "v9, decided as 1.37", "1.37", id="no version of Kubernetes"),
        pytest.param("v1.36.1", {"rules": "1.33"}, "v1.36.1, decided as 1.33", "1.33", id="pinned"),
        pytest.param("v1.45.0", {}, "v1.45.0, decided as 1.38", "1.38", id="newer than every known one"),
        pytest.param("v1.25.0", {}, "v1.25.0, decided as 1.27", "1.27", id="older than every known one"),
        pytest.param(
            "v1.36.1",
            {"gates": "HPAScaleToZero=true"},
            "v1.36.1, decided as 1.36 HPAScaleToZero=true",
            "1.36 HPAScaleToZero=true",
            id="a gate that differs",
        ),
    ],
)
def test_the_version_and_the_rules_of_a_cluster(version: str, settings: dict[str, Any], shown: str, rules: str) -> None:
    view = ClusterView("eu", kubernetes=version, settings=ClusterSettings(**settings))
    listing = cluster_listing([view], 0)

    (column,) = [each for each in listing.columns if each.header == "KUBERNETES"]
    document = listing.document(view)
    assert column.cell(view) == shown
    assert (document["kubernetes"], document["rules"]) == (version, rules)
