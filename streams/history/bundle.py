"""A bundle: what an HPA's log partition recorded in a time, as one file that `--from` reads like any other archive.

The file is an uncompressed tar of an archive whose other partitions are empty. It holds the records of the whole
partition, as the hashes of the log and of the decisions run over all of them: without those of other HPAs nothing could
be verified. It begins with the state before the first of its log records.
"""

import re
import tarfile
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Final, NamedTuple

from schemas.decisions import links_of
from schemas.limits import BUNDLE, OverLimitError, check
from streams.archive.archiver import Archiver, SegmentLimits
from streams.archive.layout import DECISIONS, LOG
from streams.archive.segments import BAD_JSON, ArchivedRecord, ArchiveError, reading
from streams.history.past import LogGoneError, Past
from streams.history.replay import RecordedDecisions
from streams.state.partition import Partition
from streams.state.records import FULL_EVERY_MS

_FLUSHED_EVERY: Final = 1_000
_MEMBER: Final = re.compile(
    r"archive\.json|(log|decisions)/\d+/(HEAD\.json|\d{20}\.(seg|json))|snapshots/\d+/\d{20}\.rows"
)
_WHOLE: Final = SegmentLimits(segment_bytes=BUNDLE.most, segment_ms=1 << 62)
"""A bundle has one segment of each topic."""


class Bundled(NamedTuple):
    """What a bundle holds. `begin_ms`: log time of the state that it begins with; 0: the log begins in it."""

    log_records: int
    decisions: int
    begin_ms: int


async def write_bundle(past: Past, number: int, since_ms: int, until_ms: int, root: Path) -> Bundled:
    """Write what a log partition recorded from one log time to before another as an archive.

    It begins as much earlier as a short decision may repeat a full one, or where the source does.

    Raises:
        OverLimitError: it would be too large.
        ArchiveError: the source is damaged, or its decider has not come as far as its log.
    """
    rows = await _rows_before(past, number, since_ms - FULL_EVERY_MS)
    begin = Partition.restore(number, rows)
    archiver = Archiver(root, await past.partitions(), _WHOLE)
    try:
        if begin.applied_offset >= 0:
            archiver.begin_with(number, rows)
        async with aclosing(past.following(begin, until_ms=until_ms)) as records:
            async for record in records:
                archiver.append(LOG, number, record)
                if record.offset % _FLUSHED_EVERY == 0:
                    _flush(archiver, number)
        _flush(archiver, number)
        await _take_decisions(archiver, past, number, begin.seq)
        archiver.finish()
    finally:
        archiver.release()
    taken = archiver.records()
    return Bundled(taken[LOG], taken[DECISIONS], begin.clock_ms)


async def _rows_before(past: Past, number: int, time_ms: int) -> Mapping[bytes, bytes]:
    """The state rows as of a time, or the oldest that the source can be read from."""
    try:
        folded = await past.fold_to(number, time_ms=max(0, time_ms))
    except LogGoneError:
        return await past.checkpoint(number)
    return folded.rows()


async def _take_decisions(archiver: Archiver, past: Past, number: int, seq: int) -> None:
    """Take the decisions after number `seq`, up to the last that follows from the log records that were taken."""
    decisions = RecordedDecisions(past, number, await past.first_decision(number, seq + 1))
    begun, due = False, archiver.due(number)
    try:
        while seq < due:
            record = await decisions.wait()
            if record is None:
                what = f"the decisions of log partition {number} end before its log"
                raise ArchiveError(f"{what}: the decider is behind, or they are lost")
            newest = _seq_of(number, record)
            begun = begun or newest > seq
            seq = max(seq, newest)
            if begun:
                archiver.append(DECISIONS, number, record)
                if record.offset % _FLUSHED_EVERY == 0:
                    _flush(archiver, number)
    finally:
        await decisions.close()


def _seq_of(number: int, record: ArchivedRecord) -> int:
    try:
        return links_of(record.value).seq
    except BAD_JSON as error:
        raise ArchiveError(f"decision {number}@{record.offset} is not a decision: {error}") from error


def _flush(archiver: Archiver, number: int) -> None:
    archiver.flush()
    check(BUNDLE, archiver.size(number), f"log partition {number}")


def pack(root: Path, file: Path) -> None:
    """Make one file of a bundle's folder: the same bytes for the same records. Raises OverLimitError: it is too large.

    Raises OSError: the file cannot be written.
    """
    found = {str(path.relative_to(root)): path for path in sorted(root.rglob("*")) if path.is_file()}
    with tarfile.open(file, "w:", format=tarfile.USTAR_FORMAT) as tar:
        for name, path in found.items():
            if _MEMBER.fullmatch(name):
                member = tarfile.TarInfo(name)
                member.size = path.stat().st_size
                with path.open("rb") as content:
                    tar.addfile(member, content)
    check(BUNDLE, file.stat().st_size, str(file))


def unpack(file: Path, root: Path) -> None:
    """Write the archive that a bundle holds into an empty folder.

    Raises ArchiveError: it is no bundle, it is too large, or it holds something that does not belong to an archive.
    """
    try:
        with reading(file):
            check(BUNDLE, file.stat().st_size, str(file))
            with tarfile.open(file, "r:") as tar:
                for member in tar:
                    _unpack_member(tar, member, root)
    except tarfile.TarError as error:
        raise ArchiveError(f"is a file, and not a bundle as `fleethpa export bundle` writes it ({error})") from error
    except OverLimitError as error:
        raise ArchiveError(str(error)) from error


def _unpack_member(tar: tarfile.TarFile, member: tarfile.TarInfo, root: Path) -> None:
    content = tar.extractfile(member) if member.isreg() and not member.issparse() else None
    if content is None or not _MEMBER.fullmatch(member.name):
        raise ArchiveError(f"{member.name!r} does not belong to a bundle")
    path = root / member.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as written:
        written.write(content.read())
