"""The objects of a simulated cluster, their resource versions, and a bounded history for watches."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from fleethpa.simulator.apistatus import StatusError, expired
from schemas.kubernetes.jsontypes import Json

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
        self._tell(Change(self.version, "MODIFIED" if previous else "ADDED", key, stored, previous))
        return stored

    def remove(self, key: Key) -> Json:
        """Remove an object and return its last state, stamped with the version of the deletion."""
        previous = self._objects[key[0]].pop(key[1:])
        self.version += 1
        last = previous | {"metadata": previous["metadata"] | {"resourceVersion": str(self.version)}}
        self._tell(Change(self.version, "DELETED", key, last, previous))
        return last

    def since(self, version: int) -> list[Change]:
        """Return the changes after a version.

        Raises:
            ApiError: 410, that far back nothing is kept; 504, this version has not been reached.
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

    def _tell(self, change: Change) -> None:
        if len(self._history) == self._history.maxlen:
            self._forgotten = self._history[0].version
        self._history.append(change)
        for queue in self._watchers:
            queue.put_nowait(change)
