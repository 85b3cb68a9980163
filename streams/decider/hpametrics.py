"""The Prometheus metrics of every HPA of the owned partitions, read from the rows at each scrape.

Names and labels follow kube-state-metrics, with `cluster` before them, so that its dashboards need one word changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from schemas.kubernetes.hpa import metric_name, metric_source
from schemas.kubernetes.quantity import parse_quantity
from streams.decider.owned import OwnedPartition
from streams.state.gather import newest_sample_ms
from streams.state.hpastate import Hpa
from streams.state.namespace import Namespace
from streams.state.subject import own_status

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
    "spec_target_metric": ("Target of each metric of the spec", ("metric_name", "metric_target_type")),
    "status_target_metric": ("Newest value of each metric in the status", ("metric_name", "metric_target_type")),
    "metric_last_sample_timestamp_seconds": ("Time of the newest sample known of each metric", ("metric_name",)),
    "status_condition": ("Always 1, with status and reason of each condition", ("condition", "status", "reason")),
    "last_decision_timestamp_seconds": ("Log time of the last decision", ()),
}
_TARGET_TYPES = {"averageUtilization": "utilization", "averageValue": "average", "value": "value"}
"""Field of a target or current value -> how kube-state-metrics calls it."""
GaugeSample = tuple[str, tuple[str, ...], float]
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
                namespace = one.partition.state.namespaces.get(f"{hpa.id.cluster}/{hpa.id.namespace}")
                for name, labels, value in samples(hpa, namespace):
                    families[name].add_metric([*hpa.id, *labels], value)
        yield from families.values()


def samples(hpa: Hpa, namespace: Namespace | None) -> Iterator[GaugeSample]:
    """Give the metrics of one HPA. Of several metrics with one name, the first that has a value is given."""
    row, spec = hpa.row, hpa.spec
    reference = spec["scaleTargetRef"]
    yield "info", (reference["kind"], reference["name"], row.origin), 1
    yield "mode", (row.mode,), 1
    yield "paused", (), bool(row.paused)
    yield "refused", (), bool(row.refused)
    yield "spec_min_replicas", (), spec.get("minReplicas", 1)
    yield "spec_max_replicas", (), spec["maxReplicas"]
    yield from _status(own_status(hpa))
    yield from _once(_targets("spec_target_metric", "target", spec.get("metrics")))
    yield from _once(_targets("status_target_metric", "current", own_status(hpa).get("currentMetrics")))
    if namespace is not None:
        yield from _once(_newest(hpa, namespace))
    if row.last_decision:
        yield "last_decision_timestamp_seconds", (), row.last_decision_ms / 1000


def _status(status: Mapping[str, Any]) -> Iterator[GaugeSample]:
    if not status:
        return
    yield "status_current_replicas", (), status.get("currentReplicas", 0)
    yield "status_desired_replicas", (), status.get("desiredReplicas", 0)
    for condition in status.get("conditions") or ():
        labels = (condition["type"], str(condition["status"]).lower(), condition.get("reason", ""))
        yield "status_condition", labels, 1


def _targets(family: str, side: str, metrics: list[dict[str, Any]] | None) -> Iterator[GaugeSample]:
    """Give the targets of a spec's metrics, or the current values of a status'."""
    for metric in metrics or ():
        name, values = metric_name(metric), metric_source(metric).get(side) or {}
        for field, kind in _TARGET_TYPES.items():
            if field in values:
                yield family, (name, kind), parse_quantity(str(values[field])).as_float()


def _newest(hpa: Hpa, namespace: Namespace) -> Iterator[GaugeSample]:
    for query, metric in zip(hpa.queries, hpa.spec.get("metrics") or (), strict=True):
        newest_ms = newest_sample_ms(namespace, query)
        if newest_ms is not None:
            yield "metric_last_sample_timestamp_seconds", (metric_name(metric),), newest_ms / 1000


def _once(found: Iterator[GaugeSample]) -> Iterator[GaugeSample]:
    known: set[tuple[str, ...]] = set()
    for sample in found:
        if sample[1] not in known:
            known.add(sample[1])
            yield sample
