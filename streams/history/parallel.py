"""Work on all partitions with all cores: partitions are independent, each is one task of a pool of processes."""

import asyncio
import gc
import multiprocessing
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_counts: Any = None
"""In a worker: the shared counters (log records, decisions)."""


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def reported(log_records: int, decisions: int) -> None:
    """Note progress in the shared counters."""
    if _counts is not None:
        with _counts.get_lock():
            _counts[0] += log_records
            _counts[1] += decisions


def _start(counts: Any) -> None:
    global _counts
    _counts = counts
    # The state of a partition lives as long as the process: walking it again and again frees nothing.
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)


class ReplayPool(Generic[T, R]):
    """Runs one function over tasks, in this process (one job) or in several."""

    def __init__(self, work: Callable[[T], R], jobs: int) -> None:
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
        loop = asyncio.get_running_loop()
        workers = min(self._jobs, len(tasks))
        with ProcessPoolExecutor(workers, self._context, initializer=_start, initargs=(self._shared,)) as pool:
            for done in asyncio.as_completed([loop.run_in_executor(pool, self._work, task) for task in tasks]):
                yield await done


@contextmanager
def _counting(counts: Any) -> Any:
    global _counts
    before, _counts = _counts, counts
    try:
        yield
    finally:
        _counts = before
