"""An agent beside a hub: two replicas as processes of this machine, each with a port that says who leads."""

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from runtime.kafkaclients import running_producer
from runtime.records import Publisher
from schemas.agents import AgentSet
from schemas.connection import KafkaSettings
from schemas.topics import SETTINGS
from tests.kafka.broker import free_ports
from tests.kubernetes.hub import Hub

REPLICAS: Final = ("agent-a", "agent-b")


class AgentReplicas:
    """The replicas of one cluster's agent. `kubeconfig`: their access, with a context that is named as the cluster."""

    def __init__(self, hub: Hub, registered: AgentSet, kubeconfig: Path) -> None:
        self.hub, self.registered, self.kubeconfig = hub, registered, kubeconfig
        self.ports = dict(zip(REPLICAS, free_ports(len(REPLICAS)), strict=True))

    def start(self, names: Sequence[str] = REPLICAS) -> None:
        """Start replicas."""
        for name in names:
            options = ["--kubeconfig", str(self.kubeconfig), "--contexts", self.registered.cluster, "--local-clock"]
            options += ["--incarnation", str(self.registered.incarnation), "--web-port", str(self.ports[name])]
            self.hub.start(name, *options)

    def leader(self) -> str:
        """The replica that leads; empty: none says so."""
        return next((name for name, port in self.ports.items() if "this replica" in _readyz(port)), "")


def register(hub: Hub, registered: AgentSet) -> None:
    """What `fleethpa admin clusters add` does; the embedded broker knows nothing of its requests about permissions."""
    hub.ensure_topics(registered.topics.reports, registered.topics.commands)
    asyncio.run(_send(hub.environ["FLEETHPA_BROKERS"], registered))


async def _send(brokers: str, registered: AgentSet) -> None:
    async with running_producer(KafkaSettings(bootstrap_servers=brokers)) as producer:
        await Publisher(producer).send(SETTINGS, "", "", [registered], time.time_ns() // 1_000_000)


def _readyz(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return ""
