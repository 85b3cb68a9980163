"""The status of an HPA: whether it is to be written, the body of the request, and which Events a decision brings.

Which Events reach the API server, and with which count: the correlator of similar events of upstream. Source: client-go
tools/record/events_cache.go, v0.37.1 (`EventCorrelator`: aggregator, logger, spam filter).
"""

import hashlib
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct, structs

from schemas.codec import encode, encode_to_keep
from schemas.decisions import Decision
from schemas.kubernetes.quantity import QuantityError, equal_quantity_text
from schemas.kubernetes.shape import HPA_HEAD, JsonView

_QUANTITIES = frozenset({"value", "averageValue"})


class HpaAnswer(Struct, frozen=True, gc=False):
    """An HPA in an answer of an API server, of which only the names of its metadata are decoded."""

    metadata: dict[str, Raw]
    spec: Raw = Raw(b"{}")
    status: Raw = Raw(b"null")


class _Version(Struct, frozen=True, gc=False):
    version: str = msgspec.field(name="resourceVersion")


class VersionAnswer(Struct, frozen=True, gc=False):
    """What is needed of the answer to a write: the version that the next one is made on."""

    metadata: _Version


class LiveHpa(Struct, frozen=True, gc=False):
    """An HPA as it is kept for the next write of its status: encoded, a quarter of the size of its objects.

    `metadata` is without managed fields, and has the resource version that was seen last.
    """

    uid: str
    metadata: bytes
    spec: bytes
    status: bytes


def live_hpa(answer: HpaAnswer) -> LiveHpa:
    """Keep an HPA without its managed fields, which are half of it.

    The API server takes those of the stored object at a write of a subresource, whatever is sent. Source: apimachinery
    pkg/util/managedfields/internal/fieldmanager.go `decodeLiveOrNew`.

    Raises ValueError: it is not an object of Kubernetes: it has no uid or no resource version.
    """
    metadata = {name: value for name, value in answer.metadata.items() if name != "managedFields"}
    uid, version = (msgspec.json.decode(metadata.get(name, Raw(b"null"))) for name in ("uid", "resourceVersion"))
    if not (isinstance(uid, str) and version and isinstance(version, str)):
        raise ValueError("it has no uid or no resource version")
    return LiveHpa(uid, encode_to_keep(metadata), bytes(answer.spec), bytes(answer.status))


def body_of(live: LiveHpa) -> bytes:
    """The HPA to PUT to `/status`, with the resource version that was seen last."""
    return encode(HPA_HEAD | {"metadata": Raw(live.metadata), "spec": Raw(live.spec), "status": Raw(live.status)})


def written(live: LiveHpa, version: str) -> LiveHpa:
    """The HPA after its status was written. Whatever else differs in the answer was written by somebody else before
    the resource version that the write was made on, and is kept already.

    Raises ValueError: the answer has no resource version.
    """
    if not version:
        raise ValueError("it has no resource version")
    metadata = msgspec.json.decode(live.metadata, type=dict[str, Raw])
    metadata["resourceVersion"] = Raw(encode(version))
    return structs.replace(live, metadata=encode_to_keep(metadata))


def status_update(decision: Decision, live: LiveHpa) -> LiveHpa | None:
    """The HPA with the status of a decision; None where nothing is to be written.

    An HPA of another uid is another HPA: nothing is written to it.
    """
    status = decision.status
    if status is None or live.uid != decision.uid or same_status(_decoded(live.status) or {}, status):
        return None
    return structs.replace(live, status=encode_to_keep(status))


def _decoded(status: bytes) -> Any:
    try:
        return msgspec.json.decode(status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # fleethpa writes valid UTF-8 only, so somebody else wrote this status


def same_status(left: Any, right: Any) -> bool:
    """Whether two statuses mean the same: an absent, null and empty field are one, quantities equal by value."""
    if left == right:  # as most parts of most statuses are, from one write to the next
        return True
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for key in {**left, **right}:
            a, b = left.get(key), right.get(key)
            if a != b and not _same_field(key, a, b):
                return False
        return True
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_status, left, right))
    return _is_empty(left) and _is_empty(right)


def _same_field(key: str, left: Any, right: Any) -> bool:
    if not (left and right):
        return _is_empty(left) and _is_empty(right)
    if key in _QUANTITIES and isinstance(left, str) and isinstance(right, str):
        return _same_quantity(left, right)
    return same_status(left, right)


def _same_quantity(left: str, right: str) -> bool:
    try:
        return equal_quantity_text(left, right)
    except QuantityError:
        return False  # none that fleethpa writes


def _is_empty(value: Any) -> bool:
    return value in (None, [], {}, 0)


# --- Events -----------------------------------------------------------------------------------------------------------

COMPONENT = "horizontal-pod-autoscaler"
REPORTER = "fleethpa"
DECISION_ANNOTATION = "fleethpa.io/decision"
BURST = 25
REFILL_MS = 300_000
"""Upstream's spam filter: 25 events of an object at once, then one per 5 minutes.

Source: client-go tools/record `NewEventCorrelator` (defaultSpamBurst, defaultSpamQPS).
"""


def wants_status(decision: Decision) -> bool:
    """Whether this decision is to be shown in its HPA's status."""
    return _has_result(decision) and decision.origin == "cluster" and decision.status is not None


def wants_events(decision: Decision) -> bool:
    """Whether this decision's events are to be written: on the HPA, or on the target of a central one."""
    return _has_result(decision) and bool(decision.events)


def _has_result(decision: Decision) -> bool:
    """Whether status and Events of the HPA are fleethpa's to write."""
    return decision.mode == "enforce" or decision.shows_refusal


# --- events -----------------------------------------------------------------------------------------------------------


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
    """What the event is about: the HPA, or the target of a central HPA, which has no object in the cluster."""
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

    def take(self, uid: str, now_ms: int) -> bool:
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
