"""What a kubelet does for the pods of fleethpa itself: their containers run as processes of this machine.

Each runs in a mount namespace of its own, with a read-only root, `/tmp` and the mounted Secrets, as the user that its
pod names. Environment, arguments, service account and probes are those of the pod. One thing is changed: a pod listens
on its own address of 127.77.0.0/16 instead of 0.0.0.0, since all share this machine's network.
"""

import asyncio
import base64
import logging
import os
import shlex
import shutil
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from reconciler.clusters.answers import ClusterError
from reconciler.clusters.client import ClusterClient

Json = dict[str, Any]

IMAGE: Final = "fleethpa:"
_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_LOOK_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 8.0
_LIVENESS_FAILURES: Final = 3

# /run and /tmp are empty and writable; /etc is a copy on write, so that Secrets can be mounted below it.
_ENTER: Final = """
set -e
echo {name} > /proc/sys/kernel/hostname
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -m 700 /run/etc /run/work /run/pod
cp -r {files}/. /run/pod
mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/etc,workdir=/run/work /etc
chmod 755 /run /etc
cp -rT /run/pod/etc /etc 2>/dev/null || true
mkdir -p /run/secrets
cp -rT /run/pod/run/secrets /run/secrets 2>/dev/null || true
chmod -R a+rX /etc/fleethpa /run/secrets 2>/dev/null || true
mount -o remount,ro /etc
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -o remount,ro,bind /
cd /tmp
exec {command}
"""

log = logging.getLogger(__name__)


@dataclass
class _Container:
    """One running pod. `restarts`: how often its process ended."""

    pod: Json
    address: str
    folder: Path
    process: asyncio.subprocess.Process | None = None
    restarts: int = 0
    environ: dict[str, str] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None


