"""List and watch one resource until cancelled: own relist on 410, reconnects with back-off, bookmarks, chunked lists.

The Kubernetes client's watch never lists again and gives up when the API server restarts; deletions that were missed
meanwhile give no event, so every list is compared with what was there before. Where watching the whole cluster is
forbidden, each namespace that may be seen is mirrored.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from reconciler.clusters.answers import UNKNOWN_USER, ApiError, ClusterError, UnreachableError, UnreadableError, reading
from reconciler.clusters.client import ClusterClient, resource_of
from reconciler.clusters.manifests import rule_lines
from reconciler.observer.clusterview import ObserverMetrics
from reconciler.observer.troubles import ReadProblem, problem_of
from schemas.kubernetes.shape import Json

log = logging.getLogger(__name__)


FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
LONGEST_BLIND_PAUSE_S = 5.0
"""The longest pause while an API server does not answer at all: its return should be noticed soon."""
LONGEST_RETRY_AFTER_S = 300.0
"""What a server may ask for at most: a proxy's nonsense must not blind us for a day."""
_SILENCE_MARGIN_S = 30.0
HEALTHY_EVERY_S = 1.0
"""How often an open watch is noted as healthy while events come; it was when it opened, and its end is noted."""
EXPIRED_IN_A_ROW = 3
"""So many answers in a row that a version is too old, with nothing seen between, are a problem: between the lists,
which are made ever more seldom, nothing is seen."""
CONFIRM_S = 2.0
"""Before an open watch is ended, the API server is asked once more after this long: one of several may just have begun.
"""


def is_older(version: str, seen: str) -> bool:
    """Return whether a version of a collection is older than another: they are numbers that grow, and may be compared
    (KEP-5504). Of those of a server that has other ones, nothing is known.
    """
    return version.isdecimal() and seen.isdecimal() and int(version) < int(seen)


def _whole(item: Json) -> Json:
    return item


@dataclass(frozen=True)
class Listener:
    """Receives what is observed of a collection. A scope is a namespace, or (empty) the whole cluster.

    Attributes:
        listed: takes everything that there is in a scope, each item as it was kept.
        changed: takes a change of one object: `ADDED`, `MODIFIED` or `DELETED`.
        problem: takes why a scope cannot be seen; None: it can be seen (again).
        kept: what is kept of an item of a list until its last page has come.
    """

    listed: Callable[[str, list[Any]], Awaitable[None]]
    changed: Callable[[str, Json], Awaitable[None]]
    problem: Callable[[str, ReadProblem | None], None]
    kept: Callable[[Json], Any] = _whole


@dataclass(frozen=True)
class WatchLimits:
    """`list_limit`: items per chunk of a list. `watch_s`: how long one watch request lasts. `check_s`: how often it is
    asked whether an open watch would still be allowed, since it outlives the rights with which it was opened, and an
    API server's data that is put back to an earlier day.
    `blind_s`: pause between looks while nothing of the cluster can be seen, since a server that has just begun forbids
    everything. `looks_s`: pauses between looks at what is forbidden while other things can be seen; the last one holds
    from then on.
    """

    list_limit: int = 500
    watch_s: int = 300
    check_s: float = 30.0
    blind_s: float = 2.0
    looks_s: tuple[float, ...] = (2.0, 5.0, 60.0)


class ForbiddenError(ClusterError):
    """A scope is forbidden: the caller may try smaller ones, or look again later."""

    def __init__(self, problem: ReadProblem) -> None:
        super().__init__(problem.text)
        self.problem = problem


@dataclass(frozen=True)
class Watching:
    """The state that all watches of one cluster share.

    `held`: the collections that are watched; none: nothing can be seen. `lists_anew`: an API server that was away is
    listed anew, which costs little where there are few objects. Data that was put back by no more than seconds has soon
    a newer version than was seen, by which nobody can tell.
    """

    client: ClusterClient
    metrics: ObserverMetrics
    limits: WatchLimits = field(default_factory=WatchLimits)
    held: set[str] = field(default_factory=set)
    lists_anew: bool = False


