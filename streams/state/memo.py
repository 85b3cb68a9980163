"""What the fast path of evaluations keeps: a memo per HPA, and the counts and differences of its self-check.

How they are used, and why the fast path gives the same bytes: `fastpath`.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from msgspec import Raw, Struct

from streams.across.allotments import ClaimRow, FleetRow
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.calculator import ToleranceBand
from streams.hpa.observation import Scale, SeenPods
from streams.state.clustersettings import Effective
from streams.state.ledger import StateError
from streams.state.rows import ByteRange, ScaleRow

CHECK_EVERY = 1_000
"""One of so many evaluations on the fast path is made on the general one as well. Tests set it to 1."""
RAISES = False
"""Whether a difference ends the partition, as in tests, instead of the HPA's fast path only."""
_MOST_DIFFERENCES: Final = 20

MetricOutcome = tuple[int, int, int, int, int]
"""Pods used, not ready, missing and ignored, and the direction (1 up, -1 down, 0 none) from the reported replicas."""


class EvaluationOutcome(Struct, frozen=True, gc=False):
    """All of an evaluation that its conditions, texts, steps and labels are made of, beside what it reads.

    `proposed`: the direction of what the metrics ask for; `is_zero`: they ask for no replicas at all.
    """

    metrics: tuple[MetricOutcome, ...]
    selected: str
    proposed: int
    is_zero: bool
    stabilized: int
    is_stabilized: bool
    """A window changed what the metrics ask for."""
    limited: int
    bound: str
    has_policies: bool


@lru_cache(maxsize=4096)
def shared_outcome(outcome: EvaluationOutcome) -> EvaluationOutcome:
    """Give the same object for equal outcomes: nearly all HPAs at rest have one of a few."""
    return outcome


class Memo(Struct, gc=False):
    """What an evaluation read, and its outcome. `status`: the one that it gave, as the row keeps it."""

    autoscaler: Autoscaler
    settings: Effective
    drivers: object
    """`Namespace.drivers`, of which only the identity counts."""
    scale: Scale
    scale_row: ScaleRow | None
    pods: SeenPods
    targets: object
    """`Namespace.targets` and (`changes`) the number of its pods' changes for which the scale is `scale_row`, the pods
    are the same, and the HPA has them alone; None: for none.
    """
    changes: int
    band: ToleranceBand
    promql: tuple[str, ...]
    engine: int
    full_decision: str
    outcome: EvaluationOutcome | None
    """None: no metric decides, since the HPA of a FleetHPA has less than the minimum of the whole."""
    status: Raw
    metrics_place: ByteRange
    """Of its `currentMetrics`."""
    reported: int
    """Its `currentReplicas`; 0 without them."""
    share: int | None
    """Replicas that a FleetHPA has allotted, and that there are; None: it is of no FleetHPA."""
    fleet: FleetRow | None
    """Of a FleetHPA, what it knew of its clusters."""


class LastReport(Struct, frozen=True, gc=False):
    """What the newest reports of an HPA to its CapacityGroups were made from; none is sent again until `until_ms` while
    all of it is the same.
    """

    claims: Mapping[str, ClaimRow]
    priorities: Mapping[str, int]
    settings: Effective
    pods: SeenPods
    current: int | None
    until_ms: int


class FastPath:
    """The fast path of one partition: how many evaluations could take it, how many of them were checked, and texts of
    the newest differences.
    """

    __slots__ = ("_drained", "checked", "differences", "found")

    def __init__(self) -> None:
        self.found = self.checked = 0
        self.differences: list[str] = []
        self._drained = (0, 0)

    @property
    def checks_all(self) -> bool:
        """Whether every evaluation is made on both paths, as in tests."""
        return CHECK_EVERY == 1

    def takes(self) -> bool:
        """Count an evaluation that could take the fast path; False: this one is checked.

        The number is scattered (Knuth's multiplicative hash), since a fleet is evaluated in the same order again and
        again: every thousandth would be the same HPA each time.
        """
        self.found += 1
        if self.found * 2_654_435_761 % 2**32 >= 2**32 // CHECK_EVERY:
            return True
        self.checked += 1
        return False

    def drain(self) -> tuple[int, int, list[str]]:
        """Give `found`, `checked` and the differences since the last call."""
        drained = self.found - self._drained[0], self.checked - self._drained[1], self.differences
        self._drained, self.differences = (self.found, self.checked), []
        return drained

    def differs(self, what: str) -> None:
        """Note a difference. Raises StateError if RAISES."""
        if RAISES:
            raise StateError(what)
        self.differences = [*self.differences[1 - _MOST_DIFFERENCES :], what]
