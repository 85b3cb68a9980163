"""Figures of the page: how long views of a large fleet take, and whether memory grows while browsers watch.

Run: python -m tests.page.measure [--hpas 10000] [--decisions 40000] [--minutes 3] [--browsers 50] [--only live]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import multiprocessing
import os
import random
import statistics
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from playwright.sync_api import Browser, CDPSession, sync_playwright

from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import FleetState
from fleethpa.frame.configuration import Config
from fleethpa.page.livereader import LiveReader
from fleethpa.page.server import PageServer
from runtime.log import look_for_cycles_seldom
from schemas import topics as topicnames
from schemas.codec import decode, encode
from schemas.decisions import Decision
from schemas.entries import Body, Entry, LogRecord, Outcome
from schemas.keys import HpaId
from schemas.observed import AutoscalerList, Mode
from streams.archive.layout import DECISIONS, LOG, archived_record
from streams.history.past import Past
from streams.state.moves import Move
from streams.state.partitionrow import ServedRow
from tests.kafka.broker import KafkaBroker
from tests.kit.archive import Topics, as_record, write_archive
from tests.kit.cli import Fleet, hpa
from tests.kit.closedloop import ENFORCED, ClosedLoop
from tests.kit.generated_log import Fleet as GeneratedFleet
from tests.kit.page import LOCAL, over
from tests.page.browsing import launched, serving
from tests.page.livefleet import decided, fill

REQUESTS = 200
PAINTS = 10
STARTS = 5
FIRST_PAINT = """async () => {
    const painted = () => performance.getEntriesByName("first-contentful-paint")[0];
    while (!painted()) await new Promise((resolve) => setTimeout(resolve, 5));
    return painted().startTime;
}"""


CHARTS_DRAWN = """() => {
    const asked = performance.getEntriesByType("resource").filter((each) => each.name.includes("/series"));
    return Math.max(...asked.map((each) => each.responseEnd));
}"""
"""When the numbers of the charts were there: they are drawn at once."""


class RecordedFleet(Fleet):
    """A fleet whose topics are kept as an archive holds them, and whose wanted writes are applied."""

    def __init__(self) -> None:
        super().__init__()
        self.topics: Topics = {(LOG, 0): [], (DECISIONS, 0): []}
        self.replicas = 3
        self._wanted: Decision | None = None

    def append(self, *bodies: Body, key: str | None = None, after_ms: int = 100, by: Any = "", every: int = 1) -> None:
        self.now_ms += after_ms
        entries = [Entry(key=key or self.key, body=body) for body in bodies]
        log, decisions = self.topics[LOG, 0], self.topics[DECISIONS, 0]
        value = encode(LogRecord(v=1, entries=entries, by=by, every=every))
        for made in self.partition.apply(len(log), self.now_ms, value):
            decisions.append(as_record(len(decisions), self.now_ms, made))
            if b'"wants":' in made.value:
                self._wanted = decode(made.value, Decision)
        log.append(archived_record(len(log), self.now_ms, b"", (), value))

    def run(self, load_milli: int) -> None:
        """One sync period with a load, which all pods share; a write that is wanted is applied at once."""
        self.now_ms += 14_800
        self.observe(self.replicas, load_milli // self.replicas)
        wanted, self._wanted = self._wanted, None
        if wanted is not None and wanted.wants is not None:
            self.replicas = wanted.wants
            self.append(
                Outcome(
                    decision=wanted.id,
                    name=wanted.name,
                    uid=wanted.uid,
                    result="applied",
                    spec_replicas=self.replicas,
                    status_replicas=self.replicas,
                    selector="app=checkout",
                    resource_version="8",
                )
            )


def week(folder: Path, decisions: int) -> Path:
    """An archive of one HPA with that many decisions, 15 s apart. Its load rises and falls within hours.

    A segment holds an hour, as `fleethpa admin archive` makes them.
    """
    fleet = RecordedFleet()
    fleet.settle(replicas=3, usage_milli=300)
    recorded = fleet.topics[DECISIONS, 0]
    for number in itertools.count():
        if len(recorded) >= decisions:
            break
        fleet.run(900 + abs(number % 2_000 - 1_000) + number * 7_919 % 50)
    return write_archive(
        folder,
        GeneratedFleet(partitions=1),
        segment_ms=3_600_000,
        topics=fleet.topics,
        sign_every=10**9,
        flush_every=720,
    )


def small_fleet(hpas: int) -> Fleet:
    """One HPA that is evaluated, and others."""
    fleet = Fleet()
    fleet.settle(replicas=3, usage_milli=300)
    names = [f"app-{number:05}" for number in range(hpas - 1)]
    fleet.append(AutoscalerList(list_id="b", hpas=[hpa(), *map(hpa, names)], session="s"))
    return fleet


def large_fleet(hpas: int) -> Fleet:
    """Each HPA had five pods of its own, was evaluated, and its writes are applied; 50 of them share a namespace."""
    fleet = Fleet()
    minutes = max(0.5, min(10.0, 5_000 / hpas))
    made = GeneratedFleet(
        hpas=hpas, namespaces=max(1, hpas // 50), clusters=5, minutes=minutes, noise=0.03, settings=ENFORCED
    )
    for record in ClosedLoop(made).log():
        fleet.now_ms = record[1]
        fleet.log.append(record)
        fleet.values += [each.value for each in fleet.partition.apply(*record)]
    return fleet


def varied(state: FleetState) -> FleetState:
    """A fleet in which HPAs are at other places between min and max, have moved in the last day, and have problems.

    For pictures: the generated log has only half a minute, in which nothing moves.
    """
    chance = random.Random(1)
    for name, cluster in state.clusters.items():
        cluster.hpas = sum(hpa.cluster == name for hpa in state.hpas)
        if name != "c2":  # a reconciler serves the others
            cluster.served = ServedRow(state.clock_ms)
    for id_, view in state.hpas.items():
        most = chance.choice((4, 6, 10, 12, 20, 40))
        count = min(most, 2 + int((most - 2) * chance.random() ** 1.6 * 1.15))
        moves: list[Move] = []
        at_ms = state.clock_ms
        for _ in range(chance.choice((0, 1, 3, 8, 8))):
            at_ms -= int(chance.expovariate(1 / 5_400_000))
            before = max(2, min(most, (moves[0].before if moves else count) + chance.choice((-2, -1, 1, 2))))
            after = moves[0].before if moves else count
            if before != after:
                moves.insert(0, Move(at_ms, before, after, "fleethpa"))
        used = chance.randrange(60, 88)
        current = {"name": "cpu", "current": {"averageUtilization": used, "averageValue": f"{10 * used}m"}}
        status: dict[str, Any] = {
            "currentReplicas": count,
            "desiredReplicas": count,
            "currentMetrics": [{"type": "Resource", "resource": current}],
            "conditions": [],
        }
        wants: int | None = count if used >= 72 else max(1, -(-count * used // 80))  # 80 %, with a tolerance of 10 %
        paused = ""
        if id_.cluster == "c3" and chance.random() < 0.3:
            text = "unable to get metrics for resource cpu: the server is currently unable to handle the request"
            failed = {"type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric", "message": text}
            status |= {"conditions": [failed], "currentMetrics": []}
            wants = None
        elif chance.random() < 0.01:
            paused = chance.choice(("by anna: INC-42", "by ben: INC-43"))
        spec = view.spec | {"minReplicas": 2, "maxReplicas": most}
        mode: Mode = "shadow" if id_.cluster == "c4" else "enforce"
        if count == most and chance.random() < 0.3:
            current["current"] = {"averageUtilization": 2 * used, "averageValue": f"{20 * used}m"}
            wants = None if wants is None else -(-count * 2 * used // 80)
        state.hpas[id_] = replace(
            view,
            hpa=view.hpa | {"spec": spec, "status": status},
            moves=tuple(moves),
            paused=paused,
            mode=mode,
            wants=wants,
            blocked=view.blocked if chance.random() < 0.01 else None,
        )
    return state


def serve(hpas: int, grows: bool, is_varied: bool, pipe: Connection) -> None:
    """Serve a generated fleet; it may grow while it is served. A varied one is as if its log ended now."""
    fleet = small_fleet(hpas) if grows else large_fleet(hpas)
    if is_varied:

        async def read(past: Past) -> FleetState:
            return varied(await read_state(past))

        pytest.MonkeyPatch().setattr("fleethpa.page.livereader.read_state", read)
        pytest.MonkeyPatch().setattr(LiveReader, "now_ms", lambda _: fleet.now_ms)
    fleet.checkpoint()
    over(fleet, pytest.MonkeyPatch())
    look_for_cycles_seldom()  # as the command does; the topics are none of the page's memory

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

    def __init__(self, hpas: int, *, grows: bool = False, varied: bool = False) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(hpas, grows, varied, theirs), daemon=True)
        self.process.start()
        self.address = self._pipe.recv()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: Any) -> None:
        self._pipe.send("end")
        self.process.join(20)

    @property
    def cpu_s(self) -> float:
        """CPU time that the server has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

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


