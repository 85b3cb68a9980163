"""Figures of the page: how long views of a large fleet take, and whether memory grows while browsers watch.

Run: python -m tests.page.measure [--hpas 10000] [--decisions 40000] [--minutes 3] [--browsers 50]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import time
import urllib.request
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from playwright.sync_api import Browser, sync_playwright

from fleethpa.cli.common.configuration import Config
from fleethpa.page.livereader import LiveReader
from fleethpa.page.pageserver import PageServer
from schemas.autoscalers import AutoscalerList
from schemas.codec import encode
from schemas.entries import Body, Entry, LogRecord
from streams.archive.layout import DECISIONS, LOG
from streams.archive.segments import ArchivedRecord
from tests.archive_kit import Topics, as_record, write_archive
from tests.generated_log import Fleet as GeneratedFleet
from tests.page.browsing import launched, serving
from tests.unit.cli_kit import Fleet, hpa
from tests.unit.page_kit import LOCAL, over

REQUESTS = 60
PAINTS = 10


class RecordedFleet(Fleet):
    """A fleet whose topics are kept as an archive holds them."""

    def __init__(self) -> None:
        super().__init__()
        self.topics: Topics = {(LOG, 0): [], (DECISIONS, 0): []}

    def append(self, *bodies: Body, key: str | None = None, after_ms: int = 100, by: Any = "") -> None:
        self.now_ms += after_ms
        entries = [Entry(key=key or self.key, body=body) for body in bodies]
        log, decisions = self.topics[LOG, 0], self.topics[DECISIONS, 0]
        value = encode(LogRecord(v=1, entries=entries, by=by))
        for made in self.partition.apply(len(log), self.now_ms, value):
            decisions.append(as_record(len(decisions), self.now_ms, made))
        log.append(ArchivedRecord(len(log), self.now_ms, b"", (), value))


def week(folder: Path, decisions: int) -> Path:
    """An archive of one HPA with that many decisions, 15 s apart, whose load moves now and then."""
    fleet = RecordedFleet()
    fleet.settle(replicas=3, usage_milli=300)
    for number in range(decisions - 1):
        fleet.now_ms += 14_800
        fleet.observe(3 + number // 500 % 4, 300 + 40 * (number % 5))
    return write_archive(
        folder,
        GeneratedFleet(partitions=1),
        segment_ms=12 * 3_600_000,
        topics=fleet.topics,
        sign_every=10**9,
        flush_every=10_000,
    )


def serve(hpas: int, grows: bool, pipe: Connection) -> None:
    """Serve a generated fleet; it may grow while it is served."""
    fleet = Fleet()
    fleet.settle(replicas=3, usage_milli=300)
    names = [f"app-{number:05}" for number in range(hpas - 1)]
    fleet.append(AutoscalerList(list_id="b", hpas=[hpa(), *map(hpa, names)], session="s"))
    fleet.checkpoint()
    over(fleet, pytest.MonkeyPatch())

    async def run() -> None:
        server = PageServer(LiveReader("kafka", Config(brokers="memory:1")), LOCAL, {}, "memory:1")
        runner = web.AppRunner(server.app(), shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        pipe.send(f"http://127.0.0.1:{runner.addresses[0][1]}")
        while not pipe.poll():
            await asyncio.sleep(2)
            if grows:
                fleet.now_ms += 14_800
                fleet.observe(3, 310)
                fleet.checkpoint()
        await runner.cleanup()

    asyncio.run(run())


class Served:
    """A page in a process of its own."""

    def __init__(self, hpas: int, *, grows: bool = False) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(hpas, grows, theirs), daemon=True)
        self.process.start()
        self.address = self._pipe.recv()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: Any) -> None:
        self._pipe.send("end")
        self.process.join(20)

    @property
    def rss_mb(self) -> float:
        """Resident memory of the server."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def times(address: str, count: int) -> tuple[list[float], int]:
    """How long each of some requests takes (ms), and the bytes of the last answer."""
    found, size = [], 0
    for _ in range(count):
        began = time.perf_counter()
        with urllib.request.urlopen(address, timeout=120) as answer:
            size = len(answer.read())
        found.append(1_000 * (time.perf_counter() - began))
    return found, size


