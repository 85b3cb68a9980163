"""How far long reading and long work have come, on stderr."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from runtime.jsonlog import clean

if TYPE_CHECKING:
    from streams.history.past import Past

EVERY_S = 10.0
PROGRESS_LINES = "FLEETHPA_PROGRESS_LINES"
LIVE_EVERY_S = 1.0


class Tells(Protocol):
    """What is needed of the session that shows the progress."""

    @property
    def source(self) -> str:
        """What `--from` names."""

    @property
    def quiet(self) -> bool:
        """Whether `--quiet` was given."""

    def note(self, text: str) -> None:
        """Write a remark to stderr, unless --quiet."""


@asynccontextmanager
async def progress(session: Tells, what: str, pool: Any, due: int = 0) -> AsyncIterator[None]:
    """Report on stderr how far a pool has come; `due`: about how many log records there are, 0 if not known."""

    def text(seconds: float) -> str:
        log_records, decisions = pool.progress
        done = f"{what} {decisions:,} decisions, {log_records:,} log records ({decisions / seconds:,.0f}/s)"
        return share_done(log_records, due) + done

    async with telling(session, text):
        yield


def share_done(done: int, due: int) -> str:
    """The percentage that is done, in front of a line of progress; empty if the total is not known."""
    return f"{min(99, 100 * done // due)}% " if due else ""


@asynccontextmanager
async def reading(session: Tells, past: Past) -> AsyncIterator[None]:
    """Tell on stderr how much of the log has been read, where that takes long."""

    def text(seconds: float) -> str:
        if not past.log_records_read:
            return ""
        share = share_done(past.log_records_read, past.log_records_due)
        done = f"{share}read {past.log_records_read:,} log records ({past.log_records_read / seconds:,.0f}/s)"
        return done if session.source != "kafka" else f"{done}; an archive is faster: fleethpa archive --to DIR"

    async with telling(session, text):
        yield


@asynccontextmanager
async def telling(session: Tells, text: Callable[[float], str]) -> AsyncIterator[None]:
    """Write `text(seconds so far)` to stderr once a second on a terminal, else every ten seconds; empty: nothing.

    With FLEETHPA_PROGRESS_LINES set it is a line every second without a terminal too, for a program that shows it.
    """
    live = sys.stderr.isatty() and not session.quiet
    task = asyncio.create_task(_tell(session, text, live))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


async def _tell(session: Tells, text: Callable[[float], str], live: bool) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(LIVE_EVERY_S if live or os.environ.get(PROGRESS_LINES) else EVERY_S)
        said = text(time.monotonic() - began)
        if live:
            sys.stderr.write(f"\r\x1b[K{clean(said)}")
            sys.stderr.flush()
        elif said:
            session.note(said)
