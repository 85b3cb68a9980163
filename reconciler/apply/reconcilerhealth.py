"""/healthz, /readyz and /metrics of a long-running part."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest


class Health:
    """What a part says about itself. `waiting_for`: what is not ready yet, by name; empty: ready.

    A problem of one cluster is no reason to be unready: the others go on. It shows in `notes` and in the metrics.
    """

    def __init__(self, *waiting_for: str) -> None:
        self.registry = CollectorRegistry()
        self.waiting_for: dict[str, str] = {name: "starting" for name in waiting_for}
        self.notes: dict[str, str] = {}
        self.port = 0
        self.became_ready = asyncio.Event()

    def ready(self, name: str) -> None:
        """This part of the part is up."""
        self.waiting_for.pop(name, None)
        if not self.waiting_for:
            self.became_ready.set()

    def note(self, name: str, text: str | None) -> None:
        """Remember a problem for readers of /readyz; None: it is over."""
        if text is None:
            self.notes.pop(name, None)
        else:
            self.notes[name] = text


@asynccontextmanager
async def serve(health: Health, port: int | None, host: str = "127.0.0.1") -> AsyncIterator[None]:
    """Serve while the block runs. `port` 0: a free one, told in `health.port`; None: nothing is served."""
    if port is None:
        yield
        return
    runner = web.AppRunner(_application(health), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        health.port = runner.addresses[0][1]
        yield
    finally:
        await runner.cleanup()


async def tell_when_ready(
    running: Coroutine[Any, Any, None], health: Health, announce: Callable[[int], None] | None
) -> None:
    """Await a part; tell its port once it is ready."""
    if announce is None:
        await running
        return
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(_tell(health, announce))
        await running
        waiting.cancel()


async def _tell(health: Health, announce: Callable[[int], None]) -> None:
    await health.became_ready.wait()
    announce(health.port)


@contextmanager
def first_error() -> Iterator[None]:
    """Raise the first error of a task group as itself: it is what ended the part, the others followed."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from group


def _application(health: Health) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        lines = [f"[-] {name}: {why}" for name, why in sorted(health.waiting_for.items())]
        notes = [f"[!] {name}: {why}" for name, why in sorted(health.notes.items())]
        text = "\n".join([*(lines or ["ok"]), *notes])
        return web.Response(status=503 if lines else 200, text=f"{text}\n")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(health.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return application
