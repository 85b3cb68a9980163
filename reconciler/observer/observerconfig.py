"""The configuration of the observer. Nothing here changes a decision."""

import socket
from dataclasses import dataclass, field, replace

from reconciler.clusters.client import ClusterConfig
from reconciler.clusters.clusterfinder import FIXED, ClusterSources
from runtime.wallclock import Clock, wall_clock_ms
from schemas.connection import KafkaSettings


@dataclass(frozen=True, kw_only=True)
class ObserverConfig:
    """Settings of an observer.

    `clusters`: the ones it observes; `found`: where further ones are named, which come and go. `namespaces`: watch only
    these (empty: the whole cluster; where that is forbidden, each namespace that may be seen). `all_pods`: report pods
    of namespaces without HPAs, too. `sync_period_ms` holds where the settings topic says nothing. `instance`: name of
    this observer, which stays over restarts; two that run at once need different ones. `prove_native_absent`: run the
    canary, in `canary_namespace`, for `canary_wait_s`.
    """

    kafka: KafkaSettings
    clusters: tuple[ClusterConfig, ...]
    found: ClusterSources = FIXED
    instance: str = field(default_factory=socket.gethostname)
    namespaces: tuple[str, ...] = ()
    all_pods: bool = False
    sync_period_ms: int = 15_000
    heartbeat_ms: int = 10_000
    reread_ms: int = 300_000
    metrics_timeout_s: float = 10.0
    metrics_at_once: int = 16
    list_limit: int = 500
    watch_s: int = 300
    prove_native_absent: bool = False
    canary_namespace: str = "default"
    canary_wait_s: float = 45.0
    web_port: int | None = None
    web_host: str = "127.0.0.1"
    clock: Clock = wall_clock_ms
    author: str = field(default="observer")

    @property
    def sources(self) -> ClusterSources:
        """Where all clusters are named."""
        return replace(self.found, fixed=self.clusters)
