"""The Prometheus metrics of the decider: of its decisions, of the process, and of every HPA of the owned partitions.

Names and labels of an HPA's metrics follow kube-state-metrics, with `cluster` before them: each of its series about
HPAs has an equal here, which `compose/prometheus-kube-state-metrics.yaml` records under its name. They are read from
the state at each scrape and written as text here: a scrape has some 18 lines per HPA, and through prometheus_client,
which makes an object of each and sorts and checks its labels, it takes seconds of CPU time for tens of thousands of
HPAs.
"""

from __future__ import annotations

import logging
import platform
import re
import time
from bisect import bisect_left
from collections import Counter as Counted
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from importlib.metadata import version
from operator import add
from typing import Any, Final

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from schemas.answers import MetricAnswer
from schemas.decisions import ENGINE, Decision, cluster_of
from schemas.kubernetes.gotimes import parse_time_ms
from schemas.kubernetes.metricspecs import metric_name, metric_source
from schemas.kubernetes.quantity import parse_quantity
from schemas.limits import UNKNOWN_NAMESPACES
from streams.decider.owned import OwnedPartition
from streams.partition import Partition
from streams.state.fights import FIGHT_TURNS, fight_now
from streams.state.gather import MetricQuery
from streams.state.hpastate import Hpa
from streams.state.ledger import DecisionRecord
from streams.state.namespace import Namespace
from streams.state.needs import flapping, is_disabled, is_saturated
from streams.state.subject import own_status

log = logging.getLogger("fleethpa.decider")

LAG_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0)
ACTIONS = {"ScaleUp": "scale_up", "ScaleDown": "scale_down", "None": "none"}
"""Upstream's words for a direction."""


class EvaluationResult(Struct, frozen=True, gc=False):
    """Labels of a decision."""

    action: str = "none"
    reason: str = ""
    limited_by: str = ""
    mode: str = ""


_SELECTOR = re.compile(r"\((&LabelSelector\{.*\}|nil)\)")


class LagHistogram(Histogram):  # the package has no call for several observations
    """A histogram to which many observations are added at once."""

    def observe_all(self, counted: Sequence[tuple[float, int]]) -> None:
        """Add so many observations of each amount. Each counter takes a lock, so it is raised once."""
        buckets: Counted[int] = Counted()
        for amount, count in counted:
            buckets[bisect_left(self._upper_bounds, amount)] += count
        self._sum.inc(sum([amount * count for amount, count in counted]))
        for at, count in buckets.items():
            self._buckets[at].inc(count)


