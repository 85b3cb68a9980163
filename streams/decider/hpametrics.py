"""The Prometheus metrics of every HPA of the owned partitions, read from the state at each scrape.

Names and labels follow kube-state-metrics, with `cluster` before them, so that its dashboards need one word changed.

They are written as text here: a scrape has some 16 lines per HPA, and through prometheus_client, which makes an object
of each and sorts and checks its labels, it takes seconds of CPU time for tens of thousands of HPAs.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from schemas.kubernetes.hpa import metric_name, metric_source
from schemas.kubernetes.quantity import parse_quantity
from streams.state.gather import newest_sample_ms
from streams.state.hpastate import Hpa
from streams.state.namespace import Namespace
from streams.state.observe import own_status
from streams.state.partition import Partition

HPA: Final = ("cluster", "namespace", "hpa")
FAMILIES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
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
"""Family, without `fleethpa_hpa_`: what it is, and its labels beside those of HPA."""
_TARGET_TYPES: Final = {"averageUtilization": "utilization", "averageValue": "average", "value": "value"}
"""Field of a target or current value -> how kube-state-metrics calls it."""
GaugeSample = tuple[str, tuple[str, ...], float]
"""Family, its own labels, value."""


def _line(name: str, labels: tuple[str, ...]) -> str:
    places = ",".join([f'{label}="%s"' for label in (*HPA, *labels)])
    return f"fleethpa_hpa_{name}{{{places}}} %s\n"


_LINES: Final = {name: _line(name, labels) for name, (_, labels) in FAMILIES.items()}


def exposition(partitions: Iterable[Partition]) -> str:
    """Give the families of all live HPAs in Prometheus' text format; may run in another thread than the one that folds.

    Source: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
    """
    families = {
        name: [f"# HELP fleethpa_hpa_{name} {text}\n# TYPE fleethpa_hpa_{name} gauge\n"]
        for name, (text, _) in FAMILIES.items()
    }
    for partition in partitions:
        for hpa in list(partition.state.hpas.values()):
            if hpa.autoscaler is None or hpa.row.deleted:
                continue
            namespace = partition.state.namespaces.get(f"{hpa.id.cluster}/{hpa.id.namespace}")
            for name, labels, value in samples(hpa, namespace):
                families[name].append(_LINES[name] % (*hpa.id, *map(_escaped, labels), value))
    return "".join(["".join(lines) for lines in families.values()])


def _escaped(label: str) -> str:
    if label.isalnum():
        return label
    return label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def samples(hpa: Hpa, namespace: Namespace | None) -> Iterator[GaugeSample]:
    """Give the metrics of one HPA. Of several metrics with one name, the first that has a value is given."""
    row, spec = hpa.row, hpa.spec
    reference, status = spec["scaleTargetRef"], own_status(hpa)
    yield "info", (reference["kind"], reference["name"], row.origin), 1
    yield "mode", (row.mode,), 1
    yield "paused", (), int(bool(row.paused))
    yield "refused", (), int(bool(row.refused))
    yield "spec_min_replicas", (), spec.get("minReplicas", 1)
    yield "spec_max_replicas", (), spec["maxReplicas"]
    yield from _status(status)
    yield from _once(_targets("spec_target_metric", "target", spec.get("metrics")))
    yield from _once(_targets("status_target_metric", "current", status.get("currentMetrics")))
    if namespace is not None:
        yield from _once(_newest(hpa, spec, namespace))
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
                yield family, (name, kind), _amount(values[field])


@lru_cache(maxsize=4_096)
def _amount(quantity: str | int) -> float:
    return parse_quantity(str(quantity)).as_float()


def _newest(hpa: Hpa, spec: Mapping[str, Any], namespace: Namespace) -> Iterator[GaugeSample]:
    # Another thread may change both meanwhile: the next scrape has what they are then.
    for query, metric in zip(hpa.queries, spec.get("metrics") or (), strict=False):
        newest_ms = newest_sample_ms(namespace, query)
        if newest_ms is not None:
            yield "metric_last_sample_timestamp_seconds", (metric_name(metric),), newest_ms / 1000


def _once(found: Iterator[GaugeSample]) -> Iterator[GaugeSample]:
    known: set[tuple[str, ...]] = set()
    for sample in found:
        if sample[1] not in known:
            known.add(sample[1])
            yield sample
