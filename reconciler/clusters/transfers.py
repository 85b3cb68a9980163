"""Requests with whole answers, by libcurl: a third of the processor time that aiohttp takes for them.

The transfers of one API server share connections that stay open. libcurl reports which sockets and times it waits for,
and the event loop calls it when they are due (https://curl.se/libcurl/c/libcurl-multi.html, `multi_socket`). A
connection that the server has closed while it was idle is replaced without an error.
"""

from __future__ import annotations

import asyncio
import math
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from kubernetes.aio.client import Configuration

from schemas.limits import CLUSTER_ANSWER

try:
    from select import EPOLLIN, EPOLLOUT, epoll

    import pycurl
except ImportError:  # this platform has no epoll, or pycurl no wheel for it: aiohttp does all
    pycurl = None

CONNECT_TIMEOUT_S = 3.0
_IN_URLS = "%/:?#[]@!$&'()*+,;=~"
"""What stays as it is in an address; the name of an object may have any other character."""
_is_plain = re.compile(r"[\w.~%/:?#\[\]@!$&'()*+,;=-]*", re.ASCII).fullmatch
"""Nearly every address has only these characters: looking takes a third of the time of quoting it."""
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
    """Return what asks the API server of a configuration; None where aiohttp does: there is no libcurl, or the server
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


class TooLargeError(TransferError):
    """The answer is larger than what is taken of one."""


class _Handle:
    """One transfer at a time, all of the same method. What is the same as in the transfer before is not set again."""

    def __init__(self, method: str, options: dict[int, Any]) -> None:
        self.curl = pycurl.Curl()
        self.timeout_s = 0.0
        self._headers: list[str] | None = None
        self.chunks: list[bytes] = []
        self.size = 0
        self.answered: asyncio.Future[WholeAnswer]
        usual: dict[int, Any] = {
            pycurl.NOSIGNAL: 1,
            pycurl.PROXY: "",  # the environment is not looked at again
            pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
            pycurl.ACCEPT_ENCODING: "gzip",
            pycurl.BUFFERSIZE: _BUFFER_BYTES,
            pycurl.CONNECTTIMEOUT_MS: round(CONNECT_TIMEOUT_S * 1000),
            pycurl.CUSTOMREQUEST: method,
            pycurl.WRITEFUNCTION: self._received,
        }
        for option, value in (usual | options).items():
            self.curl.setopt(option, value)

    def prepare(self, url: str, headers: list[str], body: bytes | None, timeout_s: float) -> None:
        """Set what the next transfer sends, and until when it is waited for."""
        self.size = 0
        setopt = self.curl.setopt
        setopt(pycurl.URL, url if _is_plain(url) else quote(url, safe=_IN_URLS, errors="replace"))
        if headers is not self._headers:
            setopt(pycurl.HTTPHEADER, headers)
            self._headers = headers
        if timeout_s != self.timeout_s:
            setopt(pycurl.TIMEOUT_MS, max(1, round(timeout_s * 1000)))
            self.timeout_s = timeout_s
        if body is not None:
            setopt(pycurl.POSTFIELDS, body)

    def _received(self, chunk: bytes) -> int:
        """Keep a part of the answer, unpacked: a few kilobytes may have been a thousand times smaller on the way."""
        self.size += len(chunk)
        if self.size > CLUSTER_ANSWER.most:
            return 0  # libcurl ends the transfer
        self.chunks.append(chunk)
        return len(chunk)


class Transfers:
    """Asks one API server. It is made, used and closed in one event loop."""

    def __init__(self, options: dict[int, Any], connections: int) -> None:
        """`options`: of libcurl, for every request; `connections`: at most so many at once."""
        self._options, self._loop = options, asyncio.get_running_loop()
        self._idle: dict[str, list[_Handle]] = {}
        self._running: dict[pycurl.Curl, _Handle] = {}
        self._sockets = epoll()
        """The event loop waits for this one descriptor, which costs less than for each socket."""
        self._awaited: set[int] = set()
        """The sockets that libcurl waits for. Those of idle connections stay in `_sockets`, as they are about to be
        waited for again, until something comes of them.
        """
        self._loop.add_reader(self._sockets.fileno(), self._go_on)
        self._is_due, self._due_s = False, math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._wait)
        self._multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, connections)

    async def ask(self, method: str, url: str, headers: list[str], body: bytes | None, timeout_s: float) -> WholeAnswer:
        """Ask, and wait for the whole answer. A list of headers does not change once it was given.

        Raises TransferError: there was none, or none in time.
        """
        idle = self._idle.setdefault(method, [])
        handle = idle.pop() if idle else _Handle(method, self._options)
        handle.prepare(url, headers, body, timeout_s)
        handle.answered = self._loop.create_future()
        curl = handle.curl
        self._running[curl] = handle
        self._multi.add_handle(curl)
        try:
            return await handle.answered
        finally:
            if self._running.pop(curl, None) is not None:
                self._multi.remove_handle(curl)
            handle.chunks.clear()
            del handle.answered  # which holds the answer
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
            self._awaited.discard(descriptor)
            return
        self._awaited.add(descriptor)
        events = EPOLLIN
        if what != pycurl.POLL_IN:
            events = EPOLLOUT if what == pycurl.POLL_OUT else EPOLLIN | EPOLLOUT
        try:
            self._sockets.modify(descriptor, events)
        except FileNotFoundError:  # a new socket, maybe with the number of one that was closed
            self._sockets.register(descriptor, events)

    def _wait(self, timeout_ms: int) -> None:
        if timeout_ms == 0:
            if not self._is_due:
                self._is_due = True
                self._loop.call_soon(self._go_on_in_time)
            return
        self._due_s = math.inf if timeout_ms < 0 else self._loop.time() + timeout_ms / 1000
        if self._timer is None or self._due_s < self._timer.when():
            self._set_timer()

    def _set_timer(self) -> None:
        """Call libcurl when it is due. A timer that would be too early only leads to the next one: nearly every request
        ends long before its time.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._due_s == math.inf else self._loop.call_at(self._due_s, self._timed_out)

    def _timed_out(self) -> None:
        self._timer = None
        if self._loop.time() < self._due_s:
            self._set_timer()
        else:
            self._go_on_in_time()

    def _go_on_in_time(self) -> None:
        self._is_due = False
        self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        self._collect()

    def _go_on(self) -> None:
        for descriptor, events in self._sockets.poll(0):
            if descriptor in self._awaited:
                ready = pycurl.CSELECT_IN if events & ~EPOLLOUT else 0
                self._multi.socket_action(descriptor, ready | (pycurl.CSELECT_OUT if events & ~EPOLLIN else 0))
            else:  # an idle connection was closed at the other end, which libcurl notices when it is to be used
                with suppress(OSError):  # or libcurl has closed it just now
                    self._sockets.unregister(descriptor)
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


def no_connection(timeout_s: float | None) -> str:
    """Return the words for a server with which no connection was made in time. `timeout_s`: of the whole request."""
    return f"no connection within {min(CONNECT_TIMEOUT_S, timeout_s or CONNECT_TIMEOUT_S):g} s"


def _error(handle: _Handle, code: int, message: str) -> TransferError:
    was_connected = handle.curl.getinfo(pycurl.REQUEST_SIZE) > 0
    if code == pycurl.E_WRITE_ERROR and handle.size > CLUSTER_ANSWER.most:
        return TooLargeError(f"the answer has more than {CLUSTER_ANSWER.most} bytes, the limit", was_connected=True)
    if code == pycurl.E_OPERATION_TIMEDOUT:
        message = f"no answer within {handle.timeout_s:g} s" if was_connected else no_connection(handle.timeout_s)
    return TransferError(message or f"libcurl's error {code}", was_connected=was_connected)
