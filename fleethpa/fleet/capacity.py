"""CapacityGroups as the log knows them: their members, what these may have of the limit, and who is held back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import msgspec

from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import CommandError, not_found
from fleethpa.show.formats import Listing
from fleethpa.show.text import Column, age, rfc3339, time_of_day
from fleethpa.show.words import counted, listed
from schemas.capacity import CapacityLimit, CapacityMatch, CapacitySpec
from schemas.keys import HpaId
from schemas.observed import FLEET_API_VERSION
from streams.across.allotments import used
from streams.across.capacity import SETTLES_MS
from streams.state.acrossrows import CapacityMember, GroupRow

CAPACITY_KIND: Final = "CapacityGroup"


@dataclass(frozen=True)
class GroupView:
    """A CapacityGroup. `known`: all HPAs that there are; `members`: what has been reported of those that it bounds."""

    name: str
    row: GroupRow
    clock_ms: int
    known: Mapping[HpaId, HpaView]
    members: Mapping[str, CapacityMember] = field(default_factory=dict)
    is_scattered: bool = False
    """Whether some log partitions have another spec of it or none."""
    is_old: bool = False
    """Whether what is shown of a member is only the last that was known."""

    @cached_property
    def hpas(self) -> list[HpaId]:
        """Those that it bounds now."""
        return members_of_group(self.known, CapacityMatch(self.row.spec))

    @property
    def limit(self) -> CapacityLimit:
        """Of the group."""
        return self.row.spec.limit

    def allotted(self, member: CapacityMember) -> int | None:
        """The most replicas that a member may have by its newest allotment; None: none is in force."""
        account = member.account
        return account.newest.replicas if account.allotted and self.clock_ms < member.until_ms else None

    def missing(self, member: CapacityMember) -> int:
        """How many replicas a member wants that it may not add."""
        return max(0, member.wants - max(member.has, self.allotted(member) or 0)) if member.weight else 0

    @property
    def held(self) -> list[str]:
        """The members that want more than they may have."""
        return [name for name, each in self.members.items() if self.missing(each)]

    @property
    def state(self) -> tuple[str, str]:
        """What it does now, in words, and the style of that (`held`, `trouble` or none)."""
        if self.is_scattered:
            put_back = f"fleethpa get capacitygroups {self.name} -o yaml | fleethpa apply -f - --yes"
            return f"some log partitions have another spec of it or none. Next: {put_back}", "trouble"
        unknown = "add nothing" if self.row.spec.when_unknown == "Hold" else "add what they want"
        if self.clock_ms - self.row.taken_ms < SETTLES_MS:
            return (
                f"settling until {time_of_day(self.row.taken_ms + SETTLES_MS, self.clock_ms)}: HPAs {unknown}",
                "held",
            )
        if used(self.members) > self.limit.count:
            return "above its limit: nothing is added until HPAs want fewer", "held"
        if self.held:
            return f"holds {counted(len(self.held), 'HPA')} back", "held"
        return f"whenUnknown {self.row.spec.when_unknown}: without an allotment HPAs {unknown}", ""


def members_of_group(hpas: Mapping[HpaId, HpaView], match: CapacityMatch) -> list[HpaId]:
    """Return the HPAs that a group bounds; of a FleetHPA, the HPAs in its clusters."""
    return [
        id_
        for id_, view in hpas.items()
        if view.fleet is None and match.priority(id_.cluster, id_.namespace, view.labels) is not None
    ]


def groups_of(state: FleetState) -> dict[str, GroupView]:
    """Return the CapacityGroups of a fleet."""
    return {
        name: GroupView(
            name,
            row,
            state.clock_ms,
            state.hpas,
            dict(sorted(state.capacity_members.get(name, {}).items())),
            name in state.scattered_groups,
            state.is_last_known or any(_is_past(state, member) for member in state.capacity_members.get(name, {})),
        )
        for name, row in sorted(state.capacity_groups.items())
    }


def _is_past(state: FleetState, member: str) -> bool:
    view = state.hpas.get(HpaId(*member.split("/")))
    return view is not None and view.is_past


def named_groups(state: FleetState, names: tuple[str, ...]) -> list[GroupView]:
    """Return the CapacityGroups with these names, or all. Raises CommandError: one is not there (exit 4)."""
    groups = groups_of(state)
    for name in names:
        if name not in groups:
            raise no_such_group(name, list(groups))
    return [view for name, view in groups.items() if not names or name in names]


def no_such_group(name: str, known: list[str]) -> CommandError:
    """The error for a name that no CapacityGroup has."""
    cause = f"The CapacityGroups are {listed(known)}." if known else "There is none."
    return not_found(f"no CapacityGroup {name!r}", cause=cause, next_step="fleethpa get capacitygroups")


def group_listing(views: list[GroupView]) -> Listing[GroupView]:
    """CapacityGroups for every format."""
    return Listing(
        kind=CAPACITY_KIND,
        items=views,
        columns=[
            Column("NAME", lambda group: group.name),
            Column("LIMIT", lambda group: group.limit.text()),
            Column(
                "USED", lambda group: group.limit.text(used(group.members)) + (" (last known)" if group.is_old else "")
            ),
            Column("HPAS", lambda group: str(len(group.hpas))),
            Column("REPORTED", lambda group: str(len(group.members))),
            Column("HELD", lambda group: str(len(group.held))),
            Column("WHEN UNKNOWN", lambda group: group.row.spec.when_unknown, wide=True),
            Column("AGE", lambda group: age(max(0, group.clock_ms - group.row.taken_ms))),
        ],
        document=_document,
        name=lambda group: f"capacitygroup/{group.name}",
        style=lambda group: "yellow" if group.held else "",
    )


def member_rows(group: GroupView) -> list[tuple[str, ...]]:
    """The table of a group's members, its header first."""
    head = ("HPA", "PRIORITY", "PER REPLICA", "HAS", "WANTS", "MAY HAVE", "REPORTED")
    rows: list[tuple[str, ...]] = [head]
    for id_ in group.hpas:
        member = group.members.get(str(id_))
        if member is None:
            rows.append((str(id_), *["-"] * 5, "never"))
            continue
        most = group.allotted(member)
        use = group.limit.text(member.weight) if member.weight else "unknown: not bounded"
        reported = age(max(0, group.clock_ms - member.taken_ms))
        may = "-" if most is None else str(most)
        rows.append((str(id_), str(member.priority), use, str(member.has), str(member.wants), may, reported))
    return rows


