"""The bookkeeping of allotments: what each member may have, what the maximum leaves beside it, and how both are stored.

Allotments to a member are numbered, and it obeys higher numbers only. Its report names the newest number that it obeys
and the most that it may have. Reports and allotments may be late, lost, repeated or out of order
(docs/decisions/0017-across-clusters.md; `python -m tests.across_model` explores it).
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

from msgspec import Struct, structs

from schemas.observed import FleetSpec
from streams.across.division import MemberRoom, Shares
from streams.hpa.parts import PartObservation, SeenPart, seen_part

KEEP: Final = -1
"""The replicas of an allotment by which a member keeps what it has: it obeys none of a lower number any more."""
_FORMER = -1
"""Number of what a member may have under a former spec: a report under the present one takes its place."""


class Allotment(Struct, array_like=True, frozen=True, gc=False):
    """The share of a member."""

    number: int
    replicas: int


class MemberReport(Struct, array_like=True, frozen=True, gc=False):
    """What a member had at least (`replicas`) and at most (`most`), by its scale or a write in flight, when it obeyed
    number `obeys`. `has_ended`: the time of that allotment was over, where allotments end.
    """

    obeys: int
    replicas: int
    most: int
    has_ended: bool = False


class Account(Struct, array_like=True, frozen=True, gc=False):
    """What the parent knows of one member: its newest report (None: it has not reported yet), and the allotments from
    the reported number on, oldest first.

    A member that has not reported gets no allotment, so that numbers go on from the one that it reports. `fence`: what
    had been allotted to it is lost, and it counts as one that has not reported until it obeys this number, which is
    above all lost ones (0: nothing is lost).
    """

    report: MemberReport | None = None
    allotted: tuple[Allotment, ...] = ()
    fence: int = 0

    @property
    def counted(self) -> int:
        """The most that the member can have until it reports again."""
        most = 0 if self.report is None else self.report.most
        for each in self.allotted:
            most = max(most, each.replicas)
        return most

    @property
    def certain(self) -> int:
        """The least that it can have."""
        reported = [] if self.report is None else [self.report.replicas]
        return min([*reported, *[each.replicas for each in self.allotted]], default=0)

    @property
    def newest(self) -> Allotment:
        """What the member is to obey in the end."""
        if self.allotted or self.report is None:
            return self.allotted[-1] if self.allotted else Allotment(0, 0)
        return Allotment(self.report.obeys, self.report.most)

    @property
    def of_new_spec(self) -> "Account":
        """It after a change of the spec: unknown until the member reports under that, and counted as before."""
        return Account(None, (Allotment(_FORMER, self.counted),) if self.counted else (), self.fence)

    def fenced(self, number: int) -> "Account":
        """Give it after a loss of state: unknown until the member obeys `number`."""
        return structs.replace(self.of_new_spec, fence=number)

    @property
    def is_moving(self) -> bool:
        """The newest allotment was not obeyed yet, or a write may be in flight, as of the newest report."""
        report = self.report
        return report is None or report.obeys < self.newest.number or report.replicas != report.most

    @property
    def present(self) -> int:
        """What the member has or is about to have."""
        return self.newest.replicas if self.is_moving or self.report is None else self.report.replicas


def obeyed(now: Allotment, received: Allotment) -> Allotment:
    """Give what a member obeys after it received an allotment: the higher number."""
    return received if received.number > now.number else now


def booked(account: Account, report: MemberReport) -> Account:
    """Book a report; one of a lower number than is known, or than the fence, says nothing."""
    if report.obeys < (account.fence if account.report is None else account.report.obeys):
        return account
    first = report.obeys + report.has_ended
    return Account(report, tuple([each for each in account.allotted if each.number >= first]))


def allot(wanted: Shares, accounts: Mapping[str, Account], maximum: int) -> dict[str, Account]:
    """Give the accounts after the allotments that lead to `wanted`, a share of each member, as far as is possible now.

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
    made = dict(accounts)
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
            made[name] = account if after is account else structs.replace(after, allotted=_effective(after.allotted))
    return made


