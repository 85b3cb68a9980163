"""Work on all partitions with all cores: partitions are independent, each is one task of a pool of processes. One
such task reads a partition's decisions for what a few of their fields say.

An analysis of many HPAs continues over a fault of fleethpa with one of them, and names those that it lacks.
"""

import asyncio
import gc
import os
import signal
import traceback
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Self, TypeVar

from schemas.codec import WireError
from schemas.decisions import Decision
from schemas.keys import HpaId
from schemas.kubernetes.gotimes import parse_time_ms
from streams.archive.layout import DECISIONS
from streams.history.past import Past

T = TypeVar("T")
R = TypeVar("R")
_counts: Any = None
"""In a worker: the shared counters (log records, decisions)."""


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def reported(log_records: int, decisions: int) -> None:
    """Record progress in the shared counters."""
    if _counts is not None:
        with _counts.get_lock():
            _counts[0] += log_records
            _counts[1] += decisions


def _start(counts: Any) -> None:
    global _counts
    _counts = counts
    # Ctrl-C reaches every process of a terminal: the one that started this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The state of a partition lives as long as the process: walking it again and again frees nothing.
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)


class ReplayPool(Generic[T, R]):
    """Runs one function over tasks, in this process (one job) or in several."""

    def __init__(self, work: Callable[[T], R], jobs: int) -> None:
        import multiprocessing  # heavy, and most of who imports this module starts no processes

        self._work, self._jobs = work, jobs
        self._context = multiprocessing.get_context("spawn")
        self._shared = self._context.Array("q", 2)

    @property
    def progress(self) -> tuple[int, int]:
        """(log records, decisions) worked through so far."""
        return self._shared[0], self._shared[1]

    async def run(self, tasks: Sequence[T]) -> AsyncIterator[R]:
        if self._jobs <= 1 or len(tasks) <= 1:
            with _counting(self._shared):
                for task in tasks:
                    yield await asyncio.to_thread(self._work, task)
            return
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        loop = asyncio.get_running_loop()
        workers = min(self._jobs, len(tasks))
        with ProcessPoolExecutor(workers, self._context, initializer=_start, initargs=(self._shared,)) as pool:
            others = set(multiprocessing.active_children())
            waiting = [loop.run_in_executor(pool, self._work, task) for task in tasks]
            try:
                for done in asyncio.as_completed(waiting):
                    yield await done
            except BaseException:  # raised again: without an end of its own, the pool first does all that waits
                for each in waiting:
                    each.cancel()
                for worker in set(multiprocessing.active_children()) - others:
                    worker.terminate()
                raise


@contextmanager
def _counting(counts: Any) -> Any:
    global _counts
    before, _counts = _counts, counts
    try:
        yield
    finally:
        _counts = before


# --- decisions of one partition, read for a few of their fields -------------------------------------------------------

LAG_MS = 3_600_000
"""The decider may publish a decision this much later than its log time."""
_BREATH = 5_000


@dataclass(frozen=True)
class DecisionsTask:
    """One partition to read: from log time `begin_ms` to before `end_ms`."""

    past: Past
    partition: int
    begin_ms: int
    end_ms: int


async def read_decisions(task: DecisionsTask, handle: Callable[[bytes], None]) -> int:
    """Call `handle` with each decision record that a partition may have of a time; return how many these are."""
    read = counted = 0
    first = await task.past.offset_at(DECISIONS, task.partition, task.begin_ms)
    latest_ms = task.end_ms + LAG_MS
    async with aclosing(task.past.stretches(DECISIONS, task.partition, first)) as stretches:
        async for stretch in stretches:
            for record in stretch:
                if record.timestamp_ms > latest_ms:
                    return read
                read += 1
                handle(record.value)
            if read - counted >= _BREATH:
                reported(0, read - counted)
                counted = read
    return read


async def read_evaluations(
    task: DecisionsTask,
    read: Callable[[bytes], Decision],
    hpas: Collection[HpaId],
    handle: Callable[[HpaId, Decision, int], None],
) -> None:
    """Call `handle` with each evaluation of some HPAs in the task's time, in order and once, and with its log time.

    `read`: reads seq, time, cluster, namespace, name and kind at least (`schemas.decisionfields.reader_of`).
    """
    newest = 0

    def handle_record(value: bytes) -> None:
        nonlocal newest
        decision = read(value)
        if decision.seq <= newest:  # published twice
            return
        newest = decision.seq
        hpa = HpaId(decision.cluster, decision.namespace, decision.name)
        if decision.kind != "evaluation" or hpa not in hpas:
            return
        if task.begin_ms <= (time_ms := parse_time_ms(decision.time)) < task.end_ms:
            handle(hpa, decision, time_ms)

    await read_decisions(task, handle_record)


# --- faults with single HPAs ------------------------------------------------------------------------------------------


class Fault(NamedTuple):
    """What went wrong: the exception as text, and its traceback."""

    error: str
    trace: str


class Faults(dict[HpaId, Fault]):
    """The first fault of each HPA that an analysis has no result for."""

    @classmethod
    def of_parts(cls, parts: Iterable[tuple[object, Self]]) -> Self:
        """Put those of several partitions together, each of which comes with its result."""
        return cls({hpa: fault for _, part in parts for hpa, fault in part.items()})

    @contextmanager
    def of(self, hpa: HpaId, *refusals: type[Exception]) -> Iterator[None]:
        """Do something for one HPA; a fault in it is kept instead of raised.

        Raises WireError: a record cannot be read, which is no fault of the analysis; and `refusals`, by which it
        rejects what it was asked.
        """
        try:
            yield
        # Broad on purpose: whatever it is, it concerns this HPA only, and the command names it and fails at its end.
        except Exception as error:
            if isinstance(error, (WireError, *refusals)):
                raise
            if hpa not in self:
                self[hpa] = Fault(f"{type(error).__name__}: {error}", traceback.format_exc())
