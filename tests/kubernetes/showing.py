"""What a cluster shows of its HPAs, without what differs from run to run: times, and the random ends of pod names."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

Json = dict[str, Any]

_POD = re.compile(r"\b([a-z][a-z-]*?)(-[bcdfghjklmnpqrstvwxz2456789]{8,10})?-[bcdfghjklmnpqrstvwxz2456789]{5}\b")
_CREATED = re.compile(r"^(CreationTimestamp:).*$", re.MULTILINE)
_EVENT = re.compile(r"^  (Normal|Warning)\s+(\S+)\s+.*?\s(horizontal-pod-autoscaler)\s+(.*)$", re.MULTILINE)


def without_pod_names(text: str) -> str:
    """Pods are called after their workload: `web-6d5f8c9b4-x2x4z` becomes `web-POD`."""
    return _POD.sub(r"\1-POD", text)


def status_of(hpa: Json) -> Json:
    """An HPA's status without times; whether there is a time counts."""
    status = dict(hpa.get("status") or {})
    if "lastScaleTime" in status:
        status["lastScaleTime"] = "at some time"
    status["conditions"] = [
        {**condition, "message": without_pod_names(condition["message"]), "lastTransitionTime": "at some time"}
        for condition in status.get("conditions") or ()
    ]
    return status


def rescales_of(events: Iterable[Json], hpa: str) -> list[str]:
    """The messages of an HPA's rescale events, in their order."""
    found = [
        (event["firstTimestamp"], event["message"])
        for event in events
        if event["involvedObject"]["name"] == hpa and event["reason"] == "SuccessfulRescale"
    ]
    return [message for _, message in sorted(found)]


def kinds_of(events: Iterable[Json], hpa: str) -> set[tuple[str, ...]]:
    """What an HPA's events say: type, reason, message and source."""
    return {
        (event["type"], event["reason"], without_pod_names(event["message"]), event["source"].get("component", ""))
        for event in events
        if event["involvedObject"]["kind"] == "HorizontalPodAutoscaler" and event["involvedObject"]["name"] == hpa
    }


class Description(NamedTuple):
    """What `kubectl describe hpa` printed above the events, and the events; those of one second have no order."""

    head: str
    events: set[tuple[str, ...]]


def describe(text: str) -> Description:
    """Read a description, without times and the random ends of pod names."""
    head, _, events = without_pod_names(text).partition("Events:")
    return Description(_CREATED.sub(r"\1", head), {found.groups() for found in _EVENT.finditer(events)})
