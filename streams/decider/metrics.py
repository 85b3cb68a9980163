"""The Prometheus metrics of the decider.

The Prometheus metrics of every HPA of the owned partitions, read from the rows at each scrape.

Names and labels follow kube-state-metrics, with `cluster` before them, so that its dashboards need one word changed.

Counts of published decisions for Prometheus: how many of which kind, and how old their samples were.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

import msgspec
from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from schemas.decisions import ENGINE, cluster_of, is_short
from schemas.kubernetes.hpa import metric_name, metric_source
from schemas.kubernetes.quantity import parse_quantity
from schemas.limits import UNKNOWN_NAMESPACES
from streams.decider.owned import OwnedPartition
from streams.state.gather import newest_sample_ms
from streams.state.hpastate import Hpa
from streams.state.ledger import DecisionRecord
from streams.state.moves import FIGHT_TURNS, fight_now
from streams.state.namespace import Namespace
from streams.state.observe import own_status
from streams.state.partition import Partition

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


LAG_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0)
ACTIONS = {"ScaleUp": "scale_up", "ScaleDown": "scale_down", "None": "none"}
"""Upstream's words for a direction."""


class _Metric(Struct, frozen=True, gc=False):
    newest: int | None = None


class _Outcome(Struct, frozen=True, gc=False):
    result: str = ""


class _Seen(Struct, frozen=True, rename="camel"):
    """The fields of a full or a short record that are counted."""

    mode: str = "shadow"
    direction: str = "None"
    reason: str = ""
    constraints_applied: list[str] = []
    metrics: list[_Metric] = []
    newest: list[int | None] = []
    outcome: _Outcome | None = None


class EvaluationResult(Struct, frozen=True, gc=False):
    """Labels of a decision."""

    action: str = "none"
    reason: str = ""
    limited_by: str = ""
    mode: str = ""


_SELECTOR = re.compile(r"\((&LabelSelector\{.*\}|nil)\)")
_SEEN = msgspec.json.Decoder(_Seen)


def kind_of(decision: DecisionRecord) -> str:
    """`completion`, or the form of an evaluation's record: `full` or `short`."""
    if decision.id.endswith("-c"):
        return "completion"
    return "short" if is_short(decision.headers) else "full"


