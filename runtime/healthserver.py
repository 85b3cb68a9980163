"""Health and metrics over HTTP for the long-running parts: `/healthz`, `/readyz`, `/metrics`."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

Problems = Callable[[], list[str]]
"""What keeps a part from doing its work now; empty when it is ready."""


@asynccontextmanager
async def health_server(
    registry: CollectorRegistry, problems: Problems, *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[int]:
    """Serve health and metrics while the context is open; gives the port (a free one for 0).

    Raises:
        OSError: the port is taken.
    """
    runner = web.AppRunner(_application(registry, problems), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _application(registry: CollectorRegistry, problems: Problems) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        found = problems()
        return web.Response(text="".join(f"{line}\n" for line in found) or "ok\n", status=503 if found else 200)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.router.add_get("/healthz", healthz)
    application.router.add_get("/readyz", readyz)
    application.router.add_get("/metrics", metrics)
    return application
