"""Which Events a decision brings, and which of them reach the API server with which count: upstream's correlator.

Source: client-go tools/record/events_cache.go, v0.37.1 (`EventCorrelator`: aggregator, logger, spam filter).
"""

import hashlib
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct, structs

from reconciler.core.statuses import has_result
from schemas.decisions import Decision
from schemas.kubernetes.shape import JsonView

COMPONENT = "horizontal-pod-autoscaler"
REPORTER = "fleethpa"
DECISION_ANNOTATION = "fleethpa.io/decision"
BURST = 25
REFILL_MS = 300_000
"""Upstream's spam filter: 25 events of an object at once, then one per 5 minutes.

Source: client-go tools/record `NewEventCorrelator` (defaultSpamBurst, defaultSpamQPS).
"""


def wants_events(decision: Decision) -> bool:
    """Whether this decision's events are to be written: on the HPA, or on the target of a central one."""
    return has_result(decision) and bool(decision.events)


class EventWrite(Struct, frozen=True, kw_only=True):
    """One event: create it, or where it was observed before (`count` in the body), patch its Event (`count_patch`)."""

    namespace: str
    name: str
    body: dict[str, Any]
    decision: str
    time: str


def event_writes(decision: Decision, target_uid: str = "") -> list[EventWrite]:
    """The events of a decision, as upstream's recorder would write them.

    Equal events (type, reason, message) of one object have one name, so that they are counted in one Event across
    restarts.
    """
    about = involved_object(decision, target_uid)
    return [_event(decision, about, *event) for event in decision.events]


def involved_object(decision: Decision, target_uid: str = "") -> dict[str, str]:
    """Return what the event is about: the HPA, or the target of a central HPA, which has no object in the cluster."""
    if decision.origin == "cluster":
        about = {"kind": "HorizontalPodAutoscaler", "name": decision.name, "uid": decision.uid}
        return {"apiVersion": "autoscaling/v2", "namespace": decision.namespace} | about
    reference = decision.scale_target_ref
    about = {"kind": reference.get("kind", ""), "name": reference.get("name", "")}
    if version := reference.get("apiVersion"):
        about = {"apiVersion": version} | about
    return about | {"namespace": decision.namespace} | ({"uid": target_uid} if target_uid else {})


def _event(decision: Decision, about: dict[str, str], kind: str, reason: str, message: str) -> EventWrite:
    time = decision.time[:19] + "Z"
    name = event_name(about, decision.uid, about.get("uid", ""), kind, reason, message)
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": decision.namespace, "annotations": {DECISION_ANNOTATION: decision.id}},
        "involvedObject": about,
        "reason": reason,
        "message": message[:1024],
        "type": kind,
        "source": {"component": COMPONENT},
        "reportingComponent": REPORTER,
        "reportingInstance": "",
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
    return EventWrite(namespace=decision.namespace, name=name, body=body, decision=decision.id, time=time)


def event_name(about: Mapping[str, str], *parts: str) -> str:
    """The name of the Event about an object; `parts` distinguish it from other Events about the same object."""
    return f"{about['name'][:236]}.{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}"


def count_patch(write: EventWrite, count: int) -> dict[str, Any]:
    """The merge patch after which an Event has this count and shows this occurrence of it."""
    return {
        "metadata": {"annotations": {DECISION_ANNOTATION: write.decision}},
        "message": write.body["message"],
        "count": count,
        "lastTimestamp": write.time,
    }


def again(write: EventWrite, standing: JsonView) -> dict[str, Any] | None:
    """The merge patch that counts once more an Event that another process created; None where this occurrence, or a
    later one, is counted already.
    """
    metadata = standing["metadata"]
    is_counted = (metadata.get("annotations") or {}).get(DECISION_ANNOTATION) == write.decision
    if is_counted or (standing.get("lastTimestamp") or "") > write.time:
        return None
    patch = count_patch(write, (standing.get("count") or 1) + 1)
    patch["metadata"]["resourceVersion"] = metadata["resourceVersion"]
    return patch


class EventBudget:
    """Upstream's spam filter: a bucket of events per object."""

    def __init__(self, burst: int = BURST, refill_ms: int = REFILL_MS) -> None:
        self._burst, self._refill_ms = burst, refill_ms
        self._buckets: dict[str, tuple[float, int]] = {}

    def admits(self, uid: str, now_ms: int) -> bool:
        """Whether one more event of this object may be written now."""
        level, since = self._buckets.get(uid, (float(self._burst), now_ms))
        level = min(float(self._burst), level + max(0, now_ms - since) / self._refill_ms)
        if level < 1:
            self._buckets[uid] = (level, now_ms)
            return False
        self._buckets[uid] = (level - 1, now_ms)
        return True

    def forget_idle(self, now_ms: int) -> None:
        """Drop the buckets that are full again."""
        idle = [
            uid
            for uid, (level, since) in self._buckets.items()
            if level + (now_ms - since) / self._refill_ms >= self._burst
        ]
        for uid in idle:
            del self._buckets[uid]


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
        """Return the event as it is to be written, with its count; None where the object has had too many.

        One that is not written counts all the same, so that the next that is written shows how many there were.
        """
        event = self._combined(event, now_ms)
        known = self._counted.get(event.name)
        first = known.first if known is not None else event.time
        count = known.count + 1 if known is not None else 1
        self._counted.put(event.name, Counted(count, first))
        if not self._budget.admits("\x00".join(_object(event)), now_ms):
            return None
        return structs.replace(event, body=event.body | {"count": count, "firstTimestamp": first})

    def keep(self, event: EventWrite, count: int, first: str) -> None:
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
        # Upstream drops any one of them; the oldest is the least likely to come again.
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
