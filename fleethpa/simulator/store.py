"""The objects of a simulated cluster, their resource versions, and a bounded history for watches.

A watch is a stream of JSON lines from a resource version on, filtered as the list is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from fleethpa.simulator.requests import Ask, Matcher, StatusError, expired
from fleethpa.simulator.resources import ResourceType
from schemas.kubernetes.shape import Json

Key = tuple[str, str, str]
"""(qualified plural of the resource, namespace or "", name)."""


@dataclass(frozen=True, slots=True)
class Change:
    """One write: ADDED, MODIFIED or DELETED, with the object before it, so that watches can filter."""

    version: int
    type: str
    key: Key
    object: Json
    previous: Json | None


class Store:
    """Objects by key. A stored document is never changed in place: every write brings a new one."""

    def __init__(self, *, history: int = 5_000) -> None:
        self.version = 1
        self._objects: dict[str, dict[tuple[str, str], Json]] = {}
        self._history: deque[Change] = deque(maxlen=history)
        self._forgotten = 0
        self._watchers: set[asyncio.Queue[Change | StatusError | None]] = set()

    def get(self, key: Key) -> Json | None:
        """Return an object, or None."""
        return self._objects.get(key[0], {}).get(key[1:])

    def listing(self, resource: str, namespace: str = "") -> list[Json]:
        """Return the objects of a resource by namespace and name; of all namespaces where that is empty."""
        found = self._objects.get(resource, {})
        return [found[key] for key in sorted(key for key in found if not namespace or key[0] == namespace)]

    def keys_in(self, namespace: str) -> list[Key]:
        """Return the keys of everything in a namespace."""
        return [(r, *key) for r, objects in self._objects.items() for key in objects if key[0] == namespace]

    def put(self, key: Key, document: Json) -> Json:
        """Store a document under the next resource version and return it as stored."""
        previous = self.get(key)
        stored = self._next_version(document)
        self._objects.setdefault(key[0], {})[key[1:]] = stored
        self._report(Change(self.version, "MODIFIED" if previous else "ADDED", key, stored, previous))
        return stored

    def remove(self, key: Key) -> Json:
        """Remove an object and return its last state, with the resource version of the deletion."""
        previous = self._objects[key[0]].pop(key[1:])
        last = self._next_version(previous)
        self._report(Change(self.version, "DELETED", key, last, previous))
        return last

    def _next_version(self, document: Json) -> Json:
        self.version += 1
        return document | {"metadata": document["metadata"] | {"resourceVersion": str(self.version)}}

    def since(self, version: int) -> list[Change]:
        """Return the changes after a version.

        Raises StatusError: 410, that far back nothing is kept; 504, this version has not been reached.
        """
        if version < self._forgotten:
            raise expired(version, self._forgotten + 1)
        if version > self.version:
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            message = f"Timeout: Too large resource version: {version}, current: {self.version}"
            raise StatusError(504, message, details={"causes": [cause], "retryAfterSeconds": 1})
        return [change for change in self._history if change.version > version]

    def subscribe(self) -> asyncio.Queue[Change | StatusError | None]:
        """Return a queue of all later changes. None in it ends the watch, an error ends it with that error."""
        queue: asyncio.Queue[Change | StatusError | None] = asyncio.Queue()
        self._watchers.add(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[Change | StatusError | None]) -> None:
        """Stop filling a queue."""
        self._watchers.discard(queue)

    def end_watches(self, error: StatusError | None = None) -> None:
        """End every open watch, as an API server that shuts down does; with an error if one is given."""
        for queue in self._watchers:
            queue.put_nowait(error)

    def compact(self) -> None:
        """Forget the history, so that any watch from before now is answered with 410."""
        self._history.clear()
        self._forgotten = self.version

    def _report(self, change: Change) -> None:
        if len(self._history) == self._history.maxlen:
            self._forgotten = self._history[0].version
        self._history.append(change)
        for queue in self._watchers:
            queue.put_nowait(change)


class Watch:
    """One open watch: subscribed from its creation on, so that nothing falls between its first and later events."""

    def __init__(self, store: Store, ask: Ask, resource: ResourceType, *, bookmark_s: float) -> None:
        """Open the watch. Raises StatusError: 400, 410 or 504: the resource version asked for cannot be served."""
        self._store, self._ask, self._resource, self._matches = store, ask, resource, ask.matcher()
        self._bookmark_s = bookmark_s if ask.query.get("allowWatchBookmarks") in ("1", "true") else None
        asked = ask.query.get("resourceVersion", "")
        if asked in ("", "0"):
            found = store.listing(resource.qualified, ask.namespace)
            self._first: list[Json] = [
                {"type": "ADDED", "object": document} for document in found if self._matches(document)
            ]
        elif asked.isdecimal():
            events = [visible(change, ask, resource, self._matches) for change in store.since(int(asked))]
            self._first = [event for event in events if event is not None]
        else:
            raise StatusError(400, f"invalid resource version {asked!r}: it is not a number")
        self._queue = store.subscribe()

    def close(self) -> None:
        """Give up the subscription."""
        self._store.unsubscribe(self._queue)

    async def events(self) -> AsyncIterator[Json]:
        """Yield events until the time asked for is over or the server ends the watch."""
        for event in self._first:
            yield event
        clock = asyncio.get_running_loop().time
        deadline = clock() + float(self._ask.query.get("timeoutSeconds") or 3600)
        while (left := deadline - clock()) > 0:
            try:
                async with asyncio.timeout(min(left, self._bookmark_s or left)):
                    change = await self._queue.get()
            except TimeoutError:
                if self._bookmark_s is not None:
                    yield self._bookmark()
                continue
            if change is None:
                return
            if isinstance(change, StatusError):
                yield {"type": "ERROR", "object": change.status()}
                return
            shown = visible(change, self._ask, self._resource, self._matches)
            if shown is not None:
                yield shown

    def _bookmark(self) -> Json:
        metadata: Json = {"resourceVersion": str(self._store.version), "creationTimestamp": None}
        head: Json = {"kind": self._resource.kind, "apiVersion": self._resource.group_version}
        return {"type": "BOOKMARK", "object": head | {"metadata": metadata}}


def visible(change: Change, ask: Ask, resource: ResourceType, matches: Matcher) -> Json | None:
    """Return the event that a watcher gets: leaving the selection is a deletion, entering it an addition."""
    if change.key[0] != resource.qualified or ask.namespace not in ("", change.key[1]):
        return None
    now = change.type != "DELETED" and matches(change.object)
    before = change.previous is not None and matches(change.previous)
    if not now and not before:
        return None
    kind = "DELETED" if not now else ("MODIFIED" if before else "ADDED")
    return {"type": kind, "object": change.object}
