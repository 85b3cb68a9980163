"""One API client per member cluster, by raw paths.

Every cluster has its own Configuration, never the process-wide default. The Kubernetes client reads the configuration,
makes the TLS context and sets the headers that authenticate. What may be sent twice goes through libcurl (`transfers`);
watches, other requests, and what is not plainly reached go through an aiohttp session. Credentials are read again as
they run out: file tokens each minute, exec plugins when their token ends, everything after a 401.
"""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import aiohttp
from kubernetes.aio.client import Configuration
from prometheus_client import CollectorRegistry, Gauge

from reconciler.clusters.answers import (
    UNKNOWN_USER,
    ApiError,
    ConfigError,
    ListPage,
    NoAnswerError,
    UnreachableError,
    UnreadableError,
    encoded,
    error_text,
    known_metadata,
    read_as,
    read_object,
    read_page,
    status_body,
    watch_event,
)
from reconciler.clusters.clusteridentity import StatedIdentity
from reconciler.clusters.credentials import (
    JSON,
    MERGE_PATCH,
    ContentType,
    Credentials,
    ServerSession,
    clusters_of,
    identity,
)
from reconciler.clusters.transfers import CONNECT_TIMEOUT_S, TooLargeError, TransferError, no_connection
from reconciler.core.foundclusters import IN_CLUSTER, ClusterConfig
from schemas.codec import whole_number
from schemas.limits import CLUSTER_ANSWER


class ClusterMetrics:
    """What both parts measure of a cluster. `shared`: use its measures, where both are one process."""

    def __init__(self, registry: CollectorRegistry, shared: "ClusterMetrics | None" = None) -> None:
        gauge = partial(Gauge, labelnames=["cluster"], registry=registry if shared is None else None)
        self.up = gauge("fleethpa_cluster_up", "Whether the API server answered last time")
        self.last_sync = gauge("fleethpa_cluster_last_sync_timestamp_seconds", "When the API server last answered")
        if shared is not None:
            self.up, self.last_sync = shared.up, shared.last_sync

    def forget(self, cluster: str) -> None:
        """Stop measuring a cluster that has left the fleet."""
        for gauge in (self.up, self.last_sync):
            with suppress(KeyError):  # it was never reached
                gauge.remove(cluster)


def result_of(status: int) -> str:
    """The `result` label of a request: `ok`, or the kind of problem; status 0 means that there was no answer."""
    if 200 <= status < 300:
        return "ok"
    names = {0: "timeout", 401: "forbidden", 403: "forbidden", 404: "notfound", 409: "conflict", 429: "throttled"}
    return names.get(status, "error")


__all__ = ["IN_CLUSTER", "ClusterClient", "ClusterConfig", "clusters_of", "resource_of"]

log = logging.getLogger(__name__)
T = TypeVar("T")
Sent = Mapping[str, Any] | bytes
"""What a request carries: an object, or its JSON."""

REQUEST_TIMEOUT_S = 5.0
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_RELOAD_PAUSE_S = 5.0
_KEEP_ALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
_BY_TRANSFER = frozenset({"GET", "PUT", "PATCH"})
"""What libcurl may send once more where a connection that was idle turns out to be closed: a merge patch gives the same
object when it is applied twice.
"""
_NO_ANSWER = (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError, OSError)
_NOT_CONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
"""Refused, no route, no such name, no answer to the attempt to connect."""


class _Request(NamedTuple):
    """What is sent to an API server. `may_repeat`: it is safe to send it twice."""

    method: str
    path: str
    timeout_s: float
    body: Sent | None = None
    content_type: ContentType = JSON
    may_repeat: bool = False


