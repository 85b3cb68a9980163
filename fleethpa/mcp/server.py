"""The server of the Model Context Protocol, made of the official SDK: over stdio, and over streamable HTTP."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
import sys
from asyncio import Event
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from typing import Any, Final, NamedTuple, cast

import click
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fleethpa.frame.errors import program, usage
from fleethpa.frame.listening import bare, cannot_listen
from fleethpa.hub.reading import Admission, HubReader, RefusedRequestError, VerbTurns
from fleethpa.mcp.tools import (
    CONNECTIONS,
    INSTRUCTIONS,
    LINE,
    REQUEST,
    Tool,
    ToolAnswer,
    answered,
    call,
    command_line,
    refused,
    tools,
)
from reconciler.clusters.answers import ClusterError
from runtime.ending import first_of
from streams.history.seenpast import SeenParts

log = logging.getLogger(__name__)

PATH: Final = "/mcp"
_READER: Final = "fleethpa.reader"
"""In the scope of a request: who sends it."""
_SILENT: Final = "the hub's API server does not say who asks"
_ENDS_WITHIN_S: Final = 1


class CallHandler(NamedTuple):
    """Answers the calls of clients.

    `root`: the program. `connection`: options of the command below an answer, with which whoever asks reads the same;
    none for people of the hub, who have a connection of their own. `admission`: None: whoever reaches this server may
    see what this process may.
    """

    root: click.Command
    turns: VerbTurns
    connection: tuple[str, ...]
    admission: Admission | None = None

    async def answer(self, tool: Tool, given: dict[str, Any], request: Request | None) -> ToolAnswer:
        """Run the verb of a tool for who sends a request; None: over stdio."""
        try:
            arguments = call(self.root, tool, given)
            seen = await self._seen(tool, request)
            answer = await self.turns.run(arguments, seen)
        except RefusedRequestError as error:
            return refused(f"Error: {error.text}")
        except ClusterError as error:
            return refused(f"Error: {_SILENT}: {error}")
        return answered(tool, answer, command_line(program(), arguments, self.connection))

    async def _seen(self, tool: Tool, request: Request | None) -> SeenParts | None:
        if self.admission is None:
            return None
        reader = None if request is None else request.scope.get(_READER)
        if not isinstance(reader, HubReader):
            raise RefusedRequestError(401, "nobody has signed in")
        return await self.admission.seen(reader, tool.verb)


def server(handler: CallHandler) -> Server[Any]:
    """The server, without a transport."""
    known = tools(handler.root)

    async def list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(each) for each in known.values()])

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = known.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name[:64]}; there are {', '.join(known)}")
        answer = await handler.answer(tool, params.arguments or {}, context.request)
        content: list[types.ContentBlock] = [types.TextContent(type="text", text=text) for text in answer.texts]
        return types.CallToolResult(content=content, is_error=answer.is_error)

    return Server(
        "fleethpa",
        version=version("fleet-hpa"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _described(tool: Tool) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )
    return types.Tool(name=tool.name, description=tool.description, input_schema=tool.schema, annotations=hints)


# --- stdio ------------------------------------------------------------------------------------------------------------


class _Lines:
    """The lines of a reader. `is_too_long`: whether they ended with one that is longer than `LINE`."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self.is_too_long = False

    async def __aiter__(self) -> AsyncIterator[str]:
        try:
            while line := await self._reader.readline():
                yield line.decode("utf-8", "replace")
        except ValueError:
            self.is_too_long = True


async def serve_stdio(handler: CallHandler, stop: Event) -> None:
    """Serve whoever started this process, over its stdin and stdout, until stdin ends or `stop` is set.

    Raises CommandError: a line of stdin is longer than `LINE`, or there is no stdin (exit 2).
    """
    async with _stdin() as reader:
        lines = None if reader is None else _Lines(reader)
        ending = None if reader is None else asyncio.create_task(_end_at(stop, reader))
        try:
            await _serve_streams(server(handler), lines)
        except* (BrokenPipeError, ConnectionResetError):
            log.info("the client has gone")
        finally:
            if ending is not None:
                ending.cancel()
    if lines is not None and lines.is_too_long:
        raise usage(f"a request is longer than {LINE.most:,} bytes", cause="A client writes one line for each request.")


async def _serve_streams(made: Server[Any], lines: _Lines | None) -> None:
    # The SDK would read stdin in a thread, which nothing can end while it waits.
    async with stdio_server(stdin=cast(Any, lines)) as (requests, answers):
        await made.run(requests, answers, made.create_initialization_options())


async def _end_at(stop: Event, reader: asyncio.StreamReader) -> None:
    await stop.wait()
    reader.feed_eof()


@asynccontextmanager
async def _stdin() -> AsyncIterator[asyncio.StreamReader | None]:
    """A reader of stdin; None: it is a file, of which no reading waits."""
    if sys.stdin is None:
        raise usage("stdin is closed", cause="A client starts `fleethpa mcp` and speaks to its stdin.")
    mode = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(0)):
        yield None
        return
    reader = asyncio.StreamReader(limit=LINE.most)
    own = os.fdopen(os.dup(0), "rb", buffering=0)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), own)
    try:
        yield reader
    finally:
        transport.close()
        os.set_blocking(0, True)  # a terminal is shared with the shell


# --- streamable HTTP --------------------------------------------------------------------------------------------------


class Guarded:
    """Lets those requests through to an application that may be answered.

    Args:
        names: values of the Host header that are accepted, without port.
        admission: who signs in; None: nobody has to.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str], admission: Admission | None) -> None:
        self._app, self._names, self._admission = app, names, admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            try:
                scope[_READER] = await self._reader(Request(scope))
            except RefusedRequestError as error:
                headers = {401: {"WWW-Authenticate": "Bearer"}, 405: {"Allow": "POST"}}.get(error.status)
                await JSONResponse({"error": error.text}, error.status, headers)(scope, receive, send)
                return
            except ClusterError as error:
                await JSONResponse({"error": f"{_SILENT}: {error}"}, 503)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _reader(self, request: Request) -> HubReader | None:
        if bare(request.headers.get("host", "")) not in self._names:
            text = "this Host name is not one of this server: start it with --allowed-host NAME to add one"
            raise RefusedRequestError(421, text)
        origin = request.headers.get("origin", "")
        if origin and bare(origin.partition("://")[2]) not in self._names:
            raise RefusedRequestError(403, "this request comes from a page of another site")
        if request.method != "POST":
            raise RefusedRequestError(
                405, f"this server takes POST, at {PATH}: it keeps no session and sends nothing unasked"
            )
        if self._admission is None:
            return None
        return await self._admission.reader(request.headers.get("authorization", ""))


class _Uvicorn(uvicorn.Server):
    """The web server; signals are those of this program."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises CommandError: the address cannot be had (exit 2)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise cannot_listen(host, port, error, "fleethpa mcp --http --port 0") from error


async def serve_http(handler: CallHandler, at: socket.socket, names: frozenset[str], stop: Event) -> None:
    """Serve on a socket until `stop` is set. `names`: those by which clients may call this server."""
    # Each request is answered by itself: a session would belong to who began it, and be remembered.
    app = server(handler).streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=REQUEST.most,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # `Guarded` does it
    )
    config = uvicorn.Config(
        Guarded(app, names, handler.admission),
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        limit_concurrency=CONNECTIONS.most,
        timeout_graceful_shutdown=_ENDS_WITHIN_S,
    )
    web = _Uvicorn(config)
    serving = asyncio.create_task(web.serve(sockets=[at]))
    await first_of(asyncio.shield(serving), stop.wait())
    web.should_exit = True
    await serving