def _effective(allotments: Sequence[Allotment]) -> tuple[Allotment, ...]:
    """Drop allotments that lie between the lowest and the highest of those after them.

    They do not change the bounds of what the member can have, whichever allotment it reports to obey. Without this, the
    list of a member that never obeys would grow for ever.
    """
    found = [allotments[-1]]
    least = most = found[0].replicas
    for each in allotments[-2::-1]:
        if not least <= each.replicas <= most:
            least, most = min(least, each.replicas), max(most, each.replicas)
            found.append(each)
    return tuple(found[::-1])


def allotted(account: Account, share: int, *, again: bool = False) -> Account:
    """Give the account after an allotment of `share`, if that is another one than the newest, or has to be made
    `again`.
    """
    newest = account.newest
    if share == newest.replicas and account.allotted and not again:
        return account
    return structs.replace(account, allotted=(*account.allotted, Allotment(newest.number + 1, share)))


def outstanding(accounts: Mapping[str, Account]) -> list[tuple[str, Allotment]]:
    """Give the newest allotment of each member that has not reported to obey it, or its fence: they are sent, and sent
    again.
    """
    return [
        (name, Allotment(account.fence, KEEP) if account.fence else account.newest)
        for name, account in sorted(accounts.items())
        if account.fence
        or (account.allotted and account.report is not None and account.allotted[-1].number > account.report.obeys)
    ]


class ShareRow(Struct, array_like=True, frozen=True, gc=False):
    """What a FleetHPA has allotted to the HPA in one of its clusters. `replicas`: `KEEP` until the first allotment
    under this spec, and where what was allotted is lost.

    `is_new`: no evaluation has wanted it yet.
    """

    number: int = 0
    replicas: int = KEEP
    decision: str = ""
    is_new: bool = False

    @property
    def is_allotted(self) -> bool:
        """Whether the whole has allotted a share under this spec."""
        return self.replicas != KEEP


class ClaimRow(Struct, array_like=True, frozen=True, gc=False):
    """What an HPA has of a CapacityGroup: the newest allotment (number 0: none), and what it reported last.

    `waits`: its last evaluation was cut by the group. `is_new`: an allotment has come since, for which it is evaluated.
    """

    revision: int
    number: int = 0
    replicas: int = 0
    until_ms: int = 0
    used: int = 0
    share: int = 0
    waits: bool = False
    is_new: bool = False
    reported: tuple[int, bool, int, int, int, int, int] | None = None
    reported_ms: int = 0


class PartRow(Struct, array_like=True, frozen=True, dict=True):
    """The newest part that a cluster reported: when it came, and when it was made by the cluster's own log time."""

    taken_ms: int
    at_ms: int
    json: str

    @cached_property
    def seen(self) -> SeenPart:
        """The part, read once; a row cannot hold it, since its sums may have more than 64 bits."""
        return seen_part(self.json)

    @property
    def part(self) -> PartObservation:
        """The part itself."""
        return self.seen.part


class FleetRow(Struct, array_like=True, frozen=True, gc=False):
    """What a FleetHPA knows of its clusters. `taken_ms`: when its spec came. `accounts`: in the order of the spec.

    `fresh`: the clusters that have reported since the last evaluation, the first at `first_ms`, and the first that
    showed something else than before at `moved_ms`; 0: none. `totals`: what all together showed of each metric at the
    last evaluation, and `drift`: by how much that has changed since. `shares`: the newest division, which has differed
    from the one that the spec asks for since `since_ms` (0: it does not). `rooms`: where pods have waited for a node.
    `begun`: the clusters whose recommendations are in the windows of the whole.
    """

    spec: FleetSpec
    taken_ms: int
    accounts: dict[str, Account]
    parts: dict[str, PartRow] = {}
    fresh: tuple[str, ...] = ()
    first_ms: int = 0
    shares: dict[str, int] = {}
    since_ms: int = 0
    rooms: dict[str, MemberRoom] = {}
    begun: tuple[str, ...] = ()
    moved_ms: int = 0
    totals: tuple[int, ...] = ()
    drift: tuple[int, ...] = ()

    def parts_bytes(self, member: str, part: str) -> int:
        """Give the size of the parts of all clusters with this one of a member."""
        parts = [part, *[each.json for name, each in self.parts.items() if name != member]]
        return sum([len(each) if each.isascii() else len(each.encode()) for each in parts])
