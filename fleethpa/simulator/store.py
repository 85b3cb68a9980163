"""The objects of a simulated cluster, their resource versions, and a bounded history for watches.

The clock of simulated clusters: real time, faster time, or time that moves by `move` only.

Watches: a stream of JSON lines from a resource version on, filtered as the list is.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from fleethpa.simulator.faults import StatusError, expired
from fleethpa.simulator.requests import Ask, Matcher
from fleethpa.simulator.resources import ResourceType
from schemas.kubernetes.shape import Json


class SimClock:
    """Simulated time. `speed` 1.0 = real time, 10.0 = ten times as fast, 0.0 = stopped until `move`."""

    def __init__(self, *, speed: float = 1.0, start_ms: int | None = None) -> None:
        self._base_ms = time.time_ns() // 1_000_000 if start_ms is None else start_ms
        self._anchor_ns = time.monotonic_ns()
        self._speed = speed
        self._listeners: list[Callable[[], None]] = []

    @property
    def speed(self) -> float:
        """Simulated seconds per real second."""
        return self._speed

    def now_ms(self) -> int:
        """Return simulated milliseconds since the epoch."""
        return self._base_ms + int((time.monotonic_ns() - self._anchor_ns) * self._speed) // 1_000_000

    def move(self, by_ms: int) -> None:
        """Jump forward. Raises ValueError: `by_ms` is negative."""
        if by_ms < 0:
            raise ValueError(f"by_ms is {by_ms}: simulated time never runs backwards")
        self._base_ms += by_ms
        self._report()

    def set_speed(self, speed: float) -> None:
        """Run faster, slower, or (0) stand still from now on."""
        if speed < 0:
            raise ValueError(f"speed is {speed}: it must be 0 or more")
        self._base_ms, self._anchor_ns, self._speed = self.now_ms(), time.monotonic_ns(), speed
        self._report()

    def on_jump(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever time jumps or changes speed."""
        self._listeners.append(listener)

    def _report(self) -> None:
        for listener in self._listeners:
            listener()


Key = tuple[str, str, str]
"""(stored resource, namespace or "", name)."""


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
        self.version += 1
        metadata = document["metadata"] | {"resourceVersion": str(self.version)}
        stored = document | {"metadata": metadata}
        self._objects.setdefault(key[0], {})[key[1:]] = stored
        self._report(Change(self.version, "MODIFIED" if previous else "ADDED", key, stored, previous))
        return stored

    def remove(self, key: Key) -> Json:
        """Remove an object and return its last state, stamped with the version of the deletion."""
        previous = self._objects[key[0]].pop(key[1:])
        self.version += 1
        last = previous | {"metadata": previous["metadata"] | {"resourceVersion": str(self.version)}}
        self._report(Change(self.version, "DELETED", key, last, previous))
        return last

    def since(self, version: int) -> list[Change]:
        """Return the changes after a version.

        Raises ApiError: 410, that far back nothing is kept; 504, this version has not been reached.
        """
        if version < self._forgotten:
            raise expired(version, self._forgotten + 1)
        if version > self.version:
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            message = f"Timeout: Too large resource version: {version}, current: {self.version}"
            raise StatusError(504, message, details={"causes": [cause], "retryAfterSeconds": 1})
        return [change for change in self._history if change.version > version]

    def subscribe(self) -> asyncio.Queue[Change | StatusError | None]:
        """Return a queue of all later changes; None in it is the end, an error the end with that error."""
        queue: asyncio.Queue[Change | StatusError | None] = asyncio.Queue()
        self._watchers.add(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[Change | StatusError | None]) -> None:
        """Stop filling a queue."""
        self._watchers.discard(queue)

    def end_watches(self, error: StatusError | None = None) -> None:
        """End every open watch, as an API server does that shuts down; with an error if one is given."""
        for queue in self._watchers:
            queue.put_nowait(error)

    def compact(self) -> None:
        """Forget the history, so that any watch from before now is answered with 410."""
        self._history.clear()
        self._forgotten = self.version

    def reset_versions(self) -> None:
        """Begin again with low resource versions, as after a restore of etcd from nothing but its objects."""
        self.version = 1
        for objects in self._objects.values():
            for key, document in objects.items():
                self.version += 1
                metadata = document["metadata"] | {"resourceVersion": str(self.version)}
                objects[key] = document | {"metadata": metadata}
        self.compact()

    def _report(self, change: Change) -> None:
        if len(self._history) == self._history.maxlen:
            self._forgotten = self._history[0].version
        self._history.append(change)
        for queue in self._watchers:
            queue.put_nowait(change)


