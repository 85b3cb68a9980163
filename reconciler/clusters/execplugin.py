"""Exec plugins of a kubeconfig, which give a token or a certificate.

The Kubernetes client logs a plugin's failure and goes on without credentials, as nobody, who is forbidden everything;
it waits for ever for one that hangs; and it never says which cluster credentials are for. Here a failure is told in
the plugin's own words, a plugin that hangs is killed, and one that asks for it (`provideClusterInfo`) is told of the
cluster. A plugin's environment has only the variables that plugins need, and those that its kubeconfig sets.
"""

import asyncio
import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.dateutil import parse_rfc3339
from kubernetes.aio.config.exec_provider import ExecProvider
from kubernetes.aio.config.kube_config import FileOrData, KubeConfigLoader

from schemas.kubernetes.jsontypes import Json, JsonView

TIMEOUT_S = 30.0
"""What waits for the credentials of this cluster waits so long."""
_TOLD_BYTES = 500
_CONFIG_EXTENSION: Final = "client.authentication.k8s.io/exec"
_PASSED: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "ALL_PROXY", "all_proxy"),
        *("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "SYSTEMROOT"),
    }
)
_PASSED_PREFIXES: Final = ("LC_", "XDG_", "AWS_", "AZURE_", "AAD_", "ARM_", "GOOGLE_", "CLOUDSDK_", "GKE_", "USE_GKE_")
"""Variables that a plugin gets: those with which it finds its own credentials, such as a pod's cloud identity."""
_PASSED_ON: Final = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")


class PluginLoader(KubeConfigLoader):  # type: ignore[misc]
    """The client's loader, with plugins that are run here."""

    async def load_from_exec_plugin(self) -> bool:
        """Run the plugin and use the credentials that it prints.

        Raises:
            ConfigException: it failed, hung, or gave nothing.
        """
        asked = self._user["exec"]
        plugin = ExecProvider(asked)
        own = {each["name"]: each["value"] for each in asked.safe_get("env") or ()}
        plugin.env = environment(os.environ) | own
        status = await ask(plugin, cluster_info(self._cluster.value) if asked.safe_get("provideClusterInfo") else None)
        if token := status.get("token"):
            self.token = f"Bearer {token}"
        elif status.get("clientCertificateData") and status.get("clientKeyData"):
            self.cert_file = self._file(status, "clientCertificateData")
            self.key_file = self._file(status, "clientKeyData")
        else:
            raise ConfigException(f"exec plugin {plugin.args[0]} gave neither a token nor a certificate with its key")
        if expires := status.get("expirationTimestamp"):
            self.exec_plugin_expiry = parse_rfc3339(expires)
        return True

    def _file(self, status: dict[str, Any], key: str) -> str:
        found = FileOrData(
            status, None, data_key_name=key, base64_file_content=False, temp_file_path=self._temp_file_path
        )
        return str(found.as_file())


def environment(ours: Mapping[str, str]) -> dict[str, str]:
    """What a plugin gets of this process' environment: what programs and clouds' tools need, and no secret of Kafka."""
    return {name: value for name, value in ours.items() if name in _PASSED or name.startswith(_PASSED_PREFIXES)}


def cluster_info(cluster: JsonView) -> Json:
    """What a plugin is told of the cluster that it is to give credentials for: `spec.cluster` of its ExecCredential.

    Raises:
        OSError: the file with the certificate authority cannot be read.

    Source: client-go rest/exec.go `ConfigToExecCluster`.
    """
    told = {key: cluster[key] for key in _PASSED_ON if cluster.get(key)}
    authority = cluster.get("certificate-authority-data")
    if not authority and (path := cluster.get("certificate-authority")):
        authority = base64.b64encode(Path(path).read_bytes()).decode()
    if authority:
        told["certificate-authority-data"] = authority
    for extension in cluster.get("extensions") or ():
        if extension["name"] == _CONFIG_EXTENSION:
            told["config"] = extension["extension"]
    return told


async def ask(plugin: ExecProvider, cluster: JsonView | None = None) -> dict[str, Any]:
    """Run a plugin; the `status` of the ExecCredential that it writes.

    Args:
        cluster: what it is told of the cluster; None: it does not want to know.

    Raises:
        ConfigException: it cannot be run, failed, hung, or wrote something else.
    """
    name = plugin.args[0]
    spec = {"interactive": False} | ({} if cluster is None else {"cluster": cluster})
    asked = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    process = await asyncio.create_subprocess_exec(
        *plugin.args,
        env=plugin.env | {"KUBERNETES_EXEC_INFO": json.dumps(asked)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            written, complaint = await process.communicate()
    except TimeoutError as error:
        raise ConfigException(f"exec plugin {name} gave no answer within {TIMEOUT_S:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        said = complaint.decode("utf-8", "replace").strip()[-_TOLD_BYTES:]
        raise ConfigException(f"exec plugin {name} ended with {process.returncode}: {said or 'it said nothing'}")
    status = json.loads(written).get("status")
    if not isinstance(status, dict):
        raise ConfigException(f"exec plugin {name} wrote no ExecCredential with a status")
    return status
