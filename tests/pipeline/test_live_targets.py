"""What `apply` and `diff` find of an HPA's target in its cluster, asked over HTTP with the kubeconfig's credentials."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleethpa.changes import livetargets
from fleethpa.changes.livetargets import live_targets, target_warnings
from fleethpa.changes.manifests import FileManifest, Input
from fleethpa.lab.simulator.cluster import write_kubeconfig
from schemas.keys import HpaId
from tests.kit.clusters import Fault, FaultyCluster
from tests.pipeline.cluster_rig import NAMESPACE, deployment, hpa

WEB = HpaId("east", NAMESPACE, "web")
CONTAINER = {
    "type": "ContainerResource",
    "containerResource": {"name": "cpu", "container": "app", "target": {"type": "AverageValue", "averageValue": "1"}},
}


async def warned(path: Path, wanted: dict[HpaId, Any], read: Input | None = None) -> tuple[list[str], list[str]]:
    """Return the warnings about these HPAs, and the notes of the command. `path`: of a kubeconfig."""
    notes: list[str] = []
    session: Any = SimpleNamespace(
        config=SimpleNamespace(kubeconfig=str(path), contexts=()), note=lambda text: notes.append(text)
    )
    return target_warnings(read or Input(), wanted, await live_targets(session, wanted)), notes


@pytest.mark.parametrize(
    ("body", "found"),
    [
        pytest.param(hpa("web"), [], id="a sound HPA"),
        pytest.param(
            hpa("web", "gone"),
            ["Deployment/gone is not in the cluster: nothing is scaled until it is there"],
            id="no such object",
        ),
        pytest.param(
            hpa("web", scaleTargetRef={"apiVersion": "example.org/v1", "kind": "Nothing", "name": "web"}),
            ["Nothing/web is not in the cluster: nothing is scaled until it is there"],
            id="no such kind",
        ),
        pytest.param(
            hpa("web", metrics=[CONTAINER]),
            [
                "cluster east: Deployment/web has no container app, so that its cpu is never known and nothing is "
                "scaled by it: name one of main"
            ],
            id="no such container",
        ),
    ],
)
async def test_an_hpa_is_compared_with_its_target_in_the_cluster(
    body: dict[str, Any], found: list[str], tmp_path: Path
) -> None:
    async with FaultyCluster("east") as cluster:
        cluster.apply(deployment("web"))
        path = write_kubeconfig(tmp_path / "kubeconfig", [cluster])

        warnings, notes = await warned(path, {WEB: body})

    assert (warnings, notes) == ([f"east/shop/web: {text}" for text in found], [])


async def test_the_advice_about_replicas_is_that_for_who_owns_them(tmp_path: Path) -> None:
    owner = {"manager": "flux", "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    async with FaultyCluster("east") as cluster:
        cluster.apply(deployment("web"))
        stored = cluster.store.get(("deployments.apps", NAMESPACE, "web"))
        assert stored is not None
        stored["metadata"]["managedFields"] = [owner]
        path = write_kubeconfig(tmp_path / "kubeconfig", [cluster])
        read = Input(others=[FileManifest("web.yaml", deployment("web"))])

        (warning,), _ = await warned(path, {WEB: hpa("web")}, read)

    assert warning.startswith("east/shop/web: web.yaml: Deployment/web sets spec.replicas")
    assert "It is applied by the server" in warning


async def test_a_cluster_that_does_not_answer_is_said_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(livetargets, "ASKED_S", 0.2)
    async with FaultyCluster("east") as cluster:
        path = write_kubeconfig(tmp_path / "kubeconfig", [cluster])
        cluster.add_fault(Fault(action="hang"))
        hung = await warned(path, {WEB: hpa("web"), HpaId("unknown", NAMESPACE, "web"): hpa("web")})
    away = await warned(path, {WEB: hpa("web")})

    assert hung == ([], ["The targets in east were not looked at: no answer within 0.2 s"])
    assert away[0] == []
    assert away[1][0].startswith("The targets in east were not looked at: ")


async def test_a_kubeconfig_that_cannot_be_used_is_said_and_stops_nothing(tmp_path: Path) -> None:
    missing = await warned(tmp_path / "nosuch", {WEB: hpa("web")})
    async with FaultyCluster("east") as cluster:
        path = write_kubeconfig(tmp_path / "kubeconfig", [cluster])
        path.write_text(path.read_text().replace("token: ", "tokenFile: /nonexistent/"))
        unreadable = await warned(path, {WEB: hpa("web")})

    assert missing[0] == unreadable[0] == []
    assert missing[1] == [f"No target was looked at in its cluster: kubeconfig {tmp_path / 'nosuch'} cannot be used"]
    assert unreadable[1][0].startswith("The targets in east were not looked at: ")
