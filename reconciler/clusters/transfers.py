"""Requests with whole answers, by libcurl: a third of the processor time that aiohttp takes for them.

The transfers of one API server share connections that stay open. libcurl reports which sockets and times it waits for,
and the event loop calls it when they are due (https://curl.se/libcurl/c/libcurl-multi.html, `multi_socket`). A
connection that the server has closed while it was idle is replaced without an error.
"""

from __future__ import annotations

import asyncio
import selectors
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from kubernetes.aio.client import Configuration

try:
    import pycurl
except ImportError:  # it has no wheel for this platform: aiohttp does all
    pycurl = None

CONNECT_TIMEOUT_S = 3.0
_IN_URLS = "%/:?#[]@!$&'()*+,;=~"
"""What stays as it is in an address; the name of an object may have any other character."""
_IDLE = 64
"""So many handles are kept for the next requests."""
_BUFFER_BYTES = 2**18


class WholeAnswer(NamedTuple):
    """A whole answer. `retry_after`: how many seconds the server asks to wait; empty: it does not."""

    status: int
    data: bytes
    retry_after: str


class TransferError(Exception):
    """There was no whole answer. `was_connected`: the request may have been sent."""

    def __init__(self, message: str, *, was_connected: bool) -> None:
        super().__init__(message)
        self.was_connected = was_connected


def transfers_of(configuration: Configuration, proxy: str | None) -> Transfers | None:
    """What asks the API server of a configuration; None where aiohttp does: there is no libcurl, or the server
    is reached through a proxy, under another name than that of its address, or by the certificates of the system.

    Raises OSError: a certificate or key cannot be read.
    """
    is_plain = not configuration.host.startswith("https:")
    has_authority = configuration.ssl_ca_cert or not configuration.verify_ssl
    if pycurl is None or proxy or configuration.tls_server_name or not (is_plain or has_authority):
        return None
    # Files are read once, as they are by Python's own TLS: they may be temporary.
    files = {
        pycurl.CAINFO_BLOB: configuration.ssl_ca_cert,
        pycurl.SSLCERT_BLOB: configuration.cert_file,
        pycurl.SSLKEY_BLOB: configuration.key_file,
    }
    options: dict[int, Any] = {option: Path(path).read_bytes() for option, path in files.items() if path}
    if not configuration.verify_ssl:
        options |= {pycurl.SSL_VERIFYPEER: 0, pycurl.SSL_VERIFYHOST: 0}
    return Transfers(options, configuration.connection_pool_maxsize)


class _Handle:
    """One transfer at a time, all of the same method."""

    def __init__(self, method: str, options: dict[int, Any]) -> None:
        self.method, self.curl = method, pycurl.Curl()
        self.timeout_s = 0.0
        self.chunks: list[bytes] = []
        self.answered: asyncio.Future[WholeAnswer]
        usual: dict[int, Any] = {
            pycurl.NOSIGNAL: 1,
            pycurl.PROXY: "",  # the environment is not looked at again
            pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
            pycurl.ACCEPT_ENCODING: "gzip",
            pycurl.BUFFERSIZE: _BUFFER_BYTES,
            pycurl.CONNECTTIMEOUT_MS: round(CONNECT_TIMEOUT_S * 1000),
            pycurl.CUSTOMREQUEST: method,
            pycurl.WRITEFUNCTION: self.chunks.append,
        }
        for option, value in (usual | options).items():
            self.curl.setopt(option, value)


