"""`--from`: an archive, or the topics of a running fleet; errors of both, and how far long work has come."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

import click
import msgspec

from fleethpa.frame.configuration import Config
from fleethpa.frame.errors import CommandError, timed_out, unreachable, usage
from runtime.log import clean
from schemas.codec import WireError
from schemas.connection import KafkaSettings, SettingsError
from streams.archive.layout import LOG, ArchiveError, MissingTopicError, open_archive
from streams.archive.segmentreader import PartitionReader
from streams.history.archivepast import ArchivePast
from streams.history.past import LogGoneError, Past
from streams.state.ledger import CoreError

T = TypeVar("T")
R = TypeVar("R")
UNREADABLE: Final = (CommandError, ArchiveError, WireError, CoreError, OSError, TimeoutError)
"""What reading a source raises that processes wait out, beside the driver's own errors."""
READING_S: Final = 60.0
"""How long a process waits for the log to be read."""


def waited_out() -> tuple[type[Exception], ...]:
    """Return the errors that a process waits out when it reads the log: `UNREADABLE`, and silent brokers."""
    from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, RequestTimedOutError

    return (*UNREADABLE, KafkaConnectionError, KafkaTimeoutError, RequestTimedOutError)


def unread_text(error: Exception) -> str:
    """Return why the log could not be read. A timeout of `READING_S` has no text of its own."""
    return str(error) or f"no answer within {READING_S:.0f} s"


def client_settings(config: Config) -> KafkaSettings:
    """Return the connection settings, with the driver's own log lines silenced: failures reach the user as errors."""
    for name in ("aiokafka", "kafka"):
        driver = logging.getLogger(name)
        driver.handlers, driver.propagate = [_failures], False
    return config.kafka()


class _BrokerFailures(logging.Handler):
    """Keeps why each broker could not be used: the driver logs it, and raises an error that does not say it.

    `awaited`: the brokers to which a connection is being made; empty: to none.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.by_address: dict[str, Exception] = {}
        self.awaited = ""

    def emit(self, record: logging.LogRecord) -> None:
        match record.args:
            case (host, port, Exception() as error):
                self.by_address[f"{host}:{port}"] = error


_failures: Final = _BrokerFailures()


@asynccontextmanager
async def connecting(brokers: str) -> AsyncIterator[None]:
    """As `talking`, while nothing but the brokers' answers is waited for: a time limit that ends it is `no_answer`."""
    _failures.awaited = brokers
    async with talking(brokers):
        yield
    _failures.awaited = ""


def no_answer(limit: str) -> CommandError:
    """The error for a command that its --timeout has ended, with the brokers if it was they that it waited for."""
    brokers = _failures.awaited
    if not brokers:
        cause = "The work takes longer, or what it waits for does not answer any more."
        return timed_out(
            f"no answer within --timeout {limit}", cause=cause, next_step="fleethpa doctor, or a longer --timeout"
        )
    hangs = failure_of(brokers, TimeoutError())
    what = f"no answer from Kafka at {brokers} within --timeout {limit}"
    return timed_out(what, cause=hangs.cause, next_step=hangs.next_step)


def silent(brokers: str, limit_s: float) -> CommandError:
    """The error for brokers that have not answered at all."""
    hangs = failure_of(brokers, TimeoutError())
    what = f"Kafka at {brokers} has not answered for {limit_s:.0f}s"
    cause = f"{hangs.cause} --timeout sets another limit."
    return unreachable(what, cause=cause, next_step=hangs.next_step)


@asynccontextmanager
async def talking(brokers: str) -> AsyncIterator[None]:
    """Turn what the driver raises into a CommandError (exit 3; wrong settings: 2)."""
    from aiokafka.errors import IncompatibleBrokerVersion, KafkaError

    _failures.by_address.clear()
    try:
        yield
    except SettingsError as error:
        raise usage("the Kafka settings cannot be used", cause=str(error)) from error
    except IncompatibleBrokerVersion as error:
        cause = "The embedded broker of `fleethpa dev` knows no administration; Apache Kafka does."
        what = f"the broker at {brokers} does not support this request: {error}"
        raise unreachable(what, cause=cause, next_step="--brokers HOST:PORT of Apache Kafka") from error
    except (KafkaError, OSError) as error:
        raise cannot_talk(brokers, error) from error


