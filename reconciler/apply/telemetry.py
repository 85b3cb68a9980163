"""The Prometheus metrics of the reconciler and the observer, each set with a registry of its own."""

from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0)


class ClusterMetrics:
    """What both parts measure of a cluster. `shared`: use its measures, where both are one process."""

    def __init__(self, registry: CollectorRegistry, shared: "ClusterMetrics | None" = None) -> None:
        self.up: Gauge = shared.up if shared is not None else _up(registry)
        self.last_sync: Gauge = shared.last_sync if shared is not None else _last_sync(registry)

    def forget(self, cluster: str) -> None:
        """Say nothing more of a cluster that has left the fleet."""
        for gauge in (self.up, self.last_sync):
            with suppress(KeyError):  # it was never reached
                gauge.remove(cluster)


def _up(registry: CollectorRegistry) -> Gauge:
    return Gauge("fleethpa_cluster_up", "Whether the API server answered last time", ["cluster"], registry=registry)


def _last_sync(registry: CollectorRegistry) -> Gauge:
    return Gauge(
        "fleethpa_cluster_last_sync_timestamp_seconds",
        "When the API server last answered",
        ["cluster"],
        registry=registry,
    )


class ReconcilerMetrics(ClusterMetrics):
    """What the reconciler measures."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.scale_requests = Counter(
            "fleethpa_scale_requests_total",
            "Reads and writes of /scale by result",
            ["cluster", "result"],
            registry=registry,
        )
        self.outcomes = Counter(
            "fleethpa_outcomes_total", "Wanted writes by what became of them", ["cluster", "result"], registry=registry
        )
        self.actuation = Histogram(
            "fleethpa_actuation_duration_seconds",
            "From the decision to the scale written",
            ["cluster"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.status_writes = Counter(
            "fleethpa_status_writes_total",
            "Writes of HPA status and Events",
            ["cluster", "what", "result"],
            registry=registry,
        )
        self.decisions = Counter(
            "fleethpa_reconciler_decisions_total", "Decision records by what they ask for", ["asks"], registry=registry
        )
        self.waiting = Gauge(
            "fleethpa_reconciler_waiting", "Wanted writes that wait or run", ["cluster"], registry=registry
        )


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


def result_of(status: int) -> str:
    """The `result` label of a request: `ok`, or the kind of problem; status 0 means that there was no answer."""
    if 200 <= status < 300:
        return "ok"
    names = {0: "timeout", 401: "forbidden", 403: "forbidden", 404: "notfound", 409: "conflict", 429: "throttled"}
    return names.get(status, "error")
