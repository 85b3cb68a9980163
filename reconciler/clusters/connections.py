"""Short HTTP/1.1 requests over connections that are kept: a fraction of what a general HTTP client takes for each.

One request at a time per connection, whole answers only. Whoever needs more, such as a proxy or a watch, uses the
general client. Source of the framing: RFC 9112, sections 6 and 7.
"""

import asyncio
import re
import ssl
import time
import zlib
from collections import deque
from typing import NamedTuple
from urllib.parse import urlsplit

KEPT_S = 30.0
"""A connection that was idle for longer is closed: a load balancer may have dropped it silently."""
CONNECTIONS = 512
MAX_HEAD_BYTES = 256 * 1024
_GZIP = 16 + zlib.MAX_WBITS
_CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,15}")


class HttpAnswer(NamedTuple):
    """A whole answer. `headers`: names in lower case; of several with one name the last."""

    status: int
    headers: dict[str, str]
    data: bytes


class BrokenAnswerError(ConnectionError):
    """The connection ended, or what came is not HTTP/1.1. `is_untouched`: not a byte of an answer had come."""

    def __init__(self, text: str, *, is_untouched: bool = False) -> None:
        super().__init__(text)
        self.is_untouched = is_untouched


class Connections:
    """Connections to one server.

    Args:
        url: scheme, host and port; a path is ignored.
        context: for https.
        server_name: the name that the certificate must have; empty: the host.
    """

    def __init__(
        self, url: str, *, context: ssl.SSLContext | None = None, server_name: str = "", connect_timeout_s: float = 3.0
    ) -> None:
        parts = urlsplit(url)
        self._host, is_tls = parts.hostname or "", parts.scheme == "https"
        self._port = parts.port or (443 if is_tls else 80)
        self._context = context if is_tls else None
        self._server_name = (server_name or self._host) if is_tls else None
        self._connect_timeout_s = connect_timeout_s
        self._idle: deque[_Connection] = deque()
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._is_closed = False

    async def request(self, request: bytes, *, timeout_s: float, is_repeatable: bool) -> HttpAnswer:
        """Send a request, head and body, and return its answer.

        Args:
            is_repeatable: whether it may be sent again on a new connection when the server has just closed a kept one.

        Raises:
            TimeoutError: no whole answer within `timeout_s`.
            OSError: no connection, or it ended; BrokenAnswerError is one.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        async with self._slots:
            while True:
                kept = self._kept()
                connection = kept or await self._connected(deadline)
                try:
                    answer = await connection.ask(request, deadline)
                except BrokenAnswerError as error:
                    if kept is not None and error.is_untouched and is_repeatable:
                        continue
                    raise
                self._keep(connection)
                return answer

    def close(self) -> None:
        """Close what is idle, and everything else once its answer has come."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def _kept(self) -> "_Connection | None":
        """The connection that was used last, if it is still open."""
        oldest_s = time.monotonic() - KEPT_S
        while self._idle and (self._idle[0].idle_since_s < oldest_s or not self._idle[0].is_open):
            self._idle.popleft().close()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    def _keep(self, connection: "_Connection") -> None:
        if self._is_closed or not connection.is_open:
            connection.close()
            return
        connection.idle_since_s = time.monotonic()
        self._idle.append(connection)

    async def _connected(self, deadline: float) -> "_Connection":
        loop = asyncio.get_running_loop()
        async with asyncio.timeout_at(min(deadline, loop.time() + self._connect_timeout_s)):
            _, connection = await loop.create_connection(
                _Connection,
                self._host,
                self._port,
                ssl=self._context,
                server_hostname=self._server_name,
                happy_eyeballs_delay=0.25,
            )
        return connection


