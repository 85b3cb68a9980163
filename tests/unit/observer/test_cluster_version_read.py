"""The version of a cluster is read again and again, and its feature gates only where that is allowed."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.clusters.answers import ApiError, UnreachableError
from reconciler.clusters.client import REVIEWS, ClusterClient, ClusterConfig
from reconciler.observer import clusterversion
from reconciler.observer.clusterversion import ClusterVersion
from schemas import limits
from schemas.observed import HPA_GATES
from streams.hpa.rules import GATES, NEWEST, OLDEST

METRICS = b"""\
# TYPE kubernetes_feature_enabled gauge
kubernetes_feature_enabled{name="APIResponseCompression",stage="BETA"} 1
kubernetes_feature_enabled{name="HPAConfigurableTolerance",stage=""} 1
kubernetes_feature_enabled{name="HPAScaleToZero",stage="ALPHA"} 0
kubernetes_feature_enabled{stage="BETA",name="PodLevelResources"} 1
kubernetes_feature_disabled{name="HPAGeneration",stage="BETA"} 1
apiserver_request_total{code="200"} 3
"""
READ = "v1.36.3 HPAConfigurableTolerance=true,HPAScaleToZero=false,PodLevelResources=true"


class ApiServer(ClusterClient):
    """What a cluster answers, and what it was asked."""

    def __init__(self, version: Any = "v1.36.3", *, allows: bool = True) -> None:
        super().__init__(ClusterConfig("east"))
        self.version, self.allows, self.metrics = version, allows, METRICS
        self.asked: list[str] = []

    async def _answered(self, method: str, path: str, **_: object) -> bytes:
        self.asked.append(path)
        if isinstance(self.version, Exception):
            raise self.version
        return self.metrics if path == "/metrics" else b'{"gitVersion": "%s"}' % self.version.encode()

    async def request(self, method: str, path: str, *, body: Mapping[str, Any] | None = None, **_: Any) -> Any:
        if method == "GET":
            return await super().request(method, path)
        self.asked.append(path)
        assert path == REVIEWS
        assert body is not None
        assert body["spec"] == {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}
        return {"status": {"allowed": self.allows}}


async def test_the_gates_that_change_decisions_are_read_where_that_is_allowed() -> None:
    server = ApiServer()
    found = ClusterVersion(server)
    await found.read()

    assert found.text == READ
    assert server.asked == ["/version", REVIEWS, "/metrics"]


async def test_where_reading_gates_is_not_allowed_it_is_not_tried() -> None:
    server = ApiServer(allows=False)
    found = ClusterVersion(server)
    await found.read()

    assert found.text == "v1.36.3"
    assert "/metrics" not in server.asked


async def test_gates_are_read_again_after_an_upgrade_and_otherwise_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ApiServer()
    found = ClusterVersion(server)
    counts = []
    for version in ("v1.36.3", "v1.36.3", "v1.37.0", "v1.37.0"):
        server.version = version
        await found.read()
        counts.append(server.asked.count("/metrics"))
    monkeypatch.setattr(clusterversion, "GATES_EVERY_S", 0.0)
    server.metrics = METRICS.replace(b'"ALPHA"} 0', b'"ALPHA"} 1')
    await found.read()

    assert counts == [1, 1, 2, 2]
    assert found.text == READ.replace("v1.36.3", "v1.37.0").replace("HPAScaleToZero=false", "HPAScaleToZero=true")


async def test_gates_of_an_older_version_do_not_outlive_an_upgrade_at_which_they_cannot_be_read() -> None:
    server = ApiServer()
    found = ClusterVersion(server)
    await found.read()
    server.version, server.allows = "v1.37.0", False
    await found.read()

    assert found.text == "v1.37.0"


@pytest.mark.parametrize(
    "error", [pytest.param(UnreachableError("away"), id="away"), pytest.param(ApiError(403, "no"), id="refused")]
)
async def test_a_version_that_cannot_be_read_stays_what_it_was(error: Exception) -> None:
    server = ApiServer()
    found = ClusterVersion(server)
    await found.read()
    server.version = error
    await found.read()

    assert found.text == READ


async def test_the_version_is_followed_until_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    server, texts = ApiServer("v1.36.3", allows=False), []
    found = ClusterVersion(server)

    async def sleep(seconds: float) -> None:
        assert seconds == clusterversion.VERSION_EVERY_S
        texts.append(found.text)
        server.version = "v1.37.0"
        if len(texts) == 2:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await found.follow()

    assert texts == ["v1.36.3", "v1.37.0"]


async def test_what_a_heartbeat_carries_is_never_longer_than_ingest_takes() -> None:
    server = ApiServer("v1.37." + "9" * 60)
    server.metrics = b"".join(b'kubernetes_feature_enabled{name="%s"} 0\n' % name.encode() for name in HPA_GATES)
    found = ClusterVersion(server)
    await found.read()

    assert all(f"{name}=false" in found.text for name in HPA_GATES)
    assert len(found.text) <= limits.VERSION.most


def test_the_gates_that_an_observer_reads_are_those_that_the_rules_know() -> None:
    assert set(HPA_GATES) == set(GATES)
    assert all(gate.alpha <= NEWEST and gate.beta >= OLDEST for gate in GATES.values())
