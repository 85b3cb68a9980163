"""What Prometheus is told of every HPA of the owned partitions, read from the rows when it asks.

Names and labels follow kube-state-metrics, with `cluster` before them, so that its dashboards need one word changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from streams.core.hpa import Hpa
from streams.core.subject import own_status
from streams.decider.owned import OwnedPartition

HPA = ("cluster", "namespace", "hpa")
FAMILIES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "info": ("Always 1: what the HPA scales, and where it lives", ("target_kind", "target_name", "origin")),
    "mode": ("Always 1, with the mode of the last evaluation", ("mode",)),
    "paused": ("Whether a pause held the last evaluation", ()),
    "refused": ("Whether enforcing was refused at the last evaluation", ()),
    "spec_min_replicas": ("Lower bound", ()),
    "spec_max_replicas": ("Upper bound", ()),
    "status_current_replicas": ("Replicas seen by the last evaluation", ()),
    "status_desired_replicas": ("Replicas wanted by the last evaluation", ()),
    "status_condition": ("Always 1, with status and reason of each condition", ("condition", "status", "reason")),
    "last_decision_timestamp_seconds": ("Log time of the last decision", ()),
}
Sample = tuple[str, tuple[str, ...], float]
"""Family, its own labels, value."""


class HpaCollector(Collector):
    """Gives the families of all live HPAs. May run in another thread than the one that folds."""

    def __init__(self, owned: Callable[[], Iterable[OwnedPartition]]) -> None:
        self._owned = owned

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Give every family."""
        families = {
            name: GaugeMetricFamily(f"fleethpa_hpa_{name}", text, labels=[*HPA, *labels])
            for name, (text, labels) in FAMILIES.items()
        }
        for one in self._owned():
            for hpa in list(one.partition.state.hpas.values()):
                if hpa.autoscaler is None or hpa.row.deleted:
                    continue
                for name, labels, value in samples(hpa):
                    families[name].add_metric([*hpa.id, *labels], value)
        yield from families.values()


def samples(hpa: Hpa) -> Iterator[Sample]:
    """Give what is told of one HPA."""
    row, spec = hpa.row, hpa.spec
    reference = spec["scaleTargetRef"]
    yield "info", (reference["kind"], reference["name"], row.origin), 1
    yield "mode", (row.mode,), 1
    yield "paused", (), bool(row.paused)
    yield "refused", (), bool(row.refused)
    yield "spec_min_replicas", (), spec.get("minReplicas", 1)
    yield "spec_max_replicas", (), spec["maxReplicas"]
    yield from _status(own_status(hpa))
    if row.last_decision:
        yield "last_decision_timestamp_seconds", (), row.last_decision_ms / 1000


def _status(status: Mapping[str, Any]) -> Iterator[Sample]:
    if not status:
        return
    yield "status_current_replicas", (), status.get("currentReplicas", 0)
    yield "status_desired_replicas", (), status.get("desiredReplicas", 0)
    for condition in status.get("conditions") or ():
        labels = (condition["type"], str(condition["status"]).lower(), condition.get("reason", ""))
        yield "status_condition", labels, 1
