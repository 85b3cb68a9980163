"""A CapacityGroup: how much of its limit is used, and its members by need, with what holds each back."""

from __future__ import annotations

from typing import Any, Final

from fleethpa.fleet.capacity import GroupView
from fleethpa.fleet.views import FleetState
from fleethpa.show.words import counted
from schemas.keys import HpaId
from streams.across.capacity import CapacityMember, used
from streams.state.capacity import LASTS_MS

MOST_ROWS: Final = 200
"""Members that the view shows; the others need least."""
_BOUND: Final = ("held", "paused", "off", "refused", "ignored", "at max")
"""Labels of problems that say why an HPA has not what it wants, for a reason beside its metrics."""


def group_row(group: GroupView) -> dict[str, Any]:
    """What the list of the fleet shows of a group. `state` and `style`: as in `GroupView`. `bar`: places in a bar of
    100: what is in use, what may be used, and the limit.
    """
    may, most = used(group.members), group.limit.count
    widest = max(1, may, most)
    has = sum([each.has * each.weight for each in group.members.values()])
    at = [round(100 * each / widest, 1) for each in (has, may, most)]
    state, style = group.state
    return {
        "name": group.name,
        "use": f"{group.limit.number(may).normalize():f} of {group.limit.text()}",
        "bar": (at[0], at[1], min(99.6, at[2])),  # a mark at the end is within the picture
        "state": state,
        "style": style,
    }


def group_view(group: GroupView, state: FleetState) -> dict[str, Any]:
    """What the template shows of a group."""
    known = [(hpa, group.members.get(str(hpa))) for hpa in group.hpas]
    known.sort(key=lambda each: _need(group, each[1]))
    widest = max([1, *[max(each.has, each.wants, group.allotted(each) or 0) for each in group.members.values()]])
    row = group_row(group)
    return {
        "group": group,
        "row": row,
        "title": _title(group, row["use"]),
        "is_weighed": group.limit.kind != "replicas",
        "has_priorities": bool(group.row.spec.priorities),
        "rows": [_row(group, hpa, member, state, widest) for hpa, member in known[:MOST_ROWS]],
        "more": max(0, len(known) - MOST_ROWS),
    }


def _title(group: GroupView, use: str) -> str:
    """How much of the limit is used, and who wants more, as a sentence."""
    wanting, silent = len(group.held), sum([str(hpa) not in group.members for hpa in group.hpas])
    missing = sum([group.missing(each) for each in group.members.values()])
    more = "all have what they want"
    if wanting:
        more = f"{counted(wanting, 'HPA')} {'wants' if wanting == 1 else 'want'} {counted(missing, 'replica')} more"
    elif silent:
        more = f"{silent} {'has' if silent == 1 else 'have'} not reported"
    return f"{use} in {counted(len(group.hpas), 'HPA')}: {more}"


def _need(group: GroupView, member: CapacityMember | None) -> tuple[int, int, int]:
    """The order of the rows: who misses most, then who comes first, then who has most; who has not reported last."""
    return (1, 0, 0) if member is None else (-group.missing(member), -member.priority, -member.has)


def _row(group: GroupView, hpa: HpaId, member: CapacityMember | None, state: FleetState, widest: int) -> dict[str, Any]:
    """A member; `has_at`, `may_have_at` and `wants_at` are places in a bar of 100."""
    text, style = _state(group, hpa, member, state)
    row: dict[str, Any] = {
        "hpa": hpa,
        "state": text,
        "style": style,
        "has_at": 0.0,
        "may_have_at": 0.0,
        "wants_at": None,
    }
    if member is None:
        return row | dict.fromkeys(("has", "wants", "may_have", "priority", "weight"), "-")
    most = group.allotted(member)
    return row | {
        "has": str(member.has),
        "wants": str(member.wants),
        "may_have": "-" if most is None else str(most),
        "priority": str(member.priority),
        "weight": group.limit.text(member.weight) if member.weight else "unknown",
        "has_at": round(100 * member.has / widest, 1),
        "may_have_at": round(100 * max(member.has, most or 0) / widest, 1),
        "wants_at": min(99.0, max(1.0, 100 * member.wants / widest)),
    }


def _state(group: GroupView, hpa: HpaId, member: CapacityMember | None, state: FleetState) -> tuple[str, str]:
    """What holds a member back, in words, and the style of that."""
    if member is None:
        return "has not reported", "held"
    if not member.weight:
        return "not bounded: what it uses is not known", ""
    if group.clock_ms - member.taken_ms > LASTS_MS:
        return "silent: counted, and gets nothing", "trouble"
    view = state.hpas.get(hpa)
    found = next((each.text for each in view.problems if each.label in _BOUND), "") if view is not None else ""
    if group.missing(member):
        return found or f"wants {group.missing(member)} more than it may have", "held"
    return (found, "") if found else ("has what it wants", "")