def spread(found: Sequence[float]) -> str:
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
        found.append(page.evaluate(FIRST_PAINT))
        context.close()
    return found


def work(browser: Browser, address: str) -> list[float]:
    """CPU time of the browser's main thread until a view is loaded, each in a fresh context (ms)."""
    found = []
    for _ in range(PAINTS):
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        page = context.new_page()
        session = context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        before = _busy_s(session)
        page.goto(address)
        page.evaluate(FIRST_PAINT)
        found.append(1_000 * (_busy_s(session) - before))
        context.close()
    return found


def _busy_s(session: CDPSession) -> float:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


def chart(browser: Browser, address: str, span: str) -> tuple[float, float, int]:
    """The times (ms) from asking for a span of an HPA's charts to their being drawn, and the points of a line.

    The first time the page reads the decisions; the second time only what came since.
    """
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(120_000)
    page.goto(f"{address}/hpa/east/shop/checkout?span=15m")
    page.wait_for_selector("#plots canvas")
    script = """async (span) => {
        document.getElementById("charts").dataset.span = span;
        const took = [];
        for (let times = 0; times < 2; times++) {
            const plot = window.fleethpaCharts[0], began = performance.now();
            await window.fleethpaDraw();
            if (window.fleethpaCharts[0] === plot) throw new Error('nothing was drawn');
            took.push(performance.now() - began);
        }
        return [...took, window.fleethpaCharts[0].data[0].length];
    }"""
    read_ms, kept_ms, points = page.evaluate(script, span)
    page.close()
    return read_ms, kept_ms, points


