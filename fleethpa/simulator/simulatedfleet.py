"""Several simulated clusters in one process, and the default fleet of the development stack."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Final

from fleethpa.simulator.clock import SimClock
from fleethpa.simulator.kubeconfig import write_kubeconfig
from fleethpa.simulator.simulatedcluster import SimulatedCluster
from fleethpa.simulator.switches import ControlServer

DEFAULT_CLUSTERS: Final = ("east", "west", "north")


class Fleet:
    """Clusters that start and stop together, with a control endpoint for other processes."""

    def __init__(self, clusters: Iterable[SimulatedCluster], *, control_port: int = 0) -> None:
        self.clusters = {cluster.name: cluster for cluster in clusters}
        self.control = ControlServer(self.clusters, port=control_port)

    def __getitem__(self, name: str) -> SimulatedCluster:
        """Return a cluster by name."""
        return self.clusters[name]

    async def start(self) -> None:
        """Start every cluster and the control endpoint."""
        for cluster in self.clusters.values():
            await cluster.start()
        await self.control.start()

    async def stop(self) -> None:
        """Stop everything."""
        await self.control.stop()
        for cluster in self.clusters.values():
            await cluster.stop()

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig with a context per cluster and return its path."""
        return write_kubeconfig(path, self.clusters.values())

    async def __aenter__(self) -> Fleet:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


def default_manifests(name: str) -> str:
    """Return the YAML manifests of one cluster of the default fleet; empty for a name that it does not have."""
    file = files("fleethpa.simulator").joinpath("fleet", f"{name}.yaml")
    return file.read_text() if file.is_file() else ""


def default_fleet(*, clock: SimClock | None = None, sample_ms: int = 5_000, control_port: int = 0) -> Fleet:
    """Return the fleet of `fleethpa dev`: east, west and north, on one clock, with their workloads, not yet started."""
    shared = clock or SimClock()
    clusters = []
    for name in DEFAULT_CLUSTERS:
        cluster = SimulatedCluster(name, clock=shared, sample_ms=sample_ms)
        cluster.apply_yaml(default_manifests(name))
        clusters.append(cluster)
    return Fleet(clusters, control_port=control_port)
