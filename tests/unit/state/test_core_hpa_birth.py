"""When an HPA came into being: the cluster's word, or for a central one the log's."""

import pytest

from schemas.keys import HpaId
from schemas.observed import AutoscalerSet
from streams.state.hpastate import Hpa
from streams.state.rows import HpaRow
from tests.kit.partition import make_hpa

BORN_MS, LATER_MS = 1_767_225_600_000, 1_767_225_660_000


@pytest.fixture
def fresh() -> Hpa:
    name = HpaId("eu", "shop", "web")
    return Hpa(HpaRow(cluster=name.cluster, namespace=name.namespace, name=name.name, gone=True))


def created(hpa: Hpa) -> str:
    return str(hpa.row.hpa_object()["metadata"].get("creationTimestamp"))


def test_a_central_hpa_keeps_the_log_time_at_which_it_came(fresh: Hpa) -> None:
    fresh.take_object(AutoscalerSet(hpa=make_hpa(), origin="central"), BORN_MS, "made")
    assert created(fresh) == "2026-01-01T00:00:00Z"
    fresh.take_object(AutoscalerSet(hpa=make_hpa(maxReplicas=7), origin="central"), LATER_MS, "other")
    assert (created(fresh), fresh.row.generation) == ("2026-01-01T00:00:00Z", 2)


def test_one_made_again_after_its_deletion_is_new(fresh: Hpa) -> None:
    fresh.take_object(AutoscalerSet(hpa=make_hpa(), origin="central"), BORN_MS, "made")
    fresh.row.deleted = True
    fresh.take_object(AutoscalerSet(hpa=make_hpa(), origin="central"), LATER_MS, "again")
    assert created(fresh) == "2026-01-01T00:01:00Z"


def test_a_clusters_hpa_has_the_clusters_time(fresh: Hpa) -> None:
    manifest = make_hpa()
    manifest["metadata"]["creationTimestamp"] = "2025-05-05T05:05:05Z"
    fresh.take_object(AutoscalerSet(hpa=manifest), BORN_MS, "")
    assert created(fresh) == "2025-05-05T05:05:05Z"
