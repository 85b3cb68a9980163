"""What a cluster shows of its HPAs, without what differs from run to run: times, and the random ends of pod names."""

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

Json = dict[str, Any]

_POD = re.compile(r"\b([a-z][a-z-]*?)(-[bcdfghjklmnpqrstvwxz2456789]{8,10})?-[bcdfghjklmnpqrstvwxz2456789]{5}\b")
_CREATED = re.compile(r"^(CreationTimestamp:).*$", re.MULTILINE)
_NAME = re.compile(r"^Name:\s+(\S+)$", re.MULTILINE)
_BELOW = re.compile(r"^(?:Events:|Cluster:).*", re.MULTILINE | re.DOTALL)
_IMPOSSIBLE = re.compile(r"-9223372036854775808m?|-2147483648%? ?(?:\(-?\d+m?\))?")
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
    """The messages of an HPA's rescale events, in their order; those of a central HPA are on the target of its name."""
    found = [
        (event["firstTimestamp"], event["message"])
        for event in events
        if event["involvedObject"]["name"] == hpa and event["reason"] == "SuccessfulRescale"
    ]
    return [message for _, message in sorted(found)]


def kinds_of(events: Iterable[Json], hpa: str, kind: str = "HorizontalPodAutoscaler") -> set[tuple[str, ...]]:
    """What an HPA's events say: type, reason, message and source. `kind`: of the target, for a central HPA."""
    return {
        (event["type"], event["reason"], without_pod_names(event["message"]), event["source"].get("component", ""))
        for event in events
        if event["involvedObject"]["kind"] == kind
        and event["involvedObject"]["name"] == hpa
        and event["source"].get("component") == "horizontal-pod-autoscaler"
    }


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Every field of an object by its path: `{"a": [{"b": 1}]}` has the field `.a[0].b`."""
    if isinstance(value, dict) and value:
        parts = {f"{path}.{name}": each for name, each in value.items()}
    elif isinstance(value, list) and value:
        parts = {f"{path}[{number}]": each for number, each in enumerate(value)}
    else:
        return {path: value}
    return {name: leaf for where, part in parts.items() for name, leaf in leaves(part, where).items()}


def pages(text: str) -> dict[str, list[str]]:
    """What `kubectl describe hpa` or `fleethpa describe` printed of several HPAs: by name the lines above the events.

    Without the creation time and the random ends of pod names. An average over no pods is the smallest integer, which
    fleethpa prints as `<unknown>`.
    """
    begins = [*(found.start() for found in _NAME.finditer(text)), len(text)]
    found: dict[str, list[str]] = {}
    for begin, end in pairwise(begins):
        page = _BELOW.sub("", text[begin:end]).rstrip()
        named = _NAME.search(page)
        assert named is not None
        page = _IMPOSSIBLE.sub("<unknown>", _CREATED.sub(r"\1", without_pod_names(page)))
        found[named[1]] = [" ".join(line.split()) for line in page.splitlines()]
    return found


class Description(NamedTuple):
    """What `kubectl describe hpa` printed above the events, and the events; those of one second have no order."""

    head: str
    events: set[tuple[str, ...]]


def describe(text: str) -> Description:
    """Read a description, without times and the random ends of pod names."""
    head, _, events = without_pod_names(text).partition("Events:")
    return Description(_CREATED.sub(r"\1", head), {found.groups() for found in _EVENT.finditer(events)})