class Results:
    """Counts decisions. A short record is counted as the full one that it repeats, if that was made here."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._decisions = Counter(
            "fleethpa_decisions",
            "Decisions published",
            ["kind", "action", "reason", "limited_by", "mode"],
            registry=registry,
        )
        self._writes = Counter(
            "fleethpa_writes_ended",
            "Wanted writes that have ended, by outcome; `timeout`: none came back, as where nobody serves the cluster",
            ["cluster", "result"],
            registry=registry,
        )
        self._lag = Histogram(
            "fleethpa_decision_lag_seconds",
            "From the newest sample that an evaluation used to its record on the decisions topic",
            buckets=LAG_SECONDS,
            registry=registry,
        )
        self._full: dict[bytes, EvaluationResult] = {}
        self._results: dict[EvaluationResult, EvaluationResult] = {}

    def count(self, decision: DecisionRecord, now_s: float | None = None) -> str:
        """Count one published decision; gives its kind."""
        kind, seen = kind_of(decision), _SEEN.decode(decision.value)
        subject = dict(decision.headers)["ce_subject"]
        result = self._full.get(subject, EvaluationResult()) if kind == "short" else _result(seen)
        if kind == "full":
            # Results are few: each HPA's own texts of them would take a quarter of a kilobyte.
            self._full[subject] = self._results.setdefault(result, result)
        self._decisions.labels(kind, result.action, result.reason, result.limited_by, result.mode).inc()
        if seen.outcome is not None:
            self._writes.labels(cluster_of(decision.headers), seen.outcome.result).inc()
        if kind != "completion":
            newest = _newest_counts(seen.newest if kind == "short" else [metric.newest for metric in seen.metrics])
            if newest is not None:
                self._lag.observe(max(0.0, (time.time() if now_s is None else now_s) - newest / 1000))
        return kind


def _result(seen: _Seen) -> EvaluationResult:
    # The selector of a metric says little, is long, and would make a series of its own.
    reason = _SELECTOR.sub("", seen.reason)
    return EvaluationResult(ACTIONS.get(seen.direction, "none"), reason, ",".join(seen.constraints_applied), seen.mode)


def _newest_counts(times: Iterable[int | None]) -> int | None:
    return max((time_ms for time_ms in times if time_ms is not None), default=None)


_CHANGE = re.compile(rb'"change":\{"from":\d+,"to":\d+,"by":"(\w+)"')
TAKE_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500)
CHECKPOINT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def _fights(partition: Partition) -> int:
    rows = [hpa.row for hpa in list(partition.state.hpas.values())]
    return sum(fight_now(row.moves, partition.clock_ms) is not None for row in rows if len(row.moves) > FIGHT_TURNS)


class Metrics:
    """The counters of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.results = Results(registry)
        self.evaluations = Counter("fleethpa_evaluations", "Evaluations published", registry=registry)
        self.duplicates = Counter(
            "fleethpa_duplicates_suppressed", "Recomputed decisions that were already recorded", registry=registry
        )
        self.reread = Counter("fleethpa_reread_records", "Log records folded again after a restart", registry=registry)
        self.log_records = Counter("fleethpa_log_records", "Log records taken", registry=registry)
        self.take_size = Histogram(
            "fleethpa_take_records", "Log records in a take", buckets=TAKE_SIZES, registry=registry
        )
        self.checkpoint_seconds = Histogram(
            "fleethpa_checkpoint_seconds", "Time of a checkpoint", buckets=CHECKPOINT_SECONDS, registry=registry
        )
        self.row_bytes = Counter("fleethpa_row_bytes", "Bytes of state rows written", registry=registry)
        self.lag = Gauge("fleethpa_lag_records", "Log records not yet applied", ["partition"], registry=registry)
        self.log_time = Gauge(
            "fleethpa_log_time_seconds", "Time of the newest applied log record", ["partition"], registry=registry
        )
        self.ignored_samples = Gauge(
            "fleethpa_ignored_samples",
            "Entries of pushed samples that were not taken, as nothing else was ever reported of their namespaces",
            ["partition"],
            registry=registry,
        )
        self.owned = Gauge("fleethpa_owned_partitions", "Log partitions that this worker owns", registry=registry)
        self.changes = Counter(
            "fleethpa_replica_changes",
            "Changes of spec.replicas that evaluations saw, by who made them: decision, native or other",
            ["by"],
            registry=registry,
        )
        self.fights = Gauge(
            "fleethpa_replica_fights", "HPAs whose replica count two writers keep changing back", registry=registry
        )
        self.recovery_seconds = Gauge(
            "fleethpa_recovery_seconds",
            "Length of the last recovery, process start or revocation to ready",
            registry=registry,
        )
        self.build = Gauge("fleethpa_build_info", "Always 1", ["version", "engine", "python"], registry=registry)
        self.build.labels(version("fleet-hpa"), str(ENGINE), platform.python_version()).set(1)

    def took(self, records: int) -> None:
        """Count a take."""
        self.log_records.inc(records)
        self.take_size.observe(records)

    def decided(self, decision: DecisionRecord) -> None:
        """Count a published decision."""
        kind = self.results.count(decision)
        if kind != "completion":
            self.evaluations.inc()
        if kind == "full" and (seen := _CHANGE.search(decision.value)):
            self.changes.labels(seen[1].decode()).inc()

    def checkpointed(self, seconds: float, row_bytes: int) -> None:
        """Count a checkpoint."""
        self.checkpoint_seconds.observe(seconds)
        self.row_bytes.inc(row_bytes)

    def refolded(self, owned: OwnedPartition) -> None:
        """Count what was folded again, and the decisions that were already published."""
        reread, suppressed = owned.drain_counts()
        self.reread.inc(reread)
        self.duplicates.inc(suppressed)

    def positions(self, owned: Mapping[int, OwnedPartition], ends: Mapping[int, int]) -> None:
        """Show how far each owned partition is."""
        self.owned.set(len(owned))
        # Counted when somebody asks: it walks all HPAs.
        self.fights.set_function(lambda: sum(_fights(one.partition) for one in list(owned.values())))
        self.lag.clear()
        self.log_time.clear()
        self.ignored_samples.clear()
        for number, one in owned.items():
            self.log_time.labels(str(number)).set(one.newest_log_time_ms / 1000)
            self.ignored_samples.labels(str(number)).set(ignored_samples(one.partition))
            if number in ends:
                self.lag.labels(str(number)).set(max(0, ends[number] - 1 - one.partition.applied_offset))

    def exposition(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)


def ignored_samples(partition: Partition) -> int:
    """Count what came of namespaces that nothing but samples named, since the last hour without any."""
    refused = partition.state.row.refused.values()
    return sum(rows[UNKNOWN_NAMESPACES.what].count for rows in refused if UNKNOWN_NAMESPACES.what in rows)
