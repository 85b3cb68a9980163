"""List and watch one resource for ever: own relist on 410, reconnects with back-off, bookmarks, chunked lists.

The Kubernetes client's watch never lists again and gives up when the API server restarts; deletions that were missed
meanwhile give no event, so every list is compared with what was there before.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode

from reconciler.apply.telemetry import ObserverMetrics
from reconciler.clusters.client import ClusterClient
from reconciler.clusters.clustererrors import ApiError, ClusterError, UnreachableError

log = logging.getLogger(__name__)

Json = dict[str, Any]

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
LONGEST_RETRY_AFTER_S = 300.0
"""What a server may ask for at most: a proxy's nonsense must not blind us for a day."""
_SILENCE_MARGIN_S = 30.0


class Listener(Protocol):
    """Who hears what a reflector sees."""

    async def listed(self, namespace: str, items: list[Json]) -> None:
        """Everything there is in the scope (`namespace` empty: the cluster)."""

    async def changed(self, kind: str, item: Json) -> None:
        """`ADDED`, `MODIFIED` or `DELETED`."""

    def problem(self, namespace: str, text: str | None) -> None:
        """The scope cannot be seen, and why; None: it can be seen again."""


@dataclass(frozen=True)
class Limits:
    """`list_limit`: items per chunk of a list. `watch_s`: how long one watch request lasts."""

    list_limit: int = 500
    watch_s: int = 300


class ForbiddenError(ClusterError):
    """The whole scope is forbidden; the caller may try smaller ones."""


class Reflector:
    """Mirrors one collection (a path, of the cluster or one namespace) into a listener."""

    def __init__(
        self,
        client: ClusterClient,
        path: str,
        listener: Listener,
        *,
        metrics: ObserverMetrics,
        namespace: str = "",
        limits: Limits | None = None,
    ) -> None:
        self._client, self._path, self._listener = client, path, listener
        self._namespace, self._metrics = namespace, metrics
        self._limits = limits or Limits()
        self._label = path.rpartition("/")[2]
        self._version = ""
        self._pause_s = FIRST_PAUSE_S
        self._heard = False

    async def run(self) -> None:
        """Mirror until cancelled.

        Raises:
            ForbiddenError: a reflector of the whole cluster may not list or watch.
        """
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except ClusterError as error:
                await self._after(error)

    async def _list(self) -> None:
        self._heard = False
        items: list[Json] = []
        token = ""
        while True:
            query = {"limit": self._limits.list_limit} | ({"continue": token} if token else {})
            page = await self._client.get_object(f"{self._path}?{urlencode(query)}", timeout_s=60.0)
            items += page.get("items") or ()
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                break
        self._version = page["metadata"]["resourceVersion"]
        await self._listener.listed(self._namespace, items)
        self._healthy()

    async def _watch(self) -> None:
        seconds = self._limits.watch_s
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            # Spread, so that a fleet's watches do not all end at once.
            "timeoutSeconds": seconds + random.randrange(max(1, seconds // 10)),
        }
        begun = time.monotonic()
        silence_s = seconds * 1.1 + _SILENCE_MARGIN_S
        path = f"{self._path}?{urlencode(query)}"
        async for event in self._client.watch(path, silence_s=silence_s, opened=self._healthy):
            self._heard, self._pause_s = True, FIRST_PAUSE_S
            self._healthy()
            item = event["object"]
            if event["type"] != "BOOKMARK":
                await self._listener.changed(event["type"], item)
            self._version = item["metadata"]["resourceVersion"]
        self._pause_s = FIRST_PAUSE_S
        self._metrics.watch_restarts.labels(self._client.name, self._label, "ended").inc()
        if time.monotonic() - begun < FIRST_PAUSE_S:
            await asyncio.sleep(FIRST_PAUSE_S)  # a server that ends every watch at once must not be hammered

    def _healthy(self) -> None:
        self._metrics.up.labels(self._client.name).set(1)
        self._metrics.last_sync.labels(self._client.name).set_to_current_time()
        self._listener.problem(self._namespace, None)

    async def _after(self, error: ClusterError) -> None:
        status = error.status if isinstance(error, ApiError) else 0
        self._metrics.watch_restarts.labels(self._client.name, self._label, str(status or "broken")).inc()
        if not self._version:
            self._metrics.list_errors.labels(self._client.name, self._label).inc()
        if status == 403 and not self._namespace:
            raise ForbiddenError(str(error)) from error
        if status in (403, 404, 410):
            self._version = ""
        if status == 410 and self._heard:
            return  # too old to go on from: list again, at once
        if status != 410:
            self._listener.problem(self._namespace, str(error))
        if isinstance(error, UnreachableError):
            self._metrics.up.labels(self._client.name).set(0)
        await asyncio.sleep(self._pause(error))

    def _pause(self, error: ClusterError) -> float:
        """How long to wait now, and twice as long the next time; a server that names a longer time gets it."""
        asked_ms = error.retry_after_ms if isinstance(error, ApiError) else None
        pause_s = self._pause_s * random.uniform(0.8, 1.2)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        return max(pause_s, min((asked_ms or 0) / 1000, LONGEST_RETRY_AFTER_S))


NamespacesSource = Callable[[], Awaitable[list[str]]]


async def mirror(
    client: ClusterClient,
    collection: Callable[[str], str],
    listener: Listener,
    *,
    namespaces: tuple[str, ...],
    seen_namespaces: NamespacesSource,
    metrics: ObserverMetrics,
    limits: Limits,
    retry_s: float = 60.0,
) -> None:
    """Mirror a resource of the whole cluster, or where that is forbidden of each namespace that may be seen.

    `collection`: path for a namespace (empty: the cluster). `namespaces`: only these. Every `retry_s` namespaces are
    looked for, and whether the whole cluster may be seen after all: a server that has just begun forbids what it will
    allow in a second.
    """

    def reflector(namespace: str) -> Reflector:
        return Reflector(client, collection(namespace), listener, metrics=metrics, namespace=namespace, limits=limits)

    async def is_over() -> bool:
        await asyncio.sleep(retry_s)
        return not namespaces and await _may_see(client, collection(""))

    async def wanted() -> list[str]:
        return list(namespaces) or await seen_namespaces()

    while True:
        if not namespaces:
            try:
                await reflector("").run()
            except ForbiddenError as error:
                log.warning("cluster-wide watch is forbidden", extra={"cluster": client.name, "error": str(error)})
                listener.problem("", None)  # each namespace tells its own
        await _mirror_each(wanted, reflector, listener, is_over)
        log.info("cluster-wide watch is allowed again", extra={"cluster": client.name})


async def _mirror_each(
    wanted: NamespacesSource,
    reflector: Callable[[str], Reflector],
    listener: Listener,
    is_over: Callable[[], Awaitable[bool]],
) -> None:
    running: dict[str, asyncio.Task[None]] = {}
    async with asyncio.TaskGroup() as group:
        while True:
            found = set(await wanted())
            for namespace in sorted(found - running.keys()):
                running[namespace] = group.create_task(reflector(namespace).run())
            for namespace in running.keys() - found:
                running.pop(namespace).cancel()
                listener.problem(namespace, None)
            if await is_over():
                break
        for task in running.values():
            task.cancel()
    for namespace in running:
        listener.problem(namespace, None)  # the whole cluster's watch speaks for it again


async def _may_see(client: ClusterClient, path: str) -> bool:
    try:
        await client.get(f"{path}?limit=1")
        async for _ in client.watch(f"{path}?watch=true&timeoutSeconds=1", silence_s=5.0):
            break
    except ClusterError:
        return False
    return True