class Results:
    """Counts decisions, once per batch."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self._decisions = counter(
            "fleethpa_decisions", "Decisions published", ["kind", "action", "reason", "limited_by", "mode"]
        )
        self._writes = counter(
            "fleethpa_writes_ended",
            "Wanted writes that have ended, by outcome; `timeout`: none came back, as where nobody serves the cluster",
            ["cluster", "result"],
        )
        self._lag = LagHistogram(
            "fleethpa_decision_lag_seconds",
            "From the newest sample that an evaluation used to its record on the decisions topic",
            buckets=LAG_SECONDS,
            registry=registry,
        )

    def count(self, decisions: Iterable[DecisionRecord], now_s: float) -> Counted[str]:
        """Count the decisions that were published now (Unix seconds); return how many there were of each kind."""
        results: Counted[tuple[str, EvaluationResult]] = Counted()
        newest: Counted[int] = Counted()
        for decision in decisions:
            body = decision.body
            results[body.kind, _result(body)] += 1
            if body.kind == "completion":
                self._writes.labels(cluster_of(decision.headers), body.outcome["result"]).inc()
            else:
                newest[max(filter(None, [metric.newest for metric in body.metrics]), default=0)] += 1
        kinds: Counted[str] = Counted()
        for (kind, result), count in results.items():
            self._decisions.labels(kind, result.action, result.reason, result.limited_by, result.mode).inc(count)
            kinds[kind] += count
        del newest[0]  # of evaluations that used no sample
        # Pairs: samples of different times in the future have the same lag, 0.
        self._lag.observe_all([(max(0.0, now_s - newest_ms / 1000), count) for newest_ms, count in newest.items()])
        return kinds


def _result(body: Decision) -> EvaluationResult:
    # The selector of a metric says little, is long, and would make a series of its own.
    reason = _SELECTOR.sub("", body.reason)
    return EvaluationResult(ACTIONS.get(body.direction, "none"), reason, ",".join(body.constraints_applied), body.mode)


BATCH_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500)
CHECKPOINT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def _fights(partition: Partition) -> int:
    rows = [hpa.row for hpa in list(partition.state.hpas.values())]
    return sum(fight_now(row.moves, partition.clock_ms) is not None for row in rows if len(row.moves) > FIGHT_TURNS)


class Metrics:
    """The counters of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self.results = Results(registry)
        self.evaluations = counter("fleethpa_evaluations", "Evaluations published")
        self.duplicates = counter("fleethpa_duplicates_suppressed", "Recomputed decisions that were already recorded")
        self.reread = counter("fleethpa_reread_records", "Log records folded again after a restart")
        self.log_records = counter("fleethpa_log_records", "Log records taken")
        self.batch_size = histogram("fleethpa_batch_records", "Log records in a batch", buckets=BATCH_SIZES)
        self.checkpoint_seconds = histogram(
            "fleethpa_checkpoint_seconds",
            "Time of the checkpoints that are written at once",
            buckets=CHECKPOINT_SECONDS,
        )
        self.row_bytes = counter("fleethpa_row_bytes", "Bytes of state rows written")
        self.lag = gauge("fleethpa_lag_records", "Log records not yet applied", ["partition"])
        self.log_time = gauge(
            "fleethpa_log_time_seconds",
            "Log time: that of the newest applied log record, unless others contradict it",
            ["partition"],
        )
        self.every = gauge(
            "fleethpa_sync_periods_per_evaluation",
            "Sync periods from one evaluation of an HPA to the next: more than one since the decider was behind",
            ["partition"],
        )
        self.ignored_samples = gauge(
            "fleethpa_ignored_samples",
            "Entries of pushed samples that were not taken, as nothing else was ever reported of their namespaces",
            ["partition"],
        )
        self.owned = gauge(
            "fleethpa_owned_partitions", "Log partitions that this worker owns and has read the state of"
        )
        self.changes = counter(
            "fleethpa_replica_changes",
            "Changes of spec.replicas that evaluations saw, by who made them: decision, native or other",
            ["by"],
        )
        self.fights = gauge("fleethpa_replica_fights", "HPAs whose replica count two writers keep changing back")
        self.recovery_seconds = gauge(
            "fleethpa_recovery_seconds", "Length of the last recovery, process start or revocation to ready"
        )
        self.build = gauge("fleethpa_build_info", "Always 1", ["version", "engine", "python"])
        self.build.labels(version("fleet-hpa"), str(ENGINE), platform.python_version()).set(1)

    def took(self, records: int) -> None:
        self.log_records.inc(records)
        self.batch_size.observe(records)

    def decided(self, decisions: Sequence[DecisionRecord]) -> None:
        """Count the decisions that were published at once."""
        kinds = self.results.count(decisions, time.time())
        self.evaluations.inc(kinds["evaluation"])
        for decision in decisions:
            if change := decision.body.observed.get("change"):
                self.changes.labels(change["by"]).inc()

    def checkpointed(self, seconds: float, row_bytes: int) -> None:
        self.checkpoint_seconds.observe(seconds)
        self.row_bytes.inc(row_bytes)

    def refolded(self, partitions: Iterable[OwnedPartition]) -> None:
        """Count what was folded again, and the decisions that were already published."""
        counters = self.reread, self.duplicates
        totals = [0] * len(counters)
        for owned in partitions:
            totals = [*map(add, totals, owned.drain_counts())]
        for counter, total in zip(counters, totals, strict=True):
            if total:  # most are 0, and each call takes a lock
                counter.inc(total)

    def positions(self, owned: Mapping[int, OwnedPartition], ends: Mapping[int, int]) -> None:
        """Show how far each owned partition is."""
        self.owned.set(len(owned))
        # Counted when somebody asks: it walks all HPAs.
        self.fights.set_function(lambda: sum(_fights(one.partition) for one in list(owned.values())))
        self.lag.clear()
        self.log_time.clear()
        self.every.clear()
        self.ignored_samples.clear()
        for number, one in owned.items():
            self.log_time.labels(str(number)).set(one.partition.clock_ms / 1000)
            self.every.labels(str(number)).set(one.partition.every)
            self.ignored_samples.labels(str(number)).set(ignored_samples(one.partition))
            if number in ends:
                self.lag.labels(str(number)).set(max(0, ends[number] - 1 - one.partition.applied_offset))

    def exposition(self) -> bytes:
        return generate_latest(self.registry)


