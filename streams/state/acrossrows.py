"""What rows keep of the two kinds over clusters: a FleetHPA and its clusters, a CapacityGroup and its members. The
rules are in `streams.across`, which is attached to the state from outside.

Fields are only ever added at the end, with a default: the structs are stored as arrays (`rowcodec.py`).
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import Struct, structs

from schemas.capacity import CapacitySpec
from schemas.observed import FleetSpec

T = TypeVar("T")
NO_CAP: Final = -1


class MemberRoom(Struct, array_like=True, frozen=True, gc=False):
    """What is known of the room in a member.

    `waits_since_ms`: since when each report has shown pods that wait for a node (0: the newest shows none). `cap`: the
    most that it is given (-1: as its bounds say). `capped_ms`: when the cap was set or raised. `is_tried`: it was
    raised, to see whether there is room again.
    """

    waits_since_ms: int = 0
    cap: int = NO_CAP
    capped_ms: int = 0
    is_tried: bool = False


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
    number `obeys`. `has_ended`: the time of that allotment was over, where allotments end. `returns`: how often it was
    away; it obeys no allotment that follows from a report before.
    """

    obeys: int
    replicas: int
    most: int
    has_ended: bool = False
    returns: int = 0


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
        """Return it after a loss of state: unknown until the member obeys `number`."""
        return structs.replace(self.of_new_spec, fence=number)

    @property
    def is_moving(self) -> bool:
        """The newest allotment was not obeyed yet, or a write may be in flight, as of the newest report."""
        report = self.report
        return report is None or report.obeys < self.newest.number or report.replicas != report.most

    @property
    def given(self) -> int:
        """The most that was allotted to it and may be in force; before the first allotment, the most that it has. What
        it says that it has beyond that keeps additions back, but takes nothing from others.
        """
        return max([each.replicas for each in self.allotted], default=self.counted)

    @property
    def present(self) -> int:
        """What the member has or is about to have, of what was allotted to it."""
        if self.is_moving or self.report is None:
            return self.newest.replicas
        return min(self.report.replicas, self.given)


class ShareRow(Struct, array_like=True, frozen=True, gc=False):
    """What a FleetHPA has allotted to the HPA in one of its clusters. `replicas`: `KEEP` until the first allotment
    under this spec, and where what was allotted is lost.

    `is_new`: no evaluation has wanted it yet. `returns`: how often the cluster was away. `reported_ms`: when it
    reported to the FleetHPA last (log time; 0: never).
    """

    number: int = 0
    replicas: int = KEEP
    decision: str = ""
    is_new: bool = False
    returns: int = 0
    reported_ms: int = 0

    @property
    def is_allotted(self) -> bool:
        """Whether the FleetHPA has allotted a share under this spec."""
        return self.replicas != KEEP


CAPACITY_LASTS_MS: Final = 60_000
"""How long an allotment of a CapacityGroup lasts at most."""


class ClaimReport(NamedTuple):
    """The report of an HPA to a CapacityGroup: these fields of `schemas.capacity.CapacityReport`."""

    obeys: int
    has_ended: bool
    has: int
    most: int
    wants: int
    weight: int
    priority: int


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
    reported: ClaimReport | None = None
    reported_ms: int = 0

    def stepped_back(self, now_ms: int) -> dict[str, Any]:
        """Return the fields that change, beside `logtime.BOUNDED`, where log time steps back to `now_ms`."""
        return {"until_ms": min(self.until_ms, now_ms + CAPACITY_LASTS_MS)}


class PartRow(Struct, array_like=True, frozen=True, dict=True):
    """The newest part that a cluster reported: when it came, and when it was made by the cluster's own log time."""

    taken_ms: int
    at_ms: int
    json: str

    def read_by(self, read: Callable[[str], T]) -> T:
        """Return what `read` makes of the text, which is read once: a row cannot hold it, since its sums may have more
        than 64 bits. It is always the same function, that of `streams.across.fleet`.
        """
        known: dict[str, T] = self.__dict__
        if "read" not in known:
            known["read"] = read(self.json)
        return known["read"]


class FleetRow(Struct, array_like=True, frozen=True, gc=False):
    """What a FleetHPA knows of its clusters. `taken_ms`: when its spec came. `accounts`: in the order of the spec.

    `fresh`: the clusters that have reported since the last evaluation, the first at `first_ms`, and the first that
    showed something else than before at `moved_ms`; 0: none. `totals`: what all together showed of each metric at the
    last evaluation, and `drift`: by how much that has changed since. `shares`: the newest division, which has differed
    from the one that the spec asks for since `since_ms` (0: it does not). `rooms`: where pods have waited for a node.
    `begun`: the clusters whose recommendations are in the windows of the FleetHPA. `below_share`: the clusters whose
    scale shows less than their share, and since when. `over`: the clusters whose own metrics asked for more than their
    own maxReplicas at the last evaluation, where that bounded the total. `recommended_for`: the clusters that the
    recommendations in the windows are for.
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
    below_share: dict[str, int] = {}
    over: tuple[str, ...] = ()
    recommended_for: tuple[str, ...] = ()

    def most_of(self, name: str) -> int:
        """Return the maxReplicas of a cluster."""
        return next((each.max_replicas for each in self.spec.clusters if each.name == name), 0)

    def parts_bytes(self, member: str, part: str) -> int:
        """Return the size of the parts of all clusters with this one of a member."""
        parts = [part, *[each.json for name, each in self.parts.items() if name != member]]
        return sum([len(each) if each.isascii() else len(each.encode()) for each in parts])


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

    def stepped_back(self, now_ms: int) -> dict[str, Any]:
        """Return the fields that change, beside `logtime.BOUNDED`, where log time steps back to `now_ms`."""
        return {"until_ms": min(self.until_ms, now_ms + CAPACITY_LASTS_MS)}


class GroupRow(Struct, array_like=True, frozen=True, gc=False):
    """A CapacityGroup, as every partition knows it. `taken_ms`: log time since when there has been one of its name, or
    since which nothing of that is lost. `stated_by`: as of `CapacityGroupSet`.
    """

    revision: int
    spec: CapacitySpec
    taken_ms: int
    stated_by: str = ""


class CeilingRow(Struct, array_like=True, frozen=True, gc=False):
    """The members of a CapacityGroup, in the partition that decides for it.

    `first_ms`: when the first report came since the last division (0: none did). `sent_ms`: when everything that no
    report shows was sent last. `size`: what the members take, in bytes.
    """

    members: dict[str, CapacityMember] = {}
    first_ms: int = 0
    sent_ms: int = 0
    size: int = 0