def drawn(browser: Browser, address: str, path: str) -> tuple[float, float, float, int]:
    """The times (ms) from navigation to the charts of an HPA: as they are drawn first, with everything that was asked
    for, and for who comes again; and how many points a line has.
    """
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(120_000)
    page.goto(address)
    took = []
    for _ in range(2):
        page.goto(address + path)
        page.wait_for_selector("#plots canvas")
        took.append(page.evaluate(CHARTS_DRAWN))
        page.wait_for_selector("#late[hidden]", state="attached")  # everything that was asked for is shown
        took.append(page.evaluate(CHARTS_DRAWN))
    points: int = page.evaluate("window.fleethpaCharts[0].data[0].length")
    page.close()
    return took[0], took[1], took[2], points


def many_figures(browser: Browser, what: str, arguments: Sequence[str], hpa: HpaId) -> None:
    """Print how long the view of an HPA takes with its charts, from a source of which one partition holds many HPAs."""
    path = f"/hpa/{hpa.cluster}/{hpa.namespace}/{hpa.name}?span="
    found: dict[str, list[tuple[float, float, float, int]]] = {}
    empty = []
    for _ in range(STARTS):
        for span in ("1h", "7d"):
            with serving(*arguments) as address:
                empty += paints(browser, f"{address}/login")
                found.setdefault(span, []).append(drawn(browser, address, path + span))
    print(f"first paint of an empty page: {spread(empty)}")
    for span, each in found.items():
        first, whole, again, points = zip(*each, strict=True)
        print(f"{what}, charts of {span} drawn: {spread(first)}; with everything: {spread(whole)}; {points[0]} points")
        print(f"the same again: {spread(again)}")


