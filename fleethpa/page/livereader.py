"""The one reader behind all browsers: the state of the fleet, kept fresh, and the past for one question at a time.

Long work runs in an event loop in a thread of its own, so that other answers do not wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from fleethpa.fleet.finding import Ref, no_such_hpa
from fleethpa.fleet.state import away_remarks, read_state
from fleethpa.fleet.views import FleetState
from fleethpa.frame.configuration import Config
from fleethpa.frame.errors import CommandError, unreachable
from fleethpa.frame.sources import UNREADABLE, archive_past, open_past
from fleethpa.page.hpapast import LastUsed
from runtime.log import wall_clock_ms
from schemas.keys import FLEET, HpaId
from streams.history.past import LogGoneError, Past
from streams.history.seenpast import NotSeenError, SeenParts, SeenPast

T = TypeVar("T")
Loop = asyncio.AbstractEventLoop


class Aside:
    """A thread with an event loop, which is started when it is first needed."""

    def __init__(self) -> None:
        self._started: tuple[threading.Thread, Loop] | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread and return its result, or raise its error. Whoever is cancelled cancels it."""
        if self._started is None:
            self._started = _start()
        _, loop = self._started
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    async def close(self) -> None:
        """End the thread; what still runs there is cancelled. It may be started again."""
        started, self._started = self._started, None
        if started is not None:
            thread, loop = started
            loop.call_soon_threadsafe(loop.stop)
            await asyncio.to_thread(thread.join)


def _start() -> tuple[threading.Thread, Loop]:
    future: Future[Loop] = Future()

    def serve() -> None:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            future.set_result(loop)
            loop.run_forever()

    # A daemon: it must not keep a process that is to end.
    thread = threading.Thread(target=serve, name="state of the fleet", daemon=True)
    thread.start()
    return thread, future.result()


logger = logging.getLogger(__name__)
KAFKA: Final = "kafka"
EVERY_S: Final = 2.0
"""How often the state is read again, at most, while a browser looks."""
SHARE: Final = 4.0
"""Reading the state takes at most one part in so many of the time."""
RETRY_S: Final = 3.0
STALE_S: Final = 15.0
"""A state that is older is read again before it is shown. Browsers get a notice when a younger one is out of date."""
STALL_S: Final = 60.0
"""A reading of the topics that takes longer has failed: the brokers are away."""
LATE_S: Final = 6.0
"""A reading that takes longer, and three times as long as the one before, is called late: what is shown meanwhile is
the last that was known.
"""
PATIENT_S: Final = 1.5
"""How long a view waits for a younger state, where there is one that it can show."""
KEPT: Final = 4
"""States of earlier moments that are kept, for who reloads."""


