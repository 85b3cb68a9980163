"""A FleetHPA and its clusters in memory for the command line: all in one log partition, with the messages between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.decisions import Decision
from schemas.entries import WHOLE_PARTITION_KEY, Body, Outcome
from schemas.keys import FLEET
from schemas.observed import AutoscalerDeleted, AutoscalerList, AutoscalerSet, FleetCluster, FleetSpec, Mode
from schemas.settings import SettingsSet
from tests.kit.cli import SETTINGS, Fleet, hpa

WHOLE = f"{FLEET}/shop/checkout"
PERIOD_MS = 15_000


class WholeFleet(Fleet):
    """`replicas`: of each cluster."""

    def __init__(self, replicas: Mapping[str, int]) -> None:
        super().__init__()
        self.replicas = dict(replicas)
        self.revision = 0
        self.append(SettingsSet(cluster="*", settings=SETTINGS), key=WHOLE_PARTITION_KEY)
        for name in replicas:
            self.cluster, native = name, hpa()
            native["metadata"]["uid"] = f"uid-{name}"
            self.append(AutoscalerList(list_id="a", hpas=[native], session="s"))
            self.observe(replicas[name], 300)

    def append(self, *bodies: Body, **options: Any) -> None:
        """Append a record, and what the decider then says to other partitions."""
        super().append(*bodies, **options)
        for each in self.partition.pop_messages():
            self.append(each.body, key=f"{each.cluster}/{each.namespace}", after_ms=0)

    def whole(
        self,
        *names: str,
        name: str = "checkout",
        beside: bool = False,
        mode: Mode = "enforce",
        maximum: int = 12,
        minimum: int = 4,
        **fleet: Any,
    ) -> None:
        """Apply a FleetHPA, as the verb does.

        `names`: of its clusters; none: all. `name`: its own. `beside`: the clusters keep their own HPAs.
        """
        self.revision += 1
        names = names or tuple(self.replicas)
        clusters = [FleetCluster(name=cluster, max_replicas=maximum) for cluster in names]
        spec = FleetSpec(clusters=clusters, **fleet)
        body = AutoscalerSet(
            hpa=hpa(name, maxReplicas=maximum, minReplicas=minimum),
            origin="central",
            mode=mode,
            fleet=spec,
            revision=self.revision,
        )
        self.append(body, key=f"{FLEET}/shop")
        for cluster in names:
            if not beside:
                gone = AutoscalerDeleted(name=name, origin="cluster", uid=f"uid-{cluster}")
                self.append(gone, key=f"{cluster}/shop")
            member = hpa(name, maxReplicas=maximum, minReplicas=1)
            self.append(
                AutoscalerSet(
                    hpa=member, origin="central", mode="shadow" if beside else "enforce", revision=self.revision
                ),
                key=f"{cluster}/shop",
            )

    def period(self, usage_milli: Mapping[str, int]) -> None:
        """One sync period in which each pod of a cluster uses so much CPU (it requests 500m; the target is 60 %)."""
        self.now_ms += PERIOD_MS // 2
        for name, used in usage_milli.items():
            self.cluster = name
            self.observe(self.replicas[name], used)
        self.append(after_ms=PERIOD_MS // 2)
        wanted = [each.decision for each in self.decisions() if each.decision.wants is not None]
        for decision in wanted:
            if decision.cluster in self.replicas and self._is_open(decision.cluster, decision.id):
                self.cluster = decision.cluster
                self._apply(decision)

    def _is_open(self, cluster: str, decision: str) -> bool:
        rows = [each.row for id_, each in self.partition.state.hpas.items() if id_.cluster == cluster]
        return any(row.pending is not None and row.pending.decision == decision for row in rows)

    def _apply(self, decision: Decision) -> None:
        assert decision.wants is not None
        self.replicas[decision.cluster] = decision.wants
        self.append(
            Outcome(
                decision=decision.id,
                name=decision.name,
                uid=decision.uid,
                result="applied",
                spec_replicas=decision.wants,
                status_replicas=decision.wants,
                selector="app=checkout",
                resource_version="8",
            )
        )
