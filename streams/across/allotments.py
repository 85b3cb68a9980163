"""The bookkeeping of allotments: what each member may have, and what the maximum leaves beside it.

Allotments to a member are numbered, and it obeys higher numbers only. Its report names the newest number that it obeys
and the most that it may have. Reports and allotments may be late, lost, repeated or out of order
(docs/decisions/0017-across-clusters.md; `python -m tests.across_model` explores it).
"""

from collections.abc import Mapping

from msgspec import Struct, structs

from streams.across.division import Shares


class Allotment(Struct, frozen=True):
    """The share of a member."""

    number: int
    replicas: int


class MemberReport(Struct, frozen=True):
    """What a member had and may have had (`most`: by its scale or a write in flight) when it obeyed number `obeys`."""

    obeys: int
    replicas: int
    most: int


class Account(Struct, frozen=True):
    """What the parent knows of one member: its newest report, and the allotments from the reported number on, oldest
    first.
    """

    report: MemberReport = MemberReport(0, 0, 0)
    allotted: tuple[Allotment, ...] = ()

    @property
    def counted(self) -> int:
        """The most that the member can have until it reports again."""
        return max([self.report.most, *[each.replicas for each in self.allotted]])

    @property
    def certain(self) -> int:
        """The least that it can have."""
        return min([self.report.replicas, *[each.replicas for each in self.allotted]])

    @property
    def newest(self) -> Allotment:
        """What the member is to obey in the end."""
        return self.allotted[-1] if self.allotted else Allotment(self.report.obeys, self.report.most)


def obeyed(now: Allotment, received: Allotment) -> Allotment:
    """Give what a member obeys after it received an allotment: the higher number."""
    return received if received.number > now.number else now


def booked(account: Account, report: MemberReport) -> Account:
    """Book a report; one of a lower number than is known says nothing."""
    if report.obeys < account.report.obeys:
        return account
    return Account(report, tuple([each for each in account.allotted if each.number >= report.obeys]))


def allot(wanted: Shares, accounts: Mapping[str, Account], maximum: int) -> dict[str, Account]:
    """Give the accounts after the allotments that lead to `wanted`, a share of each member, as far as is possible now.

    Nothing is added beyond what `maximum` leaves beside all that members may have, and nothing at all while they may
    have more than that, not even to a member that seems to have it: a late report may say so. Where the maximum has
    room for all additions, they go out first, and no more is taken than leaves the sum of `wanted` certain; otherwise,
    members whose share falls give first. A member that is not in `wanted` keeps what it has and is counted.
    """
    names = sorted(wanted)
    room = maximum - sum([each.counted for each in accounts.values()])
    more = {name: max(0, wanted[name] - accounts[name].counted) for name in names}
    is_room_for_all = sum(more.values()) <= room
    may_add = room >= 0
    spare = sum([accounts[name].certain for name in names]) - sum(wanted.values())
    made = dict(accounts)
    for name in names:
        account, share = accounts[name], wanted[name]
        had = account.newest.replicas
        if share > had:
            given = max(0, min(more[name], room))
            room -= given
            share = min(share, account.counted + given) if may_add else had
        elif is_room_for_all:
            taken = min(had - share, max(0, spare))
            spare -= taken
            share = had - taken
        made[name] = _allotted(account, share)
    return made


def _allotted(account: Account, share: int) -> Account:
    newest = account.newest
    if share == newest.replicas and account.allotted:
        return account
    return structs.replace(account, allotted=(*account.allotted, Allotment(newest.number + 1, share)))


def outstanding(accounts: Mapping[str, Account]) -> list[tuple[str, Allotment]]:
    """Give the newest allotment of each member that has not reported to obey it: they are sent, and sent again."""
    return [
        (name, account.newest)
        for name, account in sorted(accounts.items())
        if account.allotted and account.newest.number > account.report.obeys
    ]