def cannot_talk(brokers: str, error: Exception) -> CommandError:
    """The error for brokers that cannot be used, with what the driver logged of each since it connected."""
    failures = _failures.by_address  # the driver asks the brokers in any order
    reasons = [failure_of(address, failures[address]) for address in sorted(failures, key=f"{brokers},".find)]
    detail = "; ".join(reason.what for reason in reasons) or str(error) or type(error).__name__
    first = reasons[0] if reasons else _UNKNOWN
    what = f"cannot talk to Kafka at {brokers}: {detail}"
    return unreachable(what, cause=first.cause, next_step=first.next_step)


class BrokerFailure(NamedTuple):
    """Why a broker could not be used: what happened, the likely cause, the next step."""

    what: str
    cause: str
    next_step: str


_UNKNOWN: Final = BrokerFailure(
    "", "A broker refuses this user or this request, or does not answer in time.", "fleethpa doctor"
)


def failure_of(address: str, error: Exception) -> BrokerFailure:
    """Say in words why the driver could not use the broker at an address (`host:port`)."""
    from aiokafka.errors import (
        AuthenticationFailedError,
        BrokerResponseError,
        KafkaConnectionError,
        RequestTimedOutError,
    )

    host, text = address.rpartition(":")[0], str(error) or type(error).__name__
    if isinstance(error, socket.gaierror):
        return BrokerFailure(
            f"no address is found for the name {host}",
            "The name is misspelt, or this machine's DNS does not know it, as with names of a Kubernetes cluster.",
            "check the host in --brokers or --kafka-config",
        )
    if isinstance(error, ssl.SSLError):
        return BrokerFailure(
            f"TLS with {address} fails: {getattr(error, 'reason', None) or text}",
            "The port does not use TLS, or the certificates do not fit.",
            "check security.protocol and the certificates in --kafka-config",
        )
    if f"[Errno {errno.ECONNREFUSED}]" in text:
        return BrokerFailure(
            f"{address} refuses the connection",
            "Nothing listens on that port: Kafka does not run there, or has another port.",
            "start Kafka, or check the port in --brokers; `fleethpa dev` starts a broker on this machine",
        )
    if isinstance(error, TimeoutError | RequestTimedOutError):
        return BrokerFailure(
            f"{address} does not answer",
            "The broker hangs, the address is wrong, a firewall drops the connection, or it is not Kafka.",
            "check that Kafka runs, then the address in --brokers and the network in between",
        )
    if isinstance(error, AuthenticationFailedError | BrokerResponseError):
        return BrokerFailure(
            f"{address} refuses this user: {text}",
            "User, password or SASL mechanism are not those of the broker.",
            "check them in --kafka-config",
        )
    if isinstance(error, KafkaConnectionError):
        return BrokerFailure(
            f"{address} closes the connection at the first request",
            "What listens there is not Kafka, or expects TLS or a login.",
            "check the port in --brokers, and security.protocol in --kafka-config",
        )
    return BrokerFailure(f"{address}: {text}", _UNKNOWN.cause, "check --brokers and --kafka-config")


async def partition_counts(consumer: Any, topics: tuple[str, ...], brokers: str) -> dict[str, int]:
    """Return the number of partitions of each topic. Raises CommandError: a topic does not exist (exit 3)."""
    from runtime import kafkaclients

    known = await kafkaclients.partition_counts(consumer)
    counts = {topic: known.get(topic, 0) for topic in topics}
    if missing := [topic for topic, count in counts.items() if not count]:
        raise missing_topic(missing[0], brokers)
    return counts


TOPICS_REFUSED: Final = "The brokers refuse: too few of them for the replication factor, or no permission."
"""Why topics cannot be created or changed."""


