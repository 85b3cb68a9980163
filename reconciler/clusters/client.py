"""One API client per member cluster, by raw paths; with `credentials` and `execplugin` the only modules that import
the Kubernetes client.

Every cluster has its own Configuration and ApiClient, never the process-wide default. Credentials are read again as
they run out: file tokens each minute, exec plugins when their token ends, everything after a 401.
"""

import asyncio
import json
import logging
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from kubernetes.aio.client import ApiClient

from reconciler.clusters.clustererrors import ApiError, ConfigError, UnreachableError
from reconciler.clusters.connections import Connections, HttpAnswer
from reconciler.clusters.credentials import (
    IN_CLUSTER,
    ClusterConfig,
    Credentials,
    clusters_of,
    identity,
    is_proxied,
)
from reconciler.core.apierrors import error_text, status_body
from reconciler.core.writelimits import WRITE_TIMEOUT_S

__all__ = ["IN_CLUSTER", "ClusterClient", "ClusterConfig", "clusters_of", "resource_of"]

log = logging.getLogger(__name__)

FIELD_MANAGER = "fleethpa"
REQUEST_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 3.0
_RELOAD_PAUSE_S = 5.0
_KEEP_ALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
_MERGE_PATCH = "application/merge-patch+json"
_HEADERS = {"Accept": "application/json", "User-Agent": "fleethpa"}
_REPEATABLE = frozenset({"GET", "PUT", "DELETE"})
"""What may be sent again if a kept connection had just been closed by the server, as general clients do."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PLAIN = re.compile(r"/[A-Za-z0-9/._~!$&'()*+,;=:@%?-]*")
"""Paths that can be sent as they are."""
_NO_ANSWER = (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError, OSError)


class ClusterClient:
    """Asks one API server."""

    def __init__(self, config: ClusterConfig) -> None:
        self.name = config.name
        self.on_answer: Callable[[], None] = _nothing
        """Called at each answer of the API server, refusals included; an error of a server (5xx) may be a proxy's."""
        self._credentials = Credentials(config)
        self._api: ApiClient | None = None
        self._loading = asyncio.Lock()
        self._token_until = 0.0
        self._loaded_at = -_RELOAD_PAUSE_S
        self._retired: list[ApiClient] = []
        self._made_of: tuple[Any, ...] = ()
        self._direct: Connections | None = None
        """Connections of our own to the API server; None: there is a proxy on the way, which the client deals with."""
        self._prefix = ""
        self._known_head: tuple[Any, bytes] | None = None

    async def get(self, path: str, *, timeout_s: float = REQUEST_TIMEOUT_S) -> dict[str, Any]:
        """GET."""
        return await self.request("GET", path, timeout_s=timeout_s)

    async def get_patiently(self, path: str, *, timeout_s: float = REQUEST_TIMEOUT_S) -> dict[str, Any]:
        """GET that retries after the time that the server names, for at most `timeout_s`.

        Source: client-go rest/with_retry.go `IsNextRetry`: 429 and 5xx with a Retry-After header, for every client of
        upstream's controllers; a server that only throttles gives them no error.
        """
        ends = time.monotonic() + timeout_s
        while True:
            try:
                return await self.get(path, timeout_s=max(0.1, ends - time.monotonic()))
            except ApiError as error:
                pause_s = (error.retry_after_ms or 0) / 1000
                is_asked = pause_s > 0 and (error.status == 429 or error.status >= 500)
                if not is_asked or time.monotonic() + pause_s >= ends:
                    raise
            await asyncio.sleep(pause_s)

    async def get_object(
        self, path: str, *, timeout_s: float = REQUEST_TIMEOUT_S, patiently: bool = False
    ) -> dict[str, Any]:
        """GET of an object or a list, which always has a resource version.

        Raises:
            UnreachableError: something else answered, such as a proxy with a page of its own.
        """
        get = self.get_patiently if patiently else self.get
        found = await get(path, timeout_s=timeout_s)
        metadata = found.get("metadata")
        if not (isinstance(metadata, dict) and metadata.get("resourceVersion")):
            raise UnreachableError(f"GET {path}: the answer is not an object of Kubernetes: {str(found)[:200]}")
        return found

    async def put(self, path: str, body: Mapping[str, Any], *, timeout_s: float = REQUEST_TIMEOUT_S) -> dict[str, Any]:
        """PUT."""
        return await self.request("PUT", path, body=body, timeout_s=timeout_s)

    async def merge_patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """PATCH with a JSON merge patch."""
        return await self.request("PATCH", path, body=body, content_type=_MERGE_PATCH)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> dict[str, Any]:
        """Ask, and return the decoded body of a success.

        Raises:
            ApiError: the API server said no.
            UnreachableError: no whole answer within `timeout_s`.
            ConfigError: there are no credentials to ask with.
        """
        answer = await self._answer(method, path, body, content_type, timeout_s)
        if answer.status < 500:
            self.on_answer()
        if not 200 <= answer.status < 300:
            raise await self._refused(answer, method, path)
        try:
            decoded = _decoded(answer.data)
        except ValueError as error:
            raise UnreachableError(f"{method} {path}: the answer is not JSON: {error}") from error
        if not isinstance(decoded, dict):
            raise UnreachableError(f"{method} {path}: the answer is not a JSON object")
        return decoded

    async def watch(
        self, path: str, *, silence_s: float, opened: Callable[[], None] = lambda: None
    ) -> AsyncIterator[dict[str, Any]]:
        """Events of a watch until the server ends it; an ERROR event is raised. `opened`: it has begun, maybe silently.

        Raises:
            ApiError: refused, or ended by an ERROR event (410: too old).
            UnreachableError: the connection broke, or said nothing for `silence_s`.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=silence_s)
        response = await self._send("GET", path, None, "application/json", timeout)
        try:
            if response.status != 200:
                raise await self._refused(await _whole(response, "GET", path, REQUEST_TIMEOUT_S), "GET", path)
            _keep_alive(response)
            self.on_answer()
            opened()
            async for line in _lines(response):
                yield _event(line)
        except _NO_ANSWER as error:
            raise UnreachableError(f"watch {path}: {_said(error, silence_s)}") from error
        finally:
            response.close()

    def reconfigure(self, config: ClusterConfig) -> None:
        """Reach the cluster in another way from the next request on; its name stays."""
        self._credentials = Credentials(config)
        self._token_until = 0.0

    async def close(self) -> None:
        """Close the connections."""
        if self._direct is not None:
            self._direct.close()
            self._direct = None
        clients = [*self._retired, self._api]
        self._retired, self._api = [], None
        for api in clients:
            if api is not None:
                await api.close()

    async def _answer(
        self, method: str, path: str, body: Mapping[str, Any] | None, content_type: str, timeout_s: float
    ) -> HttpAnswer:
        """A whole answer: by a connection of our own where one may be used, else by the general client."""
        api = await self._client()
        if self._direct is None or not _PLAIN.fullmatch(path):
            return await self._general_answer(method, path, body, content_type, timeout_s)
        data = b"" if body is None else _encoded(body)
        head = await self._head(api)
        full_path = f"{self._prefix}{path if method == 'GET' else _for_writing(path, method)}"
        more = f"Content-Type: {content_type}\r\nContent-Length: {len(data)}\r\n" if body is not None else ""
        request = b"%s %s HTTP/1.1\r\n%s%s\r\n%s" % (method.encode(), full_path.encode(), head, more.encode(), data)
        try:
            answer = await self._direct.request(request, timeout_s=timeout_s, is_repeatable=method in _REPEATABLE)
        except _NO_ANSWER as error:
            raise UnreachableError(f"{method} {path}: {_said(error, timeout_s)}") from error
        if answer.status in _REDIRECTS:  # not by an API server, but by what stands before it
            return await self._general_answer(method, path, body, content_type, timeout_s)
        return answer

    async def _general_answer(
        self, method: str, path: str, body: Mapping[str, Any] | None, content_type: str, timeout_s: float
    ) -> HttpAnswer:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        return await _whole(await self._send(method, path, body, content_type, timeout), method, path, timeout_s)

    async def _head(self, api: ApiClient) -> bytes:
        """The headers that all requests share, the credentials included; the same until these are read again."""
        known, configuration = self._known_head, api.configuration
        if known is not None and known[0] is configuration.api_key and configuration.refresh_api_key_hook is None:
            return known[1]
        host = urlsplit(configuration.host).netloc.rpartition("@")[2]
        headers = {"Host": host, **_HEADERS, "Accept-Encoding": "gzip"}
        await api.update_params_for_auth(headers, [], ["BearerToken"], "", "GET", None)
        if any("\r" in value or "\n" in value for value in headers.values()):
            raise ConfigError(f"cluster {self.name}: its token has a line break")
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()
        self._known_head = (configuration.api_key, head)
        return head

    async def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, content_type: str, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        api = await self._client()
        headers = {**_HEADERS, "Content-Type": content_type}
        await api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        if method != "GET":
            path = _for_writing(path, method)
        url = api.configuration.host.rstrip("/") + path
        try:
            answer = await api.call_api(method, url, headers, body, _request_timeout=timeout)
        except _NO_ANSWER as error:
            raise UnreachableError(f"{method} {path}: {_said(error, timeout.total)}") from error
        response: aiohttp.ClientResponse = answer.response
        return response

    async def _refused(self, answer: HttpAnswer, method: str, path: str) -> ApiError:
        if answer.status == 401:
            self._token_until = 0.0
            await self._reload()
        said = status_body(answer.data)
        verb = {"GET": "get", "PUT": "put", "POST": "post", "PATCH": "patch", "DELETE": "delete"}[method]
        return ApiError(
            answer.status,
            error_text(answer.status, answer.data, verb, resource_of(path)),
            reason=str(said.get("reason") or ""),
            retry_after_ms=_retry_after(answer.headers, said),
        )

    # --- credentials --------------------------------------------------------------------------------------------------

    async def _client(self) -> ApiClient:
        if self._api is None or time.monotonic() >= self._token_until:
            async with self._loading:
                if self._api is None or time.monotonic() >= self._token_until:
                    await self._load()
        if self._api is None:
            raise ConfigError(f"cluster {self.name}: its client is closed")
        return self._api

    async def _load(self) -> None:
        """Read the credentials. A new token keeps the client; any other change creates a new one."""
        try:
            configuration, self._token_until = await self._credentials.load()
            if self._api is None or self._made_of != identity(configuration):
                await self._renew(configuration)
        except ConfigError as error:
            if self._api is None:
                raise
            # What was read before may hold for a while yet; where it does not, the API server says so.
            log.warning("credentials not read again", extra={"cluster": self.name, "error": str(error)})
            self._token_until = time.monotonic() + _RELOAD_PAUSE_S
            return
        if self._api is not None:
            self._api.configuration.api_key = configuration.api_key

    async def _reload(self) -> None:
        """After a 401: create a new client, certificates included."""
        async with self._loading:
            if time.monotonic() - self._loaded_at < _RELOAD_PAUSE_S:
                return
            self._loaded_at = time.monotonic()
            configuration, self._token_until = await self._credentials.load()
            await self._renew(configuration)

    async def _renew(self, configuration: Any) -> None:
        """Create a new client; running requests keep the old one."""
        fresh = self._credentials.client(configuration)
        self._made_of = identity(configuration)
        if self._api is not None:
            self._retired.append(self._api)
        self._api = fresh
        if self._direct is not None:
            self._direct.close()
        self._direct, self._prefix = None, urlsplit(configuration.host).path.rstrip("/")
        if not is_proxied(configuration):
            self._direct = Connections(
                configuration.host,
                context=fresh.rest_client.ssl_context,
                server_name=configuration.tls_server_name or "",
                connect_timeout_s=CONNECT_TIMEOUT_S,
            )
        for old in self._retired[:-1]:
            await old.close()
        self._retired = self._retired[-1:]


def _for_writing(path: str, method: str) -> str:
    """The path of a write: with the time after which the API server gives it up, however late it arrives, and unless
    it names one with our field manager.
    """
    more = [f"timeout={WRITE_TIMEOUT_S}s"]
    if method != "DELETE" and "fieldManager=" not in path:
        more.append(f"fieldManager={FIELD_MANAGER}")
    return f"{path}{'&' if '?' in path else '?'}{'&'.join(more)}"


def _nothing() -> None:
    """Nobody wants to know of answers."""


def _keep_alive(response: aiohttp.ClientResponse) -> None:
    """Let the kernel detect within half a minute that the other end of a silent connection is gone.

    A load balancer or NAT may drop a connection silently; a watch with few events would not notice.
    """
    transport = response.connection.transport if response.connection else None
    found = transport.get_extra_info("socket") if transport else None
    if found is None:
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        if (number := getattr(socket, option, None)) is not None:  # not every system has all of them
            found.setsockopt(socket.IPPROTO_TCP, number, value)


async def _whole(response: aiohttp.ClientResponse, method: str, path: str, timeout_s: float) -> HttpAnswer:
    try:
        data = await response.read()
    except _NO_ANSWER as error:
        raise UnreachableError(f"{method} {path}: {_said(error, timeout_s)}") from error
    return HttpAnswer(response.status, {name.lower(): value for name, value in response.headers.items()}, data)


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of any length; aiohttp's own reader refuses long ones."""
    rest: list[bytes] = []
    async for chunk in response.content.iter_any():
        *whole, last = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*rest, line])
            rest.clear()
        rest.append(last)


