"""A CapacityGroup over one HPA in each of some clusters, each in a log partition of its own, and their messages."""

from collections.abc import Mapping
from typing import Any

from schemas.capacity import CAPACITY, CapacityGroupSet, CapacityLimit, CapacityPriority, CapacitySpec
from schemas.observed import AutoscalerSet
from streams.across.capacity import SETTLES_MS
from streams.state.acrossrows import CeilingRow, ClaimRow
from tests.kit.fleet import NAME, PERIOD_MS, Fleet
from tests.kit.partition import make_hpa

GROUP = "search"
LABELS = {"team": "search"}
OF_TEAM = {"matchLabels": LABELS}


class Ceiling(Fleet):
    """HPAs that enforce, by cluster, and a group over them. `labels`: of each HPA, beside those of the team."""

    whole = CAPACITY

    def apply(self, labels: Mapping[str, Mapping[str, str]] | None = None, **spec: Any) -> None:  # type: ignore[override]
        """Make the HPAs and apply the group."""
        for each in self.replicas:
            hpa = make_hpa(NAME, minReplicas=1, maxReplicas=100)
            hpa["metadata"]["labels"] = {**LABELS, **(labels or {}).get(each, {})}
            hpa["metadata"]["annotations"] = spec.get("annotations", {}).get(each, {})
            self.add(each, AutoscalerSet(hpa=hpa, origin="central", mode="enforce"))
        spec.pop("annotations", None)
        self.change(**spec)

    def change(self, limit: CapacityLimit | None = None, **spec: Any) -> None:
        """Apply the group, as the verb does."""
        self.revision += 1
        made = CapacitySpec(
            selector=OF_TEAM, limit=limit or CapacityLimit(count=self.maximum), **({"namespaces": ["*"]} | spec)
        )
        self.applied_at[CAPACITY] = len(self.logs[CAPACITY].records)
        self.everywhere(CapacityGroupSet(name=GROUP, revision=self.revision, spec=made))

    def delete(self) -> None:
        self.everywhere(CapacityGroupSet(name=GROUP, revision=self.revision))

    def everywhere(self, body: CapacityGroupSet) -> None:
        for each in self.logs:
            self.add(each, body)

    def rest(self, load: Mapping[str, int], ms: int = SETTLES_MS) -> None:
        """Periods under a constant load, for so long."""
        for _ in range(ms // PERIOD_MS + 1):
            self.period(load)

    def claim(self, name: str) -> ClaimRow:
        """What the HPA of a cluster has of the group."""
        return self.row(name).claims[GROUP]

    @property
    def ceiling(self) -> CeilingRow:
        """What the group knows of its members."""
        return self.logs[CAPACITY].partition.state.row.ceilings[GROUP]


def priority(tier: str, value: int) -> CapacityPriority:
    """Who has this label `tier` has this priority."""
    return CapacityPriority(selector={"matchLabels": {"tier": tier}}, namespaces=["*"], value=value)