class _Connection(asyncio.Protocol):
    """One connection, and the answer that is being read from it."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[HttpAnswer] | None = None
        self._reading = _AnswerReader()
        self.idle_since_s = 0.0
        self.is_open = False

    async def ask(self, request: bytes, deadline: float) -> HttpAnswer:
        """Send a request and wait for its answer; the connection is closed if none comes."""
        loop = asyncio.get_running_loop()
        if self._transport is None or not self.is_open:
            raise BrokenAnswerError("the connection was closed", is_untouched=True)
        waiter: asyncio.Future[HttpAnswer] = loop.create_future()
        self._waiter = waiter
        self._reading = _AnswerReader()
        expiry = loop.call_at(deadline, self._expire)
        try:
            self._transport.write(request)
            return await waiter
        finally:
            expiry.cancel()
            self._waiter = None
            if not self._reading.may_follow:
                self.close()

    def close(self) -> None:
        """Close at once."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.is_open = transport, True

    def data_received(self, data: bytes) -> None:
        """Read on; what comes without a question ends the connection."""
        if self._waiter is None or self._waiter.done():
            self.close()
            return
        try:
            answer = self._reading.feed(data)
        except ValueError as error:
            self._fail(BrokenAnswerError(f"the answer is not HTTP/1.1: {error}"))
        else:
            self._end(answer)

    def eof_received(self) -> bool:
        """The server sends nothing more: an answer without a length is whole now."""
        self.is_open = False
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more comes."""
        self.is_open = False
        answer = None if exc else self._reading.at_end()
        if answer is not None:
            self._end(answer)
        elif self._waiter is not None:
            text = str(exc) if exc else "the server closed the connection"
            self._fail(BrokenAnswerError(text, is_untouched=self._reading.is_untouched))

    def _expire(self) -> None:
        self._fail(TimeoutError())

    def _end(self, answer: HttpAnswer | None) -> None:
        if answer is not None and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(answer)

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)


class _AnswerReader:
    """Reads one answer from the bytes of a connection, however they are divided."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._status = 0
        self._headers: dict[str, str] = {}
        self._length: int | None = None
        self._is_chunked = False
        self._chunks = bytearray()
        self.is_untouched = True
        self.may_follow = False
        """Whether the answer is whole and another request may be sent on the connection."""

    def feed(self, data: bytes) -> HttpAnswer | None:
        """Take bytes in; give the answer once it is whole.

        Raises:
            ValueError: they are not HTTP/1.1.
        """
        self.is_untouched = False
        self._data += data
        while not self._status:
            if not self._read_head():
                return None
        if self._is_chunked:
            return self._whole(bytes(self._chunks)) if self._read_chunks() else None
        if self._length is None or len(self._data) < self._length:
            return None
        body = bytes(self._data[: self._length])
        del self._data[: self._length]
        return self._whole(body)

    def at_end(self) -> HttpAnswer | None:
        """The answer that the end of the connection makes whole; None if there is none."""
        if not self._status or self._is_chunked or self._length is not None:
            return None
        return HttpAnswer(self._status, self._headers, self._decoded(bytes(self._data)))

    def _whole(self, body: bytes) -> HttpAnswer:
        said = self._headers.get("connection", "").lower()
        self.may_follow = not self._data and "close" not in said
        return HttpAnswer(self._status, self._headers, self._decoded(body))

    def _decoded(self, body: bytes) -> bytes:
        coding = self._headers.get("content-encoding", "identity").lower()
        if coding == "identity" or not body:
            return body
        if coding != "gzip":
            raise ValueError(f"content coding {coding!r} was not asked for")
        try:
            return zlib.decompress(body, _GZIP)
        except zlib.error as error:
            raise ValueError(f"gzip: {error}") from error

    def _read_head(self) -> bool:
        """Read the head, or one of an interim answer (1xx), which says nothing."""
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            if len(self._data) > MAX_HEAD_BYTES:
                raise ValueError("its head does not end")
            return False
        first, *lines = bytes(self._data[:end]).decode("latin-1").split("\r\n")
        del self._data[: end + 4]
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if version not in ("HTTP/1.1", "HTTP/1.0") or len(code) != 3 or not code.isdigit():
            raise ValueError(f"it begins with {first[:40]!r}")
        if code[0] == "1":
            return bool(self._data)
        self._status = int(code)
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise ValueError(f"a line of its head is {line[:40]!r}")
            self._headers[name.strip().lower()] = value.strip()
        if version == "HTTP/1.0":
            self._headers["connection"] = "close"
        self._read_framing()
        return True

    def _read_framing(self) -> None:
        coding, length = self._headers.get("transfer-encoding", ""), self._headers.get("content-length")
        if self._status in (204, 304):
            self._length = 0
        elif coding:
            if coding.lower() != "chunked":
                raise ValueError(f"transfer coding {coding!r} was not asked for")
            self._is_chunked = True
        elif length is not None:
            if not (length.isascii() and length.isdigit()):
                raise ValueError(f"its length is {length[:40]!r}")
            self._length = int(length)

    def _read_chunks(self) -> bool:
        """Take whole chunks off the data; True after the last one."""
        while (end := self._data.find(b"\r\n")) >= 0:
            size_text = bytes(self._data[:end]).partition(b";")[0].strip()
            if not _CHUNK_SIZE.fullmatch(size_text):
                raise ValueError(f"the size of a chunk is {size_text[:40]!r}")
            size = int(size_text, 16)
            if size == 0:
                return self._read_trailer(end)
            if len(self._data) < end + 2 + size + 2:
                return False
            self._chunks += self._data[end + 2 : end + 2 + size]
            if self._data[end + 2 + size : end + 4 + size] != b"\r\n":
                raise ValueError("a chunk is longer than its size")
            del self._data[: end + 4 + size]
        return False

    def _read_trailer(self, end: int) -> bool:
        """Drop the last chunk and the trailer, if there is one."""
        if self._data[end + 2 : end + 4] == b"\r\n":
            del self._data[: end + 4]
            return True
        until = self._data.find(b"\r\n\r\n", end)
        if until < 0:
            return False
        del self._data[: until + 4]
        return True
