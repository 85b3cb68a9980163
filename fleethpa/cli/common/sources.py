"""`--from` for verbs that recompute: an archive, or the topics of a running fleet; and how their progress is told."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleethpa.cli.common.session import Session

_SMALL_RECORDS = 10_000
EVERY_S = 10.0
LIVE_EVERY_S = 1.0

if TYPE_CHECKING:
    from fleethpa.cli.common.readers import Reader
    from streams.history.pastsources import Source


def source_of(session: Session, *, checked: bool = False) -> Source:
    """The source that `--from` names. `checked`: segments of an archive must be those that their manifests name.

    Raises:
        CommandError: no such folder, no archive, or no brokers are known (exit 2).
    """
    from streams.history.pastsources import ArchiveSource, KafkaSource

    if session.source == "kafka":
        from fleethpa.cli.common.brokerconnection import client_settings

        return KafkaSource(client_settings(session.config))
    from fleethpa.cli.common.archivereader import ArchiveReader

    return ArchiveSource(ArchiveReader(Path(session.source)).root, checked)


def jobs_for(source: Source) -> int:
    """How many processes the work on a source is worth: starting one costs more than replaying a small archive."""
    from streams.archive.layout import LOG, open_archive
    from streams.archive.segmentreader import PartitionReader
    from streams.archive.segments import ArchiveError
    from streams.history.parallel import cores
    from streams.history.pastsources import ArchiveSource

    if not isinstance(source, ArchiveSource):
        return cores()
    try:
        numbers = range(open_archive(source.root).partitions)
        records = sum(m.records for n in numbers for m in PartitionReader(source.root, LOG, n).manifests())
    except ArchiveError:  # the work itself tells what is wrong
        return 1
    return cores() if records > _SMALL_RECORDS else 1


@asynccontextmanager
async def progress(session: Session, what: str, pool: Any) -> AsyncIterator[None]:
    """Tell on stderr how far a pool has come."""

    def text(seconds: float) -> str:
        log_records, decisions = pool.progress
        return f"{what} {decisions:,} decisions, {log_records:,} log records ({decisions / seconds:,.0f}/s)"

    async with telling(session, text):
        yield


@asynccontextmanager
async def reading(session: Session, reader: Reader) -> AsyncIterator[None]:
    """Tell on stderr how much of the log has been read, where that takes long."""

    def text(seconds: float) -> str:
        if not reader.read:
            return ""
        done = f"read {reader.read:,} log records ({reader.read / seconds:,.0f}/s)"
        return done if session.source != "kafka" else f"{done}; an archive is faster: fleethpa archive --to DIR"

    async with telling(session, text):
        yield


@asynccontextmanager
async def telling(session: Session, text: Callable[[float], str]) -> AsyncIterator[None]:
    """Tell `text(seconds so far)` on stderr once a second on a terminal, else every ten seconds; empty: nothing."""
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
        await asyncio.sleep(LIVE_EVERY_S if live else EVERY_S)
        said = text(time.monotonic() - began)
        if live:
            sys.stderr.write(f"\r\x1b[K{said}")
            sys.stderr.flush()
        elif said:
            session.note(said)
