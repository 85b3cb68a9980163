"""What a long-running part says of itself over HTTP: `/healthz`, `/readyz` and `/metrics`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

Lines = Callable[[], list[str]]


class PartHealth:
    """What a part says about itself. `waiting_for`: what is not ready yet, by name; empty: ready.

    A problem of one cluster is no reason to be unready, since the others go on. It shows in `notes` and in the metrics.
    """

    def __init__(self, *waiting_for: str) -> None:
        self.registry = CollectorRegistry()
        self.waiting_for: dict[str, str] = {name: "starting" for name in waiting_for}
        self._notes: dict[str, str] = {}
        self.port = 0
        self.became_ready = asyncio.Event()

    def ready(self, name: str) -> None:
        """Record that this component of the part is up."""
        self.waiting_for.pop(name, None)
        if not self.waiting_for:
            self.became_ready.set()

    def unready(self, name: str, why: str) -> None:
        """Record that this component is not up (any more)."""
        self.waiting_for[name] = why

    def note(self, name: str, text: str | None) -> None:
        """Remember a problem for readers of /readyz; None: it is over."""
        if text is None:
            self._notes.pop(name, None)
        else:
            self._notes[name] = text

    def forget(self, beginning: str) -> None:
        """Drop the problems whose names begin like this."""
        self._notes = {name: text for name, text in self._notes.items() if not name.startswith(beginning)}

    def problems(self) -> list[str]:
        """List what the part waits for."""
        return [f"[-] {name}: {why}" for name, why in sorted(self.waiting_for.items())]

    def notes(self) -> list[str]:
        """List problems that do not keep the part from being ready."""
        return [f"[!] {name}: {why}" for name, why in sorted(self._notes.items())]

    @asynccontextmanager
    async def served(self, host: str, port: int | None) -> AsyncIterator[None]:
        """Serve while the context is open, and keep the port in `port`."""
        server = health_server(self.registry, self.problems, notes=self.notes, host=host, port=port)
        async with server as self.port:
            yield

    async def accompany(self, running: Coroutine[Any, Any, None], announce: Callable[[int], None] | None) -> None:
        """Await a part; announce its port once it is ready (0: it serves none).

        The first error of its task groups is raised as itself: it ended the part, the others followed.
        """
        try:
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(self._announce(announce or (lambda _: None)))
                await running
                waiting.cancel()
        except BaseExceptionGroup as errors:
            error: BaseException = errors
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from errors

    async def _announce(self, announce: Callable[[int], None]) -> None:
        await self.became_ready.wait()
        announce(self.port)


@asynccontextmanager
async def health_server(
    registry: CollectorRegistry, problems: Lines, *, notes: Lines = list, host: str = "127.0.0.1", port: int | None = 0
) -> AsyncIterator[int]:
    """Serve health and metrics while the context is open; gives the port.

    Args:
        problems: what keeps the part from doing its work now; empty when it is ready.
        notes: further lines of /readyz.
        port: 0: a free one; None: nothing is served, and the port given is 0.

    Raises:
        OSError: the port is taken.
    """
    if port is None:
        yield 0
        return
    runner = web.AppRunner(_application(registry, problems, notes), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _application(registry: CollectorRegistry, problems: Lines, notes: Lines) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        found = problems()
        lines = [*(found or ["ok"]), *notes()]
        return web.Response(text="".join(f"{line}\n" for line in lines), status=503 if found else 200)

    async def metrics(_: web.Request) -> web.Response:
        # The metrics of thousands of HPAs take a while to write; the part goes on meanwhile.
        body = await asyncio.to_thread(generate_latest, registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return application
