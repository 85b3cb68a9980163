"""A CapacityGroup: how much of its limit is used, and its members by need, with what holds each back."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

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


class GroupBar(NamedTuple):
    """Places in a bar of 100: what is in use, what may be used, and the limit."""

    has_at: float
    used_at: float
    limit_at: float


class GroupUse(NamedTuple):
    """A CapacityGroup in the list of the fleet. `state` and `style`: as in `GroupView`."""

    name: str
    use: str
    bar: GroupBar
    state: str
    style: str


class ClaimantRow(NamedTuple):
    """A member as the template shows it; `has_at`, `may_have_at` and `wants_at` are places in a bar of 100."""

    hpa: HpaId
    has: str
    wants: str
    may_have: str
    priority: str
    weight: str
    state: str
    style: str
    has_at: float
    may_have_at: float
    wants_at: float | None


def group_row(group: GroupView) -> GroupUse:
    """What the list of the fleet shows of a group."""
    use = f"{group.limit.number(used(group.members)).normalize():f} of {group.limit.text()}"
    return GroupUse(group.name, use, _bar(group), *group.state)


def group_view(group: GroupView, state: FleetState) -> dict[str, Any]:
    """What the template shows of a group."""
    known = [(hpa, group.members.get(str(hpa))) for hpa in group.hpas]
    known.sort(key=lambda each: _need(group, each[1]))
    widest = max([1, *[max(each.has, each.wants, group.allotted(each) or 0) for each in group.members.values()]])
    return {
        "group": group,
        "row": group_row(group),
        "title": _title(group),
        "is_weighed": group.limit.kind != "replicas",
        "has_priorities": bool(group.row.spec.priorities),
        "rows": [_row(group, hpa, member, state, widest) for hpa, member in known[:MOST_ROWS]],
        "more": max(0, len(known) - MOST_ROWS),
    }


def _title(group: GroupView) -> str:
    """How much of the limit is used, and who wants more, as a sentence."""
    wanting, silent = len(group.held), sum([str(hpa) not in group.members for hpa in group.hpas])
    missing = sum([group.missing(each) for each in group.members.values()])
    more = "all have what they want"
    if wanting:
        more = f"{counted(wanting, 'HPA')} {'wants' if wanting == 1 else 'want'} {counted(missing, 'replica')} more"
    elif silent:
        more = f"{silent} {'has' if silent == 1 else 'have'} not reported"
    return f"{group_row(group).use} in {counted(len(group.hpas), 'HPA')}: {more}"


def _need(group: GroupView, member: CapacityMember | None) -> tuple[int, int, int]:
    """The order of the rows: who misses most, then who comes first, then who has most; who has not reported last."""
    return (1, 0, 0) if member is None else (-group.missing(member), -member.priority, -member.has)


def _row(group: GroupView, hpa: HpaId, member: CapacityMember | None, state: FleetState, widest: int) -> ClaimantRow:
    text, style = _state(group, hpa, member, state)
    if member is None:
        return ClaimantRow(hpa, "-", "-", "-", "-", "-", text, style, 0.0, 0.0, None)
    most = group.allotted(member)
    return ClaimantRow(
        hpa,
        str(member.has),
        str(member.wants),
        "-" if most is None else str(most),
        str(member.priority),
        group.limit.text(member.weight) if member.weight else "unknown",
        text,
        style,
        round(100 * member.has / widest, 1),
        round(100 * max(member.has, most or 0) / widest, 1),
        min(99.0, max(1.0, 100 * member.wants / widest)),
    )


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


def _bar(group: GroupView) -> GroupBar:
    has = sum([each.has * each.weight for each in group.members.values()])
    may, most = used(group.members), group.limit.count
    widest = max(1, may, most)
    at = [round(100 * each / widest, 1) for each in (has, may, most)]
    return GroupBar(at[0], at[1], min(99.6, at[2]))  # a mark at the end is within the picture
