"""`fleethpa mcp`, driven by the client of the official SDK: over stdio and over streamable HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import mcp_types as types
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError

from fleethpa.cli.main import cli
from fleethpa.frame.errors import CommandError
from fleethpa.frame.listening import names_of
from fleethpa.hub.reading import Admission, ReadingApi, Reviews, VerbAnswer, VerbTurns, connection, runner
from fleethpa.mcp.server import PATH, CallHandler, listening, serve_http, server
from fleethpa.mcp.tools import LINE, REQUEST, tools
from streams.history.seenpast import SeenParts, SeenScope
from tests.kit.archive import write_archive
from tests.kit.cli import Cli
from tests.kit.hubreviews import ReviewingCluster
from tests.kit.verbshere import verbs_here
from tests.laws import one_of

APP = "c0/ns0/app0"
GRANTS = ({"namespaces": ["shop"], "clusters": ["c0"], "memberNamespaces": ["ns0"]},)
CALLS: dict[str, dict[str, Any]] = {
    "get-hpa": {"all_namespaces": True},
    "get-clusters": {},
    "decisions": {"names": [APP], "last": "3"},
    "explain": {"what": APP},
    "history": {"names": [APP]},
    "describe": {"names": [APP]},
    "status": {"all_namespaces": True},
    "what-if": {"what": APP, "settings": ["maxReplicas=3"]},
    "backtest": {"names": [APP], "settings": ["maxReplicas=3"]},
    "doctor": {"only": "clusters,hpas"},
}
"""A call of each tool."""
OF_DECISIONS = ("get-hpa", "decisions", "explain", "history", "describe", "status", "what-if", "backtest")
"""Tools whose answers name decisions."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("archive") / "a")


def texts(found: Any) -> list[str]:
    return [each.text for each in found.content]


# --- stdio ------------------------------------------------------------------------------------------------------------


def started(source: Path | str, *options: str) -> StdioServerParameters:
    arguments = ["-m", "fleethpa", "mcp", "--quiet", "--from", str(source), *options]
    return StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))


def within(archive: Path) -> Server[Any]:
    """The server of an archive, for a client in this process: what it answers is not about how it was started."""
    turns = VerbTurns(runner({}, str(archive), for_others=False))
    return server(CallHandler(cli, turns, tuple(connection({}, str(archive)))))


OVER_STDIO = ("get-hpa", "doctor")
"""Tools that a server answers that is a process, by verbs that are processes: one exits with 0, one with 1."""


async def each_tool(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], dict[str, types.CallToolResult]]:
    """The names of the tools, and the answer of each."""
    async with Client(started(archive)) as client:
        named = [tool.name for tool in (await client.list_tools()).tools]
        found = {name: await client.call_tool(name, CALLS[name]) for name in OVER_STDIO}
    verbs_here(monkeypatch)
    async with Client(within(archive)) as client:
        others = {name: await client.call_tool(name, given) for name, given in CALLS.items() if name not in OVER_STDIO}
    return named, found | others


def test_each_tool_answers_what_the_command_below_its_answer_prints(
    archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    named, found = asyncio.run(each_tool(archive, monkeypatch))

    known = tools(cli)
    assert named == list(CALLS) == list(known)
    assert found.keys() == CALLS.keys()
    for name, answer in found.items():
        assert not answer.is_error, texts(answer)
        out, *_, below = texts(answer)
        decisions, *_, same = below.splitlines()
        typed = shlex.split(same.removeprefix("The same answer: "))
        at = typed.index(known[name].verb.words[0])
        again = Cli(monkeypatch)(*typed[at:])
        # Hints name the program by what it was called by.
        assert out.replace(shlex.join(typed[:at]), "fleethpa") == again.stdout.strip(), name
        assert again.exit_code == (int("Exit code: 1" in below)), name
        assert decisions.startswith("Decisions: 1-") == (name in OF_DECISIONS), (name, decisions)


async def test_a_client_of_the_older_handshake_gets_the_same_tools(archive: Path) -> None:
    async with Client(within(archive), mode="legacy") as client:
        found = (await client.list_tools()).tools
        capabilities = client.session.server_capabilities
        assert capabilities is not None
        assert capabilities.tools is not None
    assert [tool.name for tool in found] == list(CALLS)
    assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in found)


