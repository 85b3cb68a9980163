"""The credentials of one cluster (a kubeconfig, an exec plugin, the pod's service account), and connections with them.

A failure here is a trouble of one cluster, reported as its `ConfigError`; none ends the process. The Kubernetes client
would log a plugin's failure and continue without credentials, and wait for ever for one that hangs. Here a plugin that
hangs is killed, its own error is reported, and it gets the cluster's data if it asks for them (`provideClusterInfo`).
Its environment has only the variables that plugins need, and those that its kubeconfig sets.
"""

import asyncio
import base64
import json
import os
import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config
from kubernetes.aio.config.dateutil import parse_rfc3339
from kubernetes.aio.config.exec_provider import ExecProvider
from kubernetes.aio.config.kube_config import ConfigNode, FileOrData, KubeConfigLoader
from multidict import CIMultiDict

from reconciler.clusters.answers import ConfigError, NoContextError
from reconciler.clusters.transfers import Transfers, transfers_of
from reconciler.core.clusterkeys import (
    CONTEXT,
    KUBECONFIG,
    cluster_refusal,
    impersonation,
    key_refusal,
    plaintext_refusal,
    user_refusal,
)
from reconciler.core.foundclusters import IN_CLUSTER, ClusterConfig
from reconciler.core.objects import FIELD_MANAGER
from reconciler.core.writeplan import WRITE_TIMEOUT_S
from runtime.tls import EncryptedKeyError, without_prompt
from schemas.jsontext import read_document
from schemas.kubernetes.manifests import YamlTextError, parse_yaml
from schemas.kubernetes.shape import Json, JsonView
from schemas.proxies import proxy_refusal
from schemas.textfiles import decode_text

TIMEOUT_S = 30.0
"""How long requests wait for the credentials of this cluster."""
_STATED_BYTES = 500
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
_AUTHORITY: Final = ("certificate-authority",)
_CERTIFICATE: Final = ("client-certificate", "client-key")
"""Fields that name a file."""
_PASSED_ON: Final = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")


class PluginLoader(KubeConfigLoader):  # type: ignore[misc]
    """The client's loader, with plugins that are run here."""

    def check(self, *, is_found: bool) -> None:
        """Refuse a kubeconfig that says what is not supported. Raises ConfigException: names the field.

        `is_found`: it is made of a found cluster, which Argo CD sends its token to without TLS, too, and which is
        refused earlier unless `--found-insecure-tls` allows that.
        """
        context = self._current_context["context"].value
        if not context.get("user"):
            raise ConfigException("context.user is missing")
        if self._user is None:
            raise ConfigException(f"users: {context['user']!r}, which the context names, is not there")
        top = self._config.value
        reason = key_refusal(KUBECONFIG, top) or key_refusal(CONTEXT, context, "context.")
        cluster, user = self._cluster.value, self._user.value
        reason = reason or cluster_refusal(cluster) or user_refusal(user)
        if reason := reason or ("" if is_found else plaintext_refusal(cluster, user)):
            raise ConfigException(reason)
        for where, part, fields in (("cluster", cluster, _AUTHORITY), ("user", user, _CERTIFICATE)):
            for field in fields:
                if (path := part.get(field)) and not part.get(f"{field}-data") and not Path(path).is_file():
                    raise ConfigException(f"{where}.{field} {path} cannot be read: the file does not exist")

    def _load_user_token(self) -> bool:
        """Use the token of the file, else the other one. Source: client-go transport/token_source.go: it is trimmed."""
        name, token = self._user.safe_get("tokenFile"), self._user.safe_get("token")
        if name:
            try:
                token = Path(self._get_base_path(self._user.path), name).read_text(encoding="utf-8").strip() or token
            except OSError as error:
                if not token:
                    raise ConfigException(f"user.tokenFile {name} cannot be read: {error.strerror}") from error
            if not token:
                raise ConfigException(f"tokenFile {name} is empty")
        if token:
            self.token = f"Bearer {token}"
        return bool(token)

    @property
    def impersonation(self) -> list[tuple[str, str]]:
        """The headers that say as whom requests are made."""
        return impersonation({} if self._user is None else self._user.value)

    async def load_from_exec_plugin(self) -> bool:
        """Run the plugin and use the credentials that it prints.

        Raises ConfigException: it failed, hung, or gave nothing.
        """
        spec = self._user["exec"]
        plugin = ExecProvider(spec)
        own = {each["name"]: each["value"] for each in spec.safe_get("env") or ()}
        plugin.env = environment(os.environ) | own
        status = await ask(plugin, cluster_info(self._cluster.value) if spec.safe_get("provideClusterInfo") else None)
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
        source = FileOrData(
            status, None, data_key_name=key, base64_file_content=False, temp_file_path=self._temp_file_path
        )
        return str(source.as_file())


def environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Return what a plugin gets of this process' environment: what programs and clouds' tools need, and no secret of
    Kafka.
    """
    return {name: value for name, value in ours.items() if name in _PASSED or name.startswith(_PASSED_PREFIXES)}


def cluster_info(cluster: JsonView) -> Json:
    """Return what a plugin gets about the cluster whose credentials it gives: `spec.cluster` of its ExecCredential.

    Raises:
        OSError: the file with the certificate authority cannot be read.

    Source: client-go rest/exec.go `ConfigToExecCluster`.
    """
    reported = {key: cluster[key] for key in _PASSED_ON if cluster.get(key)}
    authority = cluster.get("certificate-authority-data")
    if not authority and (path := cluster.get("certificate-authority")):
        authority = base64.b64encode(Path(path).read_bytes()).decode()
    if authority:
        reported["certificate-authority-data"] = authority
    for extension in cluster.get("extensions") or ():
        if isinstance(extension, Mapping) and extension.get("name") == _CONFIG_EXTENSION:
            reported["config"] = extension.get("extension")
    return reported


async def ask(plugin: ExecProvider, cluster: JsonView | None = None) -> dict[str, Any]:
    """Run a plugin; the `status` of the ExecCredential that it writes.

    Args:
        cluster: what it gets about the cluster; None: it does not ask for it.

    Raises:
        ConfigException: it cannot be run, failed, hung, or wrote something else.
    """
    name = plugin.args[0]
    spec = {"interactive": False} | ({} if cluster is None else {"cluster": cluster})
    request = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    try:
        process = await asyncio.create_subprocess_exec(
            *plugin.args,
            env=plugin.env | {"KUBERNETES_EXEC_INFO": json.dumps(request)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise ConfigException(f"user.exec.command {name} cannot be run: {error.strerror}") from error
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
        stated = complaint.decode("utf-8", "replace").strip()[-_STATED_BYTES:]
        raise ConfigException(f"exec plugin {name} ended with {process.returncode}: {stated or 'no message'}")
    try:
        credential = read_document(written)
    except ValueError as error:
        raise ConfigException(f"exec plugin {name} wrote no JSON") from error
    status = credential.get("status") if isinstance(credential, dict) else None
    if not isinstance(status, dict):
        raise ConfigException(f"exec plugin {name} wrote no ExecCredential with a status")
    return status


CONNECTIONS = 512
TOKEN_PERIOD_S = 60.0
FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0
"""After a failure the next try waits, twice as long each time: not every request is to run a plugin that fails."""

_FAULTS = (
    ConfigException,
    OSError,  # files, time-outs, and certificates: ssl.SSLError is one
    ValueError,
    KeyError,
    TypeError,  # a kubeconfig whose parts are not what they should be
    AttributeError,
    ConfigError,
    RecursionError,  # a kubeconfig that is nested without end
    aiohttp.ClientError,  # OIDC and Google ask a server
)


def clusters_of(kubeconfig: str, contexts: tuple[str, ...] = ()) -> list[ClusterConfig]:
    """The clusters of a kubeconfig: the named contexts or all, each called as its context.

    Raises ConfigError: the file cannot be read, or has no such context.
    """
    chosen = contexts_of(kubeconfig, contexts)
    if bad := [name for name in chosen if not name or "/" in name or name == "*"]:
        raise ConfigError(f"{bad[0]!r} cannot be a cluster's name: rename the context (kubectl config rename-context)")
    return [ClusterConfig(name, kubeconfig, name) for name in chosen]


def contexts_of(kubeconfig: str, contexts: tuple[str, ...] = ()) -> list[str]:
    """The named contexts of a kubeconfig, or all.

    Raises ConfigError: the file cannot be read, or has no such context.
    """
    files = [_kubeconfig(path) for path in kubeconfig.split(os.pathsep) if path]
    known = list(dict.fromkeys(each["name"] for file in files for each in file.get("contexts") or ()))
    if missing := [context for context in contexts if context not in known]:
        raise NoContextError(f"{kubeconfig} has no context {missing[0]!r}; it has {', '.join(known) or 'none'}")
    return list(dict.fromkeys(contexts or known))


def current_context(kubeconfig: str) -> str:
    """The context that kubectl would use. Raises ConfigError: the file cannot be read, or names none."""
    for path in filter(None, kubeconfig.split(os.pathsep)):
        if name := _kubeconfig(path).get("current-context"):
            return str(name)
    raise ConfigError(f"{kubeconfig} has no current-context")


_KIND, _VERSION = "Config", "v1"
_NAMED: Final[Mapping[str, str]] = {"clusters": "cluster", "contexts": "context", "users": "user"}


def _kubeconfig(path: str) -> dict[str, Any]:
    try:
        document = parse_yaml(decode_text(Path(path).expanduser().read_bytes()), last_key_wins=True)
    except YamlTextError as error:
        raise ConfigError(f"kubeconfig {path} cannot be read: {_not_yaml(error.place)}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"kubeconfig {path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"kubeconfig {path} is not a mapping")
    if (kind := document.get("kind", _KIND)) != _KIND:
        # Without contexts it would name no cluster, and a process would run and do nothing.
        raise ConfigError(f"kubeconfig {path}: its kind is {kind}, and not {_KIND}")
    if (version := document.get("apiVersion", _VERSION)) != _VERSION:
        raise ConfigError(f"kubeconfig {path}: its apiVersion is {version}, and not {_VERSION}")
    for kind, inner in _NAMED.items():
        listed = document.get(kind) or []
        if not isinstance(listed, list) or not all(_has_name(each, inner) for each in listed):
            raise ConfigError(f"kubeconfig {path}: `{kind}` must be a list of {kind}, each with a name and its {inner}")
    return document


def _not_yaml(place: str) -> str:
    """The text of an error about YAML that may have secrets: the reader's own shows the line."""
    return f"it is not YAML{place and f' at {place}'}"


