"""What long-running processes have in common: pools of workers, so that a slow or dead cluster delays no other; free
memory that goes back to the operating system; counts; and `/healthz`, `/readyz` and `/metrics`.
"""

import asyncio
import ctypes
import errno
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from runtime.ending import set_within, task_group

log = logging.getLogger(__name__)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class WorkerPool(Generic[K, V]):
    """Works on the items of a queue, at most `workers` at once and never on two of one key: an older one that is slow
    would undo what a newer one has done. It takes the oldest first; where `newest_first` says so of the oldest, it
    takes the newest.

    An exception of the work ends the pool, and with it the process: work reports its troubles in other ways.
    """

    def __init__(
        self,
        work: Callable[[V], Awaitable[None]],
        *,
        workers: int,
        limit: int,
        newest_first: Callable[[V], bool] | None = None,
    ) -> None:
        self._work, self._workers, self._limit, self._newest_first = work, workers, limit, newest_first
        self._queue: OrderedDict[K, V] = OrderedDict()  # a dict takes longer to its first key the more were taken
        self._arrived = asyncio.Event()
        self._busy: set[K] = set()
        self._ended = asyncio.Event()

    def put(self, key: K, item: V) -> V | None:
        """Queue an item (one that waits under this key keeps its place); return the oldest one if the queue
        overflows.
        """
        self._queue[key] = item
        self._arrived.set()
        if len(self._queue) <= self._limit:
            return None
        return self._queue.pop(next(iter(self._queue)))

    def waiting(self, key: K) -> V | None:
        """The item that waits under this key."""
        return self._queue.get(key)

    def remove(self, key: K) -> V | None:
        """Remove an item that has not been begun; None: it is not waiting."""
        item = self._queue.pop(key, None)
        self._ended.set()
        return item

    def remove_all(self) -> list[V]:
        """Remove everything that has not been begun."""
        items = list(self._queue.values())
        self._queue.clear()
        self._ended.set()
        return items

    async def idle(self) -> None:
        """Wait until nothing is being worked on and nothing waits."""
        while self._queue or self._busy:
            self._ended.clear()
            await self._ended.wait()

    def __len__(self) -> int:
        return len(self._queue) + len(self._busy)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            while (key := self._next()) is None:
                self._arrived.clear()
                await self._arrived.wait()
            item = self._queue.pop(key)
            self._busy.add(key)
            try:
                await self._work(item)
            finally:
                self._busy.discard(key)
                self._ended.set()
                if key in self._queue:
                    self._arrived.set()  # what waits under this key may go now

    def _next(self) -> K | None:
        oldest = self._first(self._queue)
        if oldest is None or self._newest_first is None or not self._newest_first(self._queue[oldest]):
            return oldest
        return self._first(reversed(self._queue))

    def _first(self, keys: Iterable[K]) -> K | None:
        for key in keys:
            if key not in self._busy:
                return key
        return None


GIVEN_BACK_EVERY_S = 15.0
HEAP_TRIM: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""glibc's; None where the C library has none."""


