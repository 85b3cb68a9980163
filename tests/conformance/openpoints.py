"""Differences between a recording and the engine that upstream itself leaves open, one readable rule each."""

import re
from collections.abc import Sequence
from typing import Any

from schemas.kubernetes.gotimes import parse_time_ms
from schemas.kubernetes.hpa import semantically_equal_status
from schemas.kubernetes.shape import Json

NAME_ORDER = "order of two HPA names"
POD_NAMED = "pod named"
QUANTITY_TEXT = "text of a quantity"
SECOND = "second of a time"
POD_CHANGE = "pods seen earlier or later"
HPA_CHANGE = "HPA seen earlier or later"
REGISTRATION = "selectors registered earlier or later"
BOUND = "moment on the bound of a window"
CUT_OFF = "cut off by the controller's end"

_TWO_NAMES = re.compile(r"\(e\.g\. \[(\S+) (\S+)\]\)")
_NAMED_POD = re.compile(
    r"(missing (?:pod-level )?request for \S+ in (?:container \S+ of )?Pod |not found in Pod )(\S+)"
)


def explain(
    before: Json, recorded: Json | None, ours: Json, pods: Sequence[str], span_s: tuple[float, float]
) -> str | None:
    """Name the class of a difference in the status, None when nothing explains it.

    Args:
        before: the status that the sync started from.
        recorded: the status that the controller wrote, None when it wrote none.
        ours: the status that the engine gives.
        pods: names of the target's pods.
        span_s: Unix seconds from the start of the sync to its status write.
    """
    shown = before if recorded is None else recorded
    if _is_ambiguous(before) or _is_ambiguous(shown):
        if semantically_equal_status(_names_sorted(shown), _names_sorted(ours)):
            return NAME_ORDER
        return None
    if recorded is None:
        return None
    if semantically_equal_status(recorded, ours):
        return QUANTITY_TEXT
    if _named_pods(recorded) <= set(pods) and semantically_equal_status(_unnamed(recorded), _unnamed(ours)):
        return POD_NAMED
    if _differs_by_seconds(recorded, ours, span_s):
        return SECOND
    return None


def _is_ambiguous(status: Json) -> bool:
    return any(
        each["type"] == "ScalingActive" and each.get("reason") == "AmbiguousSelector"
        for each in status.get("conditions") or ()
    )


def _with_messages(status: Json, pattern: re.Pattern[str], replacement: Any) -> Json:
    conditions = [
        {**each, "message": pattern.sub(replacement, each["message"])} if "message" in each else each
        for each in status.get("conditions") or ()
    ]
    return {**status, "conditions": conditions}


def _names_sorted(status: Json) -> Json:
    return _with_messages(status, _TWO_NAMES, lambda found: "(e.g. [{} {}])".format(*sorted(found.groups())))


def _unnamed(status: Json) -> Json:
    return _with_messages(status, _NAMED_POD, r"\1(any)")


def _named_pods(status: Json) -> set[str]:
    return {
        found[2] for each in status.get("conditions") or () for found in _NAMED_POD.finditer(each.get("message", ""))
    }


def _differs_by_seconds(recorded: Json, ours: Json, span_s: tuple[float, float]) -> bool:
    """Tell whether only times differ, each a whole second within the sync."""
    theirs, mine = _times(recorded), _times(ours)
    if len(theirs) != len(mine) or not semantically_equal_status(_timeless(recorded), _timeless(ours)):
        return False
    first, last = int(span_s[0]), int(span_s[1])
    moved = [(a, b) for a, b in zip(theirs, mine, strict=True) if a != b]
    return all(text is not None and first <= parse_time_ms(text) // 1000 <= last for pair in moved for text in pair)


def _times(status: Json) -> list[str | None]:
    return [status.get("lastScaleTime"), *(each.get("lastTransitionTime") for each in status.get("conditions") or ())]


def _timeless(status: Json) -> Json:
    conditions = [{**each, "lastTransitionTime": None} for each in status.get("conditions") or ()]
    return {**status, "lastScaleTime": None, "conditions": conditions}
