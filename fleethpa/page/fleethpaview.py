"""A FleetHPA among its clusters: a table with a bar for what each has, may have, and its share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from fleethpa.fleet.views import HpaView, MemberView
from fleethpa.show.text import time_of_day

UNKNOWN: Final = "-"


def division(view: HpaView, now_ms: int) -> dict[str, Any]:
    """Return what the template shows of a FleetHPA's clusters: rows, and the sums below them. `title`: how much of its
    maximum it has, as a sentence.
    """
    members = view.members
    most = view.spec.get("maxReplicas", 0)
    has, may_have = _sum(each.has for each in members), sum(each.may_have for each in members)
    unknown = sum(each.has is None for each in members)
    title = f"{has or 0} of at most {most} replicas in {len(members)} cluster{'' if len(members) == 1 else 's'}"
    if unknown:
        title += f", of which {unknown} {'has' if unknown == 1 else 'have'} not reported under the present spec"
    widest = max([1, *(count for each in members for count in (each.share or 0, each.has or 0, each.may_have))])
    return {
        "title": title,
        "rows": [_row(each, most, widest, now_ms) for each in members],
        "share": _text(_sum(each.share for each in members)),
        "has": _text(has),
        "may_have": str(may_have),
        "bounds": f"{view.spec.get('minReplicas', 1)} … {most}",
    }


def _row(member: MemberView, most: int, widest: int, now_ms: int) -> dict[str, Any]:
    """A cluster. `has_at`, `may_have_at` and `share_at` are places in a bar of 100; `style`: the colour and shape of
    its state, empty where nothing is wrong.
    """
    state, style = _state(member, now_ms)
    cluster = member.cluster
    return {
        "cluster": cluster.name,
        "share": _text(member.share),
        "has": _text(member.has),
        "may_have": str(member.may_have),
        "bounds": f"{cluster.min_replicas} … {min(most, cluster.max_replicas)}",
        "weight": cluster.weight,
        "state": state,
        "style": style,
        "is_away": member.is_away,
        "has_at": _place(member.has or 0, widest),
        "may_have_at": _place(member.may_have, widest),
        "share_at": None if member.share is None else min(99.0, max(1.0, _place(member.share, widest))),
    }


def _state(member: MemberView, now_ms: int) -> tuple[str, str]:
    """The state of a cluster in words, and its style."""
    if member.is_away:
        if not member.reported_ms:
            return "away, has never reported", "trouble"
        counted = "; the others may have its replicas as well" if member.is_spilled else ""
        return f"away since {time_of_day(member.reported_ms, now_ms)}{counted}", "trouble"
    if member.has is None:
        return "has not reported yet", "held"
    if member.problem:
        return member.problem, "trouble"
    if member.room is not None:
        return f"has nodes for {member.room}", "held"
    if member.may_have > member.has:
        return f"may have up to {member.may_have} until it reports again", ""
    return "as allotted" if member.share == member.has else "moves to its share", ""


def _sum(counts: Iterable[int | None]) -> int | None:
    """The sum of what is known; None: nothing is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _text(count: int | None) -> str:
    return UNKNOWN if count is None else str(count)


def _place(count: int, widest: int) -> float:
    return round(100 * count / widest, 1)
