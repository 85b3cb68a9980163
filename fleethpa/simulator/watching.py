"""Watches: a stream of JSON lines from a resource version on, filtered as the list is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fleethpa.simulator.apirequests import Ask
from fleethpa.simulator.apistatus import StatusError
from fleethpa.simulator.objectstore import Change, Store
from fleethpa.simulator.requestselectors import Matcher
from fleethpa.simulator.resources import ResourceType
from schemas.kubernetes.jsontypes import Json

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
        """Open the watch.

        Raises:
            ApiError: 400, 410 or 504: the resource version asked for cannot be served.
        """
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