class LiveReader:
    """Reads what `--from` names.

    `state` is the newest state that could be read, None before the first. `version` rises with each. `problem`: why the
    source cannot be read now, with `since_ms`; empty: it can.
    """

    def __init__(self, source: str, config: Config, seen: SeenParts | None = None) -> None:
        """`seen`: the parts of the fleet that are read; None: all."""
        self.source, self._config, self._seen = source, config, seen
        self.state: FleetState | None = None
        self.version = 0
        self.problem, self.is_late = "", False
        self.since_ms = 0
        self._rates: dict[int, float] = {}
        self.watchers = 0
        """Browsers that wait for changes."""
        self._changed = asyncio.Condition()
        self._lost = asyncio.Event()
        """Set while the source cannot be read."""
        self._refreshes: set[asyncio.Task[None]] = set()
        self._wanted = asyncio.Event()
        self._refreshing = asyncio.Lock()
        self._read_at = self._took_s = 0.0
        self._questions = SharedPast(source, config)
        self._aside, self._followed = Aside(), SharedPast(source, config)
        """The state of a large fleet takes seconds to read: it is read in a thread, over a connection of its own."""
        self._earlier = LastUsed[int, FleetState](KEPT)

    @property
    def rate(self) -> float | None:
        """Decisions per second between the deciders' last two checkpoints; None: two were not seen yet, or decisions of
        a part of the fleet cannot be told from the others.
        """
        return sum(self._rates.values()) if self._rates and self._seen is None else None

    @property
    def is_live(self) -> bool:
        """Whether more is being written."""
        return self.source == KAFKA or archive_past(self.source).is_live()

    def now_ms(self) -> int:
        """Return what ages refer to: the wall clock, for an archive its newest record."""
        if self.source == KAFKA:
            return wall_clock_ms()
        return self.state.clock_ms if self.state is not None else archive_past(self.source).newest_ms()

    async def run(self) -> None:
        """Keep the state fresh while browsers look; runs until it is cancelled."""
        while True:
            await self._refresh()
            await asyncio.sleep(RETRY_S if self.problem else max(EVERY_S, SHARE * self._took_s))
            if not self.is_live and not self.problem:
                return
            if not self.watchers:
                self._wanted.clear()
                await self._wanted.wait()

    async def _refresh(self, older_than_s: float = 0.0) -> None:
        """Read the state, unless another task did so less than `older_than_s` ago."""
        async with self._refreshing:
            if self._age_s() < older_than_s:
                return
            began = time.monotonic()
            await self._read()
            self._read_at = time.monotonic()
            if not self.problem:  # what failed says nothing of how long a state takes
                self._took_s = self._read_at - began

    def _age_s(self) -> float:
        """How long ago the state was read last, or could not be."""
        return time.monotonic() - self._read_at if self._read_at else math.inf

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(STALL_S):
                state = await self._late_or_not(self._aside.run(self._newest()))
        except UNREADABLE as error:
            await self._failed(error)
            return
        # The driver's own errors have no common base class with ours; the page shows any of them and tries again.
        except Exception as error:
            logger.warning("the source cannot be read: %s", error)
            await self._failed(error)
            return
        async with self._changed:
            known = self.state
            if known is not None:
                self._rates |= _rates(known, state)
            moved = known is None or (known.clock_ms, known.remarks) != (state.clock_ms, state.remarks)
            moved = moved or bool(self.problem)
            self.state, self.problem = state, ""
            self._lost.clear()
            if moved:
                self.version += 1
                self._changed.notify_all()

    async def _newest(self) -> FleetState:
        async with self._followed.at(None) as past:
            return await read_state(self._part_of(past))

    async def _late_or_not(self, reading: Coroutine[Any, Any, FleetState]) -> FleetState:
        """Wait for a state, and say so if it is late: a broker that hangs gives no error for a long time."""
        task = asyncio.ensure_future(reading)
        late_s = max(LATE_S, 3 * self._took_s)
        try:
            done, _ = await asyncio.wait({task}, timeout=late_s)
            if not done:
                await self._lose(f"It has not answered for {late_s:.0f}s.", is_late=True)
            return await task
        finally:
            task.cancel()

    async def _failed(self, error: Exception) -> None:
        text = error.sentence() if isinstance(error, CommandError) else str(error) or type(error).__name__
        await self._lose(text)
        await self._close()

    async def _lose(self, problem: str, *, is_late: bool = False) -> None:
        """Show that the source is not read: the state is the last that was known. `is_late`: it may answer yet."""
        async with self._changed:
            if not self.problem:
                self.since_ms = wall_clock_ms()
            self.problem, self.is_late = problem, is_late
            if self.state is not None and not self.state.unread:
                self.state = _unread(self.state, problem, is_late=is_late)
            self._lost.set()
            self.version += 1
            self._changed.notify_all()

    async def answer_or_lost(self, answer: Coroutine[Any, Any, T]) -> T | None:
        """Return an answer from the past; None: the source cannot be read, or turns out so before there is an answer.

        Raises what the answer raises while the source can be read.
        """
        if self._lost.is_set():
            answer.close()
            return None
        task, lost = asyncio.ensure_future(answer), asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait({task, lost}, return_when=asyncio.FIRST_COMPLETED)
            return await task if task.done() else None
        finally:
            task.cancel()
            lost.cancel()

    async def changed(self, version: int, timeout_s: float) -> int:
        """Wait until the state is newer than `version`, and return its version; the same one after the time limit."""
        self._wanted.set()
        async with self._changed:
            try:
                # Not asyncio.wait_for: Python 3.11's loses a cancellation that comes together with the end of the wait.
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait_for(lambda: self.version != version)
            except TimeoutError:
                return version
        return self.version

    async def state_at(self, at_ms: int | None) -> FleetState:
        """Return the state as of a moment (None: the newest that could be read).

        Raises CommandError: the source does not hold that moment, or cannot be read.
        """
        self._wanted.set()
        if at_ms is None:
            # That of a large fleet is never younger while browsers look.
            stale_s = max(STALE_S, 2 * (1 + SHARE) * self._took_s)
            if self.state is None:
                await self._refresh(stale_s)
            elif self._age_s() > stale_s and self.is_live:
                await self._refresh_soon(stale_s)
            if self.state is None:
                raise unreachable(self.problem, next_step="fleethpa doctor")
            return self.state
        if at_ms in self._earlier:
            return self._earlier.keep(at_ms, self._earlier[at_ms])
        async with self._questions.at(at_ms) as past:
            return self._earlier.keep(at_ms, await read_state(self._part_of(past)))

    async def _refresh_soon(self, older_than_s: float) -> None:
        """Read the state again, and go on without it where that takes long: there is one that can be shown."""
        task = asyncio.create_task(self._refresh(older_than_s))
        self._refreshes.add(task)
        task.add_done_callback(self._refreshes.discard)
        patient_s = max(PATIENT_S, 2 * self._took_s)
        done, _ = await asyncio.wait({task}, timeout=patient_s)
        if not done:
            await self._lose(f"It has not answered for {patient_s:.1f}s.", is_late=True)

    @asynccontextmanager
    async def past(self, at_ms: int | None = None) -> AsyncIterator[Past]:
        """Open the past as of a moment, for one question at a time. Raises CommandError: as `SharedPast.at`."""
        fleet_hpas = None
        if self.state is not None and at_ms is None and not self.state.is_last_known:
            fleet_hpas = [hpa for hpa in self.state.hpas if hpa.cluster == FLEET]
        async with self._questions.at(at_ms) as past:
            yield self._part_of(past, fleet_hpas)

    @asynccontextmanager
    async def past_of(self, hpa: HpaId, at_ms: int | None = None) -> AsyncIterator[Past]:
        """The same for a question about one HPA. Raises CommandError: also where it may not be seen (exit 4)."""
        async with self.past(at_ms) as past:
            yield self._about(past, hpa)

    def _about(self, past: Past, hpa: HpaId) -> Past:
        if not isinstance(past, SeenPast):
            return past
        try:
            return cast("Past", past.about(hpa))
        except NotSeenError as error:
            known = self.state.hpas if self.state is not None else ()
            raise no_such_hpa(Ref(hpa.name, hpa.namespace, hpa.cluster), known, hpa.namespace) from error

    def _part_of(self, past: Past, fleet_hpas: Iterable[HpaId] | None = None) -> Past:
        """Return what may be seen of a past. `fleet_hpas`: as of `SeenPast`."""
        return past if self._seen is None else cast("Past", SeenPast(past, self._seen, fleet_hpas))

    async def _close(self) -> None:
        await self._questions.close()
        await self._aside.run(self._followed.close())

    async def close(self) -> None:
        """End the connections."""
        for task in self._refreshes:
            task.cancel()
        await self._close()
        await self._aside.close()
        self._followed = SharedPast(self.source, self._config)