class Transfers:
    """Asks one API server. It is made, used and closed in one event loop."""

    def __init__(self, options: dict[int, Any], connections: int) -> None:
        """`options`: of libcurl, for every request; `connections`: at most so many at once."""
        self._options, self._loop = options, asyncio.get_running_loop()
        self._idle: dict[str, list[_Handle]] = {}
        self._running: dict[pycurl.Curl, _Handle] = {}
        self._sockets = selectors.DefaultSelector()
        """Those that libcurl waits for: the event loop waits for this selector, which costs less than for each."""
        self._loop.add_reader(self._sockets.fileno(), self._go_on)
        self._timer: asyncio.Handle | None = None
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._wait)
        self._multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, connections)

    async def ask(self, method: str, url: str, headers: list[str], body: bytes | None, timeout_s: float) -> WholeAnswer:
        """Ask, and wait for the whole answer.

        Raises TransferError: there was none, or none in time.
        """
        idle = self._idle.setdefault(method, [])
        handle = idle.pop() if idle else _Handle(method, self._options)
        curl = handle.curl
        curl.setopt(pycurl.URL, quote(url, safe=_IN_URLS, errors="replace"))
        curl.setopt(pycurl.HTTPHEADER, headers)
        curl.setopt(pycurl.TIMEOUT_MS, max(1, round(timeout_s * 1000)))
        if body is not None:
            curl.setopt(pycurl.POSTFIELDS, body)
        handle.timeout_s, handle.answered = timeout_s, self._loop.create_future()
        self._running[curl] = handle
        self._multi.add_handle(curl)
        try:
            return await handle.answered
        finally:
            if self._running.pop(curl, None) is not None:
                self._multi.remove_handle(curl)
            handle.chunks.clear()
            if len(idle) < _IDLE:
                idle.append(handle)

    def close(self) -> None:
        """Close the connections; requests that run end with an error."""
        for handle in list(self._running.values()):
            self._end(handle, TransferError("the client was closed", was_connected=True))
        if self._timer is not None:
            self._timer.cancel()
        self._multi.close()
        self._loop.remove_reader(self._sockets.fileno())
        self._sockets.close()
        self._idle.clear()

    # --- what libcurl waits for ---------------------------------------------------------------------------------------

    def _watch(self, what: int, descriptor: int, _multi: object, _data: object) -> None:
        if what == pycurl.POLL_REMOVE:
            self._sockets.unregister(descriptor)
        elif descriptor in self._sockets.get_map():
            self._sockets.modify(descriptor, what)
        else:
            self._sockets.register(descriptor, what)

    def _wait(self, timeout_ms: int) -> None:
        if timeout_ms == 0 and self._timer is not None and not isinstance(self._timer, asyncio.TimerHandle):
            return  # as for the handle before, to which libcurl is about to be called
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if timeout_ms == 0:
            self._timer = self._loop.call_soon(self._timed_out)
        elif timeout_ms > 0:
            self._timer = self._loop.call_later(timeout_ms / 1000, self._timed_out)

    def _timed_out(self) -> None:
        self._timer = None
        self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        self._collect()

    def _go_on(self) -> None:
        for key, ready in self._sockets.select(0):
            self._multi.socket_action(key.fd, ready)
        self._collect()

    def _collect(self) -> None:
        while True:
            left, ended, failed = self._multi.info_read()
            for curl in ended:
                handle = self._running[curl]
                status = curl.getinfo(pycurl.RESPONSE_CODE)
                wait_s = 0 if status < 300 else curl.getinfo(pycurl.RETRY_AFTER)
                self._end(handle, WholeAnswer(status, b"".join(handle.chunks), str(wait_s or "")))
            for curl, code, message in failed:
                handle = self._running[curl]
                self._end(handle, _error(handle, code, message))
            if not left:
                return

    def _end(self, handle: _Handle, result: WholeAnswer | Exception) -> None:
        del self._running[handle.curl]
        self._multi.remove_handle(handle.curl)
        if handle.answered.done():  # the caller has been cancelled
            return
        if isinstance(result, Exception):
            handle.answered.set_exception(result)
        else:
            handle.answered.set_result(result)


def _error(handle: _Handle, code: int, message: str) -> TransferError:
    is_up = handle.curl.getinfo(pycurl.NUM_CONNECTS) == 0 or handle.curl.getinfo(pycurl.CONNECT_TIME) > 0
    is_tls = code in (pycurl.E_SSL_CONNECT_ERROR, pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CERTPROBLEM)
    was_connected = is_up and not is_tls and code not in (pycurl.E_COULDNT_RESOLVE_HOST, pycurl.E_COULDNT_CONNECT)
    if code == pycurl.E_OPERATION_TIMEDOUT:
        message = f"no answer within {handle.timeout_s:g} s"
    return TransferError(message or f"libcurl's error {code}", was_connected=was_connected)