async def test_what_is_wrong_comes_back_as_an_error_that_says_what_to_do(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs_here(monkeypatch)
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("explain", {"what": "nosuch"}, "Error: no HPA nosuch in namespace default\n  Next: "),
        ("explain", {}, "Error: explain needs what"),
        ("get-hpa", {"files": "/etc/passwd"}, "Error: get/hpa takes no files; it takes "),
        ("what-if", {"what": APP, "settings": ["maxReplicas=none"]}, "maxReplicas"),
        (
            "decisions",
            {"all_namespaces": True, "output": "json"},
            "characters; a tool answers at most 60,000.\n  Next: ask",
        ),
    ]
    async with Client(within(archive)) as client:
        for name, given, text in wrong:
            found = await client.call_tool(name, given)
            assert found.is_error
            assert text in texts(found)[0]
        with pytest.raises(MCPError, match="there is no tool apply; there are get-hpa, get-clusters") as error:
            await client.call_tool("apply", {})
        assert error.value.code == types.INVALID_PARAMS
        # It goes on after all of these.
        assert not (await client.call_tool("get-clusters", {})).is_error


async def test_of_a_hub_the_tools_show_what_the_own_token_may_see(archive: Path, tmp_path: Path) -> None:
    app = web.Application()
    reviews = Reviews(ReviewingCluster(GRANTS))  # type: ignore[arg-type]  # stands for a client
    app.add_routes(ReadingApi(cli, reviews, runner({}, str(archive), for_others=True)).routes())
    user = {"name": "anna", "user": {"token": "anna"}}
    known = {"name": "hub", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "hub", "context": {"cluster": "hub", "user": "anna"}}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps({"current-context": "hub", "clusters": [known], "users": [user], "contexts": [context]})
    )
    async with TestServer(app) as hub:
        hub_url = str(hub.make_url("/")).rstrip("/")
        async with Client(started(hub_url, "--kubeconfig", str(kubeconfig))) as client:
            listed = await client.call_tool("get-hpa", CALLS["get-hpa"])
            checked = await client.call_tool("doctor", {})

    assert [line.split()[:2] for line in texts(listed)[0].splitlines()[1:]] == [["ns0", "app0"], ["ns0", "app4"]]
    assert checked.is_error
    assert "does not let you read" in texts(checked)[0]
    assert "of which anna may see a part" in texts(checked)[0]


class Ended(NamedTuple):
    """How a process has ended."""

    code: int
    out: str
    err: str


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    made = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fleethpa", "mcp", *arguments, stdin=pipe, stdout=pipe, stderr=pipe
    )
    try:
        yield made
    finally:
        if made.returncode is None:
            made.kill()
            await made.wait()


async def ended(made: asyncio.subprocess.Process, given: bytes = b"") -> Ended:
    out, err = await made.communicate(given)
    assert made.returncode is not None
    return Ended(made.returncode, out.decode(), err.decode())


async def ready(made: asyncio.subprocess.Process) -> None:
    """Wait until a server over stdio answers."""
    assert made.stdin is not None
    assert made.stdout is not None
    request = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    made.stdin.write(json.dumps(request).encode() + b"\n")
    assert json.loads(await made.stdout.readline())["id"] == 1


@pytest.mark.parametrize("how", one_of(2, [signal.SIGTERM, signal.SIGINT]))
async def test_a_server_over_stdio_ends_at_a_signal_while_it_waits_for_its_client(archive: Path, how: int) -> None:
    async with process("--from", str(archive)) as made:
        await ready(made)
        made.send_signal(how)
        assert await made.wait() == 0


async def test_a_server_over_stdio_ends_with_its_stdin_and_prints_nothing_but_the_protocol(archive: Path) -> None:
    async with process("--from", str(archive)) as made:
        found = await ended(made, b"nonsense\n")
    assert found.code == 0
    assert all("jsonrpc" in json.loads(line) for line in found.out.splitlines())
    assert "Waiting for a client on stdin" in found.err
    assert "Traceback" not in found.err


@pytest.mark.slow
def test_a_server_whose_client_reads_no_more_ends_and_prints_no_traceback(archive: Path) -> None:
    command = [sys.executable, "-m", "fleethpa", "mcp", "--from", str(archive)]
    pipe, ping = subprocess.PIPE, b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0) as made:
        assert made.stdin is not None
        assert made.stdout is not None
        assert made.stderr is not None
        made.stdin.write(ping)
        assert made.stdout.readline()
        made.stdout.close()
        made.stdin.write(ping)
        assert made.wait() == 0
        assert b"Traceback" not in made.stderr.read()


async def test_a_request_that_is_too_long_ends_the_server_with_its_limit(archive: Path) -> None:
    async with process("--from", str(archive)) as made:
        found = await ended(made, b"x" * (2 * LINE.most + 10) + b"\n")
    assert found.code == 2
    assert "Error: a request is longer than 1,048,576 bytes" in found.err
    assert "Traceback" not in found.err


# --- streamable HTTP --------------------------------------------------------------------------------------------------


