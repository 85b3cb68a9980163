"""Allotments: what each member of a FleetHPA may have, and what a ceiling that many HPAs share leaves to each of them.

Allotments to a member are numbered, and it obeys higher numbers only. Its report names the newest number that it obeys
and the most that it may have. Reports and allotments may be late, lost, repeated or out of order
(docs/decisions/0017-across-clusters.md; `python -m tests.across_model` explores it).

A ceiling bounds additions only: nothing is ever scaled down for it. The bookkeeping is that of a FleetHPA, but an
allotment is the most that a member may have, not what it wants, and it ends by time, which the member reports, since
only its own clock shows that the end has passed
(docs/decisions/0017-across-clusters.md; `python -m tests.across_model --model capacity` explores it).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, structs

from schemas.capacity import CapacityLimit
from schemas.decisions import Step
from streams.across.division import Shares, largest_remainder
from streams.state.acrossrows import KEEP, Account, Allotment, CapacityMember, MemberReport

# --- of a whole -------------------------------------------------------------------------------------------------------


def obeyed(now: Allotment, received: Allotment) -> Allotment:
    """Return what a member obeys after it received an allotment: the higher number."""
    return received if received.number > now.number else now


def booked(account: Account, report: MemberReport) -> Account:
    """Book a report; one of a lower number than is known, or than the fence, or from before an absence says nothing.
    After an absence nothing counts that was allotted before.
    """
    known = account.report
    if known is not None and report.returns != known.returns:
        return account if report.returns < known.returns else Account(report)
    if report.obeys < (account.fence if account.report is None else account.report.obeys):
        return account
    first = report.obeys + report.has_ended
    return Account(report, tuple([each for each in account.allotted if each.number >= first]))


def allot(wanted: Shares, accounts: Mapping[str, Account], maximum: int) -> dict[str, Account]:
    """Return the accounts after the allotments that lead to `wanted`, a share of each member, as far as is possible
    now.

    Nothing is added beyond what `maximum` leaves beside all that members may have, and nothing at all while they may
    have more than that, not even to a member that seems to have it: a late report may say so. Where the maximum has
    room for all additions, they go out first, and no more is taken than leaves the sum of `wanted` certain; otherwise,
    members whose share falls give first. A member that is not in `wanted` keeps what it has and is counted. As long as
    one that is in `wanted` has not reported, or what any may have is lost, that is unknown, and nothing is added.
    """
    names = [name for name in sorted(wanted) if accounts[name].report is not None]
    room = maximum - sum([each.counted for each in accounts.values()])
    more = {name: max(0, wanted[name] - accounts[name].counted) for name in names}
    may_add = room >= 0 and len(names) == len(wanted) and not any([each.fence for each in accounts.values()])
    is_room_for_all = sum(more.values()) <= room
    spare = sum([accounts[name].certain for name in names]) - sum([wanted[name] for name in names])
    divided = dict(accounts)
    for name in names:
        account, share = accounts[name], wanted[name]
        had = account.newest.replicas
        if share > had:
            given = max(0, min(more[name], room)) if may_add else 0
            room -= given
            share = min(share, account.counted + given) if may_add else had
        elif is_room_for_all:
            taken = min(had - share, max(0, spare))
            spare -= taken
            share = had - taken
        # Of a member without an allotment, a write in flight may end either way: it may have less than it reported.
        if may_add or account.allotted or share <= account.certain:
            after = allotted(account, share)
            divided[name] = account if after is account else structs.replace(after, allotted=_effective(after.allotted))
    return divided


def _effective(allotments: Sequence[Allotment]) -> tuple[Allotment, ...]:
    """Drop allotments that lie between the lowest and the highest of those after them.

    They do not change the bounds of what the member can have, whichever allotment it reports to obey. Without this, the
    list of a member that never obeys would grow for ever.
    """
    in_force = [allotments[-1]]
    least = most = in_force[0].replicas
    for each in allotments[-2::-1]:
        if not least <= each.replicas <= most:
            least, most = min(least, each.replicas), max(most, each.replicas)
            in_force.append(each)
    return tuple(in_force[::-1])


def allotted(account: Account, share: int, *, again: bool = False) -> Account:
    """Return the account after an allotment of `share`, if that is another one than the newest, or has to be made
    `again`.
    """
    newest = account.newest
    if share == newest.replicas and account.allotted and not again:
        return account
    return structs.replace(account, allotted=(*account.allotted, Allotment(newest.number + 1, share)))


def outstanding(accounts: Mapping[str, Account]) -> list[tuple[str, Allotment]]:
    """Return the newest allotment of each member that has not reported to obey it, or its fence: they are sent, and
    sent again.
    """
    return [
        (name, Allotment(account.fence, KEEP) if account.fence else account.newest)
        for name, account in sorted(accounts.items())
        if account.fence
        or (account.allotted and account.report is not None and account.allotted[-1].number > account.report.obeys)
    ]


# --- of a ceiling -----------------------------------------------------------------------------------------------------

CONSTRAINT: Final = "CapacityGroup"
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
    """Return the additions of each claim that the limit has room for; the sum of what they have may be above it.

    Higher priorities come first; among equal ones, additions are in proportion to what is missing (largest remainder,
    then by name), where a namespace, and in it an HPA, counts for no more than there is to divide. A claim without
    weight gets all that it wants. Where a replica is too large for what is left, that goes to others.
    """
    room = max(0, limit - sum([each.has * each.weight for each in claims]))
    given = {each.name: 0 if each.weight else each.missing for each in claims}
    wanting = [each for each in claims if each.missing and each.weight]
    for priority in sorted({each.priority for each in wanting}, reverse=True):
        equal = sorted([each for each in wanting if each.priority == priority], key=lambda each: each.name)
        shares = _by_namespace(room, {each.name: each.missing * each.weight for each in equal})
        given |= {each.name: shares[each.name] // each.weight for each in equal}
        room -= sum([given[each.name] * each.weight for each in equal])
        # What whole replicas leave of the shares: first to the largest parts of a replica.
        for each in sorted(equal, key=lambda each: (-(shares[each.name] % each.weight), each.name)):
            more = min(room // each.weight, each.missing - given[each.name])
            given[each.name] += more
            room -= more * each.weight
    return given


def _by_namespace(room: int, missing: Mapping[str, int]) -> dict[str, int]:
    """Divide a room among namespaces (of the names `CLUSTER/NAMESPACE/NAME`), and what each gets among its HPAs."""
    places: dict[str, dict[str, int]] = {}
    for name, each in missing.items():
        places.setdefault(name.rpartition("/")[0], {})[name] = each
    shares = _divided(room, {place: sum(each.values()) for place, each in places.items()})
    return {name: share for place, each in places.items() for name, share in _divided(shares[place], each).items()}


def _divided(room: int, missing: Mapping[str, int]) -> dict[str, int]:
    """Divide a room in proportion to what is missing. Each counts for no more than the room, so that one that wants
    without measure leaves something to the others.
    """
    counted = {name: min(room, each) for name, each in missing.items()}
    return largest_remainder(min(room, sum(counted.values())), counted)


def reported(
    member: CapacityMember, report: MemberReport, *, wants: int, weight: int, priority: int, at: int, now_ms: int
) -> CapacityMember:
    """Take a report; one that is older than a known one (`at`), or the same, changes nothing."""
    if at <= member.at:
        return member
    account = booked(member.account, report)
    return CapacityMember(account, report.replicas, wants, weight, priority, at, now_ms, member.until_ms)


def used(members: Mapping[str, CapacityMember]) -> int:
    """Return how much of the limit all members may use."""
    return sum([each.account.counted * each.weight for each in members.values()])


def allot_capacity(
    limit: int, members: Mapping[str, CapacityMember], *, now_ms: int, lasts_ms: int
) -> dict[str, CapacityMember]:
    """Return the members after the allotments that the limit has room for.

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
    after = dict(members)
    for name, each in members.items():
        is_silent = now_ms - each.taken_ms > lasts_ms or len(each.account.allotted) > MOST_OUTSTANDING
        if each.account.report is None or is_silent:
            continue  # it is counted, and gets nothing before it reports
        share = min(max(each.has, each.wants), counted[name] + more.get(name, 0))
        share = 0 if left < 0 and each.weight else share
        is_old = each.until_ms - now_ms <= lasts_ms // 2
        account = allotted(each.account, share, again=is_old)
        if account is not each.account:
            after[name] = CapacityMember(
                account, each.has, each.wants, each.weight, each.priority, each.at, each.taken_ms, now_ms + lasts_ms
            )
    return after


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
        """Return the step of a decision that it cuts."""
        detail: dict[str, Any] = {"group": self.group, "capacity": self.limit.text()}
        if self.use is not None:
            used_, share, number = self.use
            detail |= {"used": self.limit.text(used_), "share": self.limit.text(share), "number": number}
        return Step(step=STEP, in_=wanted, out=cut, detail=detail)