class Reflector:
    """Mirrors one collection (a path, of the cluster or one namespace) into a listener."""

    def __init__(self, watching: Watching, path: str, listener: Listener, namespace: str = "") -> None:
        self._client, self._metrics = watching.client, watching.metrics
        self._limits, self._held, self._lists_anew = watching.limits, watching.held, watching.lists_anew
        self._path, self._listener, self._namespace = path, listener, namespace
        self._label = path.rpartition("/")[2]
        self._version = ""
        self._pause_s = FIRST_PAUSE_S
        self._received = False
        self._expired = 0
        """Answers in a row that a version is too old, with no event and no ordinary end of a watch between."""
        self._healthy_s = 0.0

    async def run(self) -> None:
        """Mirror until cancelled. Raises ForbiddenError: it may not list or watch (any more)."""
        try:
            while True:
                try:
                    with reading(f"an object below {self._path} cannot be read"):
                        if not self._version:
                            await self._list()
                        await self._watch_while_allowed()
                except ClusterError as error:
                    await self._after(error)
        finally:
            self._held.discard(self._path)

    async def _list(self) -> None:
        self._received = False
        items: list[Any] = []
        query: dict[str, Any] = {"limit": self._limits.list_limit}
        while True:
            try:
                page = await self._client.get_page(f"{self._path}?{urlencode(query)}", timeout_s=60.0)
            except ApiError as error:
                if error.status != 410 or "continue" not in query:
                    raise
                # The next page is of a version that the server no longer has; as client-go's pager does.
                items, query = [], {}
                continue
            items += map(self._listener.kept, page.items)
            version, token = page.metadata["resourceVersion"], page.metadata.get("continue") or ""
            del page  # 1 MB with 500 pods, which must not wait for the next page beside those of all other clusters
            if not token:
                break
            query["continue"] = token
        self._version = version
        await self._listener.listed(self._namespace, items)
        self._healthy()

    async def _watch_while_allowed(self) -> None:
        """Watch until the server ends it, or until listing has become forbidden or the data of the cluster was restored
        from an earlier day, neither of which ends a watch.
        """
        watching = asyncio.ensure_future(self._watch())
        try:
            while True:
                await asyncio.wait({watching}, timeout=self._limits.check_s * random.uniform(0.8, 1.2))
                if watching.done():
                    return await watching
                if (error := await self._outlived()) is not None:
                    raise error
                self._expired = 0
                self._healthy()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _outlived(self) -> ClusterError | None:
        """Return why the open watch must end; None: it may go on."""
        if await self._refused() is None:
            return None
        await asyncio.sleep(CONFIRM_S)
        return await self._refused()

    async def _refused(self) -> ClusterError | None:
        """Return the answer of an API server that no longer allows listing, or the one that it ought to give where its
        newest version is older than what the watch has shown. Without an answer nothing is known.
        """
        seen = self._version
        try:
            page = await self._client.get(f"{self._path}?limit=1")
        except ClusterError as error:
            return error if error.status == 403 else None
        version = str((page.get("metadata") or {}).get("resourceVersion"))
        if not is_older(version, seen):
            return None
        return ApiError(410, f"its data was restored from an earlier day: version {version} after {seen}")

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
            self._received, self._pause_s = True, FIRST_PAUSE_S
            if self._expired or time.monotonic() - self._healthy_s >= HEALTHY_EVERY_S:
                self._expired = 0
                self._healthy()
            item = event["object"]
            if event["type"] != "BOOKMARK":
                await self._listener.changed(event["type"], item)
            self._version = item["metadata"]["resourceVersion"]
        self._pause_s, self._expired = FIRST_PAUSE_S, 0
        self._metrics.watch_restarts.labels(self._client.name, self._label, "ended").inc()
        if time.monotonic() - begun < FIRST_PAUSE_S:
            await asyncio.sleep(FIRST_PAUSE_S)  # a server that ends every watch at once must not be hammered

    def _healthy(self) -> None:
        self._healthy_s = time.monotonic()
        self._metrics.up.labels(self._client.name).set(1)
        self._metrics.last_sync.labels(self._client.name).set_to_current_time()
        if self._expired < EXPIRED_IN_A_ROW:
            self._listener.problem(self._namespace, None)
        self._held.add(self._path)

    async def _after(self, error: ClusterError) -> None:
        status = error.status
        self._metrics.watch_restarts.labels(self._client.name, self._label, str(status or "broken")).inc()
        if not self._version:
            self._metrics.list_errors.labels(self._client.name, self._label).inc()
        resource = resource_of(self._path)
        problem = problem_of(error, f"list {resource}", f"watch {resource}")
        if status == 403:
            raise ForbiddenError(problem) from error
        if isinstance(error, UnreadableError):
            about = {"cluster": self._client.name, "error": str(error)}
            log.error("an object of a cluster cannot be read", extra=about, exc_info=error)
        may_be_restored = self._lists_anew and isinstance(error, UnreachableError)
        if status in (404, 410) or isinstance(error, UnreadableError) or may_be_restored:
            self._version = ""
        if status == 410 and self._received:
            return  # too old to go on from: list again, at once
        self._expired = self._expired + 1 if status == 410 else 0
        if status != 410:
            self._held.discard(self._path)
        if status != 410 or self._expired >= EXPIRED_IN_A_ROW:
            self._listener.problem(self._namespace, problem)
        if isinstance(error, UnreachableError):
            self._metrics.up.labels(self._client.name).set(0)
        await asyncio.sleep(self._pause(error))

    def _pause(self, error: ClusterError) -> float:
        """The time to wait now, doubled the next time; at least as long as the server asks for."""
        # A refusal of its credentials costs an API server next to nothing, and ends when others are there.
        is_away = (isinstance(error, UnreachableError) or error.status == UNKNOWN_USER) and not self._held
        pause_s = min(self._pause_s, LONGEST_BLIND_PAUSE_S if is_away else LONGEST_PAUSE_S) * random.uniform(0.8, 1.2)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        return max(pause_s, min((error.retry_after_ms or 0) / 1000, LONGEST_RETRY_AFTER_S))


