"""Which Events reach the API server, and with which count: upstream's correlator of similar events.

Source: client-go tools/record/events_cache.go, v0.37.1 (`EventCorrelator`: aggregator, logger, spam filter).
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from msgspec import Struct, structs

from reconciler.core.statusplan import EventBudget, EventWrite, event_name

CACHE_ENTRIES = 4096
"""`maxLruCacheEntries`."""
SIMILAR_EVENTS = 10
"""`defaultAggregateMaxEvents`: the number of different messages of one kind from which on they are combined."""
SIMILAR_WITHIN_MS = 600_000
"""`defaultAggregateIntervalInSeconds`."""
COMBINED = "(combined from similar events): "

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_Key = tuple[str, ...]


class _Lru(OrderedDict[K, V], Generic[K, V]):
    """A mapping of limited size that drops the oldest entry."""

    def put(self, key: K, value: V) -> None:
        self[key] = value
        self.move_to_end(key)
        while len(self) > CACHE_ENTRIES:
            self.popitem(last=False)


class _Similar(Struct):
    messages: list[str]
    last_ms: int


class Counted(Struct, frozen=True):
    """How often an Event was observed, and when first."""

    count: int
    first: str


class EventCorrelator:
    """Counts equal events, combines similar ones, and keeps an object from flooding the API server with them."""

    def __init__(self, budget: EventBudget) -> None:
        self._budget = budget
        self._similar: _Lru[_Key, _Similar] = _Lru()
        self._counted: _Lru[str, Counted] = _Lru()

    def observe(self, event: EventWrite, now_ms: int) -> EventWrite | None:
        """Give the event as it is to be written, with its count; None where the object has had too many.

        One that is not written counts all the same, so that the next that is written shows how many there were.
        """
        event = self._combined(event, now_ms)
        known = self._counted.get(event.name)
        first = known.first if known is not None else event.time
        count = known.count + 1 if known is not None else 1
        self._counted.put(event.name, Counted(count, first))
        if not self._budget.take("\x00".join(_object(event)), now_ms):
            return None
        return structs.replace(event, body=event.body | {"count": count, "firstTimestamp": first})

    def stands(self, event: EventWrite, count: int, first: str) -> None:
        """Continue from the count of an Event that existed in the cluster before this process observed it."""
        self._counted.put(event.name, Counted(count, first))

    def _combined(self, event: EventWrite, now_ms: int) -> EventWrite:
        """The event itself, or the combined event of all similar ones once there are many."""
        key = _kind(event)
        similar = self._similar.get(key)
        if similar is None or now_ms - similar.last_ms > SIMILAR_WITHIN_MS:
            similar = _Similar([], now_ms)
        message: str = event.body["message"]
        if message not in similar.messages:
            similar.messages.append(message)
        similar.last_ms = now_ms
        self._similar.put(key, similar)
        if len(similar.messages) < SIMILAR_EVENTS:
            return event
        # Upstream forgets any one of them; the oldest is the one that is least likely to come again.
        similar.messages.pop(0)
        name = event_name(event.body["involvedObject"], *key)
        metadata = event.body["metadata"] | {"name": name}
        return structs.replace(
            event, name=name, body=event.body | {"metadata": metadata, "message": COMBINED + message}
        )


def _kind(event: EventWrite) -> _Key:
    body: dict[str, Any] = event.body
    return (*_object(event), body["type"], body["reason"])


def _object(event: EventWrite) -> _Key:
    about = event.body["involvedObject"]
    return tuple(about.get(field, "") for field in ("kind", "namespace", "name", "uid", "apiVersion"))