def _has_name(each: Any, inner: str) -> bool:
    return isinstance(each, dict) and isinstance(each.get("name"), str) and isinstance(each.get(inner) or {}, dict)


class Credentials:
    """Reads the credentials of one cluster, as often as it is asked."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._failure = ""
        self._again_at = 0.0
        self._pause_s = FIRST_PAUSE_S

    async def load(self) -> tuple[Configuration, float]:
        """The credentials as they are now, and until when (monotonic time) they surely hold.

        Raises ConfigError: there are no credentials; raised again without a new attempt for a while.
        """
        if self._config.refused:
            raise ConfigError(f"cluster {self._config.name}: its kubeconfig is refused: {self._config.refused}")
        if time.monotonic() < self._again_at:
            raise ConfigError(self._failure)
        try:
            configuration, lasts_s = await self._configuration()
        except _FAULTS as error:
            raise self._failed(str(error) or type(error).__name__) from error
        self._pause_s = FIRST_PAUSE_S
        return configuration, time.monotonic() + lasts_s

    def clients(self, configuration: Configuration) -> tuple[ApiClient, Transfers | None]:
        """Clients with these credentials. Where the system's certificates are used, they take 40 ms to read.

        Raises ConfigError: a certificate or key cannot be used.
        """
        try:
            without_prompt(configuration.cert_file, configuration.key_file)
            return ApiClient(configuration=configuration), transfers_of(configuration, proxy_of(configuration))
        except EncryptedKeyError as error:
            raise self._failed(str(error)) from error
        except _FAULTS as error:
            why = certificate_fault(configuration) or str(error) or type(error).__name__
            raise self._failed(why) from error

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
            configuration.api_key = {name: each.strip() for name, each in configuration.api_key.items()}
        else:
            document = self._config.document
            known = _merged(self._config.kubeconfig) if document is None else document
            loader = PluginLoader(known, active_context=self._config.context)
            loader.check(is_found=document is not None)
            await loader.load_and_set(configuration)
            configuration.impersonation = loader.impersonation
            lasts_s = _lifetime_s(loader)
        if not all(each.isascii() and each.isprintable() for each in configuration.api_key.values()):
            raise ValueError("a token has characters that cannot be in a header")
        return configuration, lasts_s


_parsed: dict[str, tuple[list[tuple[int, int, int]], Any]] = {}


def _merged(kubeconfig: str) -> Any:
    """The kubeconfig, parsed once per change of its files: of fifty clusters that takes a fifth of a second."""
    paths = [os.path.expanduser(path) for path in kubeconfig.split(os.pathsep) if path]
    stats = [os.stat(path) for path in paths]
    stamp = [(each.st_mtime_ns, each.st_size, each.st_ino) for each in stats]
    known = _parsed.get(kubeconfig)
    if known is None or known[0] != stamp:
        known = _parsed[kubeconfig] = (stamp, _merge(paths))
    return known[1]


def _merge(paths: Sequence[str]) -> ConfigNode:
    """Several kubeconfigs as one: of a name the first counts, and paths in it are relative to its own file."""
    merged: dict[str, Any] = {}
    for path in paths:
        document = _kubeconfig(path)
        for kind in _NAMED:
            listed = merged.setdefault(kind, [])
            names = {each["name"] for each in listed}
            new = [_resolved(each, kind, path) for each in document.get(kind) or () if each["name"] not in names]
            listed += [ConfigNode(f"{kind} of {path}", each, path) for each in new]
        merged = document | merged
    return ConfigNode(paths[0], merged, paths[0])


_PATHS: Final[Mapping[str, Sequence[str]]] = {"clusters": _AUTHORITY, "users": (*_CERTIFICATE, "tokenFile")}


def _resolved(entry: Json, kind: str, path: str) -> Json:
    """An entry of a file, in which relative paths are those from the file's folder. The client's loader would take them
    from the folder of the process. Source: client-go clientcmd/loader.go `ResolveLocalPaths`.
    """
    folder, inner = Path(path).absolute().parent, entry.get(_NAMED[kind]) or {}
    changed: Json = {
        key: str(folder / value) for key in _PATHS.get(kind, ()) if isinstance(value := inner.get(key), str) and value
    }
    plugin = inner.get("exec") if kind == "users" else None
    command = plugin.get("command") if isinstance(plugin, dict) else None
    if isinstance(plugin, dict) and isinstance(command, str) and os.sep in command:
        changed["exec"] = plugin | {"command": str(folder / command)}
    return entry | {_NAMED[kind]: inner | changed} if changed else entry


def identity(configuration: Configuration) -> tuple[Any, ...]:
    """Return what a client is made of beside its token: the server's address, and the certificates with their age."""
    files = filter(None, (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file))
    return (configuration.host, *((path, os.stat(path).st_mtime_ns) for path in files if os.path.exists(path)))


