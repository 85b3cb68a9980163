"""One simulated cluster: its parts, its life, and the switches that tests and demonstrations turn.

A certificate for 127.0.0.1, made anew in every process: kubectl sends its token over TLS only.

Kubeconfig files for simulated clusters.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import logging
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from types import TracebackType

import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fleethpa.simulator import resources
from fleethpa.simulator.faults import Denial, Fault, StatusError, TokenAccess, expired
from fleethpa.simulator.kubelet import Kubelet
from fleethpa.simulator.load import LoadCurve
from fleethpa.simulator.metricsapi import MetricsFault, SimulatedMetricsApi
from fleethpa.simulator.patching import FieldWriter
from fleethpa.simulator.server import SimulatedApiServer
from fleethpa.simulator.store import SimClock, Store
from fleethpa.simulator.writes import Writes
from schemas.kubernetes.shape import Json


@dataclass(frozen=True, slots=True)
class Identity:
    """A self-signed certificate, which is its own authority, and the server context that shows it."""

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

    def __init__(
        self,
        name: str,
        *,
        clock: SimClock | None = None,
        port: int = 0,
        token: str | None = None,
        sample_ms: int = 15_000,
        history: int = 5_000,
    ) -> None:
        """Make a cluster that does not listen yet.

        Args:
            port: 0 = a free one, kept from the first start on.
            token: The bearer token that is accepted; None = `token-NAME`.
            sample_ms: How often the metrics APIs take samples, in simulated time.
            history: Changes kept for watches; older resource versions are answered with 410.
        """
        self.name = name
        self.clock = clock or SimClock()
        self.token = token or f"token-{name}"
        self.store = Store(history=history)
        self.writes = Writes(self.store, self.clock)
        self.kubelet = Kubelet(self.store, self.clock, sample_ms=sample_ms)
        self.metrics = SimulatedMetricsApi(self.kubelet, self.store, self.clock, sample_ms=sample_ms)
        self.access = TokenAccess({self.token: "fleethpa"})
        self.api = SimulatedApiServer(self.store, self.writes, self.metrics, self.clock, self.access)
        self.writes.delete_pod = self.kubelet.delete_pod
        self._port = port
        self._runner: web.AppRunner | None = None
        self._kubelet_task: asyncio.Task[None] | None = None
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
            self._kubelet_task = asyncio.create_task(self.kubelet.run(), name=f"kubelet-{self.name}")
            self._kubelet_task.add_done_callback(self._report)
        await self.start_api()
        return self.url

    async def stop(self) -> None:
        """Stop everything; objects stay in memory."""
        await self.stop_api()
        task, self._kubelet_task = self._kubelet_task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

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
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        await web.SockSite(runner, listener, ssl_context=local_identity().context).start()
        self._runner = runner

    async def stop_api(self, *, abort: bool = False) -> None:
        """Refuse connections; pods live on. Open watches end cleanly, or are cut with `abort`."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        if abort:
            self.api.abort_connections()
        self.store.end_watches()
        await runner.cleanup()

    async def restart_api(self, *, reset_versions: bool = False, abort: bool = False) -> None:
        """Restart the API server; with `reset_versions` it comes back with low resource versions and no history."""
        await self.stop_api(abort=abort)
        if reset_versions:
            self.store.reset_versions()
        await self.start_api()

    async def __aenter__(self) -> SimulatedCluster:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _report(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the simulated kubelet has ended", exc_info=error, extra={"cluster": self.name})

    # -- objects -----------------------------------------------------------------------------------------------------

    def create_namespace(self, name: str) -> None:
        """Create a namespace, unless it exists."""
        if self.store.get(("namespaces", "", name)) is None:
            self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def apply(self, manifest: Json, *, manager: str = "fleethpa-dev") -> Json:
        """Create an object or replace its spec, as `kubectl apply` does; its namespace is created with it.

        Raises ApiError: The API server would refuse it. Raises ValueError: The kind is not served.
        """
        resource = resources.by_kind(manifest["apiVersion"], manifest["kind"])
        metadata = manifest["metadata"]
        namespace = metadata.get("namespace", "default") if resource.namespaced else ""
        if namespace:
            self.create_namespace(namespace)
        key = (resource.stored_as, namespace, metadata["name"])
        if self.store.get(key) is None:
            return self.writes.create(resource, namespace, manifest, FieldWriter(manager))
        return self.writes.update(resource, namespace, metadata["name"], manifest, FieldWriter(manager))

    def apply_yaml(self, text: str) -> None:
        """Apply every document of a YAML text.

        Raises ApiError: The API server would refuse one. Raises ValueError: A kind is not served.
        """
        for manifest in yaml.safe_load_all(text):
            if manifest:
                self.apply(manifest)

    # -- switches ----------------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Move simulated time and let everything happen that falls into it. Meant for a clock of speed 0."""
        self.clock.move(int(seconds * 1000))
        self.kubelet.sync()

    def set_load(self, namespace: str, workload: str, load: LoadCurve) -> None:
        """Change the load of a workload; the load's time begins now. Raises KeyError: No such workload runs."""
        self.kubelet.sync()
        self.kubelet.workload(namespace, workload).model.set_load(load)

    def disturb_pod(self, namespace: str, pod: str, what: str) -> None:
        """Let a pod `crash` (it restarts after a back-off), `fail` (evicted), get `unready` or `ready`, or `kill` it.

        Raises KeyError: No workload has this pod. Raises ValueError: Unknown disturbance.
        """
        model = self.kubelet.of_pod(namespace, pod)
        actions: dict[str, Callable[[str], None]] = {
            "crash": model.crash,
            "fail": model.fail,
            "kill": model.kill,
            "unready": lambda name: model.set_ready(name, False),
            "ready": lambda name: model.set_ready(name, True),
        }
        if what not in actions:
            raise ValueError(f"disturbance {what!r} is unknown: use one of {', '.join(actions)}")
        actions[what](pod)
        self.kubelet.show_now(namespace, pod)

    def add_fault(self, fault: Fault) -> int:
        """Let requests fail and return the fault's number."""
        return self.api.faults.add(fault)

    def clear_faults(self, number: int | None = None) -> None:
        """Remove one fault, or all of them."""
        self.api.faults.remove(number)

    def set_metrics_faults(self, faults: Iterable[MetricsFault]) -> None:
        """Replace the metrics faults; none = the metrics APIs are well."""
        self.metrics.faults = list(faults)

    def freeze_metrics(self, namespace: str = "*", metric: str = "*") -> None:
        """Let answers show the samples of now for ever, until the metrics faults are replaced."""
        fault = MetricsFault("frozen", namespace, metric, since_ms=self.clock.now_ms())
        self.metrics.faults.append(fault)

    def deny(self, denials: Iterable[Denial]) -> None:
        """Replace what access control refuses; none = everything is allowed."""
        self.access.denials = list(denials)

    def expire_watches(self) -> None:
        """Forget the history and end open watches with 410, as when a watch has fallen too far behind."""
        self.store.compact()
        self.store.end_watches(_gone(self.store.version))


def _gone(version: int) -> StatusError:
    return expired(version - 1, version)


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