def missing_topic(topic: str, brokers: str) -> CommandError:
    """The error for a topic that does not exist."""
    return unreachable(
        f"topic {topic} does not exist at {brokers}",
        cause="These brokers have not been prepared for fleethpa, or this user may not see the topic "
        "(fleethpa admin topics acls).",
        next_step="fleethpa admin topics init",
    )


EVERY_S = 10.0
LIVE_EVERY_S = 1.0


class ProgressNotes(Protocol):
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
async def progress(session: ProgressNotes, what: str, pool: Any, due: int = 0) -> AsyncIterator[None]:
    """Report on stderr how far a pool has come; `due`: about how many log records there are, 0 if not known."""

    def text(seconds: float) -> str:
        log_records, decisions = pool.progress
        done = so_far(what, log_records, decisions, seconds)
        return done and share_done(log_records, due) + done

    async with showing_progress(session, text):
        yield


def so_far(what: str, log_records: int, decisions: int, seconds: float) -> str:
    """How much has been read, and how fast; empty: nothing has been counted yet. `what`: what is done with it."""
    counts = [(decisions, "decisions"), (log_records, "log records")]
    read = ", ".join(f"{count:,} {name}" for count, name in counts if count)
    return f"{what} {read} ({(decisions or log_records) / seconds:,.0f}/s)" if read else ""


def share_done(done: int, due: int) -> str:
    """The percentage that is done, in front of a line of progress; empty if the total is not known."""
    return f"{min(99, 100 * done // due)}% " if due else ""


@asynccontextmanager
async def reading(session: ProgressNotes, past: Past) -> AsyncIterator[None]:
    """Report on stderr how much of the log has been read, where that takes long."""

    def text(seconds: float) -> str:
        if not past.log_records_read:
            return ""
        share = share_done(past.log_records_read, past.log_records_due)
        done = f"{share}read {past.log_records_read:,} log records ({past.log_records_read / seconds:,.0f}/s)"
        return done if session.source != "kafka" else f"{done}; an archive is faster: fleethpa admin archive --to DIR"

    async with showing_progress(session, text):
        yield


@asynccontextmanager
async def showing_progress(session: ProgressNotes, text: Callable[[float], str]) -> AsyncIterator[None]:
    """Write `text(seconds so far)` to stderr once a second on a terminal, else every ten seconds; empty: nothing."""
    live = sys.stderr.isatty() and not session.quiet
    task = asyncio.create_task(_report(session, text, live))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


async def _report(session: ProgressNotes, text: Callable[[float], str], live: bool) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(LIVE_EVERY_S if live else EVERY_S)
        stated = text(time.monotonic() - began)
        if live:
            sys.stderr.write(f"\r\x1b[K{clean(stated)}")
            sys.stderr.flush()
        elif stated:
            session.note(stated)


def unreadable(error: Exception, source: str, servers: str) -> CommandError | None:
    """Return what an error of reading the source that `--from` names means for the user; None: it is another error.

    `servers`: the brokers, where the source is `kafka`.
    """
    if isinstance(error, LogGoneError):
        return usage(str(error))
    if isinstance(error, MissingTopicError):
        return missing_topic(error.topic, servers)
    if not isinstance(error, ArchiveError | WireError | CoreError):
        return None
    record = "a record that does not follow from the record before it, or that another version of fleethpa wrote."
    if source == "kafka":
        cause = f"The topics at {servers} hold a record that cannot be read, {record}"
    else:
        cause = f"The archive {source} has a file that is missing or damaged, or {record}"
    return usage(str(error), cause=cause, next_step=f"fleethpa audit verify --from {source}")


_SMALL_RECORDS = 10_000


def unopened_past(source: str, config: Config, *, checked: bool = True) -> Past:
    """Return the past that `--from` names, not opened: each reading connects for itself, as other processes do.

    `checked`: segments of an archive must be those that their manifests name.

    Raises CommandError: no such folder, no archive, or no brokers are known (exit 2).
    """
    if source != "kafka":
        return archive_past(source, checked=checked)
    from streams.history.kafkapast import KafkaPast

    return KafkaPast(client_settings(config))