def certificate_fault(configuration: Configuration) -> str:
    """Return which certificate cannot be used, by its field in a kubeconfig, and why; empty: all can be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority, certificate, key = configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file
    field = "cluster.certificate-authority"
    try:
        if authority:
            context.load_verify_locations(authority)
        field = "user.client-certificate or user.client-key"
        if certificate:
            context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        return f"{field} (or its -data) is not what it must be, in PEM: {error}"
    except OSError as error:
        return f"{field} {error.filename or authority} cannot be read: {error.strerror}"
    return ""


def proxy_of(configuration: Configuration) -> str | None:
    """The proxy that requests go through: that of the kubeconfig, else that of the environment, else None.

    Raises ValueError: it is of a kind that is not supported.
    """
    if configuration.proxy:
        return _supported(str(configuration.proxy), "cluster.proxy-url")
    parts = urlsplit(configuration.host)
    if _is_loopback(configuration.host) or proxy_bypass(parts.hostname or ""):
        return None
    return _supported(getproxies().get(parts.scheme), f"the environment's {parts.scheme}_proxy")


def _supported(proxy: str | None, where: str) -> str | None:
    if reason := proxy_refusal(proxy or "", where):
        raise ValueError(reason)
    return proxy


def _lifetime_s(loader: Any) -> float:
    """How long the credentials are valid: by the time that exec plugins give; files are read again each minute."""
    expiry = getattr(loader, "exec_plugin_expiry", None)
    if expiry is None:
        return TOKEN_PERIOD_S
    left: float = expiry.timestamp() - time.time()
    return max(5.0, left * 0.8)


def _is_loopback(host: str) -> bool:
    """Whether the address is on this machine, which a proxy cannot reach."""
    name = urlsplit(host).hostname or ""
    return name in ("localhost", "::1") or name.startswith("127.")


# --- the connections of one configuration -----------------------------------------------------------------------------


ContentType = Literal["application/json", "application/merge-patch+json", "application/apply-patch+yaml"]
"""What the body of a request may be."""
JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
_HEADERS = {"Accept": JSON, "User-Agent": "fleethpa"}
_GIVEN_UP = f"timeout={WRITE_TIMEOUT_S}s"
_WRITTEN = f"{_GIVEN_UP}&fieldManager={FIELD_MANAGER}"
_READ_BUFFER_BYTES = 2**21
"""Events of a watch can be larger than aiohttp's default buffer, as in the Kubernetes client."""


