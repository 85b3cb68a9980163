"""Requests to an API server over TLS: the same by libcurl and by aiohttp, whatever the server does."""

import asyncio
import base64
import gc
import gzip
import json
import socket
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from kubernetes.aio.client import Configuration

from fleethpa.lab.simulator.cluster import Identity, _certificate, local_identity
from reconciler.clusters import client as clusterclient
from reconciler.clusters import credentials
from reconciler.clusters.answers import ApiError, ConfigError, NoAnswerError, UnreachableError, UnreadableError
from reconciler.clusters.client import ClusterClient, ClusterConfig
from reconciler.clusters.credentials import APPLY_PATCH
from reconciler.clusters.transfers import transfers_of
from schemas.limits import CLUSTER_ANSWER

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BUSY = b'{"kind":"Status","reason":"TooManyRequests","message":"later","code":429}'
LARGE = b'{"items":["' + b"x" * 5_000_000 + b'"]}'


def whole(body: bytes, head: bytes = OK) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


class Connection:
    """One connection of a client to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def request(self) -> tuple[str, dict[str, str], bytes]:
        """Read a request: its first line, its headers and its body."""
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        return first, headers, await self._reader.readexactly(int(headers.get("content-length", 0)))

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def cut(self) -> None:
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()


class Server:
    """An API server that treats each connection as `serve` says."""

    def __init__(self, serve: Callable[["Server", Connection], Awaitable[None]]) -> None:
        self._serve = serve
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0
        self.certificates: list[int] = []
        """Serial numbers of the certificates that clients showed, one for each connection."""
        self.goes_on = asyncio.Event()
        self.closed = asyncio.Event()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if shown := writer.get_extra_info("peercert"):
            self.certificates.append(int(shown["serialNumber"], 16))
        connection = Connection(reader, writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            await self._serve(self, connection)
        connection.close()
        self.closed.set()

    async def next(self, connection: Connection) -> tuple[str, dict[str, str], bytes]:
        self.requests.append(await connection.request())
        return self.requests[-1]


async def answering(server: Server, connection: Connection) -> None:
    while True:
        await server.next(connection)
        await connection.send(whole(b'{"metadata":{}}'))


@asynccontextmanager
async def served(
    serve: Callable[[Server, Connection], Awaitable[None]],
    identity: Identity | None = None,
    *,
    authority: bytes = b"",
    user: dict[str, Any] | None = None,
    cluster: dict[str, str] | None = None,
) -> AsyncIterator[tuple[Server, ClusterClient]]:
    server, identity = Server(serve), identity or local_identity()
    listening = await asyncio.start_server(server.accept, "127.0.0.1", 0, ssl=identity.context)
    client = client_of(listening.sockets[0].getsockname()[1], authority or identity.certificate_pem, user, cluster)
    try:
        yield server, client
    finally:
        await client.close()
        listening.close()


def client_of(
    port: int, authority: bytes, user: dict[str, Any] | None = None, cluster: dict[str, str] | None = None
) -> ClusterClient:
    cluster = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority-data": base64.b64encode(authority).decode(),
    } | (cluster or {})
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "east", "cluster": cluster}],
        "users": [{"name": "east", "user": user or {"token": "t"}}],
        "contexts": [{"name": "east", "context": {"cluster": "east", "user": "east"}}],
        "current-context": "east",
    }
    return ClusterClient(ClusterConfig("east", context="east", document=document))


@pytest.fixture(autouse=True, params=["libcurl", "aiohttp"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "aiohttp":
        monkeypatch.setattr(credentials, "transfers_of", lambda *_: None)
    return str(request.param)


async def test_requests_follow_each_other_on_one_connection_and_say_what_an_api_server_needs() -> None:
    async with served(answering) as (server, client):
        await client.get("/api/v1/pods?limit=5")
        await client.put("/scale", {"spec": {"replicas": 3}})
        await client.put("/scale", {"spec": {"replicas": 4}})
        await client.merge_patch("/events/e", {"count": 2})
        await client.request("PATCH", "/scale?fieldManager=floor", body={"spec": {}}, content_type=APPLY_PATCH)
        await client.create_named("/events", {"count": 1})
    assert server.connections == 1
    firsts, headers, bodies = zip(*server.requests, strict=True)
    assert firsts[0] == "GET /api/v1/pods?limit=5 HTTP/1.1"
    assert firsts[1].startswith("PUT /scale?timeout=")
    assert firsts[3].startswith("PATCH /events/e?timeout=")
    assert firsts[5].startswith("POST /events?timeout=")
    assert bodies[:3] == (b"", b'{"spec":{"replicas":3}}', b'{"spec":{"replicas":4}}')
    assert bodies[3:] == (b'{"count":2}', b'{"spec":{}}', b'{"count":1}')
    kinds = [each.get("content-type") for each in headers[1:]]
    json = "application/json"
    assert kinds == [json, json, "application/merge-patch+json", "application/apply-patch+yaml", json]
    for each in headers:
        assert (each["authorization"], each["accept"], each["user-agent"]) == (
            "Bearer t",
            "application/json",
            "fleethpa",
        )
        assert "expect" not in each
    assert headers[1]["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/deployments/a b/scale", "/deployments/a%20b/scale"),
        ("/deployments/\u00e4\r\nX-Evil: 1/scale", "/deployments/%C3%A4%0D%0AX-Evil:%201/scale"),
        ("/pods?labelSelector=app%3Dweb%2Ctier+in+%28a%29", None),
    ],
)
async def test_a_name_may_have_any_character(path: str, sent: str | None, way: str) -> None:
    async with served(answering) as (server, client):
        await client.get(path)
    if way == "libcurl":  # aiohttp leaves other characters as they are
        assert server.requests[0][0] == f"GET {sent or path} HTTP/1.1"
    assert "x-evil" not in server.requests[0][1]


@pytest.mark.parametrize("token", ["one\r\nX-Evil: 1", "two\n", "dr\u00f6i"])
async def test_a_token_that_no_header_can_have_is_a_trouble_of_its_cluster(token: str) -> None:
    async with served(answering, user={"token": token}) as (server, client):
        with pytest.raises(ConfigError, match="a token has characters that cannot be in a header"):
            await client.get("/pods")
    assert not server.requests


async def test_a_connection_that_was_closed_in_between_is_replaced() -> None:
    async def once(server: Server, connection: Connection) -> None:
        await server.next(connection)
        await connection.send(whole(b"{}"))

    async with served(once) as (server, client):
        for _ in range(3):
            await client.put("/scale", {})
            await server.closed.wait()
            server.closed.clear()
    assert (server.connections, len(server.requests)) == (3, 3)


async def test_a_connection_that_is_closed_while_idle_does_not_wake_the_event_loop_again_and_again(way: str) -> None:
    async def closes(server: Server, connection: Connection) -> None:
        await server.next(connection)
        await connection.send(whole(b"{}"))
        await server.goes_on.wait()
        connection.cut()

    async with served(closes) as (server, client):
        await client.put("/scale", {})
        server.goes_on.set()
        session = client._session
        assert session is not None
        if way == "aiohttp":
            assert session.transfers is None
            return
        assert session.transfers is not None
        transfers, seen = session.transfers, asyncio.Event()
        asyncio.get_running_loop().add_reader(transfers._sockets.fileno(), seen.set)
        await seen.wait()  # the end of the connection
        transfers._go_on()
        assert transfers._sockets.poll(0) == []


async def test_a_server_that_closes_each_connection_after_its_answer_is_asked_on_new_ones() -> None:
    async def closing(server: Server, connection: Connection) -> None:
        await server.next(connection)
        await connection.send(whole(b"{}", OK + b"Connection: close\r\n"))

    async with served(closing) as (server, client):
        for _ in range(3):
            assert await client.put("/scale", {}) == {}
    assert (server.connections, len(server.requests)) == (3, 3)


async def test_a_connection_that_is_cut_as_the_next_request_comes_costs_no_error() -> None:
    # As a server that restarts does: the client cannot know it before it has sent the request.
    async def cuts(server: Server, connection: Connection) -> None:
        await server.next(connection)
        await connection.send(whole(b"{}"))
        if server.connections == 1:
            await server.next(connection)
            connection.cut()

    async with served(cuts) as (server, client):
        await client.put("/scale", {})
        await client.put("/scale", {})
    assert (server.connections, len(server.requests)) == (2, 3)


async def test_an_object_with_a_name_is_sent_again_by_libcurl_alone_and_one_without_by_neither(way: str) -> None:
    async def cuts(server: Server, connection: Connection) -> None:
        await server.next(connection)
        await connection.send(whole(b"{}"))
        await server.next(connection)
        if server.connections == 1:
            connection.cut()
        await connection.send(whole(b"{}"))

    async def creates(create: Callable[[ClusterClient], Awaitable[object]]) -> tuple[bool, int]:
        async with served(cuts) as (server, client):
            await client.put("/scale", {})
            try:
                await create(client)
            except NoAnswerError:
                return False, len(server.requests)
        return True, len(server.requests)

    named = await creates(lambda client: client.create_named("/events", {}))
    other = await creates(lambda client: client.request("POST", "/leases", body={}))
    # Through libcurl the other one goes on aiohttp's own connection, the second of the server.
    assert (named, other) == (((True, 3), (True, 2)) if way == "libcurl" else ((False, 2), (False, 2)))


@pytest.mark.parametrize("sent", [b"", OK + b"Content-Length: 20\r\n\r\n{", OK[:20]], ids=["nothing", "half", "a head"])
async def test_an_answer_that_breaks_off_is_none(sent: bytes) -> None:
    async def breaks_off(server: Server, connection: Connection) -> None:
        await server.next(connection)
        await connection.send(sent)

    async with served(breaks_off) as (_, client):
        with pytest.raises(UnreachableError, match="GET /pods: ") as found:
            await client.get("/pods")
    assert getattr(found.value, "was_connected", True)


async def test_a_server_that_hangs_is_given_up_in_time_and_the_next_request_is_answered() -> None:
    async def hangs_once(server: Server, connection: Connection) -> None:
        await server.next(connection)
        if server.connections == 1:
            await server.goes_on.wait()
        await connection.send(whole(b"{}"))

    async with served(hangs_once) as (server, client):
        with pytest.raises(NoAnswerError, match=r"GET /pods: no answer within 0\.2 s") as found:
            await client.get("/pods", timeout_s=0.2)
        assert found.value.was_connected
        await client.get("/pods")
        server.goes_on.set()


def connect_within(monkeypatch: pytest.MonkeyPatch, timeout_s: float) -> None:
    """Let a connection take so long, by libcurl and by aiohttp."""
    for module in ("transfers", "client"):
        monkeypatch.setattr(f"reconciler.clusters.{module}.CONNECT_TIMEOUT_S", timeout_s)


async def test_a_server_that_accepts_and_says_nothing_was_not_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose process is stopped: its system accepts, and the handshake of TLS never ends."""
    connect_within(monkeypatch, 0.2)
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        client = client_of(stopped.getsockname()[1], local_identity().certificate_pem)
        with pytest.raises(NoAnswerError, match=r"GET /pods: no connection within 0\.2 s") as found:
            await client.get("/pods", timeout_s=60)
        with pytest.raises(NoAnswerError, match=r"GET /pods: no (connection|answer) within 0\.1 s"):
            await client.get("/pods", timeout_s=0.1)
        await client.close()
    assert not found.value.was_connected


