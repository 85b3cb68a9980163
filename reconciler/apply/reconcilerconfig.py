"""The configuration of the reconciler. Nothing here changes a decision."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256

from reconciler.clusters.client import ClusterConfig
from reconciler.clusters.clusterfinder import FIXED, ClusterSources
from runtime.wallclock import Clock, wall_clock_ms
from schemas.connection import KafkaSettings
from schemas.topics import RECONCILER_GROUPS

_LONGEST_LIST = 120
"""A list of clusters with more characters is replaced by its hash in the name of a group."""


def sources_group(sources: ClusterSources) -> str:
    """The consumer group of all reconcilers that find their clusters in the same places.

    It does not name the clusters, which come and go: for a moment members may know different ones. A member that does
    not know a new cluster passes over its wanted writes, which the next evaluation asks for again.
    """
    digest = sha256(f"{sources.label} {reconciler_group(each.name for each in sources.fixed)}".encode()).hexdigest()
    return f"{RECONCILER_GROUPS}found-{digest[:16]}"


def reconciler_group(clusters: Iterable[str]) -> str:
    """The consumer group of all reconcilers that serve exactly these clusters.

    Members of one group share the decisions between them, so that each must serve the clusters of all of them.
    Reconcilers of other clusters read every decision in a group of their own. Where two groups both serve a cluster,
    both write there, which is harmless: the second finds the scale as wanted, and the first outcome counts.
    """
    names = sorted(set(clusters))
    listed = "+".join(names)
    if len(listed) > _LONGEST_LIST:
        listed = f"{len(names)}-clusters-{sha256(listed.encode()).hexdigest()[:16]}"
    return f"{RECONCILER_GROUPS}{listed}"


@dataclass(frozen=True, kw_only=True)
class ReconcilerConfig:
    """Settings of a reconciler.

    `clusters`: the ones it writes to; decisions for others are another reconciler's. `found`: where further ones are
    named, which come and go. `group`: the consumer group that decisions are read in; empty: the one that follows from
    the clusters (`reconciler_group`), or from where they are found (`sources_group`). `workers`: writes at once
    per cluster; `queue`: wanted writes that may wait per cluster. `web_port`: None serves nothing, 0 takes a free port.
    """

    kafka: KafkaSettings
    clusters: tuple[ClusterConfig, ...]
    found: ClusterSources = FIXED
    group: str = ""
    workers: int = 8
    queue: int = 5_000
    request_timeout_s: float = 5.0
    heartbeat_ms: int = 10_000
    web_port: int | None = None
    web_host: str = "127.0.0.1"
    clock: Clock = wall_clock_ms

    @property
    def group_id(self) -> str:
        """The consumer group that decisions are read in."""
        if self.group or self.found.are_fixed:
            return self.group or reconciler_group(cluster.name for cluster in self.clusters)
        return sources_group(self.sources)

    @property
    def sources(self) -> ClusterSources:
        """Where all clusters are named."""
        return replace(self.found, fixed=self.clusters)
