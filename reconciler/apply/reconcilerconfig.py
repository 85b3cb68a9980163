"""What the reconciler and the observer are told at start. Nothing here changes a decision."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from reconciler.clusters.client import ClusterConfig
from schemas.connection import KafkaSettings
from schemas.topics import RECONCILER_GROUP

Clock = Callable[[], int]


def wall_clock_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, kw_only=True)
class ReconcilerConfig:
    """Settings of a reconciler.

    `clusters`: the ones it writes to; decisions for others are another reconciler's. Reconcilers of different
    clusters need
    different `group`s, replicas for the same clusters share one. `workers`: writes at once per cluster; `queue`: wanted
    writes that may wait per cluster. `web_port`: None serves nothing, 0 takes a free port.
    """

    kafka: KafkaSettings
    clusters: tuple[ClusterConfig, ...]
    group: str = RECONCILER_GROUP
    workers: int = 8
    queue: int = 5_000
    request_timeout_s: float = 5.0
    web_port: int | None = None
    web_host: str = "127.0.0.1"
    clock: Clock = wall_clock_ms


@dataclass(frozen=True, kw_only=True)
class ObserverConfig:
    """Settings of an observer.

    `namespaces`: watch only these (empty: the whole cluster; where that is forbidden, each namespace that may be seen).
    `all_pods`: report pods of namespaces without HPAs, too. `sync_period_ms` holds where the settings topic says
    nothing.
    `prove_native_absent`: run the canary, in `canary_namespace`, for `canary_wait_s`.
    """

    kafka: KafkaSettings
    clusters: tuple[ClusterConfig, ...]
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
