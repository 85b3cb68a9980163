"""Scales that follow from a list of their parents, against a client of the test's own."""

import asyncio
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry

from reconciler.clusters.answers import ApiError
from reconciler.clusters.nativehpas import Discovery
from reconciler.observer.clusterview import ClusterState, ObserverMetrics
from reconciler.observer.reflector import Listener, Watching
from reconciler.observer.scaleobserver import ScaleWatcher
from schemas.observed import ScaleSet, Target
from tests.patience import PATIENCE_S

Json = dict[str, Any]
WEB, BAD = (Target(group="apps", kind="Deployment", name=name) for name in ("web", "bad"))
REFUSED = 'values[0][env]: Invalid value: "of old!"'


class Server:
    """Reads of a scale are refused, in the words of an API server that cannot make a selector of the Deployment's."""

    name = "east"

    def __init__(self) -> None:
        self.read: list[str] = []

    async def get_object(self, path: str, *, patiently: bool = False) -> Json:
        self.read.append(path)
        raise ApiError(400, REFUSED, reason="BadRequest")


def deployment(name: str, selector: Json) -> Json:
    metadata = {"name": name, "namespace": "shop", "resourceVersion": "5", "uid": name}
    return {"metadata": metadata, "spec": {"replicas": 3, "selector": selector}, "status": {"replicas": 2}}


OF_OLD = {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["of old!"]}]}
"""No API server of today takes this value; one that an older one took stays."""


async def test_a_selector_that_nobody_can_read_is_reported_of_its_own_target_only() -> None:
    server, reported = Server(), dict[Target, ScaleSet]()
    both, listened = asyncio.Event(), asyncio.Event()

    async def report(namespace: str, scale: ScaleSet) -> None:
        reported[scale.target] = scale
        if len(reported) == 2:
            both.set()

    async def mirror(path: Callable[[str], str], listener: Listener, wanted: Callable[[], set[str]]) -> None:
        items = [deployment("web", {"matchLabels": {"app": "web"}}), deployment("bad", OF_OLD), deployment("x", OF_OLD)]
        await listener.listed("", [listener.kept(item) for item in items])
        await listener.changed("MODIFIED", deployment("bad", OF_OLD))
        listened.set()

    watcher = ScaleWatcher(
        Watching(server, ObserverMetrics(CollectorRegistry())),  # type: ignore[arg-type]
        Discovery(server),  # type: ignore[arg-type]
        ClusterState(),
        report,
        session="a",
        mirror=mirror,
    )
    await watcher.follow("shop", {WEB, BAD})
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        running = group.create_task(watcher.run(group))
        await listened.wait()
        await both.wait()
        running.cancel()
    assert reported[WEB].selector == "app=web"
    assert reported[BAD].error == REFUSED
    assert set(server.read) == {"/apis/apps/v1/namespaces/shop/deployments/bad/scale"}
