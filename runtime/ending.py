"""The end of a process after SIGTERM: within 5 s, even if brokers or API servers do not answer.

What a process still does in order (writing what it has, leaving its groups) is over `IN_ORDER_S` after the signal. What
still runs `CANCELLED_S` after it is cancelled (`fleethpa.processes.parts`), and `ENDED_S` after it a thread ends the
process with exit code 75 and a line in the log that names what hung. The next process repeats all that is unfinished
then, as it does after `kill -9`.

Waiting for one of several things.
"""

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final


async def first_of(*waits: Awaitable[Any]) -> None:
    """Wait until one of these has ended or failed; the others are cancelled. So is each if this is cancelled."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def set_within(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until an event is set, but no longer than this; None: however long that is."""
    # Not wait_for: Python 3.11's loses a cancellation that comes together with the end of the wait.
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group whose first error is raised as itself: it ended the group, and the others followed from it."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        error: BaseException = errors
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from errors


log = logging.getLogger(__name__)

IN_ORDER_S: Final = 2.5
CANCELLED_S: Final = 3.0
ENDED_S: Final = 4.0
LEAST_S: Final = 0.1
DID_NOT_END: Final = 75
"""Exit code of a process that hung at its end: EX_TEMPFAIL of sysexits.h, as for other stalls."""

_begun_s: float | None = None
_last_resort: threading.Timer | None = None


def begin(why: str, loop: asyncio.AbstractEventLoop) -> None:
    """Record that this process is to end, from now on; a second call has no effect.

    Args:
        why: for the log line of a process that hangs, as its own reason is then not printed.
        loop: the event loop whose tasks that line names.
    """
    global _begun_s, _last_resort
    if _begun_s is None:
        _begun_s = time.monotonic()
        _last_resort = threading.Timer(ENDED_S, _end, (why, loop))
        _last_resort.daemon = True
        _last_resort.start()


def over() -> None:
    """Record that the process has ended what it does, so that nothing is left to hang."""
    global _begun_s, _last_resort
    if _last_resort is not None:
        _last_resort.cancel()
    _begun_s = _last_resort = None


def left_s(most_s: float) -> float:
    """Seconds that a step of an end may take: `most_s`, or less where the process itself is to end."""
    if _begun_s is None:
        return most_s
    return max(LEAST_S, min(most_s, _begun_s + IN_ORDER_S - time.monotonic()))


def unfinished(loop: asyncio.AbstractEventLoop) -> list[str]:
    """The lines in which the tasks of a loop wait, the innermost one of each."""
    return sorted({_waiting_in(task) for task in asyncio.all_tasks(loop)})


def _waiting_in(task: "asyncio.Task[Any]") -> str:
    waits: Any = task.get_coro()
    where = ""
    while (frame := getattr(waits, "cr_frame", None)) is not None:
        where = f"{frame.f_code.co_qualname} ({os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno})"
        waits = waits.cr_await
    return where or task.get_name()


def _end(why: str, loop: asyncio.AbstractEventLoop) -> None:
    """End the process, and log what hung: the tasks, and where its threads are."""
    stacks = {
        str(number): traceback.format_stack(frame)[-1].strip()
        for number, frame in sys._current_frames().items()
        if number != threading.get_ident()
    }
    hung = {"because": why, "tasks": unfinished(loop), "threads": stacks}
    log.critical("the process has not ended %g s after it was to end, and is ended now", ENDED_S, extra=hung)
    logging.shutdown()
    os._exit(DID_NOT_END)
