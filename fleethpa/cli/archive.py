"""`fleethpa admin archive`: log and decisions into a folder that every read verb takes with `--from`."""

from __future__ import annotations

import errno
from asyncio import Event
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleethpa.frame.auditkeys import signing_key
from fleethpa.frame.errors import OK, CommandError, usage
from fleethpa.frame.options import DurationMs, output_option, web_options
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import cannot_talk, client_settings
from fleethpa.processes.parts import announce, configured, run_parts
from fleethpa.show.formats import one
from streams.archive.layout import ArchiveError
from streams.state.ledger import CoreError

if TYPE_CHECKING:
    from streams.history.archiving import ArchiveConfig, Archived


@click.command()
@click.option("--to", "folder", required=True, metavar="DIR", help="The archive's folder; it is created if missing.")
@click.option("--once/--follow", default=False, help="Stop at the current end of the topics, or keep following.")
@click.option("--segment-size", type=click.IntRange(1), default=16, help="Close a segment at this size in MiB.")
@click.option("--segment-time", "segment_ms", type=DurationMs(), default="1h", help="Close a segment after this time.")
@click.option(
    "--flush",
    "flush_ms",
    type=DurationMs(),
    default="500ms",
    help="How long a record may wait until it is on disk (fsync).",
)
@click.option(
    "--key", metavar="FILE", help="Sign checkpoints with this key [default: the key of `audit keygen`, if it exists]."
)
@click.option("--sign-every", "sign_ms", type=DurationMs(), default="1m", help="How often checkpoints are signed.")
@web_options
@output_option(formats=("table", "json", "yaml"))
@command_options()
def archive(
    session: Session, /, folder: str, segment_size: int, segment_ms: int, key: str | None, output: str, **options: Any
) -> int:
    """Copy log and decisions to a folder as they are written, with hash chains, snapshots and signed checkpoints.

    It continues where it stopped, even after kill -9. SIGTERM closes the open segments.
    """
    # Here, as every next step that names `archive` loads this module, and these bring cryptography along.
    from streams.archive.archiver import SegmentLimits
    from streams.history.archiving import ArchiveConfig

    limits = SegmentLimits(segment_bytes=segment_size << 20, segment_ms=segment_ms)
    kafka, signing = client_settings(session.config), signing_key(key)
    key_file = None if signing is None else signing.file
    config = configured(ArchiveConfig, options, root=Path(folder), kafka=kafka, limits=limits, key=key_file)
    archived: list[Archived] = []

    async def part(stop: Event) -> None:
        archived.append(await _run(session, config, stop))

    run_parts(session, {"archive": part})
    for counts in archived if output != "table" else ():
        report = {"archive": folder, "records": counts.added, "held": counts.held, "signed": config.key is not None}
        session.out(one("ArchiveReport", report, output))
    return OK


_ELSEWHERE = "name a folder that this user may write with --to"


async def _run(session: Session, config: ArchiveConfig, stop: Event) -> Archived:
    from aiokafka.errors import KafkaError

    from runtime.process import PortTakenError
    from streams.history.archiving import run_archive

    session.note(f"archiving to {config.root}{', signing checkpoints' if config.key else ''}")
    try:
        counts = await run_archive(config, stop, announce("archive"))
    except ArchiveError as error:
        what = f"the archive {config.root} cannot continue: {error.what}"
        raise CommandError(what, next_step=error.next_step) from error
    except CoreError as error:
        raise CommandError(f"the archive {config.root} cannot continue: {error}") from error
    except PortTakenError:
        raise
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        step = "make room there; started again, the archive continues where it ended" if is_full else _ELSEWHERE
        what = f"the archive {config.root} cannot be written: {error.strerror or error}"
        raise usage(what, next_step=step) from error
    except KafkaError as error:
        raise cannot_talk(config.kafka.bootstrap_servers, error) from error
    added, held = counts
    session.note(f"archived {added['log']:,} log records and {added['decisions']:,} decisions")
    if held != added:
        session.note(f"{config.root} now holds {held['log']:,} log records and {held['decisions']:,} decisions")
    return counts
