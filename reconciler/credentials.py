"""The credentials of one cluster, from a kubeconfig or the pod's service account.

What goes wrong here is one cluster's trouble: a plugin that fails or hangs, a certificate that is none, a file that is
just being written. Each is told as a `ConfigError` of that cluster, and none ends the process.
"""

import asyncio
import os
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import yaml
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger

from reconciler.errors import ConfigError

IN_CLUSTER = ""
"""The context name that stands for the pod's own service account."""

CONNECTIONS = 512
TOKEN_PERIOD_S = 60.0
LOAD_TIMEOUT_S = 30.0
"""How long an exec plugin may take; what waits for the credentials of this cluster waits so long."""
FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0
"""After a failure the next try waits, twice as long each time: a plugin that hangs leaves a process behind."""

_FAULTS = (
    ConfigException,
    OSError,  # files, and certificates: ssl.SSLError is one
    ValueError,
    KeyError,
    TypeError,  # a kubeconfig whose parts are not what they should be
    AttributeError,
    yaml.YAMLError,
    aiohttp.ClientError,  # OIDC and Google ask a server
)


@dataclass(frozen=True)
class ClusterConfig:
    """How to reach one cluster: its name in the fleet, the kubeconfig and the context in it (empty: in-cluster)."""

    name: str
    kubeconfig: str = ""
    context: str = IN_CLUSTER


class Credentials:
    """Reads the credentials of one cluster, as often as it is asked."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._failure = ""
        self._again_at = 0.0
        self._pause_s = FIRST_PAUSE_S

    async def load(self) -> tuple[Configuration, float]:
        """The credentials as they are now, and until when (monotonic time) they surely hold.

        Raises:
            ConfigError: there are none; also told, without trying, for a while after it was found out.
        """
        if time.monotonic() < self._again_at:
            raise ConfigError(self._failure)
        try:
            async with asyncio.timeout(LOAD_TIMEOUT_S):
                configuration, lasts_s = await self._configuration()
        except TimeoutError as error:
            raise self._failed(f"no answer of the exec plugin within {LOAD_TIMEOUT_S:g} s") from error
        except _FAULTS as error:
            raise self._failed(str(error) or type(error).__name__) from error
        self._pause_s = FIRST_PAUSE_S
        return configuration, time.monotonic() + lasts_s

    def client(self, configuration: Configuration) -> ApiClient:
        """A client with these credentials. Where the system's certificates are used, they take it 40 ms to read.

        Raises:
            ConfigError: a certificate or key cannot be used.
        """
        try:
            return ApiClient(configuration=configuration)
        except _FAULTS as error:
            raise self._failed(str(error) or type(error).__name__) from error

    def _failed(self, why: str) -> ConfigError:
        self._failure = f"cluster {self._config.name}: its credentials cannot be loaded: {why}"
        self._again_at = time.monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        return ConfigError(self._failure)

    async def _configuration(self) -> tuple[Configuration, float]:
        configuration = Configuration()
        # The retry of a request belongs to the plan, and a watch must not be cut by a default.
        configuration.connection_pool_maxsize = CONNECTIONS
        lasts_s = TOKEN_PERIOD_S
        if self._config.context == IN_CLUSTER:
            load_incluster_config(client_configuration=configuration, try_refresh_token=False)
        else:
            loader = KubeConfigLoader(_merged(self._config.kubeconfig), active_context=self._config.context)
            await loader.load_and_set(configuration)
            _check_plugin(loader)
            lasts_s = _lifetime_s(loader)
        if _is_loopback(configuration.host):
            configuration.client_session_kwargs = {"trust_env": False}
        return configuration, lasts_s


_parsed: dict[str, tuple[list[tuple[int, int, int]], Any]] = {}


def _merged(kubeconfig: str) -> Any:
    """The kubeconfig, parsed once per change of its files: of fifty clusters that takes a fifth of a second."""
    paths = [os.path.expanduser(path) for path in kubeconfig.split(os.pathsep) if path]
    stats = [os.stat(path) for path in paths]
    stamp = [(each.st_mtime_ns, each.st_size, each.st_ino) for each in stats]
    known = _parsed.get(kubeconfig)
    if known is None or known[0] != stamp:
        known = _parsed[kubeconfig] = (stamp, KubeConfigMerger(os.pathsep.join(paths)).config)
    return known[1]


def _check_plugin(loader: Any) -> None:
    """The client logs a plugin's failure and goes on without credentials: as nobody, who is forbidden everything."""
    user = loader._user
    if user is None or "exec" not in user:
        return
    if not (getattr(loader, "token", None) or getattr(loader, "cert_file", None)):
        raise ConfigException(f"exec plugin {user['exec']['command']} gave none; run it by hand to see why")


def _lifetime_s(loader: Any) -> float:
    """How long what was loaded holds: exec plugins tell; files are read each minute."""
    expiry = getattr(loader, "exec_plugin_expiry", None)
    if expiry is None:
        return TOKEN_PERIOD_S
    left: float = expiry.timestamp() - time.time()
    return max(5.0, left * 0.8)


def _is_loopback(host: str) -> bool:
    """A proxy never reaches what listens on this machine only."""
    name = urlsplit(host).hostname or ""
    return name in ("localhost", "::1") or name.startswith("127.")
