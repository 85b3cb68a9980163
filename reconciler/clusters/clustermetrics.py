"""The Prometheus metrics of one member cluster's API server, whoever asks it."""

from contextlib import suppress

from prometheus_client import CollectorRegistry, Gauge


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


def result_of(status: int) -> str:
    """The `result` label of a request: `ok`, or the kind of problem; status 0 means that there was no answer."""
    if 200 <= status < 300:
        return "ok"
    names = {0: "timeout", 401: "forbidden", 403: "forbidden", 404: "notfound", 409: "conflict", 429: "throttled"}
    return names.get(status, "error")