class ClusterClient:
    """The API server of one cluster. Every request raises ClusterError: no answer came, or an error was the answer."""

    def __init__(self, config: ClusterConfig, stated_uid: Callable[[], str] | None = None) -> None:
        """`stated_uid`: returns the UID that the cluster must show now (`clusteridentity`); empty: any cluster does."""
        self.name = config.name
        self._identity = None if stated_uid is None else StatedIdentity(config.name, stated_uid)
        self.on_answer: Callable[[], None] = _nothing
        """Called at each answer of the API server, refusals included; an error of a server (5xx) may be a proxy's."""
        self._credentials = Credentials(config)
        self._loading = asyncio.Lock()
        self._token_until = 0.0
        self._loaded_at = -_RELOAD_PAUSE_S
        self._session: ServerSession | None = None
        self._retired: list[ServerSession] = []

    async def get(self, path: str, *, timeout_s: float = REQUEST_TIMEOUT_S) -> dict[str, Any]:
        return await self.request("GET", path, timeout_s=timeout_s)

    async def get_bytes(self, path: str, *, timeout_s: float = REQUEST_TIMEOUT_S) -> bytes:
        """GET of what is no JSON, such as metrics."""
        return await self._answered("GET", path, timeout_s=timeout_s)

    async def get_patiently(self, path: str, *, timeout_s: float = REQUEST_TIMEOUT_S) -> dict[str, Any]:
        """GET that retries after the time that the server names, for at most `timeout_s`.

        Source: client-go rest/with_retry.go `IsNextRetry`: 429 and 5xx with a Retry-After header, for every client of
        upstream's controllers; a server that only throttles gives them no error.
        """
        return await self._patiently(path, read_object, timeout_s)

    async def get_as(self, form: type[T], path: str, *, timeout_s: float = REQUEST_TIMEOUT_S) -> T:
        """The same, read straight into a type: what that does not name never becomes an object.

        Raises ValueError: the answer is a JSON object, but not of this form.
        """
        return await self._patiently(path, partial(read_as, form), timeout_s)

    async def _patiently(self, path: str, read: Callable[[bytes, str], T], timeout_s: float) -> T:
        ends = time.monotonic() + timeout_s
        while True:
            try:
                data = await self._answered("GET", path, timeout_s=max(0.1, ends - time.monotonic()))
                return read(data, f"GET {path}")
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

        Raises UnreachableError: something else answered, such as a proxy with a page of its own.
        """
        get = self.get_patiently if patiently else self.get
        item = await get(path, timeout_s=timeout_s)
        known_metadata(item.get("metadata"), f"GET {path}", str(item)[:200])
        return item

    async def get_page(self, path: str, *, timeout_s: float = REQUEST_TIMEOUT_S) -> ListPage:
        """GET of a page of a list, of whose items no two need be objects at once.

        Raises UnreachableError: something else answered, such as a proxy with a page of its own.
        """
        return read_page(await self._answered("GET", path, timeout_s=timeout_s), f"GET {path}")

    async def put(self, path: str, body: Mapping[str, Any], *, timeout_s: float = REQUEST_TIMEOUT_S) -> dict[str, Any]:
        return await self.request("PUT", path, body=body, timeout_s=timeout_s)

    def put_bytes(self, path: str, body: bytes) -> Coroutine[Any, Any, bytes]:
        """PUT of JSON; return the JSON of the answer."""
        return self._answered("PUT", path, body=body, timeout_s=REQUEST_TIMEOUT_S)

    async def create_named(self, path: str, body: Mapping[str, Any]) -> None:
        """POST of an object with a name of its own, which may be sent twice: `AlreadyExists` may mean this very one."""
        data = await self._answered("POST", path, body=body, timeout_s=REQUEST_TIMEOUT_S, may_repeat=True)
        read_object(data, f"POST {path}")

    async def merge_patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self.request("PATCH", path, body=body, content_type=MERGE_PATCH)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        content_type: ContentType = JSON,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> dict[str, Any]:
        """Ask, and return the decoded body of a success.

        Raises ApiError: the API server answered with an error. Raises UnreachableError: no whole answer within
        `timeout_s`. Raises ConfigError: there are no credentials to ask with.
        """
        data = await self._answered(method, path, body=body, content_type=content_type, timeout_s=timeout_s)
        return read_object(data, f"{method} {path}")

    async def _answered(
        self,
        method: str,
        path: str,
        *,
        body: Sent | None = None,
        content_type: ContentType = JSON,
        timeout_s: float,
        may_repeat: bool = False,
    ) -> bytes:
        """Ask, and return the body of a success as it came. `may_repeat`: it is safe to send it twice."""
        session = self._session
        if session is None or time.monotonic() >= self._token_until:
            session = await self._connected()
        await self._check_identity(session)
        return await self._exchange(session, _Request(method, path, timeout_s, body, content_type, may_repeat))

    async def _check_identity(self, session: ServerSession) -> None:
        if self._identity is not None:
            await self._identity.check(session, partial(self._identified, session))

    async def _identified(self, session: ServerSession, path: str) -> bytes:
        """GET of what shows which cluster it is: not yet an answer of the cluster that was meant."""
        return await self._exchange(session, _Request("GET", path, REQUEST_TIMEOUT_S), is_answer=False)

    async def _exchange(self, session: ServerSession, request: _Request, *, is_answer: bool = True) -> bytes:
        """Send a request; return the body of a success. `is_answer`: the cluster counts as having answered."""
        method, path, body = request.method, request.path, request.body
        sent = body if body is None or isinstance(body, bytes) else encoded(body)
        if session.transfers is not None and (request.may_repeat or method in _BY_TRANSFER):
            url, lines = session.url(method, path), session.lines[request.content_type]
            try:
                status, data, named = await session.transfers.ask(method, url, lines, sent, request.timeout_s)
            except TooLargeError as error:
                raise UnreadableError(f"{method} {path}: {error}") from error
            except TransferError as error:
                raise NoAnswerError(f"{method} {path}: {error}", was_connected=error.was_connected) from error
        else:
            timeout = aiohttp.ClientTimeout(total=request.timeout_s, sock_connect=CONNECT_TIMEOUT_S)
            response = await self._send(session, method, path, sent, request.content_type, timeout)
            data = await self._read_all(response, method, path, request.timeout_s)
            status, named = response.status, response.headers.get("Retry-After", "")
        if is_answer and status < 500 and status != UNKNOWN_USER:  # which it answers to everything: no use then
            self.on_answer()
        if not 200 <= status < 300:
            raise await self._refused(status, data, named, method, path)
        return data

    async def may(self, **spec: dict[str, str]) -> bool:
        """Ask whether something is allowed, so that nothing has to be refused: `resourceAttributes` or
        `nonResourceAttributes`, as a SelfSubjectAccessReview has them.

        Raises ClusterError: the review itself got no answer, or is refused.
        """
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
        answer = await self.request("POST", REVIEWS, body=body)
        return bool((answer.get("status") or {}).get("allowed"))

    async def watch(
        self, path: str, *, silence_s: float, opened: Callable[[], None] = lambda: None
    ) -> AsyncIterator[dict[str, Any]]:
        """Events of a watch until the server ends it; an ERROR event is raised. `opened`: it has begun, maybe silently.

        Raises ApiError: refused, or ended by an ERROR event (410: too old). Raises UnreachableError: the connection
        broke, or sent nothing for `silence_s` (or a little longer).
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=silence_s)
        session = await self._connected()
        await self._check_identity(session)
        response = await self._send(session, "GET", path, None, JSON, timeout)
        try:
            if response.status != 200:
                data = await self._read_all(response, "GET", path, REQUEST_TIMEOUT_S)
                named = response.headers.get("Retry-After", "")
                raise await self._refused(response.status, data, named, "GET", path)
            _keep_alive(response)
            self.on_answer()
            opened()
            with _Silence(response, silence_s):
                rest: list[bytes] = []
                while chunk := await response.content.readany():
                    for line in _lines(chunk, rest):
                        yield watch_event(line)
                    if sum(map(len, rest)) > CLUSTER_ANSWER.most:
                        limit = f"more than {CLUSTER_ANSWER.most} bytes, the limit"
                        raise UnreadableError(f"watch {path}: an event has {limit}")
        except _NO_ANSWER as error:
            raise UnreachableError(f"watch {path}: {_described(error, silence_s)}") from error
        finally:
            response.close()

    def reconfigure(self, config: ClusterConfig) -> None:
        """Reach the cluster in another way from the next request on; its name stays."""
        self._credentials = Credentials(config)
        self._token_until = 0.0

    async def close(self) -> None:
        sessions = [*self._retired, self._session]
        self._retired, self._session = [], None
        for session in sessions:
            if session is not None:
                await session.close()

    async def _send(
        self,
        session: ServerSession,
        method: str,
        path: str,
        data: bytes | None,
        content_type: ContentType,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        headers = session.headers.copy()  # several may have one name
        headers["Content-Type"] = content_type
        url = session.url(method, path)
        try:
            return await session.http.request(
                method, url, headers=headers, data=data, timeout=timeout, allow_redirects=False, **session.route
            )
        except _NO_ANSWER as error:
            was_connected = not isinstance(error, _NOT_CONNECTED)
            raise NoAnswerError(
                f"{method} {path}: {_described(error, timeout.total)}", was_connected=was_connected
            ) from error

    async def _read_all(self, response: aiohttp.ClientResponse, method: str, path: str, timeout_s: float) -> bytes:
        try:
            return await _bounded(response, f"{method} {path}")
        except _NO_ANSWER as error:
            raise NoAnswerError(f"{method} {path}: {_described(error, timeout_s)}", was_connected=True) from error

    async def _refused(self, status: int, data: bytes, retry_after: str, method: str, path: str) -> ApiError:
        if status == UNKNOWN_USER:
            self._token_until = 0.0
            await self._reload()
        stated = status_body(data)
        verb = {"GET": "get", "PUT": "put", "POST": "post", "PATCH": "patch", "DELETE": "delete"}[method]
        return ApiError(
            status,
            error_text(status, data, verb, resource_of(path)),
            reason=str(stated.get("reason") or ""),
            retry_after_ms=retry_after_ms(retry_after, stated),
        )

    # --- credentials --------------------------------------------------------------------------------------------------

    async def _connected(self) -> ServerSession:
        if self._session is None or time.monotonic() >= self._token_until:
            async with self._loading:
                if self._session is None or time.monotonic() >= self._token_until:
                    await self._load()
        if self._session is None:
            raise ConfigError(f"cluster {self.name}: its client is closed")
        return self._session

    async def _load(self) -> None:
        """Read the credentials. A new token keeps the connections; any other change makes new ones."""
        try:
            configuration, self._token_until = await self._credentials.load()
            if self._session is None or self._session.made_of != identity(configuration):
                await self._renew(configuration)
        except ConfigError as error:
            if self._session is None:
                raise
            # What was read before may hold for a while yet; where it does not, the API server refuses.
            log.warning("credentials not read again", extra={"cluster": self.name, "error": str(error)})
            self._token_until = time.monotonic() + _RELOAD_PAUSE_S
            return
        if self._session is not None:
            await self._session.authenticate(configuration)

    async def _reload(self) -> None:
        """After a 401: make new connections, certificates included."""
        async with self._loading:
            if time.monotonic() - self._loaded_at < _RELOAD_PAUSE_S:
                return
            self._loaded_at = time.monotonic()
            configuration, self._token_until = await self._credentials.load()
            await self._renew(configuration)

    async def _renew(self, configuration: Configuration) -> None:
        """Make new connections; running requests keep the old ones."""
        fresh = ServerSession(configuration, *self._credentials.clients(configuration))
        await fresh.authenticate(configuration)
        if self._session is not None:
            self._retired.append(self._session)
        self._session = fresh
        for old in self._retired[:-1]:
            await old.close()
        self._retired = self._retired[-1:]


async def _bounded(response: aiohttp.ClientResponse, asked: str) -> bytes:
    """The body, unpacked. Raises UnreadableError: it is too large."""
    parts, size = [], 0
    async with response:  # so that its connection is not left open where it breaks off
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > CLUSTER_ANSWER.most:
                response.close()
                raise UnreadableError(f"{asked}: the answer has more than {CLUSTER_ANSWER.most} bytes, the limit")
            parts.append(chunk)
    return b"".join(parts)


def _nothing() -> None:
    """Nobody wants to know of answers."""


def _keep_alive(response: aiohttp.ClientResponse) -> None:
    """Let the kernel detect within half a minute that the other end of a silent connection is gone.

    A load balancer or NAT may drop a connection silently; a watch with few events would not notice.
    """
    transport = response.connection.transport if response.connection else None
    socket_ = transport.get_extra_info("socket") if transport else None
    if socket_ is None:
        return
    socket_.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        if (number := getattr(socket, option, None)) is not None:  # not every system has all of them
            socket_.setsockopt(socket.IPPROTO_TCP, number, value)


_LOOKS = 16


class _Silence:
    """Ends the reading of an answer of which nothing came for `silence_s`, or a little longer. It takes the place of
    aiohttp's timer, which is set anew at each event.
    """

    def __init__(self, response: aiohttp.ClientResponse, silence_s: float) -> None:
        self._content, self._silence_s, self._loop = response.content, silence_s, asyncio.get_running_loop()
        self._seen, self._since_s = -1, 0.0
        if response.connection is not None and response.connection.protocol is not None:
            response.connection.protocol.read_timeout = None

    def __enter__(self) -> None:
        self._check()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _check(self) -> None:
        now_s = self._loop.time()
        if self._seen != self._content.total_bytes:
            self._seen, self._since_s = self._content.total_bytes, now_s
        if now_s - self._since_s >= self._silence_s:
            self._content.set_exception(aiohttp.SocketTimeoutError())
        self._timer = self._loop.call_later(self._silence_s / _LOOKS, self._check)


def _lines(chunk: bytes, rest: list[bytes]) -> list[bytes]:
    """The lines, of any length, that end in a chunk; aiohttp's own reader refuses long ones. `rest`: parts of a line
    that has not ended, which are brought up to date.
    """
    first, *more = chunk.split(b"\n")
    rest.append(first)
    if not more:
        return []
    lines = [b"".join(rest), *more[:-1]]
    rest[:] = more[-1:]
    return lines


def retry_after_ms(named: str, stated: Mapping[str, Any]) -> int | None:
    """How long the server asks to wait (ms), by its header or its Status; None: it names no whole number of seconds."""
    seconds = whole_number(named)
    details = stated.get("details")
    if seconds is None and isinstance(details, dict):
        seconds = whole_number(str(details.get("retryAfterSeconds")))
    return None if seconds is None else seconds * 1000


def _described(error: BaseException, timeout_s: float | None) -> str:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return no_connection(timeout_s)
    if isinstance(error, asyncio.TimeoutError):
        return f"no answer within {timeout_s:g} s" if timeout_s else "no answer in time"
    return str(error) or type(error).__name__


def resource_of(path: str) -> str:
    """Last element of the path and API group, as generic error texts name a resource: `pods.metrics.k8s.io`."""
    parts = path.partition("?")[0].strip("/").split("/")
    group = parts[1] if parts[0] == "apis" and len(parts) > 3 else ""
    return f"{parts[-1]}.{group}" if group else parts[-1]
