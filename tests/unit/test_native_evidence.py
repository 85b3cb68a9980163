"""What counts as a write of the native controller, and which of them contradicts a proof that there is none."""

from typing import Any

import pytest

from reconciler.observer.nativeevidence import Evidence, NativeProofs, native_scale_write, native_status_write
from schemas.settings import ClusterSettings, SettingsSet

SECOND_MS = 1_790_000_015_000
TEXT = "2026-09-21T14:13:35Z"


def owned(*entries: tuple[str, str, str]) -> dict[str, Any]:
    """An object whose managed fields are of these (manager, subresource, time)."""
    fields = [{"manager": manager, "subresource": part, "time": time} for manager, part, time in entries]
    return {"metadata": {"namespace": "shop", "name": "web", "managedFields": fields}}


def test_the_newest_status_or_scale_of_the_controller_manager_is_evidence() -> None:
    item = owned(
        ("kube-controller-manager", "status", "2026-09-21T14:00:00Z"), ("kube-controller-manager", "status", TEXT)
    )
    assert native_status_write(item) == Evidence(SECOND_MS, f"it wrote the status of HPA shop/web at {TEXT}")
    item = owned(("kube-controller-manager", "scale", TEXT))
    assert native_scale_write(item, "Deployment") == Evidence(
        SECOND_MS, f"it wrote the scale of Deployment shop/web at {TEXT}"
    )


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(("fleethpa", "status", TEXT), id="our own status"),
        pytest.param(("kubectl", "scale", TEXT), id="a user's scale"),
        pytest.param(("kube-controller-manager", "", TEXT), id="another controller: metadata or a ReplicaSet's spec"),
    ],
)
def test_other_writes_are_not(entry: tuple[str, str, str]) -> None:
    assert native_status_write(owned(entry)) is None
    assert native_scale_write(owned(entry), "Deployment") is None


def test_a_deployments_status_by_the_controller_manager_is_not() -> None:
    assert native_scale_write(owned(("kube-controller-manager", "status", TEXT)), "Deployment") is None


@pytest.mark.parametrize(
    ("settings", "contradicts"),
    [
        pytest.param([], False, id="nothing was proven"),
        pytest.param([("east", "absent", SECOND_MS - 1)], True, id="a proof before the write"),
        pytest.param([("east", "absent", SECOND_MS)], False, id="a proof in the second of the write"),
        pytest.param([("*", "absent", SECOND_MS - 1)], True, id="a proof for all clusters"),
        pytest.param([("*", "absent", 0), ("east", "unknown", 1)], False, id="the cluster's own word counts"),
        pytest.param([("east", "absent", 0), ("east", "present", 1)], False, id="the proof was withdrawn"),
        pytest.param([("east", "absent", 0), ("east", "absent", SECOND_MS + 1)], False, id="it was proven again"),
        pytest.param([("west", "absent", 0)], False, id="another cluster"),
        pytest.param([("east", "absent", 0), ("east", None, SECOND_MS + 1)], True, id="a setting of something else"),
    ],
)
def test_only_a_write_after_the_proof_contradicts_it(settings: list[tuple[str, Any, int]], contradicts: bool) -> None:
    proofs = NativeProofs()
    for cluster, verdict, when_ms in settings:
        proofs.apply(SettingsSet(cluster=cluster, settings=ClusterSettings(native_controller=verdict)), when_ms)
    assert proofs.contradicts("east", Evidence(SECOND_MS, "it wrote")) is contradicts
    assert not proofs.contradicts("east", None)


def test_a_verdict_that_is_taken_away_leaves_that_for_all_clusters() -> None:
    proofs = NativeProofs()
    proofs.apply(SettingsSet(cluster="*", settings=ClusterSettings(native_controller="absent")), 5)
    proofs.apply(SettingsSet(cluster="east", settings=ClusterSettings(native_controller="present")), 6)
    assert proofs.absent_since_ms("east") is None
    proofs.apply(SettingsSet(cluster="east", settings=ClusterSettings(), unset=["nativeController"]), 7)
    assert proofs.absent_since_ms("east") == 5
