"""A real Kubernetes control plane on loopback: etcd, kube-apiserver and kube-controller-manager, without nodes.

Access control is on (RBAC), the metrics APIs come through the aggregator, and an audit log has every request. The pods
that its controllers make are moved by `tests.kubernetes.node`.
"""

import base64
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.kafka.broker import free_ports
from tests.kafka.certificates import Authority

Json = dict[str, Any]

SYNC_PERIOD_S: Final = 5
DOWNSCALE_STABILIZATION_S: Final = 20
CPU_INITIALIZATION_S: Final = 10
READINESS_DELAY_S: Final = 5
HPA_FLAGS: Final = (
    f"--horizontal-pod-autoscaler-sync-period={SYNC_PERIOD_S}s",
    f"--horizontal-pod-autoscaler-downscale-stabilization={DOWNSCALE_STABILIZATION_S}s",
    f"--horizontal-pod-autoscaler-cpu-initialization-period={CPU_INITIALIZATION_S}s",
    f"--horizontal-pod-autoscaler-initial-readiness-delay={READINESS_DELAY_S}s",
)
"""Upstream's flags, shortened so that a test does not wait for minutes."""
CONTROLLERS: Final = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "replicationcontroller-controller",
    "job-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "garbage-collector-controller",
    "certificatesigningrequest-signing-controller",
    "clusterrole-aggregation-controller",
)
"""What the tests need; everything else would only cost time."""
NATIVE: Final = "horizontal-pod-autoscaler-controller"
METRICS_SERVICE: Final = ("metrics", "backend")
"""Namespace and name of the Service that stands for the metrics backend."""
METRICS_GROUPS: Final = (
    ("metrics.k8s.io", "v1beta1"),
    ("custom.metrics.k8s.io", "v1beta2"),
    ("external.metrics.k8s.io", "v1beta1"),
)
_READY_S: Final = 60.0
_AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Request",
            "verbs": ["update", "patch"],
            "resources": [{"group": "apps", "resources": ["deployments/scale"]}],
        },
        {"level": "Metadata"},
    ],
}


