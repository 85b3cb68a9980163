"""`--from`: an archive, or the topics of a running fleet; and how the progress of long reading is shown."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleethpa.cli.common.brokerconnection import client_settings, connecting, missing_topic
from fleethpa.cli.common.failures import usage
from fleethpa.cli.common.session import Session
from streams.archive.layout import LOG, open_archive
from streams.archive.segmentreader import PartitionReader
from streams.archive.segments import ArchiveError, MissingTopicError
from streams.history.archivepast import ArchivePast
from streams.history.parallel import cores

_SMALL_RECORDS = 10_000
EVERY_S = 10.0
PROGRESS_LINES = "FLEETHPA_PROGRESS_LINES"
LIVE_EVERY_S = 1.0

if TYPE_CHECKING:
    from fleethpa.cli.common.configuration import Config
    from streams.history.past import Past


def past_of(session: Session, *, checked: bool = True) -> Past:
    """Return the past that `--from` names, not opened: each reading connects for itself, as other processes do.

    `checked`: segments of an archive must be those that their manifests name.

    Raises:
        CommandError: no such folder, no archive, or no brokers are known (exit 2).
    """
    if session.source != "kafka":
        return archive_past(session.source, session.at_ms, checked=checked)
    from streams.history.kafkapast import KafkaPast

    return KafkaPast(client_settings(session.config), session.at_ms)


def archive_past(folder: str, at_ms: int | None = None, *, checked: bool = True) -> ArchivePast:
    """Return the past that a folder holds.

    Raises:
        CommandError: it is not an archive (exit 2).
    """
    past = ArchivePast(Path(folder), checked, at_ms)
    try:
        past.check_folder()
    except ArchiveError as error:
        raise usage(f"--from {folder}: {error}", cause="--from takes `kafka` or the folder of an archive.") from error
    return past


@asynccontextmanager
async def open_past(source: str, config: Config, at_ms: int | None = None) -> AsyncIterator[Past]:
    """Open `kafka`, with one connection for everything that is read, or an archive folder.

    Raises:
        CommandError: brokers cannot be reached (exit 3), or the folder is not an archive (exit 2).
    """
    if source != "kafka":
        yield archive_past(source, at_ms)
        return
    from streams.history.kafkapast import KafkaPast

    settings = client_settings(config)
    async with AsyncExitStack() as stack:
        async with connecting(settings.bootstrap_servers):
            try:
                past = await stack.enter_async_context(KafkaPast(settings, at_ms).opened())
            except MissingTopicError as error:
                raise missing_topic(error.topic, settings.bootstrap_servers) from error
        yield past


def jobs_for(past: Past) -> int:
    """How many processes the work on a past is worth: starting one costs more than replaying a small archive."""
    if not isinstance(past, ArchivePast):
        return cores()
    try:
        numbers = range(open_archive(past.root).partitions)
        records = sum(m.records for n in numbers for m in PartitionReader(past.root, LOG, n).manifests())
    except ArchiveError:  # the work itself says what is wrong
        return 1
    return cores() if records > _SMALL_RECORDS else 1


@asynccontextmanager
async def progress(session: Session, what: str, pool: Any, due: int = 0) -> AsyncIterator[None]:
    """Report on stderr how far a pool has come; `due`: about how many log records there are, 0 if not known."""

    def text(seconds: float) -> str:
        log_records, decisions = pool.progress
        done = f"{what} {decisions:,} decisions, {log_records:,} log records ({decisions / seconds:,.0f}/s)"
        return share_done(log_records, due) + done

    async with telling(session, text):
        yield


def share_done(done: int, due: int) -> str:
    """The percentage that is done, in front of a line of progress; empty where nobody knows how much there is."""
    return f"{min(99, 100 * done // due)}% " if due else ""


async def log_length(past: Past, since_ms: int | None = None) -> int:
    """About how many log records are kept, from a time on; 0 where the source does not say it.

    A damaged archive is no concern of the progress: the work itself says what is wrong.
    """
    try:
        return await past.log_length(since_ms)
    except ArchiveError:
        return 0


@asynccontextmanager
async def reading(session: Session, past: Past) -> AsyncIterator[None]:
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
async def telling(session: Session, text: Callable[[float], str]) -> AsyncIterator[None]:
    """Write `text(seconds so far)` to stderr once a second on a terminal, else every ten seconds; empty: nothing.

    With FLEETHPA_PROGRESS_LINES set it is a line every second without a terminal too, for a program that shows it.
    """
    live = sys.stderr.isatty() and not session.options.get("quiet")
    task = asyncio.create_task(_tell(session, text, live))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


async def _tell(session: Session, text: Callable[[float], str], live: bool) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(LIVE_EVERY_S if live or os.environ.get(PROGRESS_LINES) else EVERY_S)
        said = text(time.monotonic() - began)
        if live:
            sys.stderr.write(f"\r\x1b[K{said}")
            sys.stderr.flush()
        elif said:
            session.note(said)
