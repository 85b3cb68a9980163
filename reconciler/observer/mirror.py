"""Mirror a resource of the whole cluster; where that is forbidden, of each namespace that may be seen."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from reconciler.clusters.client import ClusterClient
from reconciler.clusters.clustererrors import ClusterError
from reconciler.clusters.rbac import rule_lines
from reconciler.observer.observermetrics import ObserverMetrics
from reconciler.observer.reflector import ForbiddenError, Listener, Reflector, Sight, WatchLimits
from reconciler.observer.troubles import ReadProblem
from schemas.kubernetes.jsontypes import Json

log = logging.getLogger(__name__)

BLIND_NAMESPACES = 10
"""How many namespaces are looked at in one go, in turn, while nothing of the cluster can be seen."""

NamespacesSource = Callable[[], Awaitable[list[str]]]


class Mirror:
    """Mirrors a resource of the whole cluster, or where that is forbidden of each namespace that may be seen.

    Args:
        collection: path for a namespace (empty: the cluster).
        namespaces: only these; empty: the whole cluster.
        seen_namespaces: where to look while the whole cluster is forbidden.
        sight: shared by all mirrors of the cluster.
        wanted: namespaces that came to be needed are looked at soon.
    """

    def __init__(
        self,
        client: ClusterClient,
        collection: Callable[[str], str],
        listener: Listener,
        *,
        namespaces: tuple[str, ...],
        seen_namespaces: NamespacesSource,
        metrics: ObserverMetrics,
        limits: WatchLimits,
        sight: Sight,
        wanted: Callable[[], set[str]] = set,
    ) -> None:
        self._client, self._collection, self._listener = client, collection, listener
        self._namespaces, self._seen_namespaces = namespaces, seen_namespaces
        self._metrics, self._limits, self._sight, self._wanted = metrics, limits, sight, wanted
        self._denied: ReadProblem | None = None
        self._visible: set[str] = set()
        self._turn = 0

    async def run(self) -> None:
        """Mirror until cancelled.

        While watching the whole cluster is forbidden, the permissions for it and for single namespaces are tried again
        and again: a server that has just started may forbid what it allows a second later.
        """
        while True:
            if not self._namespaces:
                try:
                    await self._reflector("").run()
                except ForbiddenError as error:
                    about = {"cluster": self._client.name, "error": str(error)}
                    log.warning("cluster-wide watch is forbidden", extra=about | _rules(error.problem))
                    self._denied = error.problem
            await self._each_namespace()
            log.info("cluster-wide watch is allowed again", extra={"cluster": self._client.name})

    # --- as the listener of its reflectors ----------------------------------------------------------------------------

    def kept(self, item: Json) -> Any:
        """What the listener keeps of an item."""
        return self._listener.kept(item)

    async def listed(self, namespace: str, items: list[Any]) -> None:
        """Pass a full list on."""
        await self._listener.listed(namespace, items)

    async def changed(self, kind: str, item: Json) -> None:
        """Pass a change on."""
        await self._listener.changed(kind, item)

    def problem(self, namespace: str, problem: ReadProblem | None) -> None:
        """Pass a problem on; one namespace that can be seen ends that of the cluster: each then speaks for itself."""
        if namespace and problem is None:
            self._visible.add(namespace)
            if self._denied is not None:
                self._listener.problem("", None)
        self._listener.problem(namespace, problem)

    # --- where the whole cluster is forbidden -------------------------------------------------------------------------

    def _reflector(self, namespace: str) -> Reflector:
        return Reflector(
            self._client,
            self._collection(namespace),
            self,
            metrics=self._metrics,
            namespace=namespace,
            limits=self._limits,
            sight=self._sight,
        )

    async def _each_namespace(self) -> None:
        running: dict[str, asyncio.Task[None]] = {}
        looks = 0
        async with asyncio.TaskGroup() as group:
            while True:
                found = set(self._namespaces or await self._seen_namespaces())
                if not found and self._denied is not None:
                    self._listener.problem("", self._denied)
                for namespace in running.keys() - found:
                    running.pop(namespace).cancel()
                    self._listener.problem(namespace, None)
                running = {namespace: task for namespace, task in running.items() if not task.done()}
                for namespace in self._next(sorted(found - running.keys())):
                    running[namespace] = group.create_task(self._namespace(namespace))
                looks = await self._pause(looks)
                if not self._namespaces and await _may_see(self._client, self._collection("")):
                    break
            for task in running.values():
                task.cancel()
        for namespace in running.keys() | found:
            self._listener.problem(namespace, None)  # the whole cluster's watch speaks for it again
        self._denied = None
        self._visible.clear()

    def _next(self, wanted: list[str]) -> list[str]:
        """Which namespaces are looked at now: all, but while nothing can be seen only some of them in turn."""
        if not self._sight.is_blind or len(wanted) <= BLIND_NAMESPACES:
            return wanted
        first = self._turn % len(wanted)
        self._turn = first + BLIND_NAMESPACES
        return (wanted[first:] + wanted[:first])[:BLIND_NAMESPACES]

    async def _pause(self, looks: int) -> int:
        """Wait before the next look; `looks` counts those that were made while other things could be seen."""
        limits, waited_s, wanted = self._limits, 0.0, self._wanted()
        while True:
            await asyncio.sleep(limits.blind_s)
            waited_s += limits.blind_s
            if self._sight.is_blind or self._wanted() - wanted:
                return 0
            if waited_s >= limits.looks_s[looks]:
                return min(looks + 1, len(limits.looks_s) - 1)

    async def _namespace(self, namespace: str) -> None:
        """Mirror one namespace while that is permitted."""
        try:
            await self._reflector(namespace).run()
        except ForbiddenError as error:
            self._visible.discard(namespace)
            self._listener.problem(namespace, error.problem)
            if self._denied is not None and not self._visible:
                self._listener.problem("", self._denied)


def _rules(problem: ReadProblem) -> dict[str, str]:
    """The missing rules for a log line, ready to be pasted into a role."""
    return {"missing_rules": "\n".join(rule_lines(problem.rights))}


async def _may_see(client: ClusterClient, path: str) -> bool:
    try:
        await client.get(f"{path}?limit=1")
        async for _ in client.watch(f"{path}?watch=true&timeoutSeconds=1", silence_s=5.0):
            break
    except ClusterError:
        return False
    return True
