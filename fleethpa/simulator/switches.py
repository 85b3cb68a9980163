"""The control endpoint: `POST /_sim/CLUSTER/ACTION` with a JSON body drives a simulated cluster from another process.

| action | body | effect |
|---|---|---|
| load | namespace, workload, load | new load, from now on |
| pod | namespace, pod, what | crash, fail, kill, unready or ready |
| fault | a Fault | answers {"number": N} |
| clear-faults | number (absent = all) | |
| metrics-faults | faults: list of MetricsFault; freeze: {namespace, metric} | replaces the metrics faults |
| deny | denials: a list of Denial | replaces what access control refuses |
| expire-watches | | forgets the history; open watches end with 410 |
| api | do: stop, start, restart; abort, resetVersions | |
| clock | moveSeconds, speed | the clock is the whole fleet's |
| apply | manifests: YAML | |

`GET /_sim` lists the clusters with their addresses, `GET /_sim/CLUSTER/audit` the last requests.
It listens on 127.0.0.1 only.

Several simulated clusters in one process, and the default fleet of the development stack.
"""

from __future__ import annotations

import dataclasses
import inspect
import socket
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import orjson
from aiohttp import web

from fleethpa.simulator.cluster import SimulatedCluster, write_kubeconfig
from fleethpa.simulator.faults import Denial, StatusError, fault_from
from fleethpa.simulator.load import parse_load
from fleethpa.simulator.metricsapi import MetricsFault
from fleethpa.simulator.store import SimClock
from schemas.kubernetes.shape import Json


def _metrics_faults(cluster: SimulatedCluster, body: Json) -> None:
    cluster.set_metrics_faults([MetricsFault(**fault) for fault in body.get("faults") or ()])
    if "freeze" in body:
        cluster.freeze_metrics(**body["freeze"])


async def _api(cluster: SimulatedCluster, body: Json) -> None:
    abort = bool(body.get("abort"))
    if body["do"] == "stop":
        await cluster.stop_api(abort=abort)
    elif body["do"] == "start":
        await cluster.start_api()
    elif body["do"] == "restart":
        await cluster.restart_api(reset_versions=bool(body.get("resetVersions")), abort=abort)
    else:
        raise ValueError(f"do: {body['do']!r} is unknown: use stop, start or restart")


def _clock(cluster: SimulatedCluster, body: Json) -> Json:
    if "speed" in body:
        cluster.clock.set_speed(float(body["speed"]))
    cluster.advance(float(body.get("moveSeconds", 0)))
    return {"timeMs": cluster.clock.now_ms()}


ACTIONS: dict[str, Callable[[SimulatedCluster, Json], Any]] = {
    "load": lambda cluster, body: cluster.set_load(body["namespace"], body["workload"], parse_load(body["load"])),
    "pod": lambda cluster, body: cluster.disturb_pod(body["namespace"], body["pod"], body["what"]),
    "fault": lambda cluster, body: {"number": cluster.add_fault(fault_from(body))},
    "clear-faults": lambda cluster, body: cluster.clear_faults(body.get("number")),
    "metrics-faults": _metrics_faults,
    "deny": lambda cluster, body: cluster.deny([Denial(**denial) for denial in body.get("denials") or ()]),
    "expire-watches": lambda cluster, body: cluster.expire_watches(),
    "api": _api,
    "clock": _clock,
    "apply": lambda cluster, body: cluster.apply_yaml(body["manifests"]),
}
"""What each action does to a cluster; what it returns, where that is an object, is the answer."""


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
        application.router.add_get("/_sim", self._list)
        application.router.add_get("/_sim/{cluster}/audit", self._audit)
        application.router.add_post("/_sim/{cluster}/{action}", self._act)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        await web.SockSite(self._runner, listener).start()

    async def stop(self) -> None:
        """Close the endpoint."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _list(self, request: web.Request) -> web.Response:
        known = {name: {"server": c.url, "timeMs": c.clock.now_ms()} for name, c in self._clusters.items()}
        return _answer({"clusters": known, "actions": sorted(ACTIONS)})

    async def _audit(self, request: web.Request) -> web.Response:
        cluster = self._clusters.get(request.match_info["cluster"])
        if cluster is None:
            return _answer({"error": f"no cluster {request.match_info['cluster']}"}, 404)
        return _answer({"requests": [dataclasses.asdict(entry) for entry in cluster.api.audit]})

    async def _act(self, request: web.Request) -> web.Response:
        cluster, action = self._clusters.get(request.match_info["cluster"]), ACTIONS.get(request.match_info["action"])
        if cluster is None or action is None:
            known = f"clusters: {', '.join(self._clusters)}; actions: {', '.join(ACTIONS)}"
            return _answer({"error": f"{request.path} is unknown; {known}"}, 404)
        raw = await request.read()
        try:
            made = action(cluster, orjson.loads(raw) if raw else {})
            made = await made if inspect.isawaitable(made) else made
            return _answer(made if isinstance(made, dict) else {})
        except KeyError as error:
            return _answer({"error": f"{request.path}: not there, or missing in the body: {error}"}, 400)
        except (ValueError, TypeError, StatusError) as error:
            return _answer({"error": f"{request.path}: {error}"}, 400)


def _answer(document: Json, code: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(document), status=code, content_type="application/json")


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
