"""Our own HTTP/1.1 connections: framing of answers, connections that are kept, and what goes wrong."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.clusters import connections
from reconciler.clusters.connections import BrokenAnswerError, Connections, HttpAnswer, _AnswerReader
from tests.kafka.certificates import Authority

REQUEST = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWERS = [
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", 200, b"{}", True, id="with a length"),
    pytest.param(b"HTTP/1.1 404\r\ncontent-length:0\r\n\r\n", 404, b"", True, id="empty, without a reason"),
    pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True, id="no content"),
    pytest.param(CHUNKED + b"3\r\nabc\r\nA;x=1\r\n0123456789\r\n0\r\n\r\n", 200, b"abc0123456789", True, id="chunks"),
    pytest.param(CHUNKED + b"1\r\na\r\n0\r\nX-T: 1\r\n\r\n", 200, b"a", True, id="chunks and a trailer"),
    pytest.param(CHUNKED + b"0\r\n\r\n", 200, b"", True, id="no chunk"),
    pytest.param(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        200,
        b"x",
        True,
        id="interim answers",
    ),
    pytest.param(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", 200, b"x", False, id="closing"),
    pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, b"x", False, id="an old server"),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s"
        % (len(gzip.compress(b"text" * 99, mtime=0)), gzip.compress(b"text" * 99, mtime=0)),
        200,
        b"text" * 99,
        True,
        id="gzip",
    ),
]


def read(parts: list[bytes]) -> tuple[HttpAnswer | None, bool]:
    reader, answer = _AnswerReader(), None
    for part in parts:
        assert answer is None, "whole before its end"
        answer = reader.feed(part)
    return answer, reader.may_follow


@pytest.mark.parametrize(("wire", "status", "data", "may_follow"), ANSWERS)
@given(cuts=st.data())
def test_an_answer_is_read_however_its_bytes_are_divided(
    wire: bytes, status: int, data: bytes, may_follow: bool, cuts: st.DataObject
) -> None:
    at = sorted(cuts.draw(st.sets(st.integers(1, len(wire) - 1), max_size=8)))
    parts = [wire[first:end] for first, end in zip([0, *at], [*at, len(wire)], strict=True)]
    answer, follows = read(parts)
    assert answer is not None
    assert (answer.status, answer.data, follows) == (status, data, may_follow)


@pytest.mark.parametrize(
    ("wire", "says"),
    [
        pytest.param(b"SSH-2.0-OpenSSH\r\n\r\n", "begins with", id="another protocol"),
        pytest.param(b"HTTP/1.1 2x0 OK\r\n\r\n", "begins with", id="no status"),
        pytest.param(b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "a line of its head", id="no header"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "its length", id="a negative length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: br\r\n\r\n", "transfer coding", id="another coding"),
        pytest.param(CHUNKED + b"-1\r\n", "size of a chunk", id="a negative chunk"),
        pytest.param(CHUNKED + b"0x1\r\na\r\n", "size of a chunk", id="a chunk size that only Python reads"),
        pytest.param(CHUNKED + b"1\r\nab\r\n", "longer than its size", id="a chunk that is too long"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", "gzip", id="gzip that is none"
        ),
        pytest.param(b"x" * (connections.MAX_HEAD_BYTES + 1), "does not end", id="an endless head"),
    ],
)
def test_what_is_not_http_is_refused(wire: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        _AnswerReader().feed(wire)


def test_a_request_after_which_the_server_says_more_is_not_followed_by_another() -> None:
    answer, follows = read([b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxy"])
    assert (answer is not None, follows) == (True, False)


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def served(
    serve: Serve, certificate: Path | None = None, context: ssl.SSLContext | None = None, server_name: str = ""
) -> AsyncIterator[Connections]:
    """Connections to a server that does this with each of them, and then closes it."""
    own = None
    if certificate is not None:
        own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        own.load_cert_chain(certificate)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=own)
    async with server:
        url = f"{'https' if own else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}/prefix"
        made = Connections(url, context=context, server_name=server_name)
        try:
            yield made
        finally:
            made.close()


async def ask(made: Connections, *, timeout_s: float = 20.0, is_repeatable: bool = True) -> HttpAnswer:
    return await made.request(REQUEST, timeout_s=timeout_s, is_repeatable=is_repeatable)


async def test_connections_are_kept_and_used_again() -> None:
    met: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.append(0)
        while True:
            await reader.readuntil(b"\r\n\r\n")
            met[-1] += 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")

    async with served(serve) as made:
        for _ in range(3):
            assert (await ask(made)).data == b"x"
        await asyncio.gather(*(ask(made) for _ in range(5)))
    assert (sum(met), len(met)) == (8, 5)


async def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")

    async with served(serve) as made:
        assert [(await ask(made)).data for _ in range(2)] == [b"all of it"] * 2


@pytest.mark.parametrize("is_repeatable", [True, False])
async def test_a_request_meets_a_kept_connection_that_the_server_closes(is_repeatable: bool) -> None:
    met = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal met
        met += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")
        await reader.readuntil(b"\r\n\r\n")  # closes it without an answer

    async with served(serve) as made:
        await ask(made)
        if is_repeatable:
            assert (await ask(made, is_repeatable=True)).data == b"x"
        else:
            with pytest.raises(BrokenAnswerError):
                await ask(made, is_repeatable=False)
    assert met == (2 if is_repeatable else 1)


@pytest.mark.parametrize(
    ("sent", "error", "says"),
    [
        pytest.param(b"", BrokenAnswerError, "closed the connection", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", BrokenAnswerError, "closed", id="half of it"),
        pytest.param(CHUNKED + b"5\r\nab", BrokenAnswerError, "closed", id="half a chunk"),
        pytest.param(b"220 mail.example.com ESMTP\r\n\r\n", BrokenAnswerError, "not HTTP", id="another protocol"),
    ],
)
async def test_an_answer_that_is_not_whole_is_an_error(sent: bytes, error: type[Exception], says: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        await writer.drain()

    async with served(serve) as made:
        with pytest.raises(error, match=says):
            await ask(made)


async def test_a_server_that_does_not_answer_is_given_up_and_its_connection_closed() -> None:
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            await reader.read()  # until the other end closes
        finally:
            closed.set()

    async with served(serve) as made:
        with pytest.raises(TimeoutError):
            await ask(made, timeout_s=0.05)
        async with asyncio.timeout(20):
            await closed.wait()


async def test_a_request_that_is_cancelled_leaves_no_connection_with_a_late_answer() -> None:
    asked, late = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"late" if not asked.is_set() else b"good"
        asked.set()
        if body == b"late":
            await late.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + body)

    async with served(serve) as made:
        asking = asyncio.create_task(ask(made))
        await asked.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        late.set()
        assert (await ask(made)).data == b"good"


async def test_nobody_listens() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await ask(Connections(f"http://127.0.0.1:{port}"))


@pytest.mark.parametrize(
    ("server_name", "trusts", "says"),
    [
        pytest.param("", True, "", id="its address"),
        pytest.param("api.example.com", True, "", id="another name that it has"),
        pytest.param("other.example.com", True, "mismatch", id="a name that it does not have"),
        pytest.param("", False, "self-signed|unable to get local issuer", id="an unknown authority"),
    ],
)
async def test_the_certificate_of_the_server_counts(tmp_path: Path, server_name: str, trusts: bool, says: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200_000)

    authority = Authority(tmp_path)
    certificate = authority.issue("server", hosts=["api.example.com"])
    context = ssl.create_default_context(cafile=authority.cafile if trusts else None)
    async with served(serve, certificate, context, server_name) as made:
        if says:
            with pytest.raises(ssl.SSLError, match=says):
                await ask(made)
        else:
            assert [len((await ask(made)).data) for _ in range(2)] == [200_000] * 2
