"""A ceiling that many HPAs share: which additions it leaves to each, and what each may have.

A ceiling bounds additions only: nothing is ever scaled down for it. The bookkeeping is that of a FleetHPA
(`streams.across.allotments`), but an allotment is the most that a member may have, not what it wants, and it ends by
time, which the member reports, since only its own clock shows that the end has passed
(docs/decisions/0017-across-clusters.md; `python -m tests.across_model --model capacity` explores it).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from schemas.capacity import CapacityLimit
from schemas.decisions import AppliedLimit, Step
from streams.across.allotments import Account, MemberReport, allotted, booked
from streams.across.division import largest_remainder

CONSTRAINT: Final[AppliedLimit] = "CapacityGroup"
STEP: Final = "capacity"
"""The step of a decision that a group has cut."""
MOST_OUTSTANDING: Final = 8
"""A member that obeys none of so many allotments gets no further one before it reports."""


class CapacityClaim(Struct, frozen=True):
    """An HPA that has some replicas and wants more (or not). The higher `priority` comes first. `weight`: how much of
    the limit one replica uses.
    """

    name: str
    has: int
    wants: int
    priority: int = 0
    weight: int = 1

    @property
    def missing(self) -> int:
        """Replicas that it wants beyond what it has."""
        return max(0, self.wants - self.has)


def granted(limit: int, claims: Sequence[CapacityClaim]) -> dict[str, int]:
    """Give the additions of each claim that the limit has room for; the sum of what they have may be above it.

    Higher priorities come first; among equal ones, additions are in proportion to what is missing (largest remainder,
    then by name). A claim without weight gets all that it wants. Where a replica is too large for what is left, that
    goes to others.
    """
    room = max(0, limit - sum([each.has * each.weight for each in claims]))
    given = {each.name: 0 if each.weight else each.missing for each in claims}
    wanting = [each for each in claims if each.missing and each.weight]
    for priority in sorted({each.priority for each in wanting}, reverse=True):
        equal = sorted([each for each in wanting if each.priority == priority], key=lambda each: each.name)
        missing = {each.name: each.missing * each.weight for each in equal}
        shares = largest_remainder(min(room, sum(missing.values())), missing)
        given |= {each.name: shares[each.name] // each.weight for each in equal}
        room -= sum([given[each.name] * each.weight for each in equal])
        # What whole replicas leave of the shares: first to the largest parts of a replica.
        for each in sorted(equal, key=lambda each: (-(shares[each.name] % each.weight), each.name)):
            more = min(room // each.weight, each.missing - given[each.name])
            given[each.name] += more
            room -= more * each.weight
    return given


class CapacityMember(Struct, array_like=True, frozen=True, gc=False):
    """What a ceiling knows of one member.

    `has`: replicas, or those of the write in flight. `wants`: what it is to have if nothing holds it back. `at`: the
    order of its reports. `taken_ms`: log time of the newest. `until_ms`: when its newest allotment ends.
    """

    account: Account = Account()
    has: int = 0
    wants: int = 0
    weight: int = 0
    priority: int = 0
    at: int = -1
    taken_ms: int = 0
    until_ms: int = 0


def reported(
    member: CapacityMember, report: MemberReport, *, wants: int, weight: int, priority: int, at: int, now_ms: int
) -> CapacityMember:
    """Take a report; one that is older than a known one (`at`), or the same, changes nothing."""
    if at <= member.at:
        return member
    account = booked(member.account, report)
    return CapacityMember(account, report.replicas, wants, weight, priority, at, now_ms, member.until_ms)


def used(members: Mapping[str, CapacityMember]) -> int:
    """Give how much of the limit all members may use."""
    return sum([each.account.counted * each.weight for each in members.values()])


def allot_capacity(
    limit: int, members: Mapping[str, CapacityMember], *, now_ms: int, lasts_ms: int
) -> dict[str, CapacityMember]:
    """Give the members after the allotments that the limit has room for.

    Each gets what it has or wants, as far as it may have that already or the room beside all that members may have is
    enough. While they may have more than the limit nobody may add anything, not even within what a member seems to
    have: a late report may say so. An allotment is made anew when half of its time is over.
    """
    counted = {name: each.account.counted for name, each in members.items()}
    left = limit - sum([counted[name] * each.weight for name, each in members.items()])
    claims = [
        CapacityClaim(name, counted[name], each.wants, each.priority, each.weight)
        for name, each in members.items()
        if each.wants > counted[name]
    ]
    more = granted(left + sum([each.has * each.weight for each in claims]), claims)
    made = dict(members)
    for name, each in members.items():
        is_silent = now_ms - each.taken_ms > lasts_ms or len(each.account.allotted) > MOST_OUTSTANDING
        if each.account.report is None or is_silent:
            continue  # it is counted, and gets nothing before it reports
        share = min(max(each.has, each.wants), counted[name] + more.get(name, 0))
        share = 0 if left < 0 and each.weight else share
        is_old = each.until_ms - now_ms <= lasts_ms // 2
        account = allotted(each.account, share, again=is_old)
        if account is not each.account:
            made[name] = CapacityMember(
                account, each.has, each.wants, each.weight, each.priority, each.at, each.taken_ms, now_ms + lasts_ms
            )
    return made


class CapacityLeft(Struct, frozen=True, gc=False):
    """The most replicas that a group leaves to an HPA, and what was used as it was allotted: by all members,
    by this one, and the number of the allotment. `use` None: no allotment is in force.
    """

    group: str
    limit: CapacityLimit
    most: int
    use: tuple[int, int, int] | None = None

    @property
    def text(self) -> str:
        """Why nothing is added."""
        if self.use is None:
            return f"CapacityGroup {self.group} has allotted nothing that is still in force"
        return f"CapacityGroup {self.group} leaves no more: its limit is {self.limit.text()}"

    def step(self, wanted: int, cut: int) -> Step:
        """Give the step of a decision that it cuts."""
        detail: dict[str, Any] = {"group": self.group, "capacity": self.limit.text()}
        if self.use is not None:
            used_, share, number = self.use
            detail |= {"used": self.limit.text(used_), "share": self.limit.text(share), "number": number}
        return Step(step=STEP, in_=wanted, out=cut, detail=detail)