class ControlPlane:
    """One cluster's control plane, alive from `start` to `stop`; its data survive a restart of the API server."""

    def __init__(self, name: str, folder: Path, binaries: Path, *, native: bool = True) -> None:
        """`native`: whether the controller manager runs the HPA controller."""
        self.name, self.folder, self.native = name, folder, native
        self._binaries = binaries
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "front").mkdir(exist_ok=True)
        self._authority, self._front = Authority(folder), Authority(folder / "front")
        self._server_pem = self._authority.issue("kube-apiserver")
        self.admin_pem = self._authority.issue("admin", organization="system:masters")
        self._proxy_pem = self._front.issue("aggregator")
        self.metrics_pem = self._authority.issue("metrics", hosts=[f"{METRICS_SERVICE[1]}.{METRICS_SERVICE[0]}.svc"])
        self._accounts_key = folder / "accounts.pem"
        self._accounts_key.write_bytes(_rsa_key())
        self._etcd_port, self._peer_port, self._port = free_ports(3)
        self.url = f"https://127.0.0.1:{self._port}"
        self.cafile, self.front_cafile = self._authority.cafile, self._front.cafile
        self.audit_log = folder / "audit.jsonl"
        self.kubeconfig = self._write_admin_kubeconfig()

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything and wait until the API server is ready.

        Raises:
            AssertionError: it is not within a minute, or a process ended; has what they printed.
        """
        self._start_etcd()
        self.start_api_server()
        self.start_controllers()

    def stop(self) -> None:
        """End everything. By SIGKILL: an API server that is asked politely waits 60 s for its watches."""
        for name in tuple(self._running):
            self._kill(name)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # raised again; an interrupt leaves no process behind, either
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start_api_server(self) -> None:
        """Start the API server and wait until it is ready."""
        policy = self.folder / "audit-policy.yaml"
        policy.write_text(yaml.safe_dump(_AUDIT_POLICY))
        issuer = "https://kubernetes.default.svc.cluster.local"
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={self._server_pem}",
            f"--tls-private-key-file={self._server_pem}",
            f"--client-ca-file={self.cafile}",
            "--authorization-mode=RBAC",
            f"--service-account-issuer={issuer}",
            f"--service-account-signing-key-file={self._accounts_key}",
            f"--service-account-key-file={self._accounts_key}",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--endpoint-reconciler-type=none",
            # Pods need no service account of their own here: nothing runs in them.
            "--disable-admission-plugins=ServiceAccount",
            f"--requestheader-client-ca-file={self.front_cafile}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={self._proxy_pem}",
            f"--proxy-client-key-file={self._proxy_pem}",
            "--enable-aggregator-routing=false",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-maxsize=10000",  # MB: not begun anew while it is read
            "--profiling=false",
        )
        self._until_ready()

    def kill_api_server(self) -> None:
        """End the API server at once, as a crash does."""
        self._kill("kube-apiserver")

    def signal_api_server(self, number: signal.Signals) -> None:
        """Send the API server a signal, such as one that stops it for a while."""
        self._running["kube-apiserver"].send_signal(number)

    def start_controllers(self) -> None:
        """Start the controller manager, with or without the HPA controller as `native` says; again, if it runs."""
        self._kill("kube-controller-manager")
        controllers = [*CONTROLLERS, *([NATIVE] if self.native else [])]
        self._spawn(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            f"--controllers={','.join(controllers)}",
            f"--service-account-private-key-file={self._accounts_key}",
            f"--root-ca-file={self.cafile}",
            f"--cluster-signing-cert-file={self.cafile}",
            f"--cluster-signing-key-file={self._authority.keyfile}",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--secure-port=0",
            "--profiling=false",
            *HPA_FLAGS,
        )

    def set_native(self, on: bool) -> None:
        """Switch the native HPA controller on or off, as the flag `--controllers` does."""
        self.native = on
        self.start_controllers()

    def keep_data(self, folder: Path) -> None:
        """Copy what the API server has stored, as a backup does. It is away meanwhile."""
        self._kill("kube-apiserver")
        self._kill("etcd")
        shutil.copytree(self.folder / "etcd", folder)
        self._start_etcd()
        self.start_api_server()

    def restore_data(self, folder: Path) -> None:
        """Put back what was stored at an earlier moment."""
        self._kill("kube-apiserver")
        self._kill("etcd")
        shutil.rmtree(self.folder / "etcd")
        shutil.copytree(folder, self.folder / "etcd")
        self._start_etcd()
        self.start_api_server()

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        self._spawn(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )

    def _spawn(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [self._binaries / name, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )

    def _kill(self, name: str) -> None:
        if (process := self._running.pop(name, None)) is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def _until_ready(self) -> None:
        deadline = time.monotonic() + _READY_S
        context = ssl.create_default_context(cafile=str(self.cafile))
        while True:
            for name, process in self._running.items():
                assert process.poll() is None, f"{name} ended with {process.returncode}:\n{self.tail(name)}"
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=2.0, context=context):
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                assert time.monotonic() < deadline, f"not ready in time:\n{self.tail('kube-apiserver')}"
                time.sleep(0.1)

    def tail(self, name: str, length: int = 3_000) -> str:
        """The end of what a process printed."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-length:]

    # --- access -------------------------------------------------------------------------------------------------------

    def _write_admin_kubeconfig(self) -> Path:
        pem = base64.b64encode(self.admin_pem.read_bytes()).decode()
        authority = base64.b64encode(self.cafile.read_bytes()).decode()
        user = {"client-certificate-data": pem, "client-key-data": pem}
        server = {"server": self.url, "certificate-authority-data": authority}
        path = self.folder / "admin.kubeconfig"
        path.write_text(json.dumps(kubeconfig({self.name: (server, user)})))
        return path

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        """Run kubectl as the administrator; what it printed.

        Raises:
            AssertionError: it failed, and `check` asks for success; has what it printed.
        """
        command = [str(self._binaries / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        environ = os.environ | {"HOME": str(self.folder)}
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, env=environ, check=False)
        assert not (check and done.returncode), f"kubectl {' '.join(arguments)}:\n{done.stderr}"
        return done.stdout

    def get(self, path: str) -> Json | None:
        """What the API server answers the administrator, without a process as `kubectl` is one; None: 404.

        Raises:
            AssertionError: it does not answer, or refuses.
        """
        context = ssl.create_default_context(cafile=str(self.cafile))
        context.load_cert_chain(self.admin_pem)
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=10.0, context=context) as answer:
                found: Json = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                raise AssertionError(f"GET {path}: {error.code} {error.read()!r}") from error
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            raise AssertionError(f"GET {path}: {error}") from error
        return found

    def apply(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """`kubectl apply` as the administrator."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps(_listed(manifests)))

    def objects(self, resource: str, namespace: str) -> list[Json]:
        """`kubectl get` of all objects of a resource in a namespace."""
        found: list[Json] = json.loads(self.kubectl("get", resource, "-n", namespace, "-o", "json"))["items"]
        return found

    def audit(self, user: str) -> Iterator[Json]:
        """What the audit log says of each request of one user, oldest first; of a watch that lasts, its beginning."""
        found: dict[str, Json] = {}
        with self.audit_log.open() as lines:
            for line in lines:
                if user in line and line.endswith("\n"):
                    event = json.loads(line)
                    if event["user"]["username"] == user:
                        found[event["auditID"]] = event
        yield from found.values()


def kubeconfig(members: Mapping[str, tuple[Json, Json]]) -> Json:
    """A kubeconfig with a context per cluster, named as the cluster: name → (cluster, user)."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": next(iter(members), ""),
        "clusters": [{"name": name, "cluster": cluster} for name, (cluster, _) in members.items()],
        "users": [{"name": name, "user": user} for name, (_, user) in members.items()],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in members],
    }


def metrics_manifests(cafile: Path, port: int, groups: Sequence[tuple[str, str]] = METRICS_GROUPS) -> list[Json]:
    """What makes the aggregator ask the metrics backend on a port of this machine."""
    namespace, name = METRICS_SERVICE
    service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    made: list[Json] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": service},
    ]
    for group, version in groups:
        spec = {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"namespace": namespace, "name": name, "port": port},
            "caBundle": base64.b64encode(cafile.read_bytes()).decode(),
        }
        metadata = {"name": f"{version}.{group}"}
        api_service = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}
        made.append(api_service | {"metadata": metadata, "spec": spec})
    return made


def _listed(manifests: Sequence[Mapping[str, Any]]) -> Json:
    return {"apiVersion": "v1", "kind": "List", "items": list(manifests)}


def _rsa_key() -> bytes:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
