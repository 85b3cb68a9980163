"""The status of an HPA: whether it is to be written, the body of the request, and which Events a decision brings.

A short record differs from the full one that it repeats in the values of its metrics alone. So the text of the last
written status is kept, cut where the values are, and the next one is this text with other values: the same bytes as the
decision, expanded and encoded, would give (`tests/unit/core/test_reconcile_status.py`), at a tenth of the time.

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
from schemas.decisions import Decision, ShortDecision, format_of
from schemas.kubernetes.quantity import Format, QuantityError, equal_quantity_text, format_milli
from schemas.kubernetes.shape import JsonView

_QUANTITIES = frozenset({"value", "averageValue"})
_HEAD = b'{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":'
_CUT = "\0"
"""Marks a place in JSON that is being made: JSON has no such character."""


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


class _ValueForm(Struct, frozen=True, gc=False):
    """How the value of a metric is written: its text, cut where the quantity is, without the closing brace."""

    text: str
    format: Format


class _StatusForm(Struct, frozen=True, gc=False):
    """The text of the status of full record `of`, with a `%s` where short records put a value (and `%%` for `%`)."""

    of: str
    text: bytes
    values: tuple[_ValueForm, ...]


class LiveHpa(Struct, frozen=True, gc=False):
    """An HPA as it is kept for the next write of its status: encoded, a quarter of the size of its objects.

    `before` and `after` are its JSON around the resource version, up to the status. The status is `status`, or where it
    is one that fleethpa wrote, `form` with `values`.
    """

    uid: str
    before: bytes
    version: str
    after: bytes
    status: bytes
    form: _StatusForm | None = None
    values: tuple[bytes, ...] = ()


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
    metadata["resourceVersion"] = Raw(_CUT.encode())
    before, after = encode(metadata).split(_CUT.encode())
    return LiveHpa(
        uid, before, version, b"".join((after, b',"spec":', answer.spec, b',"status":')), bytes(answer.status)
    )


def body_of(live: LiveHpa) -> bytes:
    """The HPA to PUT to `/status`, with the resource version that was seen last."""
    return b"".join((_HEAD, live.before, encode(live.version), live.after, status_of(live), b"}"))


def status_of(live: LiveHpa) -> bytes:
    return live.status if live.form is None else live.form.text % live.values


def written(live: LiveHpa, version: str) -> LiveHpa:
    """The HPA after its status was written. Whatever else differs in the answer was written by somebody else before
    the resource version that the write was made on, and is kept already.

    Raises ValueError: the answer has no resource version.
    """
    if not version:
        raise ValueError("it has no resource version")
    return LiveHpa(live.uid, live.before, version, live.after, live.status, live.form, live.values)


def with_values(live: LiveHpa, short: ShortDecision) -> LiveHpa | None:
    """The HPA with the status of a short record; None where not only values of the written status change, or where
    this is not known.
    """
    form = live.form
    if form is None or form.of != short.same_as or (form.values and len(form.values) != len(short.m)):
        return None
    values = []
    for each, metric in zip(form.values, short.m, strict=False):
        value, utilization = metric[0], metric[1]
        if value is None:
            return None
        text = each.text.replace(_CUT, format_milli(value, each.format))
        values.append(
            (f'{text},"averageUtilization":{utilization}}}' if utilization is not None else text + "}").encode()
        )
    return LiveHpa(live.uid, live.before, live.version, live.after, b"", form, tuple(values))


def status_update(decision: Decision, live: LiveHpa, full_id: str = "") -> LiveHpa | None:
    """The HPA with the status of a decision; None where nothing is to be written.

    An HPA of another uid is another HPA: nothing is written to it.

    Args:
        full_id: of the full record, which the decision is or repeats.
    """
    status = decision.status
    if status is None or live.uid != decision.uid:
        return None
    if same_status(_decoded(status_of(live)) or {}, status):
        return None
    form, values = _form_of(decision, full_id or decision.id)
    return structs.replace(live, status=b"" if form else encode_to_keep(status), form=form, values=values)


def _form_of(decision: Decision, full_id: str) -> tuple[_StatusForm | None, tuple[bytes, ...]]:
    """How short records write the status of their full one (`schemas.decisions.expand`), and its own values; None where
    a metric has no values.
    """
    status = decision.status or {}
    current = status.get("currentMetrics") or []
    if not current or len(current) != len(decision.metrics):
        return _StatusForm(full_id, encode_to_keep(status).replace(b"%", b"%%"), ()), ()
    shown, forms, values = [], [], []
    for each in current:
        key = next((key for key in each if key != "type"), None)
        names = [] if key is None else [name for name in each[key]["current"] if name != "averageUtilization"]
        if key is None or not names or not _QUANTITIES.issuperset(names):
            return None, ()
        text = "{" + ",".join(f'"{name}":"{_CUT}"' for name in names)
        forms.append(_ValueForm(text, format_of(each[key])))
        values.append(encode_to_keep(each[key]["current"]))
        shown.append({**each, key: {**each[key], "current": Raw(_CUT.encode())}})
    whole = encode({**status, "currentMetrics": shown}).replace(b"%", b"%%").replace(_CUT.encode(), b"%s")
    return _StatusForm(full_id, whole, tuple(forms)), tuple(values)


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
