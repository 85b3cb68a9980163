"""One simulated cluster (its parts, its life, what others change in it, its kubeconfig), several of them, and switches.

`POST /_sim/CLUSTER/ACTION` with a JSON body drives a simulated cluster from another process:

| action | body | effect |
|---|---|---|
| load | namespace, workload, load | new load, from now on |
| metrics-faults | faults: a list of MetricsFault | replaces the metrics faults |
| api | do: stop or start | ends and starts the API server |
| apply | manifests: YAML | creates or replaces objects |

The endpoint listens on 127.0.0.1 only.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import ipaddress
import logging
import socket
import ssl
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Self

import orjson
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fleethpa.lab.simulator import resources
from fleethpa.lab.simulator.kubelet import Kubelet
from fleethpa.lab.simulator.model import LoadCurve, parse_load
from fleethpa.lab.simulator.nativecontroller import NativeController
from fleethpa.lab.simulator.requests import FieldWriter, StatusError
from fleethpa.lab.simulator.resources import Store
from fleethpa.lab.simulator.server import MetricsFault, SimulatedApiServer, SimulatedMetricsApi
from fleethpa.lab.simulator.writes import Writes, key_of
from runtime.log import wall_clock_ms
from schemas.kubernetes.shape import Json
from streams.hpa.autoscaler import ControllerSettings

# --- one cluster ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Identity:
    """A self-signed certificate for 127.0.0.1, which is its own authority, and the server context that shows it.

    kubectl sends its token over TLS only.
    """

    certificate_pem: bytes
    context: ssl.SSLContext


@lru_cache(maxsize=1)
def local_identity() -> Identity:
    """Return this process's identity; all clusters in it share one."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(key).public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        # The ssl module reads files only; they are private to this user and gone at once.
        path = Path(folder) / "identity.pem"
        path.touch(mode=0o600)
        path.write_bytes(secret + certificate)
        context.load_cert_chain(path)
    return Identity(certificate, context)


def _certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fleethpa simulated cluster")])
    addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(datetime(2020, 1, 1, tzinfo=UTC)).not_valid_after(
        datetime(2120, 1, 1, tzinfo=UTC)
    )
    builder = builder.add_extension(x509.SubjectAlternativeName(addresses), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    return builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())


log = logging.getLogger(__name__)


