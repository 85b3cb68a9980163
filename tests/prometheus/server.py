"""A real Prometheus that scrapes one target of the test, whose series grow with the clock."""

import asyncio
import shutil
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
from aiohttp import web

from tests.kafka.broker import free_ports
from tests.patience import PATIENCE_S

SCRAPES = """
global: {{scrape_interval: 1s}}
scrape_configs:
- job_name: test
  honor_labels: true
  static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""

Lines = Callable[[float], Iterable[str]]
"""What the target exposes at a time (Unix seconds)."""


class Access(NamedTuple):
    """How a secured Prometheus is run and asked.

    Args:
        web_config: its file of `--web.config.file`.
        context: with the authority and certificate of a client.
        authorization: the header of a user with a password.
    """

    web_config: Path
    context: ssl.SSLContext
    authorization: str


class Prometheus:
    """A running Prometheus."""

    def __init__(self, folder: Path, access: Access | None = None) -> None:
        self._folder, self._access = folder, access
        self._process: asyncio.subprocess.Process | None = None
        (self.port,) = free_ports(1)
        self.url = f"http{'s' if access else ''}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        secured = [f"--web.config.file={self._access.web_config}"] if self._access else []
        with (self._folder / "prometheus.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                shutil.which("prometheus") or "prometheus",
                f"--config.file={self._folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                *secured,
                stdout=log,
                stderr=log,
            )
        await self.until("vector(1)", lambda found: bool(found))

    async def stop(self) -> None:
        """End it."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()

    async def until(self, query: str, seen: Callable[[list[object]], bool], timeout_s: float = PATIENCE_S) -> None:
        """Ask until the result is as wanted."""
        connector = aiohttp.TCPConnector(ssl=self._access.context if self._access else True)
        headers = {"Authorization": self._access.authorization} if self._access else {}
        async with asyncio.timeout(timeout_s), aiohttp.ClientSession(connector=connector, headers=headers) as session:
            while not seen(await self._asked(session, query)):
                await asyncio.sleep(0.1)

    async def _asked(self, session: aiohttp.ClientSession, query: str) -> list[object]:
        try:
            async with session.get(f"{self.url}/api/v1/query", params={"query": query}) as response:
                found: list[object] = (await response.json())["data"]["result"] if response.status == 200 else []
                return found
        except aiohttp.ClientError:
            return []


@asynccontextmanager
async def scraping(folder: Path, lines: Lines, access: Access | None = None) -> AsyncIterator[Prometheus]:
    """A Prometheus that scrapes these series each second."""

    async def expose(_: web.Request) -> web.Response:
        return web.Response(text="\n".join(lines(time.time())) + "\n")

    app = web.Application()
    app.router.add_get("/metrics", expose)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    (folder / "prometheus.yml").write_text(SCRAPES.format(port=runner.addresses[0][1]))
    made = Prometheus(folder, access)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()
        await runner.cleanup()
