"""What is stored of FleetHPAs and CapacityGroups, and of the HPAs that belong to them."""

from functools import cached_property

from msgspec import Struct

from schemas.observed import FleetSpec
from streams.across.allotments import KEEP, Account
from streams.across.spill import MemberRoom
from streams.hpa.parts import PartObservation, SeenPart, seen_part


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