class ServerSession:
    """Two clients of the same server: `http` is aiohttp's, `transfers` libcurl's, where it is reached plainly."""

    def __init__(self, configuration: Configuration, api: ApiClient, transfers: Transfers | None) -> None:
        self._api, self.transfers, self.made_of = api, transfers, identity(configuration)
        self._host = str(configuration.host).rstrip("/")
        self.http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=configuration.connection_pool_maxsize, ssl=api.rest_client.ssl_context
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER_BYTES,
        )
        self.route: dict[str, Any] = {
            "server_hostname": configuration.tls_server_name or None,
            "proxy": proxy_of(configuration),
            "proxy_headers": configuration.proxy_headers,
        }
        """How a request of aiohttp reaches the server: its name in the certificate, and the proxy."""
        self.headers: CIMultiDict[str] = CIMultiDict()
        self.lines: dict[str, list[str]] = {}
        """Content type → the same for libcurl, which takes a list that it knows without reading it."""

    async def authenticate(self, configuration: Configuration) -> None:
        """Use the token of a configuration from now on."""
        self._api.configuration.api_key = configuration.api_key
        headers = dict(_HEADERS)
        await self._api.update_params_for_auth(headers, [], ["BearerToken"], "", "", None)
        self.headers = CIMultiDict([*headers.items(), *getattr(configuration, "impersonation", ())])
        lines = [f"{name}: {value}" for name, value in self.headers.items()]
        lines.append("Expect:")  # a server is not asked before a body is sent
        self.lines = {kind: [f"Content-Type: {kind}", *lines] for kind in get_args(ContentType)}

    def url(self, method: str, path: str) -> str:
        return self._host + (path if method == "GET" else _for_writing(path, method))

    async def close(self) -> None:
        await self.http.close()
        if self.transfers is not None:
            self.transfers.close()


def _for_writing(path: str, method: str) -> str:
    """The path of a write: with the time after which the API server gives it up, however late it arrives, and unless
    it names one with our field manager.
    """
    is_named = method == "DELETE" or "fieldManager=" in path
    return f"{path}{'&' if '?' in path else '?'}{_GIVEN_UP if is_named else _WRITTEN}"