def _unread(state: FleetState, problem: str, *, is_late: bool) -> FleetState:
    """The last state that was known: how processes and clusters are now is not."""
    of_now = {*(each.text for each in state.hung), *away_remarks(state)}
    clusters = {name: replace(each, is_cut_off=True) for name, each in state.clusters.items()}
    remarks = tuple(each for each in state.remarks if each not in of_now)
    hpas = {hpa: replace(view, is_past=True) for hpa, view in state.hpas.items()}
    return replace(state, unread=problem, is_late=is_late, hpas=hpas, clusters=clusters, hung=(), remarks=remarks)


class SharedPast:
    """The past of one source. Topics are read over one connection, by one question at a time.

    It belongs to the event loop in which it is opened first.
    """

    def __init__(self, source: str, config: Config) -> None:
        self._source, self._config = source, config
        self._one = asyncio.Lock()
        self._past: Past | None = None
        self._exits = AsyncExitStack()

    @asynccontextmanager
    async def at(self, at_ms: int | None) -> AsyncIterator[Past]:
        """Open the past as of a moment; None: as of now. Raises CommandError: it cannot be read."""
        if self._source != KAFKA:
            yield archive_past(self._source, at_ms)
            return
        async with self._one:
            if self._past is None:
                self._past = await self._exits.enter_async_context(open_past(KAFKA, self._config))
            self._past.at_ms = at_ms
            try:
                yield self._past
            except (LogGoneError, CommandError):
                raise  # an answer, not a fault of the connection
            except BaseException:  # raised again; after any error the next reader connects again
                await self._close()
                raise

    async def _close(self) -> None:
        self._past, exits, self._exits = None, self._exits, AsyncExitStack()
        await exits.aclose()

    async def close(self) -> None:
        """End the connection."""
        async with self._one:
            await self._close()


def _rates(before: FleetState, after: FleetState) -> dict[int, float]:
    """Decisions per second of each partition that has another checkpoint than before."""
    rates = {}
    for number, row in after.partitions.items():
        old = before.partitions.get(number)
        if old is not None and row.clock_ms > old.clock_ms and row.seq >= old.seq:
            rates[number] = 1000 * (row.seq - old.seq) / (row.clock_ms - old.clock_ms)
    return rates