def _decoded(data: bytes) -> Any:
    """Read JSON as Python's own reader does, which is asked where the fast one refuses, for instance half a surrogate.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data)


def _encoded(body: Mapping[str, Any]) -> bytes:
    """Write JSON; half a surrogate, which was read as one, is escaped."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return json.dumps(body).encode()


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = _decoded(line)
        kind, found = event["type"], event["object"]
        _ = found["metadata"] if kind != "ERROR" else found.keys()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreachableError(f"watch: an event is not what it should be: {error}") from error
    if kind == "ERROR":
        raise ApiError(
            int(found.get("code") or 500), str(found.get("message") or found), reason=found.get("reason") or ""
        )
    return dict(event)


def _retry_after(headers: Mapping[str, str], said: Mapping[str, Any]) -> int | None:
    text = headers.get("retry-after", "")
    seconds = int(text) if text.isdigit() else (said.get("details") or {}).get("retryAfterSeconds")
    return None if seconds is None else int(seconds) * 1000


def _said(error: BaseException, timeout_s: float | None) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return f"no answer within {timeout_s:g} s" if timeout_s else "no answer in time"
    return str(error) or type(error).__name__


def resource_of(path: str) -> str:
    """Last element of the path and API group, as generic error texts name a resource: `pods.metrics.k8s.io`."""
    parts = path.partition("?")[0].strip("/").split("/")
    group = parts[1] if parts[0] == "apis" and len(parts) > 3 else ""
    return f"{parts[-1]}.{group}" if group else parts[-1]