def manifest_spec(spec: CapacitySpec) -> dict[str, Any]:
    """The spec of a group as its manifest has it."""
    shown: dict[str, Any] = {"selector": spec.selector, "limit": _limit(spec.limit), "whenUnknown": spec.when_unknown}
    shown["namespaces"] = spec.namespaces
    if spec.clusters:
        shown["clusters"] = spec.clusters
    if spec.priorities:
        shown["priorities"] = msgspec.to_builtins(spec.priorities)
    return shown


def _document(group: GroupView) -> dict[str, Any]:
    """A group as its manifest, which `apply -f` takes, and with what is known of its members."""
    return {
        "apiVersion": FLEET_API_VERSION,
        "kind": CAPACITY_KIND,
        "metadata": {"name": group.name},
        "spec": manifest_spec(group.row.spec),
        "status": {
            "since": rfc3339(group.row.taken_ms),
            "limit": group.limit.text(),
            "used": group.limit.text(used(group.members)),
            "members": [
                {
                    "hpa": name,
                    "has": each.has,
                    "wants": each.wants,
                    "mayHave": group.allotted(each),
                    "missing": group.missing(each),
                    "priority": each.priority,
                }
                for name, each in group.members.items()
            ],
        },
    }


def _limit(limit: CapacityLimit) -> dict[str, Any]:
    number = limit.number()
    shown = int(number) if number == number.to_integral_value() else f"{number.normalize():f}"
    if limit.kind == "units":
        return {"units": limit.name, "count": shown}
    return {"replicas" if limit.kind == "replicas" else "costPerHour": shown}