INITIAL_EVENTS_END = "k8s.io/initial-events-end"


def bookmark(resource: ResourceType, version: int, *, initial: bool = False) -> Json:
    """Return a BOOKMARK event."""
    metadata: Json = {"resourceVersion": str(version), "creationTimestamp": None}
    if initial:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    return {
        "type": "BOOKMARK",
        "object": {"kind": resource.kind, "apiVersion": resource.group_version, "metadata": metadata},
    }


def visible(change: Change, ask: Ask, resource: ResourceType, matches: Matcher) -> Json | None:
    """Return the event that a watcher sees: leaving the selection is a deletion, entering it an addition."""
    if change.key[0] != resource.stored_as or ask.namespace not in ("", change.key[1]):
        return None
    now = change.type != "DELETED" and matches(change.object)
    before = change.previous is not None and matches(change.previous)
    if not now and not before:
        return None
    kind = "DELETED" if not now else ("MODIFIED" if before else "ADDED")
    return {"type": kind, "object": change.object}


class Watch:
    """One open watch: subscribed from its creation on, so that nothing falls between its first and later events."""

    def __init__(self, store: Store, ask: Ask, resource: ResourceType, matches: Matcher, *, bookmark_s: float) -> None:
        """Open the watch. Raises ApiError: 400, 410 or 504: the resource version asked for cannot be served."""
        self._store, self._ask, self._resource, self._matches = store, ask, resource, matches
        self._bookmark_s = bookmark_s if ask.query.get("allowWatchBookmarks") in ("1", "true") else None
        asked = ask.query.get("resourceVersion", "")
        self._streaming_list = ask.query.get("sendInitialEvents") == "true"
        if asked in ("", "0") or self._streaming_list:
            self._first = _present(store, ask, resource, matches)
        else:
            shown = [visible(change, ask, resource, matches) for change in store.since(_version(asked))]
            self._first = [event for event in shown if event is not None]
        self._queue = store.subscribe()

    def close(self) -> None:
        """Give up the subscription."""
        self._store.unsubscribe(self._queue)

    async def events(self) -> AsyncIterator[Json]:
        """Yield events until the time asked for is over or the server ends the watch."""
        for event in self._first:
            yield event
        if self._streaming_list and self._bookmark_s is not None:
            yield bookmark(self._resource, self._store.version, initial=True)
        clock = asyncio.get_running_loop().time
        deadline = clock() + float(self._ask.query.get("timeoutSeconds") or 3600)
        while (left := deadline - clock()) > 0:
            try:
                async with asyncio.timeout(min(left, self._bookmark_s or left)):
                    change = await self._queue.get()
            except TimeoutError:
                if self._bookmark_s is not None:
                    yield bookmark(self._resource, self._store.version)
                continue
            if change is None:
                return
            if isinstance(change, StatusError):
                yield {"type": "ERROR", "object": change.status()}
                return
            shown = visible(change, self._ask, self._resource, self._matches)
            if shown is not None:
                yield shown


def _version(text: str) -> int:
    if not text.isdecimal():
        raise StatusError(400, f"invalid resource version {text!r}: it is not a number")
    return int(text)


def _present(store: Store, ask: Ask, resource: ResourceType, matches: Matcher) -> list[Json]:
    found = [document for document in store.listing(resource.stored_as, ask.namespace) if matches(document)]
    return [{"type": "ADDED", "object": document} for document in found]