def archive_past(folder: str, at_ms: int | None = None, *, checked: bool = True) -> ArchivePast:
    """Return the past that a folder holds, or a bundle. Raises CommandError: it is not an archive (exit 2)."""
    try:
        past = ArchivePast(_unpacked(folder) if Path(folder).is_file() else Path(folder), checked, at_ms)
        past.name = folder
        past.check_folder()
    except ArchiveError as error:
        cause = "--from takes `kafka`, the folder of an archive, the file of a bundle, or the URL of a hub."
        step = "name another folder, or make an archive: fleethpa admin archive --to DIR"
        if not Path(folder).is_absolute():
            cause += f" This one is looked for in {Path.cwd()}."
        raise usage(f"--from {folder}: {error}", cause=cause, next_step=step) from error
    return past


_bundles: Final[dict[str, TemporaryDirectory[str]]] = {}
"""The bundles that this run of the command reads, by their files: the folders that they were unpacked into."""


def _unpacked(file: str) -> Path:
    """The folder of a bundle's records, which lasts as long as the command. Raises ArchiveError: it is no bundle."""
    from streams.history.archivepast import unpack  # here: most verbs read no bundle

    if file not in _bundles:
        folder = TemporaryDirectory(prefix="fleethpa-bundle-")
        try:
            unpack(Path(file), Path(folder.name))
        except ArchiveError:
            folder.cleanup()
            raise
        _bundles[file] = folder
        if context := click.get_current_context(silent=True):
            context.find_root().call_on_close(lambda: _bundles.pop(file).cleanup())
    return Path(_bundles[file].name)


@asynccontextmanager
async def open_past(source: str, config: Config, at_ms: int | None = None) -> AsyncIterator[Past]:
    """Open `kafka`, with one connection for everything that is read, or an archive folder.

    Raises CommandError: brokers cannot be reached (exit 3), or the folder is not an archive (exit 2).
    """
    if source != "kafka":
        yield as_seen(archive_past(source, at_ms))
        return
    from streams.history.kafkapast import KafkaPast

    settings = client_settings(config)
    async with AsyncExitStack() as stack:
        async with connecting(settings.bootstrap_servers):
            try:
                past = await stack.enter_async_context(KafkaPast(settings, at_ms).opened())
            except MissingTopicError as error:
                raise missing_topic(error.topic, settings.bootstrap_servers) from error
        yield as_seen(past)


SEEN: Final = "FLEETHPA_SEEN"
"""The variable with what the person may see for whom the hub's API runs a command (JSON of `SeenParts`)."""


def as_seen(past: Past) -> Past:
    """A past without what may not be seen, where this process reads for somebody who may not see everything."""
    if (text := os.environ.get(SEEN)) is None:
        return past
    from streams.history.seenpast import SeenParts, SeenPast

    return cast("Past", SeenPast(past, msgspec.json.decode(text, type=SeenParts)))


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


async def by_partition(
    session: ProgressNotes,
    past: Past,
    read: Callable[[T], Coroutine[Any, Any, R]],
    tasks: Sequence[T],
    topic: str = LOG,
) -> list[R]:
    """Do one reading per partition: one after another over the open past, or in several processes where that is worth
    it. `topic`: whose records are read.
    """
    from streams.history.parallel import ReplayPool  # here: most verbs do without multiprocessing

    jobs = jobs_for(past, topic)
    if len(tasks) == 1 or jobs == 1:
        return [await read(task) for task in tasks]
    pool = ReplayPool(partial(_in_own_loop, read), jobs)
    async with progress(session, "reading", pool):
        return [part async for part in pool.run(tasks)]


def _in_own_loop(read: Callable[[T], Coroutine[Any, Any, R]], task: T) -> R:
    return asyncio.run(read(task))


async def log_length(past: Past, since_ms: int | None = None) -> int:
    """About how many log records are kept, from a time on; 0 where the source does not say it.

    A damaged archive is no concern of the progress: the work itself says what is wrong.
    """
    try:
        return await past.log_length(since_ms)
    except ArchiveError:
        return 0