async def test_an_answer_that_comes_in_pieces_is_read_whole() -> None:
    async def piecemeal(server: Server, connection: Connection) -> None:
        await server.next(connection)
        await connection.send(b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Transfer-Encoding: chunked\r\n\r\n")
        for piece in (b'{"it', b'ems":', b'["ab', b'c"]}', b""):
            await connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            await asyncio.sleep(0)

    async with served(piecemeal) as (_, client):
        assert await client.get("/pods") == {"items": ["abc"]}


@pytest.mark.parametrize("is_compressed", [False, True])
async def test_an_answer_of_five_megabytes_is_read(is_compressed: bool) -> None:
    async def large(server: Server, connection: Connection) -> None:
        _, headers, _ = await server.next(connection)
        assert "gzip" in headers["accept-encoding"]
        head = OK + b"Content-Encoding: gzip\r\n" if is_compressed else OK
        await connection.send(whole(gzip.compress(LARGE) if is_compressed else LARGE, head))

    async with served(large) as (_, client):
        assert len((await client.get("/pods"))["items"][0]) == 5_000_000


@cache
def small_and_much() -> bytes:
    """A few bytes that unpack to more than an answer may have."""
    packed = gzip.compress(bytes(CLUSTER_ANSWER.most + 2**20), compresslevel=9)
    assert len(packed) < 2**17
    return packed


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_small_answer_that_unpacks_to_much_is_not_taken(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """A gigabyte of zeros is a megabyte on the way. The next answer is read as usual."""

    async def bomb(server: Server, connection: Connection) -> None:
        await server.next(connection)
        await connection.send(whole(small_and_much(), OK + b"Content-Encoding: gzip\r\n"))
        await answering(server, connection)

    async def bomb_once(server: Server, connection: Connection) -> None:
        await (bomb if server.connections == 1 else answering)(server, connection)

    async with served(bomb_once) as (_, client):
        with pytest.raises(
            UnreadableError, match=f"{method} /pods: the answer has more than {CLUSTER_ANSWER.most} bytes"
        ):
            await client.request(method, "/pods", body={} if method == "POST" else None, timeout_s=60)
        assert await client.get("/pods", timeout_s=60) == {"metadata": {}}


async def test_an_event_of_a_watch_without_end_is_not_taken() -> None:
    async def endless(server: Server, connection: Connection) -> None:
        await server.next(connection)
        await connection.send(OK + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"x" * 2**20
        while not server.goes_on.is_set():
            await connection.send(b"%x\r\n%b\r\n" % (len(chunk), chunk))

    async with served(endless) as (server, client):
        with pytest.raises(UnreadableError, match="an event has more than"):
            async for _ in client.watch("/pods?watch=1", silence_s=60):
                pass
        server.goes_on.set()


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE", "PATCH", "watch"])
async def test_no_request_follows_a_redirect(method: str) -> None:
    """It would take what is asked, with its body, to a place that an answer chose."""

    async def elsewhere(server: Server, connection: Connection) -> None:
        await server.next(connection)
        target = b"https://" + server.requests[0][1]["host"].encode() + b"/other"
        head = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: %b\r\n" % target
        await connection.send(whole(b"", head))
        await answering(server, connection)

    async def ask() -> None:
        if method == "watch":
            async for _ in client.watch("/pods", silence_s=60):
                pass
        else:
            await client.request(method, "/pods", body=None if method in ("GET", "DELETE") else {})

    async with served(elsewhere) as (server, client):
        with pytest.raises(ApiError) as refused:
            await ask()
        assert refused.value.status == 307
        assert [first.split()[1].partition("?")[0] for first, _, _ in server.requests] == ["/pods"]


async def test_an_answer_is_not_kept_once_it_was_given() -> None:
    async def large(server: Server, connection: Connection) -> None:
        while True:
            await server.next(connection)
            await connection.send(whole(LARGE))

    async with served(large) as (_, client):
        await client.put("/scale", {})
        tracemalloc.start()
        try:
            assert len(await client.get_bytes("/pods")) > 5_000_000
            await asyncio.sleep(0)  # what runs now still has the answer that it waited for
            gc.collect()
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert kept < 4_000_000


@pytest.mark.parametrize(
    ("header", "after_ms"), [(b"Retry-After: 7\r\n", 7_000), (b"", None)], ids=["in 7 s", "at some time"]
)
async def test_a_server_that_throttles_says_until_when(header: bytes, after_ms: int | None) -> None:
    async def throttles(server: Server, connection: Connection) -> None:
        await server.next(connection)
        await connection.send(whole(BUSY, b"HTTP/1.1 429 Too Many Requests\r\n" + header))

    async with served(throttles) as (_, client):
        with pytest.raises(ApiError, match="later") as found:
            await client.get("/pods")
    assert (found.value.status, found.value.reason, found.value.retry_after_ms) == (429, "TooManyRequests", after_ms)


async def test_a_hundred_requests_at_once_are_answered_each_by_its_own_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    connect_within(monkeypatch, 60)  # one process makes a hundred handshakes, on both sides

    async def echoing(server: Server, connection: Connection) -> None:
        while True:
            first, _, _ = await server.next(connection)
            await connection.send(whole(b'{"asked":"%s"}' % first.split(" ")[1].encode()))

    async with served(echoing) as (_, client):
        asked = [f"/pods/{number}" for number in range(100)]
        answers = await asyncio.gather(*[client.get(each, timeout_s=60) for each in asked])
        assert answers == [{"asked": each} for each in asked]


async def test_a_request_that_is_given_up_disturbs_no_other() -> None:
    async def one_hangs(server: Server, connection: Connection) -> None:
        while True:
            first, _, _ = await server.next(connection)
            if "/hangs" in first:
                await server.goes_on.wait()
            await connection.send(whole(b"{}"))

    async with served(one_hangs) as (server, client):
        hanging = asyncio.create_task(client.get("/hangs"))
        while not server.requests:
            await asyncio.sleep(0)
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        for _ in range(3):
            assert await client.get("/pods") == {}
        server.goes_on.set()


async def test_a_request_that_runs_while_the_client_is_closed_ends() -> None:
    async def hangs(server: Server, connection: Connection) -> None:
        await server.next(connection)
        await server.goes_on.wait()

    async with served(hangs) as (server, client):
        running = asyncio.create_task(client.get("/pods"))
        while not server.requests:
            await asyncio.sleep(0)
        await client.close()
        with pytest.raises(NoAnswerError):
            await running
        server.goes_on.set()


async def test_a_port_where_nobody_listens_was_not_connected() -> None:
    client = client_of(1, local_identity().certificate_pem)
    with pytest.raises(NoAnswerError, match="GET /pods: ") as found:
        await client.get("/pods")
    await client.close()
    assert not found.value.was_connected


async def test_a_server_with_a_certificate_of_another_authority_is_not_asked() -> None:
    stranger = local_identity.__wrapped__().certificate_pem
    async with served(answering, authority=stranger) as (server, client):
        with pytest.raises(NoAnswerError, match=r"(?i)certificate") as found:
            await client.get("/pods")
    assert not found.value.was_connected
    assert not server.requests


async def test_a_server_whose_certificate_has_another_name_is_not_asked() -> None:
    """The authority is the right one: whoever has a certificate of it for another server is not this one."""
    identity, server = local_identity(), Server(answering)
    listening = await asyncio.start_server(server.accept, "127.0.0.2", 0, ssl=identity.context)
    port = listening.sockets[0].getsockname()[1]
    for address, is_asked in (("127.0.0.2", False), ("localhost", True)):
        if is_asked:
            listening.close()
            listening = await asyncio.start_server(server.accept, "127.0.0.1", 0, ssl=identity.context)
            port = listening.sockets[0].getsockname()[1]
        client = client_of(port, identity.certificate_pem, cluster={"server": f"https://{address}:{port}"})
        if is_asked:
            assert await client.get("/pods") == {"metadata": {}}
        else:
            with pytest.raises(NoAnswerError, match=r"(?i)127\.0\.0\.2|certificate|ssl"):
                await client.get("/pods")
            assert not server.requests
        await client.close()
    listening.close()


def client_certificate() -> tuple[bytes, bytes, int]:
    """Make a certificate for clients: it and its key as PEM, and its serial number."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = _certificate(key)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made.public_bytes(Encoding.PEM), private, made.serial_number


def asking_for(certificate: bytes) -> Identity:
    identity = local_identity.__wrapped__()
    identity.context.verify_mode = ssl.CERT_REQUIRED
    identity.context.load_verify_locations(cadata=certificate.decode())
    return identity


async def test_a_client_certificate_is_shown(tmp_path: Path) -> None:
    certificate, private, serial = client_certificate()
    (tmp_path / "pem").write_bytes(certificate)
    (tmp_path / "key").write_bytes(private)
    identity = asking_for(certificate)
    user = {"client-certificate": str(tmp_path / "pem"), "client-key": str(tmp_path / "key")}
    async with served(answering, identity, user=user) as (server, client):
        assert await client.get("/pods") == {"metadata": {}}
        assert server.certificates == [serial]
    async with served(answering, identity) as (server, client):
        with pytest.raises(NoAnswerError):
            await client.get("/pods")
        assert not server.requests


async def refusing_first(server: Server, connection: Connection) -> None:
    """Refuse the first request with 401, and answer all others."""
    while True:
        await server.next(connection)
        head = b"HTTP/1.1 401 Unauthorized\r\n" if len(server.requests) == 1 else OK
        await connection.send(whole(b"{}", head))


async def test_a_certificate_of_a_plugin_is_shown_and_after_a_401_the_plugin_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusterclient, "_RELOAD_PAUSE_S", 0.0)
    certificate, private, serial = client_certificate()
    status = {"clientCertificateData": certificate.decode(), "clientKeyData": private.decode()}
    script, runs = tmp_path / "plugin", tmp_path / "runs"
    (tmp_path / "given").write_text(json.dumps({"kind": "ExecCredential", "status": status}))
    script.write_text(f"#!/bin/sh\necho run >> {runs}\ncat {tmp_path / 'given'}\n")
    script.chmod(0o700)
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script), "interactiveMode": "Never"}
    async with served(refusing_first, asking_for(certificate), user={"exec": plugin}) as (server, client):
        with pytest.raises(ApiError, match="credentials"):
            await client.get("/pods")
        assert await client.get("/pods") == {}
    assert server.certificates == [serial, serial]
    assert runs.read_text() == "run\n" * 2


async def test_a_newer_token_is_used_on_the_same_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "TOKEN_PERIOD_S", 0.0)
    token = tmp_path / "token"
    async with served(answering, user={"tokenFile": str(token)}) as (server, client):
        for each in ("old", "new"):
            token.write_text(each)
            await client.get("/pods")
    assert [headers["authorization"] for _, headers, _ in server.requests] == ["Bearer old", "Bearer new"]
    assert server.connections == 1


async def test_an_answer_that_never_ends_is_given_up_in_time() -> None:
    async def drips(server: Server, connection: Connection) -> None:
        await server.next(connection)
        await connection.send(OK + b"Content-Length: 1000000\r\n\r\n")
        while True:
            await connection.send(b" ")
            await asyncio.sleep(0.01)  # a slow server

    async with served(drips) as (_, client):
        with pytest.raises(NoAnswerError, match=r"GET /pods: no answer within 0\.3 s") as found:
            await client.get("/pods", timeout_s=0.3)
    assert found.value.was_connected


async def test_a_server_behind_the_proxy_of_its_kubeconfig_is_asked_through_it() -> None:
    asked: list[str] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode().partition(" HTTP")[0])
        there, back = await asyncio.open_connection(*asked[-1].removeprefix("CONNECT ").split(":"))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(forward(reader, back), forward(there, writer))

    proxy = await asyncio.start_server(connect, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    async with served(answering, cluster={"proxy-url": address}) as (server, client):
        for _ in range(2):
            assert await client.get("/pods") == {"metadata": {}}
        assert [first for first, _, _ in server.requests] == ["GET /pods HTTP/1.1"] * 2
        assert asked == [f"CONNECT {client._session._host.removeprefix('https://')}"]  # type: ignore[union-attr]
    proxy.close()


@pytest.mark.parametrize(
    ("settings", "proxy", "is_used"),
    [
        ({"host": "https://east", "ssl_ca_cert": "CA"}, None, True),
        ({"host": "http://east"}, None, True),
        ({"host": "https://east", "verify_ssl": False}, None, True),
        ({"host": "https://east"}, None, False),
        ({"host": "https://east", "ssl_ca_cert": "CA"}, "http://proxy:3128", False),
        ({"host": "https://east", "ssl_ca_cert": "CA", "tls_server_name": "kubernetes"}, None, False),
    ],
    ids=["an authority", "no TLS", "unverified", "the system's authorities", "a proxy", "another name"],
)
async def test_aiohttp_asks_where_a_server_is_not_plainly_reached(
    tmp_path: Path, settings: dict[str, Any], proxy: str | None, is_used: bool
) -> None:
    configuration = Configuration()
    (tmp_path / "CA").write_bytes(local_identity().certificate_pem)
    for name, value in settings.items():
        setattr(configuration, name, str(tmp_path / value) if value == "CA" else value)
    found = transfers_of(configuration, proxy)
    assert (found is not None) is is_used
    if found is not None:
        found.close()
