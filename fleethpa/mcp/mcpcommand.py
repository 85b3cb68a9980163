"""`fleethpa mcp`: the read verbs as tools for programs that speak the Model Context Protocol."""

from __future__ import annotations

from asyncio import Event
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from fleethpa.fleet.members import hub_cluster
from fleethpa.frame.errors import OK, usage
from fleethpa.frame.listening import in_url, is_loopback, nameless, names_of
from fleethpa.frame.remote import hub_address
from fleethpa.frame.session import Session, command_options, is_hub
from fleethpa.frame.sources import archive_past
from fleethpa.processes.parts import run_parts
from runtime.log import set_up_logging

if TYPE_CHECKING:
    from fleethpa.hub.reading import Admission
    from reconciler.clusters.client import ClusterConfig

_OF_HTTP = {"host": "--host", "port": "--port", "allowed_hosts": "--allowed-host", "api": "--api"}


@click.command()
@click.option("--http", is_flag=True, help="Serve streamable HTTP, instead of stdin and stdout.")
@click.option("--host", default="127.0.0.1", help="With --http: address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=7081, help="With --http: port; 0 takes a free one.")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="With --http: a name that clients use; may be repeated.",
)
@click.option(
    "--api",
    metavar="CONTEXT",
    help="With --http: answer who signs in to this cluster of the kubeconfig, with what they may see there; "
    "`in-cluster` for that of this process.",
)
@command_options(reads=True, asks_hub=False)
def mcp(session: Session, http: bool, host: str, port: int, allowed_hosts: tuple[str, ...], api: str | None) -> int:
    """Serve the read verbs as tools of the Model Context Protocol; nothing is changed.

    Over stdin and stdout a client starts this command, and its tools may see what you may. With --http others reach
    it: on this machine, or, with --api, each with a bearer token of the hub's cluster and what that lets them see.
    Every answer is bounded, and names its decisions and the command that gives the same.
    """
    import mcp as _sdk  # noqa: F401 - where the extra is missing, that is said before anything else

    if not http:
        _refuse_http_options()
    elif api is None and not is_loopback(host):
        raise usage(
            f"--host {host} is reached from other machines, and nobody would be asked who they are",
            cause="With --api the hub's cluster says who somebody is and what they may see.",
            next_step=f"fleethpa mcp --http --host {host} --api CONTEXT --allowed-host NAME",
        )
    elif not allowed_hosts and (
        problem := nameless(host, f"fleethpa mcp --http --host {host} --api CONTEXT --allowed-host NAME")
    ):
        raise problem
    names = names_of(host, allowed_hosts)
    _check_source(session, api)
    cluster = None if api is None else hub_cluster(session.config, None if api == "in-cluster" else api)
    set_up_logging("warning")
    if not http:
        session.note("Waiting for a client on stdin, which is answered on stdout. The end of stdin or Ctrl-C ends it.")
        run_parts(session, {"mcp": lambda stop: _serve_stdio(session, stop)})
    else:
        run_parts(session, {"mcp": lambda stop: _serve_http(session, host, port, names, cluster, stop)})
    return OK


def _refuse_http_options() -> None:
    """See that no option of --http is given without it. Raises CommandError: one is (exit 2)."""
    context = click.get_current_context()
    for name, flag in _OF_HTTP.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise usage(f"{flag} is for --http", next_step=f"fleethpa mcp --http {flag} …")


def _check_source(session: Session, api: str | None) -> None:
    """See that there is something to read. Raises CommandError: there is not (exit 2)."""
    if is_hub(session.source):
        hub_address(session.source)
        if api is not None:
            cause = "A hub answers for what your own token may see, whoever asked you."
            raise usage("--api does not go with a hub in --from", cause=cause, next_step="--from kafka, or --from DIR")
    elif session.source == "kafka":
        session.config.kafka()
    else:
        archive_past(session.source)


async def _serve_stdio(session: Session, stop: Event) -> None:
    from fleethpa.hub.reading import VerbTurns, connection, runner
    from fleethpa.mcp.server import CallHandler, serve_stdio

    root = click.get_current_context().find_root().command
    turns = VerbTurns(runner(session.options, session.source, for_others=False))
    await serve_stdio(CallHandler(root, turns, tuple(connection(session.options, session.source))), stop)


async def _serve_http(
    session: Session, host: str, port: int, names: frozenset[str], cluster: ClusterConfig | None, stop: Event
) -> None:
    from fleethpa.hub.reading import VerbTurns, connection, runner
    from fleethpa.mcp.server import PATH, CallHandler, listening, serve_http

    root = click.get_current_context().find_root().command
    turns = VerbTurns(runner(session.options, session.source, for_others=cluster is not None))
    # What this process connects with is no concern of people of the hub.
    own = () if cluster is not None else tuple(connection(session.options, session.source))
    with listening(host, port) as at:
        address = f"http://{in_url(host)}:{at.getsockname()[1]}{PATH}"
        session.out(f"The MCP server is at {address}  (source: {session.source}; Ctrl-C ends it)")
        async with _admission(cluster) as admission:
            await serve_http(CallHandler(root, turns, own, admission), at, names, stop)


@asynccontextmanager
async def _admission(cluster: ClusterConfig | None) -> AsyncIterator[Admission | None]:
    """Who signs in, while there is a connection to the hub's cluster; None: nobody has to."""
    if cluster is None:
        yield None
        return
    from fleethpa.hub.reading import Admission, Reviews
    from reconciler.clusters.client import ClusterClient

    client = ClusterClient(cluster)
    try:
        yield Admission(Reviews(client))
    finally:
        await client.close()
