"""What a change of who is in charge means for the state: the holder, and what a hub takes over from a native HPA."""

from collections.abc import Mapping
from typing import Any

from schemas.hands import HUB_HOLDER, HandsChanged, LeftNative
from schemas.kubernetes.gotimes import parse_time_ms, rfc3339_seconds
from streams.state.partitionrow import HandsRow

KEPT_CHANGES = 20
"""How many changes of the holder are kept of a cluster."""


def hands_after(known: HandsRow | None, body: HandsChanged, offset: int) -> HandsRow:
    """The row after a change. A change that is older than the newest is entered in its place, and moves nothing.

    A hub that gets a cluster back starts with empty windows, which do not contain what the native controller did.
    """
    known = known or HandsRow([])
    change = (body.time, body.holder, body.generation)
    if change in known.changes:
        return known
    changes = sorted([*known.changes, change], key=lambda each: each[2])[-KEPT_CHANGES:]
    is_back = body.holder.startswith(HUB_HOLDER) and len(changes) > 1 and changes[-1] == change
    return HandsRow(changes, offset if is_back else known.restart_offset)


def status_after(status: Mapping[str, Any], native: LeftNative) -> dict[str, Any]:
    """The status of a central HPA that a native one stood in for: its last scale time goes on, as does a zero that a
    controller scaled to.
    """
    found = dict(status)
    known = found.get("lastScaleTime")
    if native.last_scale is not None and (not known or parse_time_ms(known) < native.last_scale):
        found["lastScaleTime"] = rfc3339_seconds(native.last_scale)
    others = [each for each in found.get("conditions") or () if each.get("type") != "ScaledToZero"]
    if native.scaled_to_zero and len(others) == len(found.get("conditions") or ()):
        found["conditions"] = [
            *others,
            {
                "type": "ScaledToZero",
                "status": "True",
                "reason": "ScaledToZero",
                "message": "the HPA controller scaled the workload to zero",
                "lastTransitionTime": found.get("lastScaleTime"),
            },
        ]
    return found
