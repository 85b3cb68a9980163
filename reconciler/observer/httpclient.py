"""The client of one HTTP server that is polled for metrics: requests by turns, within bounds.

Files with a token, a password or certificates are read again each minute, and at once after a 401.
"""

import asyncio
import base64
import ssl
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from reconciler.clusters.answers import ClusterError, ConfigError, NoAnswerError, UnreadableError
from reconciler.observer.httpconnections import HttpConnection
from runtime.slots import FairSlots, Pace
from runtime.tls import without_prompt
from schemas.limits import Limit
from schemas.proxies import proxy_refusal

CONNECT_TIMEOUT_S: Final = 3.0
RELOAD_S: Final = 60.0
_AT_ONCE: Final = 16
_CHUNK_BYTES: Final = 2**16
_NO_ANSWER = (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError, OSError)


class HttpClient:
    """Asks one server. Errors are those of a member cluster's client.

    Args:
        most: how many bytes of an answer are taken.
    """

    def __init__(self, connection: HttpConnection, most: Limit) -> None:
        self._connection, self._most = connection, most
        self._slots = FairSlots[str](_AT_ONCE, pace=Pace(connection.queries_per_second))
        self._session: aiohttp.ClientSession | None = None
        self._headers: dict[str, str] = {}
        self._proxy: str | None = None
        self._ssl: ssl.SSLContext | bool = True
        self._read_at = -RELOAD_S

    async def ask(self, method: str, url: str, namespace: str, **sent: Any) -> tuple[int, bytes]:
        """Return the status and the body of an answer, whatever the status.

        Args:
            url: an address on the server of the connection, whose credentials are sent there.
            namespace: for whose share of the turns the request counts.
            sent: what aiohttp takes with a request, as `params` or `data`.

        Raises NoAnswerError: no answer came in time. Raises UnreadableError: the answer is too large. Raises
        ConfigError: a file that it needs cannot be read. Raises ClusterError: its turn did not come in time.
        """
        timeout_s = self._connection.timeout_s
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(timeout_s):
                    await stack.enter_async_context(self._slots.turn(namespace))
            except TimeoutError as error:
                most = f"{self._connection.queries_per_second} queries per second"
                raise ClusterError(f"not asked: over {most} are due, or others of this namespace wait") from error
            status, body = await self._answered(method, url, timeout_s, sent)
        if status == 401:
            self._read_at = -RELOAD_S
        return status, body

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _answered(self, method: str, url: str, timeout_s: float, sent: Mapping[str, Any]) -> tuple[int, bytes]:
        if time.monotonic() - self._read_at >= RELOAD_S:
            self._read_files()
        if self._session is None:
            # Not with `trust_env`, which looks at the environment again for each request, in a thread.
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        name = self._connection.tls.server_name or None
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        was_connected = False
        try:
            async with self._session.request(
                method,
                url,
                headers=self._headers,
                timeout=timeout,
                ssl=self._ssl,
                server_hostname=name,
                proxy=self._proxy,
                allow_redirects=False,
                **sent,
            ) as response:
                was_connected = True
                return response.status, await self._bounded(response)
        except _NO_ANSWER as error:
            why = f"no answer within {timeout_s:g} s" if isinstance(error, asyncio.TimeoutError) else str(error)
            raise NoAnswerError(f"{url}: {why or type(error).__name__}", was_connected=was_connected) from error

    def _read_files(self) -> None:
        """Read token, password, certificates and the proxy. Raises ConfigError: one cannot be read or used."""
        connection = self._connection
        self._proxy = _proxy_of(connection.url)
        headers = {"Accept": "application/json", "User-Agent": "fleethpa", **connection.headers}
        try:
            if connection.bearer_token_file:
                headers["Authorization"] = f"Bearer {_text(connection.bearer_token_file)}"
            if connection.basic is not None:
                password = _text(connection.basic.password_file)
                pair = f"{connection.basic.username}:{password}".encode()
                headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
            self._ssl = self._context() if connection.url.startswith("https:") else True
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ConfigError(f"the credentials for {connection.url} cannot be read: {error}") from error
        self._headers, self._read_at = headers, time.monotonic()

    def _context(self) -> ssl.SSLContext:
        tls = self._connection.tls
        context = ssl.create_default_context(cafile=tls.ca_file or None)
        if tls.insecure_skip_verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if tls.cert_file:
            without_prompt(tls.cert_file, tls.key_file)
            context.load_cert_chain(tls.cert_file, tls.key_file)
        return context

    async def _bounded(self, response: aiohttp.ClientResponse) -> bytes:
        """Return the body. Raises UnreadableError if it is too large."""
        parts, size = [], 0
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            size += len(chunk)
            if size > self._most.most:
                raise UnreadableError(f"the answer has more than {self._most.most} bytes, the limit")
            parts.append(chunk)
        return b"".join(parts)


def _proxy_of(url: str) -> str | None:
    """Return the proxy that the environment names for an address, or None. Raises ConfigError: it is not supported."""
    parts = urlsplit(url)
    proxy = None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
    if reason := proxy_refusal(proxy or "", f"the environment's {parts.scheme}_proxy"):
        raise ConfigError(f"{url} cannot be reached: {reason}")
    return proxy


def _text(path: str) -> str:
    """Return the text of a file with a secret, which must fit into a header."""
    text = Path(path).read_text(encoding="utf-8").strip()
    if not text or not text.isprintable():
        raise ValueError(f"{path} must hold one line of text")
    return text


def first_words(status: int, body: bytes) -> str:
    """Return an error text for an answer without one of its own: the status, and how the body begins."""
    words = " ".join(body[:200].decode(errors="replace").split())
    return f"HTTP status {status}{': ' if words else ''}{words}"
