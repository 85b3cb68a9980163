"""What a reconciler measures."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from reconciler.clusters.client import ClusterMetrics
from runtime.process import FrequentCounters

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0)


class ReconcilerMetrics(ClusterMetrics):
    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.frequent = FrequentCounters(registry)
        counter = partial(Counter, registry=registry)
        self.scale_requests = counter(
            "fleethpa_scale_requests_total", "Reads and writes of /scale by result", ["cluster", "result"]
        )
        self.outcomes = counter(
            "fleethpa_outcomes_total", "Wanted writes by what became of them", ["cluster", "result"]
        )
        self.actuation = Histogram(
            "fleethpa_actuation_duration_seconds",
            "From the decision to the scale written",
            ["cluster"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.status_writes = counter(
            "fleethpa_status_writes_total", "Writes of HPA status and Events", ["cluster", "what", "result"]
        )
        self.decisions = counter(
            "fleethpa_reconciler_decisions_total", "Decision records by what they ask for", ["asks"]
        )
        self.waiting = Gauge(
            "fleethpa_reconciler_waiting", "Wanted writes that wait or run", ["cluster"], registry=registry
        )