def ignored_samples(partition: Partition) -> int:
    """Count what came of namespaces that nothing but samples named, since the last hour without any."""
    refused = partition.state.row.refused.values()
    return sum(rows[UNKNOWN_NAMESPACES.what].count for rows in refused if UNKNOWN_NAMESPACES.what in rows)


HPA: Final = ("cluster", "namespace", "hpa")
FAMILIES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "info": (
        "Always 1: what the HPA scales, and where it lives",
        ("target_api_version", "target_kind", "target_name", "origin"),
    ),
    "created": ("Time at which the object was created, of a central one in the log", ()),
    "metadata_generation": ("Generation of the object", ()),
    "mode": ("Always 1, with the mode of the last evaluation", ("mode",)),
    "paused": ("Whether a pause held the last evaluation", ()),
    "wants_replicas": ("Replicas that the metrics asked for at the last evaluation, before any limit", ()),
    "saturated": ("1 while it has maxReplicas and its metrics ask for more", ()),
    "blocked": ("1 while a metric outside its tolerance changes nothing, because of pods without metrics", ()),
    "disabled": ("1 while the spec forbids the change that the metrics ask for", ()),
    "flapping": ("1 while its last changes take each other back, all within an hour", ()),
    "refused": ("Whether enforcing was refused at the last evaluation", ()),
    "spec_min_replicas": ("Lower bound", ()),
    "spec_max_replicas": ("Upper bound", ()),
    "spec_behavior_scale_up_tolerance": ("Tolerance of scaleUp, where the spec sets it", ()),
    "spec_behavior_scale_down_tolerance": ("Tolerance of scaleDown, where the spec sets it", ()),
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
    """Return the families of all live HPAs in Prometheus' text format; may run in another thread than the one that
    folds.

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
    """Yield the metrics of one HPA. Of several metrics with one name, the first that has a value is given."""
    row, shown = hpa.row, hpa.row.hpa_object()
    spec, created = shown["spec"], shown["metadata"].get("creationTimestamp")
    reference, status = spec["scaleTargetRef"], own_status(hpa)
    yield "info", (reference.get("apiVersion", ""), reference["kind"], reference["name"], row.origin), 1
    if created:
        yield "created", (), parse_time_ms(created) // 1000
    yield "metadata_generation", (), row.generation
    yield "mode", (row.mode,), 1
    yield "paused", (), int(bool(row.paused))
    yield "refused", (), int(bool(row.refused))
    wants, has = row.wants, status.get("currentReplicas")
    if wants is not None:
        yield "wants_replicas", (), wants
    yield "saturated", (), int(is_saturated(wants, has, spec["maxReplicas"]))
    yield "blocked", (), int(bool(row.blocked))
    yield "disabled", (), int(bool(is_disabled(spec, wants, has)))
    yield "flapping", (), int(flapping(row.moves, row.last_decision_ms) is not None)
    yield "spec_min_replicas", (), spec.get("minReplicas", 1)
    yield "spec_max_replicas", (), spec["maxReplicas"]
    for side, direction in (("scaleUp", "scale_up"), ("scaleDown", "scale_down")):
        tolerance = ((spec.get("behavior") or {}).get(side) or {}).get("tolerance")
        if tolerance is not None:
            yield f"spec_behavior_{direction}_tolerance", (), _amount(tolerance)
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
    """Yield the targets of a spec's metrics, or the current values of a status'."""
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
        newest_ms = _newest_sample_ms(namespace, query)
        if newest_ms is not None:
            yield "metric_last_sample_timestamp_seconds", (metric_name(metric),), newest_ms / 1000


def _once(samples: Iterator[GaugeSample]) -> Iterator[GaugeSample]:
    known: set[tuple[str, ...]] = set()
    for sample in samples:
        if sample[1] not in known:
            known.add(sample[1])
            yield sample


def _newest_sample_ms(namespace: Namespace, query: MetricQuery) -> int | None:
    """Return the time of the newest sample known for a metric, Unix milliseconds; None if there is no sample."""
    if query.query is not None:
        row = namespace.answers.get(query.query)
        return (None if row is None else _newest_ms(row.answer)) or None
    if query.series is not None:
        return max([row.time_ms for row in list(namespace.samples(query.series).values())], default=None)
    return None


def _newest_ms(answer: MetricAnswer) -> int | None:
    if answer.error is not None:
        return None
    if answer.pods is not None:
        return answer.pods.newest_ms
    return answer.time if answer.api == "object" else max([time_ms for _, time_ms in answer.items], default=None)