class Containers:
    """Runs the pods of fleethpa in one cluster, whose API server they find at `url`, with a certificate of `cafile`."""

    def __init__(self, client: ClusterClient, folder: Path, cafile: Path, url: str) -> None:
        self._client, self._folder, self._cafile = client, folder, cafile
        self._api = urlsplit(url)
        self._running: dict[str, _Container] = {}
        self._addresses = 0
        folder.mkdir(parents=True, exist_ok=True)

    @staticmethod
    def runs(pod: Json) -> bool:
        """Whether a pod is one of fleethpa's."""
        return str(pod["spec"]["containers"][0]["image"]).startswith(IMAGE)

    def begin(self, pod: Json) -> None:
        """Start a pod's container, unless it is running."""
        uid = pod["metadata"]["uid"]
        if uid not in self._running:
            self._addresses += 1
            address = f"127.77.{self._addresses // 250}.{self._addresses % 250 + 1}"
            container = self._running[uid] = _Container(pod, address, self._folder / uid)
            container.task = asyncio.create_task(self._keep(container), name=pod["metadata"]["name"])

    async def end(self, pod: Json) -> None:
        """End a pod's container as a kubelet does: SIGTERM, and SIGKILL after the grace period."""
        container = self._running.pop(pod["metadata"]["uid"], None)
        if container is not None and container.task is not None:
            container.task.cancel()
            await asyncio.gather(container.task, return_exceptions=True)
            await _stop(container, pod["spec"].get("terminationGracePeriodSeconds", 30))

    async def close(self) -> None:
        """Kill everything."""
        for container in self._running.values():
            if container.task is not None:
                container.task.cancel()
                await asyncio.gather(container.task, return_exceptions=True)
            await _stop(container, 0)
        self._running.clear()

    def log_of(self, name: str) -> str:
        """What the containers printed of pods whose name begins like this."""
        found = [each for each in self._running.values() if each.pod["metadata"]["name"].startswith(name)]
        return "\n".join(_last_of(each.folder / "log") for each in found)

    def address_of(self, name: str) -> str:
        """The address of a running pod whose name begins like this; empty: there is none."""
        found = (each for each in self._running.values() if each.pod["metadata"]["name"].startswith(name))
        return next((each.address for each in found if each.process is not None), "")

    def entering(self, name: str) -> list[str]:
        """The command that runs another one (appended) beside the process of a pod, as `kubectl exec` does; empty where
        no such pod runs at this moment.
        """
        for each in self._running.values():
            if each.pod["metadata"]["name"].startswith(name) and each.process is not None:
                given = [f"{key}={value}" for key, value in each.environ.items()]
                enter = ["nsenter", f"--target={each.process.pid}", "--mount", "--wdns=/tmp"]
                enter += [] if os.getuid() == 0 else ["--user", "--preserve-credentials"]
                return [*enter, "env", "-i", *given]
        return []

    # --- one container ------------------------------------------------------------------------------------------------

    async def _keep(self, container: _Container) -> None:
        """Keep a container running until cancelled, or until it is done."""
        pause_s = 1.0
        while True:
            try:
                await self._start(container)
            except ClusterError as error:
                await self._report(container, waiting=f"CreateContainerConfigError: {error}")
                await asyncio.sleep(1.0)
                continue
            code = await self._watch(container)
            container.process = None
            name = container.pod["metadata"]["name"]
            log.warning("the process of pod %s ended with %d:\n%s", name, code, _last_of(container.folder / "log"))
            container.restarts += 1
            if code == 0 and container.pod["spec"].get("restartPolicy") == "OnFailure":
                await self._report(container, phase="Succeeded")
                return
            await self._report(container, waiting=f"CrashLoopBackOff: exit code {code}")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _start(self, container: _Container) -> None:
        spec = container.pod["spec"]["containers"][0]
        files = container.folder / "files"
        shutil.rmtree(files, ignore_errors=True)
        files.mkdir(parents=True)
        await self._mount(container.pod, files)
        container.environ = await self._environ(container)
        arguments = [_expanded(word, container.environ) for word in spec.get("args", ())]
        arguments = [container.address if word == "0.0.0.0" else word for word in arguments]
        script = _ENTER.format(
            name=shlex.quote(container.pod["metadata"]["name"]),
            files=shlex.quote(str(files)),
            command=shlex.join([*_as_user(container.pod), *arguments]),
        )
        enter = ["unshare", "--mount", "--uts", *([] if os.getuid() == 0 else ["--map-root-user"])]
        with (container.folder / "log").open("ab") as output:
            container.process = await asyncio.create_subprocess_exec(
                *enter,
                *("sh", "-c", script),
                env=container.environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    async def _watch(self, container: _Container) -> int:
        """Probe a container and report its state until it ends; its exit code."""
        process, spec = container.process, container.pod["spec"]["containers"][0]
        assert process is not None
        ready: bool | None = None
        failures, looks = 0, 0
        while process.returncode is None:
            probed = await self._probe(container, spec.get("readinessProbe"))
            if probed is not ready:
                ready = probed
                await self._report(container, ready=ready)
            if (liveness := spec.get("livenessProbe")) is not None:
                looks += 1
                is_due = looks * _LOOK_S > liveness.get("initialDelaySeconds", 0) and looks % 20 == 0
                failures = failures + 1 if is_due and not await self._probe(container, liveness) else failures
                if failures >= _LIVENESS_FAILURES:
                    process.kill()
            try:
                async with asyncio.timeout(_LOOK_S):
                    await process.wait()
            except TimeoutError:
                continue
        return int(process.returncode)

    async def _probe(self, container: _Container, probe: Json | None) -> bool:
        if probe is None:
            return True
        return await asyncio.to_thread(_answers, f"http://{container.address}:8080{probe['httpGet']['path']}")

    async def _report(
        self, container: _Container, *, ready: bool = False, waiting: str = "", phase: str = "Running"
    ) -> None:
        """Write the pod's status; one that has gone meanwhile needs none."""
        metadata, now = container.pod["metadata"], datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        done = phase == "Succeeded"
        holds = {"PodScheduled": True, "Initialized": True, "ContainersReady": ready, "Ready": ready}
        running = {"terminated": {"exitCode": 0, "reason": "Completed"}} if done else {"running": {"startedAt": now}}
        reason, _, message = waiting.partition(": ")
        status = {
            "phase": phase,
            "podIP": container.address,
            "podIPs": [{"ip": container.address}],
            "startTime": now,
            "conditions": [
                {"type": kind, "status": str(is_so), "lastTransitionTime": now} for kind, is_so in holds.items()
            ],
            "containerStatuses": [
                {
                    "name": container.pod["spec"]["containers"][0]["name"],
                    "image": container.pod["spec"]["containers"][0]["image"],
                    "imageID": "",
                    "ready": ready,
                    "restartCount": container.restarts,
                    "state": {"waiting": {"reason": reason, "message": message}} if waiting else running,
                }
            ],
        }
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        try:
            await self._client.merge_patch(path, {"status": status})
        except ClusterError as error:
            log.info("status of %s not written: %s", metadata["name"], error)

    # --- what a pod is given ------------------------------------------------------------------------------------------

    async def _environ(self, container: _Container) -> dict[str, str]:
        pod, spec = container.pod, container.pod["spec"]["containers"][0]
        image = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "HOME": "/tmp"}
        image |= {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        given = image | {"KUBERNETES_SERVICE_HOST": self._api.hostname or ""}
        given["KUBERNETES_SERVICE_PORT"] = str(self._api.port)
        for source in spec.get("envFrom", ()):
            given |= (await self._object(pod, "configmaps", source["configMapRef"]["name"]))["data"]
        for each in spec.get("env", ()):
            given[each["name"]] = each["value"] if "value" in each else await self._value(pod, each["valueFrom"])
        return given

    async def _value(self, pod: Json, source: Json) -> str:
        if (reference := source.get("secretKeyRef")) is not None:
            secret = await self._object(pod, "secrets", reference["name"])
            return base64.b64decode(secret["data"][reference["key"]]).decode()
        assert source == {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}, source
        return str(pod["metadata"]["name"])

    async def _mount(self, pod: Json, files: Path) -> None:
        """Write the pod's Secrets and its service account's token where they are to be seen."""
        mounts = {each["name"]: each["mountPath"] for each in pod["spec"]["containers"][0].get("volumeMounts", ())}
        for volume in pod["spec"].get("volumes", ()):
            if (source := volume.get("secret")) is not None:
                place = files / str(mounts[volume["name"]]).lstrip("/")
                place.mkdir(parents=True)
                for name, value in (await self._object(pod, "secrets", source["secretName"]))["data"].items():
                    (place / name).write_bytes(base64.b64decode(value))
        if pod["spec"].get("automountServiceAccountToken", True):
            place = files / _ACCOUNT.replace("/var/run", "run")
            place.mkdir(parents=True)
            account = f"serviceaccounts/{pod['spec']['serviceAccountName']}/token"
            asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/{account}"
            granted = await self._client.request("POST", path, body=asked)
            (place / "token").write_text(granted["status"]["token"])
            (place / "namespace").write_text(pod["metadata"]["namespace"])
            (place / "ca.crt").write_bytes(self._cafile.read_bytes())

    async def _object(self, pod: Json, resource: str, name: str) -> Json:
        return await self._client.get(f"/api/v1/namespaces/{pod['metadata']['namespace']}/{resource}/{name}")


def _as_user(pod: Json) -> list[str]:
    """The image's entrypoint, as the pod's user where this process may change users."""
    entrypoint = [sys.executable, "-m", "fleethpa"]
    if os.getuid() != 0:
        return entrypoint
    context = pod["spec"]["securityContext"]
    user = [f"--reuid={context['runAsUser']}", f"--regid={context['runAsGroup']}", "--clear-groups"]
    return ["setpriv", *user, "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", *entrypoint]


def _expanded(word: str, environ: Mapping[str, str]) -> str:
    """A word of the arguments, with `$(NAME)` replaced as a kubelet does."""
    for name, value in environ.items():
        word = word.replace(f"$({name})", value)
    return word


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2.0) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _last_of(file: Path) -> str:
    """What was printed last; empty before anything was."""
    return file.read_text(errors="replace")[-4_000:] if file.exists() else ""


async def _stop(container: _Container, grace_s: float) -> None:
    process = container.process
    if process is None or process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM if grace_s else signal.SIGKILL)
    try:
        async with asyncio.timeout(grace_s or 5.0):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def missing_tools() -> str:
    """What this machine lacks to run containers as processes; empty: nothing."""
    lacking = [tool for tool in ("unshare", "nsenter", "setpriv") if shutil.which(tool) is None]
    return f"{' and '.join(lacking)} not found" if lacking else ""
