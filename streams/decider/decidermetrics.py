"""The Prometheus metrics of the decider."""

import platform
import re
from collections.abc import Mapping
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from schemas.decisions import ENGINE
from schemas.limits import UNKNOWN_NAMESPACES
from streams.decider.owned import OwnedPartition
from streams.decider.resultcounts import Results
from streams.state.ledger import DecisionRecord
from streams.state.moves import FIGHT_TURNS, fight_now
from streams.state.partition import Partition

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