class SimulatedCluster:
    """A cluster on a port of 127.0.0.1. Objects and port outlive stop() and start()."""

    api_server: type[SimulatedApiServer] = SimulatedApiServer

    def __init__(
        self,
        name: str,
        *,
        port: int = 0,
        sample_ms: int = 15_000,
        history: int = 5_000,
        now_ms: Callable[[], int] = wall_clock_ms,
        native: ControllerSettings | None = None,
    ) -> None:
        """Make a cluster that does not listen yet.

        Args:
            port: 0 = a free one, kept from the first start on.
            sample_ms: How often the metrics APIs take samples.
            history: Changes kept for watches; older resource versions are answered with 410.
            now_ms: The clock of pods, samples and timestamps.
            native: Flags of the cluster's own HPA controller, which syncs once per `sample_ms`; None: it has none.
        """
        self.name = name
        self.token = f"token-{name}"
        self.store = Store(history=history)
        self.writes = Writes(self.store, now_ms)
        self.kubelet = Kubelet(self.store, now_ms, sample_ms=sample_ms)
        self.metrics = SimulatedMetricsApi(self.kubelet, self.store, now_ms, sample_ms=sample_ms)
        self.api = self.api_server(self.store, self.writes, self.metrics, now_ms, self.token)
        self.writes.delete_pod = self.kubelet.delete_pod
        self.native = (
            NativeController(self.store, self.writes, self.metrics, now_ms, native, period_ms=sample_ms)
            if native is not None
            else None
        )
        self._port = port
        self._runner: web.AppRunner | None = None
        self._kubelet_task: asyncio.Task[None] | None = None
        self._native_task: asyncio.Task[None] | None = None
        for namespace in ("default", "kube-system"):
            self.create_namespace(namespace)

    # -- life --------------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The API server's address. Raises RuntimeError: The cluster has never been started."""
        if not self._port:
            raise RuntimeError(f"cluster {self.name} has no port yet: start it first")
        return f"https://127.0.0.1:{self._port}"

    @property
    def certificate_pem(self) -> bytes:
        """The authority that clients have to trust."""
        return local_identity().certificate_pem

    async def start(self) -> str:
        """Start pods and the API server, as far as they do not run, and return the address."""
        if self._kubelet_task is None:
            self._kubelet_task = self._started(self.kubelet.run(), "kubelet")
        await self.start_api()
        return self.url

    async def stop(self) -> None:
        """Stop everything; objects stay in memory."""
        await self.stop_api()
        task, self._kubelet_task = self._kubelet_task, None
        await _ended(task)

    async def start_api(self) -> None:
        """Listen, on the port of before."""
        if self._runner is not None:
            return
        runner = web.AppRunner(
            self.api.application(),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=0.2,
            keepalive_timeout=75,
        )
        await runner.setup()
        listener = listener_on(self._port)
        self._port = listener.getsockname()[1]
        await web.SockSite(runner, listener, ssl_context=local_identity().context).start()
        self._runner = runner
        if self.native is not None:
            self._native_task = self._started(self.native.run(), "HPA controller")

    async def stop_api(self, *, abort: bool = False) -> None:
        """Refuse connections; pods live on. Open watches end cleanly, or are cut with `abort`."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        # The native controller reaches nothing without an API server; it remembers what it knew.
        task, self._native_task = self._native_task, None
        await _ended(task)
        if abort:
            self.api.abort_connections()
        self.store.end_watches()
        await runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _started(self, life: Coroutine[None, None, None], what: str) -> asyncio.Task[None]:
        task = asyncio.create_task(life, name=f"{what} of {self.name}")
        task.add_done_callback(self._report)
        return task

    def _report(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(f"the simulated {task.get_name()} has ended", exc_info=error, extra={"cluster": self.name})

    # -- objects -----------------------------------------------------------------------------------------------------

    def create_namespace(self, name: str) -> None:
        """Create a namespace, unless it exists."""
        if self.store.get(("namespaces", "", name)) is None:
            self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def apply(self, manifest: Json, *, manager: str = "fleethpa-dev") -> Json:
        """Create an object or replace its spec, as `kubectl apply` does; its namespace is created with it.

        Raises StatusError: the API server would refuse it. Raises ValueError: the kind is not served.
        """
        resource = resources.by_kind(manifest["apiVersion"], manifest["kind"])
        metadata = manifest["metadata"]
        namespace = metadata.get("namespace", "default") if resource.namespaced else ""
        if namespace:
            self.create_namespace(namespace)
        if self.store.get(key_of(resource, namespace, metadata["name"])) is None:
            return self.writes.create(resource, namespace, manifest, FieldWriter(manager))
        return self.writes.update(resource, namespace, metadata["name"], manifest, FieldWriter(manager))

    def apply_yaml(self, text: str) -> None:
        """Apply every document of a YAML text.

        Raises StatusError: the API server would refuse one. Raises ValueError: a kind is not served.
        """
        for manifest in yaml.safe_load_all(text):
            if manifest:
                self.apply(manifest)

    # -- switches ----------------------------------------------------------------------------------------------------

    def set_load(self, namespace: str, workload: str, load: LoadCurve) -> None:
        """Change the load of a workload; the load's time begins now. Raises KeyError: No such workload runs."""
        self.kubelet.sync()
        self.kubelet.workload(namespace, workload).model.set_load(load)

    def set_metrics_faults(self, faults: Iterable[MetricsFault]) -> None:
        """Replace the metrics faults; none = the metrics APIs are well."""
        self.metrics.faults = list(faults)


async def _ended(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and wait for its end."""
    if task is not None:
        task.cancel()
        await asyncio.wait({task})


def listener_on(port: int) -> socket.socket:
    """Return a socket that is bound to a port of 127.0.0.1; 0 = a free one."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    return listener


def kubeconfig(clusters: Iterable[SimulatedCluster]) -> Json:
    """Return a kubeconfig with one context per started cluster, named as the cluster; the first is the current one."""
    known = list(clusters)
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": known[0].name if known else "",
        "clusters": [{"name": c.name, "cluster": _server(c)} for c in known],
        "users": [{"name": c.name, "user": {"token": c.token}} for c in known],
        "contexts": [{"name": c.name, "context": {"cluster": c.name, "user": c.name}} for c in known],
    }


def _server(cluster: SimulatedCluster) -> Json:
    authority = base64.b64encode(cluster.certificate_pem).decode()
    return {"server": cluster.url, "certificate-authority-data": authority}


def write_kubeconfig(path: Path, clusters: Iterable[SimulatedCluster]) -> Path:
    """Write the kubeconfig of started clusters, readable by this user only, and return its path."""
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(kubeconfig(clusters), sort_keys=False))
    return path


# --- several, and their switches --------------------------------------------------------------------------------------


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
            answer = action(cluster, orjson.loads(raw) if raw else {})
            if inspect.isawaitable(answer):
                await answer
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
        cluster.apply_yaml(files("fleethpa.lab.simulator").joinpath("fleet", f"{cluster.name}.yaml").read_text())
    return Fleet(clusters, control_port=control_port)
