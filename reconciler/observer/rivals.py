"""KEDA ScaledObjects: they drive targets, too, so fleethpa must know them as rivals. Nothing is asked where KEDA is
not.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from reconciler.clusters.client import ClusterClient
from reconciler.clusters.clustererrors import ClusterError
from reconciler.clusters.discovery import Discovery, Resource, UnknownKindError
from reconciler.observer.troubles import NoteProblem, ReadProblem
from schemas.kubernetes.apiversions import group_of
from schemas.kubernetes.jsontypes import Json

log = logging.getLogger(__name__)

Changed = Callable[[str, dict[str, Json]], Awaitable[None]]

GROUP, KIND = "keda.sh", "ScaledObject"
WATCH = "scaledobjects"
LOOK_AGAIN_S = 300.0


async def follow_rivals(
    client: ClusterClient, discovery: Discovery, mirror: Any, changed: Changed, trouble: NoteProblem
) -> None:
    """Report the ScaledObjects of every namespace as they change, until cancelled."""
    resource = await _found(client, discovery)
    await mirror(resource.path, _ScaledObjects(changed, trouble))


async def _found(client: ClusterClient, discovery: Discovery) -> Resource:
    while True:
        try:
            return await discovery.resource(KIND, GROUP)
        except UnknownKindError:
            log.debug("no KEDA here", extra={"cluster": client.name})
        except ClusterError as error:
            log.info("cannot look for KEDA", extra={"cluster": client.name, "error": str(error)})
        await asyncio.sleep(LOOK_AGAIN_S)


class _ScaledObjects:
    """Hears the watch of ScaledObjects."""

    def __init__(self, changed: Changed, trouble: NoteProblem) -> None:
        self._changed, self._trouble = changed, trouble
        self._known: dict[str, dict[str, Json]] = {}

    def kept(self, item: Json) -> Json:
        return item

    async def listed(self, namespace: str, items: list[Json]) -> None:
        scope = [namespace] if namespace else list(self._known)
        found: dict[str, dict[str, Json]] = {name: {} for name in scope}
        for item in items:
            found.setdefault(item["metadata"]["namespace"], {})[item["metadata"]["name"]] = rival(item)
        for name, rivals in found.items():
            self._known[name] = rivals
            await self._changed(name, dict(rivals))

    async def changed(self, kind: str, item: Json) -> None:
        namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
        known = self._known.setdefault(namespace, {})
        if kind == "DELETED":
            known.pop(name, None)
        else:
            known[name] = rival(item)
        await self._changed(namespace, dict(known))

    def problem(self, namespace: str, problem: ReadProblem | None) -> None:
        self._trouble(WATCH, namespace, problem)


def rival(scaled_object: Json) -> Json:
    """A ScaledObject as `AutoscalerList.rivals` holds it; KEDA's default target is a Deployment."""
    reference = (scaled_object.get("spec") or {}).get("scaleTargetRef") or {}
    target = {
        "group": group_of(reference.get("apiVersion") or "apps/v1"),
        "kind": reference.get("kind") or "Deployment",
        "name": reference.get("name") or "",
    }
    return {"kind": KIND, "name": scaled_object["metadata"]["name"], "target": target}