class Served(NamedTuple):
    """A server over HTTP in this process. `cluster`: the hub's; `ran`: what each verb was run with."""

    url: str
    cluster: ReviewingCluster
    ran: list[tuple[list[str], SeenParts | None]]


@asynccontextmanager
async def serving(archive: Path, *, is_open: bool = False) -> AsyncIterator[Served]:
    """Serve an archive to who signs in; `is_open`: to everybody."""
    cluster, stop = ReviewingCluster(GRANTS), asyncio.Event()
    ran: list[tuple[list[str], SeenParts | None]] = []
    run = runner({}, str(archive), for_others=True)

    async def noted(arguments: Sequence[str], seen: SeenParts | None) -> VerbAnswer:
        ran.append((list(arguments), seen))
        return await run(arguments, seen)

    admission = None if is_open else Admission(Reviews(cluster))  # type: ignore[arg-type]  # stands for a client
    with listening("127.0.0.1", 0) as at:
        handler = CallHandler(cli, VerbTurns(noted), (), admission)
        task = asyncio.create_task(serve_http(handler, at, names_of("127.0.0.1", ()), stop))
        try:
            yield Served(f"http://127.0.0.1:{at.getsockname()[1]}{PATH}", cluster, ran)
        finally:
            stop.set()
            await task


@asynccontextmanager
async def signed_in(served: Served, token: str, mode: str = "auto") -> AsyncIterator[Client]:
    """A client with a bearer token. `mode`: as the SDK's."""
    async with (
        create_mcp_http_client({"Authorization": f"Bearer {token}"}) as http,
        Client(streamable_http_client(served.url, http_client=http), mode=mode) as client,
    ):
        yield client


