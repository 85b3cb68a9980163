"""Which writes bring an HPA's status and Events in line with a decision."""

import hashlib
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from schemas.decisions import Decision
from schemas.kubernetes.jsontypes import JsonView
from schemas.kubernetes.quantity import equal_quantity_text

COMPONENT = "horizontal-pod-autoscaler"
REPORTER = "fleethpa"
DECISION_ANNOTATION = "fleethpa.io/decision"
BURST = 25
REFILL_MS = 300_000
"""Upstream's spam filter: 25 events of an object at once, then one per 5 minutes.

Source: client-go tools/record `NewEventCorrelator` (defaultSpamBurst, defaultSpamQPS).
"""
_QUANTITIES = frozenset({"value", "averageValue"})


def wants_status(decision: Decision) -> bool:
    """Whether this decision is to be shown in its HPA's status."""
    return _speaks(decision) and decision.origin == "cluster" and decision.status is not None


def wants_events(decision: Decision) -> bool:
    """Whether this decision's events are to be written: on the HPA, or on the target of a central one."""
    return _speaks(decision) and bool(decision.events)


def _speaks(decision: Decision) -> bool:
    """Whether status and Events of the HPA are fleethpa's to write."""
    return decision.mode == "enforce" or decision.shows_refusal


def status_update(decision: Decision, live: JsonView) -> dict[str, Any] | None:
    """The HPA to PUT to `/status`, with the resource version just read; None where nothing is to be written.

    An HPA of another uid is another HPA: nothing is written to it.
    """
    if decision.status is None or live["metadata"].get("uid") != decision.uid:
        return None
    if same_status(live.get("status") or {}, decision.status):
        return None
    return {**live, "status": dict(decision.status)}


def without_managed_fields(live: dict[str, Any]) -> dict[str, Any]:
    """An HPA as it is kept for the next write of its status: without its managed fields, which are half of it.

    The API server takes those of the stored object at a write of a subresource, whatever is sent. Source: apimachinery
    pkg/util/managedfields/internal/fieldmanager.go `decodeLiveOrNew`.
    """
    metadata = {key: value for key, value in live["metadata"].items() if key != "managedFields"}
    return {**live, "metadata": metadata}


def same_status(left: Any, right: Any) -> bool:
    """Whether two statuses mean the same: an absent, null and empty field are one, quantities equal by value."""
    if left == right:  # as most parts of most statuses are, from one write to the next
        return True
    if isinstance(left, Mapping) or isinstance(right, Mapping):
        a, b = _fields(left), _fields(right)
        return a.keys() == b.keys() and all(_same_field(key, a[key], b[key]) for key in a)
    if isinstance(left, list) or isinstance(right, list):
        a_items, b_items = left or [], right or []
        pairs = zip(a_items, b_items, strict=False)
        return len(a_items) == len(b_items) and all(same_status(a, b) for a, b in pairs)
    return False


def _fields(value: Any) -> dict[str, Any]:
    return {key: each for key, each in (value or {}).items() if each not in (None, [], {}, 0)}


def _same_field(key: str, left: Any, right: Any) -> bool:
    if key in _QUANTITIES and isinstance(left, str) and isinstance(right, str):
        return left == right or equal_quantity_text(left, right)
    return same_status(left, right)


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
        "metadata": {
            "name": name,
            "namespace": decision.namespace,
            "annotations": {DECISION_ANNOTATION: decision.id},
        },
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