def live_figures(browser: Browser, hpas: int, decisions: int) -> None:
    """Print how long the view of an HPA takes, from topics of which one partition holds many."""
    with TemporaryDirectory() as folder, KafkaBroker(Path(folder)) as broker:
        hpa = fill(broker.bootstrap, hpas, decisions)
        many_figures(browser, f"live, {hpas} HPAs in the partition", ("--brokers", broker.bootstrap), hpa)


def archive_figures(browser: Browser, hpas: int) -> None:
    """Print how long the view of an HPA takes, from an archive of 70 minutes of which one partition holds many."""
    topics: Topics = {(LOG, 0): [], (DECISIONS, 0): []}
    for each in decided(hpas, time.time_ns() // 1_000_000, 0, 0):
        if name := {topicnames.LOG: LOG, topicnames.DECISIONS: DECISIONS}.get(each.topic):
            records = topics[name, 0]
            records.append(archived_record(len(records), each.time_ms, each.key or b"", (), each.value))
    with TemporaryDirectory() as folder:
        root = write_archive(
            Path(folder) / "archive",
            GeneratedFleet(partitions=1),
            segment_ms=3_600_000,
            topics=topics,
            sign_every=10**9,
            flush_every=100,
        )
        hpa = HpaId("c0", "ns7", "app7")
        many_figures(browser, f"archive, {hpas} HPAs in the partition", ("--from", str(root)), hpa)


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
    """Print the memory of the server while browsers watch, ten times.

    The server also holds the generated topics, which grow by 27 kB in each round of two seconds.
    """
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


def fleet_figures(browser: Browser, hpas: int) -> None:
    """Print how long the fleet takes."""
    with Served(hpas, varied=True) as large:
        times(large.address, 3)
        before_s = large.cpu_s
        found, size = times(large.address, REQUESTS)
        print(f"/ of {hpas:,} HPAs: {spread(found)}; {size / 1000:.0f} kB; server {large.rss_mb:.0f} MB")
        # No browser watches, so that the state is read again only once it is STALE_S old.
        print(f"server: {1_000 * (large.cpu_s - before_s) / REQUESTS:.0f} ms of CPU each, with readings of the state")
        for name, address in (("an empty page", f"{large.address}/login"), ("/", large.address)):
            print(f"first paint of {name}: {spread(paints(browser, address))}")
            print(f"CPU of the browser for {name}: {spread(work(browser, address))}")


def chart_figures(browser: Browser, decisions: int) -> None:
    """Print how long charts of a week take, in servers that have just been started."""
    with TemporaryDirectory() as folder:
        archive = str(week(Path(folder) / "archive", decisions))
        views, charts = [], []
        for _ in range(STARTS):
            with serving("--from", archive) as address:
                charts.append(chart(browser, address, "7d"))
                views += times(f"{address}/hpa/east/shop/checkout?span=7d", 1)[0]
    read, kept, points = zip(*charts, strict=True)
    print(f"charts of 7 days, {decisions:,} decisions: {spread(read)}; {points[0]} points")
    print(f"the same again: {spread(kept)}; the view of the HPA with that span: {spread(views)}")


def main() -> None:
    """Print all figures, or those that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hpas", type=int, default=10_000)
    parser.add_argument("--decisions", type=int, default=40_000)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--browsers", type=int, default=50)
    parser.add_argument("--only", choices=("fleet", "charts", "live", "archive", "memory"))
    parser.add_argument("--live-hpas", type=int, default=500, help="in one partition")
    parser.add_argument("--live-decisions", type=int, default=600_000, help="in it, before the last hour")
    given = parser.parse_args()
    with sync_playwright() as playwright:
        browser = launched(playwright)
        if given.only in (None, "fleet"):
            fleet_figures(browser, given.hpas)
        if given.only in (None, "charts"):
            chart_figures(browser, given.decisions)
        if given.only in (None, "live"):
            live_figures(browser, given.live_hpas, given.live_decisions)
        if given.only in (None, "archive"):
            archive_figures(browser, given.live_hpas)
        browser.close()
    if given.only in (None, "memory"):
        with Served(50, grows=True) as growing:
            asyncio.run(memory(growing, given.browsers, given.minutes))


if __name__ == "__main__":
    main()