class FreeMemory:
    """Gives back what is free, at most every 15 s; call `give_back` when large buffers have just been dropped.

    glibc does so by itself only at the end of its heap, where something small nearly always is.
    """

    def __init__(
        self, trim: Callable[[int], int] | None = HEAP_TRIM, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._trim, self._clock = trim, clock
        self._next_s = clock()

    def give_back(self) -> None:
        """Give back all whole pages that are free; takes about a millisecond per 10,000 HPAs of a decider."""
        if self._trim is not None and self._clock() >= self._next_s:
            self._trim(0)
            self._next_s = self._clock() + GIVEN_BACK_EVERY_S


@dataclass
class FrequentCount:
    """How often something happened, as a plain number; and how much of it its counter contains."""

    count: int = 0
    contained: int = 0


class FrequentCounters(Collector):
    """Counts what is frequent, such as statuses, as plain numbers, which are added to their counters when metrics are
    read: a counter takes a lock each time, 20 times as long.

    To be made before the counters of the same registry, which reads them in this order.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._frequent: dict[Counter, FrequentCount] = {}
        registry.register(self)

    def of(self, counter: Counter) -> FrequentCount:
        """Return what to count in, instead of in this counter without labels, or with their values."""
        return self._frequent.setdefault(counter, FrequentCount())

    def collect(self) -> Iterable[Metric]:
        """Bring the counters up to date. Numbers only rise, since metrics may be read in another thread."""
        for counter, frequent in self._frequent.items():
            now = frequent.count
            counter.inc(now - frequent.contained)
            frequent.contained = now
        return ()


@dataclass(frozen=True, kw_only=True)
class PartConfig:
    """Where a part serves its health and metrics. `web_port`: None serves nothing, 0 takes a free port."""

    web_port: int | None = None
    web_host: str = "127.0.0.1"


WAITS_SAID_S = 5.0
"""How long a part that starts may be silent about what it waits for."""
Lines = Callable[[], list[str]]


class PartHealth:
    """What a part says about itself. `waiting_for`: what is not ready yet, by name; empty: ready.

    A problem of one cluster is no reason to be unready, as others continue. It shows in `notes` and in the metrics.
    """

    def __init__(self, *waiting_for: str) -> None:
        self.registry = CollectorRegistry()
        self.waiting_for: dict[str, str] = {name: "starting" for name in waiting_for}
        self._checks: dict[str, Callable[[], str]] = {}
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

    def check(self, name: str, problem: Callable[[], str]) -> None:
        """Ask this for each reader of /readyz: what keeps the component from working now; empty: nothing does."""
        self._checks[name] = problem

    def record(self, name: str, text: str | None) -> None:
        """Remember a problem for readers of /readyz; None: it is over."""
        if text is None:
            self._notes.pop(name, None)
        else:
            self._notes[name] = text

    def forget(self, beginning: str) -> None:
        """Drop the problems whose names begin like this."""
        self._notes = {name: text for name, text in self._notes.items() if not name.startswith(beginning)}

    def problems(self) -> list[str]:
        unready = self.waiting_for | {name: why for name, ask in self._checks.items() if (why := ask())}
        return [f"[-] {name}: {why}" for name, why in sorted(unready.items())]

    def notes(self) -> list[str]:
        """List problems that do not keep the part from being ready."""
        return [f"[!] {name}: {why}" for name, why in sorted(self._notes.items())]

    @asynccontextmanager
    async def served(self, config: PartConfig) -> AsyncIterator[None]:
        """Serve while the context is open, and keep the port in `port`."""
        host, port = config.web_host, config.web_port
        server = health_server(self.registry, self.problems, notes=self.notes, host=host, port=port)
        async with server as self.port:
            yield

    async def accompany(self, running: Coroutine[Any, Any, None], announce: Callable[[int], None] | None) -> None:
        """Await a part; announce its port once it is ready (0: it serves none), and log what it waits for until then.

        The first error of its task groups is raised as itself: it ended the part, the others followed.
        """
        async with task_group() as group:
            waiting = [
                group.create_task(self._announce(announce or (lambda _: None))),
                group.create_task(self._say_waits()),
            ]
            await running
            for each in waiting:
                each.cancel()

    async def _announce(self, announce: Callable[[int], None]) -> None:
        await self.became_ready.wait()
        announce(self.port)

    async def _say_waits(self) -> None:
        """Log what keeps the part from being ready for the first time, and again when that is something else."""
        said: Any = None
        while not self.became_ready.is_set():
            await set_within(self.became_ready, WAITS_SAID_S)
            now = self.waiting_for | {}, self._notes.keys() | ()  # the texts of problems have changing numbers in them
            if not self.became_ready.is_set() and now != said:
                log.warning("not ready yet", extra={"waits_for": now[0], "problems": self._notes | {}})
                said = now


class PortTakenError(OSError):
    """Another process listens where health and metrics were to be served."""


@asynccontextmanager
async def health_server(
    registry: CollectorRegistry,
    problems: Lines,
    *,
    notes: Lines = list,
    further: Callable[[], str] = str,
    host: str = "127.0.0.1",
    port: int | None = 0,
) -> AsyncIterator[int]:
    """Serve health and metrics while the context is open; return the port.

    Args:
        problems: what keeps the part from doing its work now; empty when it is ready.
        notes: further lines of /readyz.
        further: text of /metrics that is not in the registry; asked in a thread.
        port: 0: a free one; None: nothing is served, and the port given is 0.

    Raises:
        PortTakenError: another process has the port.
    """
    if port is None:
        yield 0
        return
    runner = web.AppRunner(_application(registry, problems, notes, further), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            text = f"another process listens on {host}:{port}; --web-port names another port, 0 a free one"
            raise PortTakenError(text) from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _application(
    registry: CollectorRegistry, problems: Lines, notes: Lines, further: Callable[[], str]
) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        reasons = problems()
        lines = [*(reasons or ["ok"]), *notes()]
        return web.Response(text="".join(f"{line}\n" for line in lines), status=503 if reasons else 200)

    async def metrics(_: web.Request) -> web.Response:
        # The metrics of thousands of HPAs take a while to write; the part continues meanwhile.
        body = await asyncio.to_thread(lambda: generate_latest(registry) + further().encode())
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return application
