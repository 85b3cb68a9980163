"""`fleethpa page`: see in a browser what the fleet does, and why."""

from __future__ import annotations

from asyncio import Event
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from fleethpa.fleet.members import hub_cluster
from fleethpa.frame.errors import OK, read_text, usage
from fleethpa.frame.listening import cannot_listen, in_url, is_loopback, nameless, names_of
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import archive_past
from fleethpa.page.livereader import LiveReader
from fleethpa.processes.parts import run_parts

if TYPE_CHECKING:
    from aiohttp import web

    from fleethpa.page.guarding import Guard
    from fleethpa.page.server import PageServer
    from reconciler.clusters.client import ClusterConfig
    from streams.history.seenpast import SeenParts

_LEAST_TOKEN = 16


@click.command()
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=7080, help="Port; 0 takes a free one.")
@click.option("--token-file", metavar="FILE", help="The token that a browser must give; needed beyond this machine.")
@click.option(
    "--behind-proxy",
    metavar="HEADER",
    help="An authenticating proxy in front of the page names the user in this header.",
)
@click.option(
    "--proxy-groups",
    metavar="HEADER",
    help="With --behind-proxy and --api: the header in which the proxy names the user's groups, separated by commas.",
)
@click.option(
    "--allowed-host", "allowed_hosts", multiple=True, metavar="NAME", help="A name that browsers use; may be repeated."
)
@click.option(
    "--api",
    metavar="CONTEXT",
    help="Also answer read verbs below /api/v1/ to who signs in to this cluster of the kubeconfig (`in-cluster`: that "
    "of this process), and show the users of --behind-proxy what they may see there.",
)
@command_options(reads=True)
def page(
    session: Session,
    host: str,
    port: int,
    token_file: str | None,
    behind_proxy: str | None,
    proxy_groups: str | None,
    allowed_hosts: tuple[str, ...],
    api: str | None,
) -> int:
    """Serve a page that shows the fleet, every HPA, every decision and what changed, live or from an archive.

    It only reads. It listens on 127.0.0.1; another --host requires a token (--token-file) or an authenticating proxy
    (--behind-proxy). Ctrl-C ends it.

    With --api and --behind-proxy everybody sees what the hub's API server lets the user of the proxy see. Then the
    proxy has to prove itself: the page listens on 127.0.0.1, or the proxy sends the token of --token-file.
    """
    guard = _guard(host, token_file, behind_proxy, allowed_hosts)
    if proxy_groups and not (behind_proxy and api):
        raise usage("--proxy-groups needs --behind-proxy and --api", cause="Groups say what a user may see in the hub.")
    if api and behind_proxy:
        guard = _of_users(guard, host, proxy_groups or "")
    if session.source == "kafka":
        session.config.kafka()
    else:
        archive_past(session.source)
    cluster = None if api is None else hub_cluster(session.config, None if api == "in-cluster" else api)
    run_parts(session, {"page": lambda stop: _serve(session, guard, host, port, cluster, stop)})
    return OK


def _guard(host: str, token_file: str | None, behind_proxy: str | None, allowed_hosts: tuple[str, ...]) -> Guard:
    from fleethpa.page.guarding import Guard

    if not is_loopback(host):
        if not (token_file or behind_proxy):
            raise usage(
                f"--host {host} is reached from other machines, and nobody would be asked who they are",
                cause="Give a token, or name the header of an authenticating proxy.",
                next_step="fleethpa page --host HOST --token-file FILE --allowed-host NAME",
            )
        step = f"fleethpa page --host {host} --allowed-host NAME --token-file FILE"
        if not allowed_hosts and (problem := nameless(host, step)):
            raise problem
    return Guard(names_of(host, allowed_hosts), _token(token_file) if token_file else "", behind_proxy or "")


def _of_users(guard: Guard, host: str, groups: str) -> Guard:
    """A guard that believes the proxy who asks. Raises CommandError: others could name a user to it (exit 2)."""
    if not (is_loopback(host) or guard.token):
        raise usage(
            f"--host {host} is reached by others than the proxy, who could name any user",
            cause="What a user may see is shown to whoever names that user in the header.",
            next_step="fleethpa page --token-file FILE, and let the proxy send `Authorization: Bearer TOKEN`",
        )
    return replace(guard, groups_header=groups)


def _token(path: str) -> str:
    token = read_text(path, f"--token-file {path}").strip()
    if len(token) < _LEAST_TOKEN:
        raise usage(
            f"--token-file {path}: the token has {len(token)} characters, at least {_LEAST_TOKEN} are needed",
            next_step=f"openssl rand -hex 24 > {path}",
        )
    return token


async def _serve(
    session: Session, guard: Guard, host: str, port: int, cluster: ClusterConfig | None, stop: Event
) -> None:
    from fleethpa.page.server import PageServer

    servers = session.config.servers

    def make(seen: SeenParts | None) -> PageServer:
        return PageServer(LiveReader(session.source, session.config, seen), guard, session.options, servers)

    async with AsyncExitStack() as opened:
        if cluster is None:
            app = make(None).app()
        else:
            app = await opened.enter_async_context(_reviewed(session, guard, cluster, make))
        await _listen(session, app, host, port, stop)


@asynccontextmanager
async def _reviewed(
    session: Session, guard: Guard, cluster: ClusterConfig, make: Callable[[SeenParts | None], PageServer]
) -> AsyncIterator[web.Application]:
    """The application with the API, and the connection to the hub's cluster while it is served."""
    from fleethpa.hub.reading import HubReader, ReadingApi, Reviews, runner
    from fleethpa.page.seenpages import SeenPages
    from reconciler.clusters.client import ClusterClient

    client = ClusterClient(cluster)
    reviews = Reviews(client)
    try:
        root = click.get_current_context().find_root().command
        routes = ReadingApi(root, reviews, runner(session.options, session.source, for_others=True)).routes()
        if guard.user_header:
            yield SeenPages(guard, lambda *user: reviews.seen(HubReader(*user)), make).app(routes)
        else:
            yield make(None).app(routes)
    finally:
        await client.close()


async def _listen(session: Session, app: web.Application, host: str, port: int, stop: Event) -> None:
    from aiohttp import web

    from fleethpa.page.guarding import request_log

    runner = web.AppRunner(app, access_log=None, logger=request_log(), shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise cannot_listen(host, port, error, "fleethpa page --port 0") from error
        bound = runner.addresses[0][1]
        session.out(f"The page is at http://{in_url(host)}:{bound}/  (source: {session.source}; Ctrl-C ends it)")
        await stop.wait()
    finally:
        await runner.cleanup()
