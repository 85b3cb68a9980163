"""`--from`: an archive, or the topics of a running fleet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fleethpa.cli.common.brokerconnection import client_settings, connecting, missing_topic
from fleethpa.cli.common.failures import usage
from streams.archive.layout import LOG, open_archive
from streams.archive.segmentreader import PartitionReader
from streams.archive.segments import ArchiveError, MissingTopicError
from streams.history.archivepast import ArchivePast

_SMALL_RECORDS = 10_000

if TYPE_CHECKING:
    from fleethpa.cli.common.configuration import Config
    from streams.history.past import Past


def unopened_past(source: str, config: Config, at_ms: int | None = None, *, checked: bool = True) -> Past:
    """Return the past that `--from` names, not opened: each reading connects for itself, as other processes do.

    `checked`: segments of an archive must be those that their manifests name.

    Raises:
        CommandError: no such folder, no archive, or no brokers are known (exit 2).
    """
    if source != "kafka":
        return archive_past(source, at_ms, checked=checked)
    from streams.history.kafkapast import KafkaPast

    return KafkaPast(client_settings(config), at_ms)


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


def jobs_for(past: Past, topic: str = LOG) -> int:
    """How many processes the work on a past is worth: starting one costs more than replaying a small archive.

    `topic`: whose records the work reads.
    """
    from streams.history.parallel import cores  # here: most verbs do without multiprocessing

    if not isinstance(past, ArchivePast):
        return cores()
    try:
        numbers = range(open_archive(past.root).partitions)
        records = sum(m.records for n in numbers for m in PartitionReader(past.root, topic, n).manifests())
    except ArchiveError:  # the work itself says what is wrong
        return 1
    return cores() if records > _SMALL_RECORDS else 1


async def log_length(past: Past, since_ms: int | None = None) -> int:
    """About how many log records are kept, from a time on; 0 where the source does not say it.

    A damaged archive is no concern of the progress: the work itself says what is wrong.
    """
    try:
        return await past.log_length(since_ms)
    except ArchiveError:
        return 0