def spread(found: list[float]) -> str:
    """p50, p99 and the largest, in milliseconds."""
    p99 = statistics.quantiles(found, n=100)[98] if len(found) > 1 else found[0]
    return f"p50 {statistics.median(found):.0f} ms, p99 {min(p99, max(found)):.0f} ms, max {max(found):.0f} ms"


def paints(browser: Browser, address: str) -> list[float]:
    """The time from navigation to first contentful paint in Chromium, each in a fresh context (ms)."""
    found = []
    for _ in range(PAINTS):
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        page = context.new_page()
        page.goto(address)
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
        found.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        context.close()
    return found


def chart(browser: Browser, address: str, span: str) -> tuple[float, int]:
    """The time (ms) from asking for a span of an HPA's charts to their being drawn, and the points of a line."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(120_000)
    page.goto(f"{address}/hpa/east/shop/checkout?span={span}")
    page.wait_for_selector("#plots canvas")
    script = """async () => {
        const began = performance.now();
        const plot = window.fleethpaCharts[0];
        await window.fleethpaDraw();
        if (window.fleethpaCharts[0] === plot) throw new Error('nothing was drawn');
        return [performance.now() - began, window.fleethpaCharts[0].data[0].length];
    }"""
    took_ms, points = page.evaluate(script)
    page.close()
    return took_ms, points


async def watch(address: str, browsers: int, until_s: float) -> None:
    """As many browsers as asked for: each listens and loads the fleet at every change. One never reads."""

    async def one(session: aiohttp.ClientSession) -> None:
        async with session.get(f"{address}/live") as events:
            async for line in events.content:
                if line.startswith(b"event: changed"):
                    async with session.get(address) as answer:
                        await answer.read()
                if time.monotonic() > until_s:
                    return

    host, _, port = address.removeprefix("http://").partition(":")
    _, deaf = await asyncio.open_connection(host, int(port))
    deaf.write(f"GET /live HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        with suppress(aiohttp.ClientError):
            await asyncio.gather(*(one(session) for _ in range(browsers)))
    deaf.close()


async def memory(served: Served, browsers: int, minutes: float) -> None:
    """Print the memory of the server while browsers watch, ten times."""
    until_s = time.monotonic() + 60 * minutes
    task = asyncio.create_task(watch(served.address, browsers, until_s))
    figures = []
    for _ in range(10):
        await asyncio.sleep(6 * minutes)
        figures.append(served.rss_mb)
    await task
    print(
        f"{browsers} browsers and one that reads nothing, {minutes:g} minutes: "
        + " ".join(f"{f:.0f}" for f in figures)
        + " MB"
    )


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hpas", type=int, default=10_000)
    parser.add_argument("--decisions", type=int, default=40_000)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--browsers", type=int, default=50)
    given = parser.parse_args()
    with sync_playwright() as playwright:
        browser = launched(playwright)
        with Served(given.hpas) as large:
            times(large.address, 3)
            found, size = times(large.address, REQUESTS)
            print(f"/ of {given.hpas:,} HPAs: {spread(found)}; {size / 1000:.0f} kB; server {large.rss_mb:.0f} MB")
            print(f"first paint: {spread(paints(browser, large.address))}")
        with TemporaryDirectory() as folder:
            with serving("--from", str(week(Path(folder) / "archive", given.decisions))) as address:
                took = [chart(browser, address, "7d") for _ in range(5)]
            drawn = f"{spread([ms for ms, _ in took])}; {took[-1][1]} points"
            print(f"charts of 7 days, {given.decisions:,} decisions: {drawn}")
        browser.close()
    with Served(50, grows=True) as growing:
        asyncio.run(memory(growing, given.browsers, given.minutes))


if __name__ == "__main__":
    main()