async def test_a_reader_of_one_namespace_is_told_of_nothing_else_by_any_tool(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [f"app{n}" for n in (1, 2, 3, 5, 6, 7)] + ["ns1", "ns2", "ns3"]
    asked = [
        *((name, given) for name, given in CALLS.items() if name != "doctor"),
        ("get-hpa", {"all_namespaces": True, "output": "json"}),
        ("decisions", {"all_namespaces": True}),
        ("backtest", {"all_namespaces": True, "settings": ["maxReplicas=3"]}),
        ("explain", {"what": "nosuch", "namespace": "ns0"}),
    ]
    verbs_here(monkeypatch)
    async with serving(archive) as served, signed_in(served, "anna") as client:
        found = [(name, given, await client.call_tool(name, given)) for name, given in asked]

    for name, given, answer in found:
        text = "\n".join(texts(answer))
        assert answer.is_error == (given.get("what") == "nosuch"), (name, given, text)
        assert [each for each in others if each in text] == [], (name, given, text)
    assert {seen == SeenParts([SeenScope(["c0"], ["ns0"])]) for _, seen in served.ran} == {True}


async def test_a_reader_with_a_client_of_the_older_handshake_is_told_no_more(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs_here(monkeypatch)
    async with serving(archive) as served, signed_in(served, "anna", mode="legacy") as client:
        found = await client.call_tool("get-hpa", CALLS["get-hpa"])

    names = [line.split()[:2] for line in texts(found)[0].splitlines()[1:]]
    assert names == [["ns0", "app0"], ["ns0", "app4"]]


async def test_who_may_see_the_whole_fleet_is_told_of_all_of_it(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verbs_here(monkeypatch)
    async with serving(archive) as served, signed_in(served, "root") as client:
        listed, checked = (
            await client.call_tool("get-hpa", CALLS["get-hpa"]),
            await client.call_tool("doctor", CALLS["doctor"]),
        )

    assert "app7" in texts(listed)[0]
    assert "8 HPAs in 4 namespaces" in texts(checked)[0]
    assert [seen for _, seen in served.ran] == [None, None]
    # How this process connects is no concern of theirs.
    assert texts(listed)[-1].endswith("fleethpa get hpa --output=wide --all-namespaces")


@pytest.mark.parametrize(
    ("token", "tool", "text"),
    [
        ("ben", "get-hpa", "Error: ben may see no namespace that a FleetAccess gives something to"),
        ("anna", "doctor", "Error: doctor is about the whole fleet, of which anna may see a part"),
    ],
)
async def test_who_may_not_see_an_answer_is_told_so_and_nothing_runs(
    archive: Path, token: str, tool: str, text: str
) -> None:
    async with serving(archive) as served, signed_in(served, token) as client:
        found = await client.call_tool(tool, CALLS[tool])

    assert (found.is_error, texts(found)) == (True, [text])
    assert served.ran == []


async def test_rights_that_cannot_be_asked_for_are_not_guessed(archive: Path) -> None:
    async with serving(archive) as served, signed_in(served, "anna") as client:
        assert (await client.list_tools()).tools
        served.cluster.is_away = True
        found = await client.call_tool("get-hpa", CALLS["get-hpa"])

    assert (found.is_error, texts(found)) == (True, ["Error: the hub's API server does not say who asks: no answer"])
    assert served.ran == []


LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
HEADERS = {"Accept": "application/json, text/event-stream"}


@pytest.mark.parametrize(
    ("method", "headers", "status", "text"),
    [
        pytest.param("POST", {}, 401, "give a bearer token of the hub's cluster", id="no token"),
        pytest.param("POST", {"Authorization": "Basic YTpi"}, 401, "give a bearer token", id="no bearer"),
        pytest.param(
            "POST", {"Authorization": "Bearer mallory"}, 401, "does not know this token", id="an unknown token"
        ),
        pytest.param("POST", {"Host": "evil.example"}, 421, "start it with --allowed-host NAME", id="another name"),
        pytest.param("POST", {"Origin": "https://evil.example"}, 403, "a page of another site", id="another site"),
        pytest.param("POST", {"Origin": "null"}, 403, "a page of another site", id="a page without a name"),
        pytest.param("GET", {"Authorization": "Bearer anna"}, 405, "this server takes POST", id="a stream"),
    ],
)
async def test_a_request_that_may_not_be_answered_is_refused_with_a_reason(
    archive: Path, method: str, headers: dict[str, str], status: int, text: str
) -> None:
    async with (
        serving(archive) as served,
        ClientSession() as http,
        http.request(method, served.url, json=LIST, headers=HEADERS | headers) as answer,
    ):
        assert answer.status == status
        assert text in (await answer.json())["error"]
        assert ("WWW-Authenticate" in answer.headers) == (status == 401)
    assert served.ran == []


async def test_while_the_hub_is_away_nobody_is_let_in(archive: Path) -> None:
    async with serving(archive) as served, ClientSession() as http:
        served.cluster.is_away = True
        async with http.post(served.url, json=LIST, headers=HEADERS | {"Authorization": "Bearer anna"}) as answer:
            assert (answer.status, await answer.json()) == (
                503,
                {"error": "the hub's API server does not say who asks: no answer"},
            )


async def test_a_request_over_http_has_a_bound(archive: Path) -> None:
    async with serving(archive, is_open=True) as served, ClientSession() as http:
        async with http.post(served.url, json=LIST | {"x": "y" * REQUEST.most}, headers=HEADERS) as answer:
            assert answer.status == 413
        async with http.post(served.url, json=LIST, headers=HEADERS) as answer:
            assert answer.status == 200


async def test_a_server_on_this_machine_serves_until_a_signal(archive: Path) -> None:
    async with process("--http", "--port", "0", "--from", str(archive)) as made:
        assert made.stdout is not None
        line = (await made.stdout.readline()).decode()
        assert line.startswith("The MCP server is at http://127.0.0.1:")
        async with Client(line.split()[5]) as client:
            found = await client.call_tool("explain", CALLS["explain"])
        made.send_signal(signal.SIGTERM)
        assert (await ended(made)).code == 0
    assert f" --from={archive} {APP}" in texts(found)[-1]


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--port", "7082"], "--port is for --http"),
        (["--api", "hub"], "--api is for --http"),
        (["--http", "--host", "10.0.0.1"], "--host 10.0.0.1 is reached from other machines, and nobody would be asked"),
        (["--http", "--host", "0.0.0.0", "--api", "hub"], "--host 0.0.0.0 does not say by which name it is called"),
        (["--http", "--api", "hub", "--from", "https://hub.example.com"], "--api does not go with a hub in --from"),
        (["--http", "--allowed-host", "http://x/"], "--allowed-host 'http://x/' is not the name of a host"),
        (["--http", "--allowed-host", "x:port"], "--allowed-host 'x:port'"),
        (["--http", "--allowed-host", ""], "--allowed-host ''"),
        (["--from", "http://hub.example.com"], "is not encrypted"),
        (["--from", "nosuch"], "no such folder"),
        ([], "no Kafka brokers are known"),
    ],
    ids=" ".join,
)
def test_what_is_typed_wrong_is_answered_before_anything_is_served(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], text: str
) -> None:
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    found = Cli(monkeypatch)("mcp", *arguments)
    assert found.exit_code == 2
    assert text in found.stderr
    assert "Next: " in found.stderr
    assert found.stdout == ""


def test_an_address_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError) as error:
            listening("127.0.0.1", port)
    assert error.value.what == f"cannot listen on 127.0.0.1:{port}: Address already in use"
    assert error.value.next_step == "fleethpa mcp --http --port 0"
