"""What an agent is told at start. Nothing here changes a decision."""

import socket
import uuid
from dataclasses import dataclass, field

from reconciler.clusters.client import ClusterConfig
from schemas.agents import AgentTopics
from schemas.connection import KafkaSettings

HOME = "fleethpa-system"
LEASE = "fleethpa-agent"


def _identity() -> str:
    """A name of this run: also a process that comes back under its old name begins a new term."""
    return f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """Settings of an agent.

    `cluster`: how to reach the cluster, and its name. `incarnation`: which topics are its own. `namespaces`: watch only
    these (empty: the whole cluster). `home`: the namespace of the Leases. `region`: of the hub, as the Lease names it.
    `broker_time`: False where the brokers stamp no append time (the embedded broker): then this machine's clock counts.
    `web_port`: None serves nothing, 0 takes a free port.
    """

    kafka: KafkaSettings
    cluster: ClusterConfig
    incarnation: int
    namespaces: tuple[str, ...] = ()
    all_pods: bool = False
    home: str = HOME
    region: str = "main"
    identity: str = field(default_factory=_identity)
    workers: int = 8
    queue: int = 5_000
    request_timeout_s: float = 5.0
    sync_period_ms: int = 15_000
    heartbeat_ms: int = 10_000
    broker_time: bool = True
    web_port: int | None = None
    web_host: str = "127.0.0.1"

    @property
    def hub(self) -> str:
        """Who holds the Lease `fleethpa-hub` while the hub is in charge of the cluster."""
        return f"hub/{self.region}/{self.incarnation}"

    @property
    def topics(self) -> AgentTopics:
        """The agent's two topics."""
        return AgentTopics(self.cluster.name, self.incarnation)