BLIND_NAMESPACES = 10
"""How many namespaces are looked at in one go, in turn, while nothing of the cluster can be seen."""

NamespacesSource = Callable[[], Awaitable[list[str]]]


class Mirror:
    """Mirrors a resource of the whole cluster, or where that is forbidden of each namespace that may be seen.

    Args:
        collection: path for a namespace (empty: the cluster).
        namespaces: only these; empty: the whole cluster.
        seen_namespaces: where to look while the whole cluster is forbidden.
        wanted: namespaces that came to be needed are looked at soon.
    """

    def __init__(
        self,
        watching: Watching,
        collection: Callable[[str], str],
        listener: Listener,
        *,
        namespaces: tuple[str, ...],
        seen_namespaces: NamespacesSource,
        wanted: Callable[[], set[str]] = set,
    ) -> None:
        self._watching, self._collection = watching, collection
        self._client, self._limits, self._held = watching.client, watching.limits, watching.held
        self._note = listener.problem
        self._listener = replace(listener, problem=self._problem)
        self._namespaces, self._seen_namespaces, self._wanted = namespaces, seen_namespaces, wanted
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
                    await self._reflector().run()
                except ForbiddenError as error:
                    about = {"cluster": self._client.name, "error": str(error)}
                    log.warning("cluster-wide watch is forbidden", extra=about | _rules(error.problem))
                    self._denied = error.problem
            await self._each_namespace()
            log.info("cluster-wide watch is allowed again", extra={"cluster": self._client.name})

    def _problem(self, namespace: str, problem: ReadProblem | None) -> None:
        """Pass a problem on; one namespace that can be seen ends that of the cluster: each then has its own."""
        if namespace and problem is None:
            self._visible.add(namespace)
            if self._denied is not None:
                self._note("", None)
        self._note(namespace, problem)

    # --- where the whole cluster is forbidden -------------------------------------------------------------------------

    def _reflector(self, namespace: str = "") -> Reflector:
        return Reflector(self._watching, self._collection(namespace), self._listener, namespace)

    async def _each_namespace(self) -> None:
        running: dict[str, asyncio.Task[None]] = {}
        looks = 0
        async with asyncio.TaskGroup() as group:
            while True:
                namespaces = set(self._namespaces or await self._seen_namespaces())
                if not namespaces and self._denied is not None:
                    self._note("", self._denied)
                for namespace in running.keys() - namespaces:
                    running.pop(namespace).cancel()
                    self._note(namespace, None)
                running = {namespace: task for namespace, task in running.items() if not task.done()}
                for namespace in self._next(sorted(namespaces - running.keys())):
                    running[namespace] = group.create_task(self._namespace(namespace))
                looks = await self._pause(looks)
                if not self._namespaces and await _may_see(self._client, self._collection("")):
                    break
            for task in running.values():
                task.cancel()
        for namespace in running.keys() | namespaces:
            self._note(namespace, None)  # the whole cluster's watch covers it again
        self._denied = None
        self._visible.clear()

    def _next(self, wanted: list[str]) -> list[str]:
        """Which namespaces are looked at now: all, but while nothing can be seen only some of them in turn."""
        if self._held or len(wanted) <= BLIND_NAMESPACES:
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
            if not self._held or self._wanted() - wanted:
                return 0
            if waited_s >= limits.looks_s[looks]:
                return min(looks + 1, len(limits.looks_s) - 1)

    async def _namespace(self, namespace: str) -> None:
        """Mirror one namespace while that is permitted."""
        try:
            await self._reflector(namespace).run()
        except ForbiddenError as error:
            self._visible.discard(namespace)
            self._note(namespace, error.problem)
            if self._denied is not None and not self._visible:
                self._note("", self._denied)


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
