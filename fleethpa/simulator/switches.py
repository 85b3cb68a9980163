"""Several simulated clusters in one process, the default fleet of the development stack, and their control endpoint.

`POST /_sim/CLUSTER/ACTION` with a JSON body drives a simulated cluster from another process:

| action | body | effect |
|---|---|---|
| load | namespace, workload, load | new load, from now on |
| metrics-faults | faults: a list of MetricsFault | replaces the metrics faults |
| api | do: stop or start | ends and starts the API server |
| apply | manifests: YAML | creates or replaces objects |

It listens on 127.0.0.1 only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import orjson
from aiohttp import web

from fleethpa.simulator.cluster import SimulatedCluster, listener_on, write_kubeconfig
from fleethpa.simulator.model import parse_load
from fleethpa.simulator.requests import StatusError
from fleethpa.simulator.server import MetricsFault
from schemas.kubernetes.shape import Json
from streams.hpa.autoscaler import ControllerSettings


async def _api(cluster: SimulatedCluster, body: Json) -> None:
    if body["do"] not in ("stop", "start"):
        raise ValueError(f"do: {body['do']!r} is unknown: use stop or start")
    await (cluster.stop_api() if body["do"] == "stop" else cluster.start_api())


ACTIONS: dict[str, Callable[[SimulatedCluster, Json], Any]] = {
    "load": lambda cluster, body: cluster.set_load(body["namespace"], body["workload"], parse_load(body["load"])),
    "metrics-faults": lambda cluster, body: cluster.set_metrics_faults(MetricsFault(**f) for f in body["faults"]),
    "api": _api,
    "apply": lambda cluster, body: cluster.apply_yaml(body["manifests"]),
}
"""What each action does to a cluster."""


class ControlServer:
    """The endpoint of one process; it has a port of its own, so it answers while a cluster's API server is down."""

    def __init__(self, clusters: Mapping[str, SimulatedCluster], *, port: int = 0) -> None:
        self._clusters, self._port = clusters, port
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """The address, without /_sim."""
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listen."""
        application = web.Application()
        application.router.add_post("/_sim/{cluster}/{action}", self._act)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        listener = listener_on(self._port)
        self._port = listener.getsockname()[1]
        await web.SockSite(self._runner, listener).start()

    async def stop(self) -> None:
        """Close the endpoint."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _act(self, request: web.Request) -> web.Response:
        cluster, action = self._clusters.get(request.match_info["cluster"]), ACTIONS.get(request.match_info["action"])
        if cluster is None or action is None:
            known = f"clusters: {', '.join(self._clusters)}; actions: {', '.join(ACTIONS)}"
            return _answer({"error": f"{request.path} is unknown; {known}"}, 404)
        raw = await request.read()
        try:
            made = action(cluster, orjson.loads(raw) if raw else {})
            if inspect.isawaitable(made):
                await made
            return _answer({})
        except KeyError as error:
            return _answer({"error": f"{request.path}: not there, or missing in the body: {error}"}, 400)
        except (ValueError, TypeError, StatusError) as error:
            return _answer({"error": f"{request.path}: {error}"}, 400)


def _answer(document: Json, code: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(document), status=code, content_type="application/json")


DEFAULT_CLUSTERS: Final = ("east", "west", "north", "south")
NATIVE_CLUSTER: Final = "south"
"""The one of them that has an HPA controller of its own."""
NATIVE_SETTINGS: Final = ControllerSettings(
    downscale_stabilization_ms=60_000, cpu_initialization_period_ms=10_000, initial_readiness_delay_ms=5_000
)
"""Flags of that controller: those that fleethpa decides by in the development stack, or they would differ."""


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

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def default_fleet(*, control_port: int = 0) -> Fleet:
    """Return the fleet of `fleethpa dev`: its four clusters with their workloads, not yet started."""
    clusters = [
        SimulatedCluster(name, sample_ms=5_000, native=NATIVE_SETTINGS if name == NATIVE_CLUSTER else None)
        for name in DEFAULT_CLUSTERS
    ]
    for cluster in clusters:
        cluster.apply_yaml(files("fleethpa.simulator").joinpath("fleet", f"{cluster.name}.yaml").read_text())
    return Fleet(clusters, control_port=control_port)
