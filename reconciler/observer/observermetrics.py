"""The Prometheus metrics of the observer, in a registry of its own."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from reconciler.clusters.clustermetrics import ClusterMetrics


class ObserverMetrics(ClusterMetrics):
    """What the observer measures."""

    def __init__(self, registry: CollectorRegistry, shared: ClusterMetrics | None = None) -> None:
        super().__init__(registry, shared)
        self.watch_restarts = Counter(
            "fleethpa_watch_restarts_total",
            "Watches that had to begin again",
            ["cluster", "resource", "reason"],
            registry=registry,
        )
        self.list_errors = Counter(
            "fleethpa_list_errors_total", "Lists that failed", ["cluster", "resource"], registry=registry
        )
        self.answers = Counter(
            "fleethpa_metric_answers_total", "Answers of metrics APIs", ["cluster", "api", "result"], registry=registry
        )
        self.polls_late = Counter(
            "fleethpa_metric_polls_late_total",
            "Polls that started late because the previous poll was still running",
            ["cluster"],
            registry=registry,
        )
        self.records = Counter(
            "fleethpa_observer_records_total", "Records written to public topics", ["topic"], registry=registry
        )
        self.namespaces = Gauge(
            "fleethpa_observer_namespaces", "Namespaces with HPAs that are reported", ["cluster"], registry=registry
        )
