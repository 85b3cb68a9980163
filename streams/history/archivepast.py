"""The past as the folder of an archive holds it, with nothing running, also while it is written; a part as one file.

That file, a bundle, has what the log partition of an HPA recorded in a time, and is read like any other archive. It is
an uncompressed tar of an archive whose other partitions are empty. It holds the records of the whole partition, as the
hashes of the log and of the decisions run over all of them: without those of other HPAs nothing could be verified. It
begins with the state before the first of its log records.
"""

import asyncio
import re
import tarfile
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final, NamedTuple

from schemas.decisions import links_of
from schemas.keys import HpaId
from schemas.limits import BUNDLE, OverLimitError, check
from schemas.topics import QuietProcess
from streams.archive.archiver import Archiver, SegmentLimits
from streams.archive.layout import (
    BAD_JSON,
    DECISIONS,
    LOG,
    ArchivedRecord,
    ArchiveError,
    is_written,
    last_sign_ms,
    open_archive,
    read_snapshot,
    reading,
    snapshots,
)
from streams.archive.segmentreader import PartitionReader, SegmentManifest
from streams.history.past import LogGoneError, Past
from streams.history.replay import RecordedDecisions
from streams.partition import Partition
from streams.state.partition import stored_row

_POLL_S = 0.5
_STRETCH = 1_000


class ArchivePast(Past):
    """An archive.

    Args:
        root: its folder.
        checked: as of `PartitionReader`, for callers that do not compare the records otherwise.
        at_ms: as of `Past`.
    """

    def __init__(self, root: Path, checked: bool = False, at_ms: int | None = None) -> None:
        super().__init__(str(root), at_ms)
        self.root, self.checked = root, checked
        """As they were when they were read first: what was closed then does not change."""

    def check_folder(self) -> None:
        """Check that the folder is an archive that this version reads. Raises ArchiveError: it is not."""
        with reading(self.root):
            there, is_folder = self.root.exists(), self.root.is_dir()
        if not is_folder:
            raise ArchiveError("is a file, not a folder" if there else "no such folder")
        open_archive(self.root)

    def newest_ms(self) -> int:
        """Return the timestamp of the newest log record; 0 if there is no record.

        Raises ArchiveError: the archive is damaged.
        """
        numbers = range(open_archive(self.root).partitions)
        return max(self._topic(LOG, number).last()[1] for number in numbers)

    def _topic(self, topic: str, partition: int) -> PartitionReader:
        return PartitionReader(self.root, topic, partition, checked=self.checked)

    async def check(self, topic: str, partition: int, within: range) -> None:
        reader = PartitionReader(self.root, topic, partition, checked=True)
        for manifest in _unchecked(reader, within):
            for _ in reader.frames(manifest):
                await asyncio.sleep(0)  # reading holds the loop: others get a turn in between

    async def is_checked(self, topic: str, partition: int, within: range) -> bool:
        return not any(_unchecked(PartitionReader(self.root, topic, partition), within))

    async def partitions(self) -> int:
        return open_archive(self.root).partitions

    def stretches(self, topic: str, partition: int, first: int = 0) -> AsyncGenerator[Sequence[ArchivedRecord], None]:
        return _stretches(self._topic(topic, partition), first)

    finds_hpas = True

    def unchecked(
        self, topic: str, partition: int, first: int = 0, hpa: HpaId | None = None
    ) -> AsyncGenerator[Sequence[ArchivedRecord], None]:
        return _stretches(PartitionReader(self.root, topic, partition, hpa=hpa), first)

    async def backwards(
        self, topic: str, partition: int, upto_ms: int | None = None
    ) -> AsyncGenerator[list[ArchivedRecord], None]:
        for stretch in self._topic(topic, partition).backwards(upto_ms):
            yield stretch
            await asyncio.sleep(0)  # as above

    async def newest_rows(self, partition: int) -> Mapping[bytes, bytes]:
        stored = snapshots(self.root, partition)
        return read_snapshot(stored[-1][1]) if stored else {}

    async def checkpoint(
        self, partition: int, *, below: int | None = None, before_ms: int | None = None
    ) -> Mapping[bytes, bytes]:
        stored = snapshots(self.root, partition)
        if below is not None:
            older = [each for each in stored if each[0] < below]
            return _rows_of(partition, *older[-1]) if older else {}
        if before_ms is not None:
            newest_ms = {each.last_offset: each.last_timestamp_ms for each in self._topic(LOG, partition).manifests()}
            for offset, path in reversed(stored):
                if newest_ms.get(offset, before_ms) < before_ms:
                    rows = _rows_of(partition, offset, path)
                    # Timestamps may step back, log time does not.
                    if stored_row(partition, rows).clock_ms < before_ms:
                        return rows
        has_lost_its_beginning = bool(self._topic(LOG, partition).first_offset())
        return _rows_of(partition, *stored[0]) if stored and has_lost_its_beginning else {}

    async def arriving(self, positions: dict[int, int]) -> AsyncGenerator[tuple[int, ArchivedRecord], None]:
        while True:
            for number, position in positions.items():
                for record in self._topic(DECISIONS, number).records(position):
                    positions[number] = record.offset + 1
                    yield number, record
            await asyncio.sleep(_POLL_S)

    async def offsets(self, topic: str, partition: int) -> range:
        reader = self._topic(topic, partition)
        return range(reader.first_offset() or 0, reader.last()[0] + 1)

    async def signs_of_life(self) -> Mapping[QuietProcess, int]:
        then_ms = last_sign_ms(self.root)
        return {} if then_ms is None else {"archiver": then_ms}

    async def last_ms(self, partition: int) -> int:
        return self._topic(LOG, partition).last()[1]

    async def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        reader, first = self._topic(topic, partition), 0
        for manifest in reader.manifests():
            if manifest.last_timestamp_ms >= time_ms:
                return reader.offset_before(manifest, time_ms)
            first = manifest.last_offset + 1
        return first

    async def first_decision(self, partition: int, seq: int) -> int:
        reader = self._topic(DECISIONS, partition)
        # Numbers have no gaps and copies only add records: number n is at offset n - 1 or later, but for an archive
        # whose decisions begin late; there the first record says how much.
        low = 0
        for manifest in reader.manifests():
            if reader.first_seq(manifest) > seq:
                break
            low = manifest.first_offset
        return low

    def is_live(self) -> bool:
        return is_written(self.root)

    def marks(self, partition: int) -> frozenset[int]:
        return frozenset(manifest.last_offset for manifest in self._topic(LOG, partition).manifests())

    def snapshot_at(self, partition: int, offset: int) -> dict[bytes, bytes] | None:
        path = dict(snapshots(self.root, partition)).get(offset)
        return None if path is None else read_snapshot(path)


def _unchecked(reader: PartitionReader, within: range) -> Iterator[SegmentManifest]:
    """The closed segments with records of a range that this process has not found to be what they should be."""
    later = (each for each in reader.manifests() if within.start <= each.last_offset)
    return (each for each in later if each.first_offset < within.stop and not reader.is_known(each))


async def _stretches(reader: PartitionReader, first: int) -> AsyncGenerator[Sequence[ArchivedRecord], None]:
    stretch: list[ArchivedRecord] = []
    for frame in reader.stretches(first):
        stretch += frame
        if len(stretch) >= _STRETCH:
            yield stretch
            stretch = []
            await asyncio.sleep(0)  # reading holds the loop: others get a turn in between
    if stretch:
        yield stretch


def _rows_of(partition: int, offset: int, path: Path) -> Mapping[bytes, bytes]:
    """Read the snapshot of a log offset. Raises ArchiveError: it is damaged, or that of another offset."""
    rows = read_snapshot(path)
    if (stored := stored_row(partition, rows).offset) != offset:
        raise ArchiveError(f"{path}: the rows are those of log offset {stored}")
    return rows


# --- bundles ----------------------------------------------------------------------------------------------------------

_FLUSHED_EVERY: Final = 1_000
_MEMBER: Final = re.compile(
    r"archive\.json|log/\d+/(HEAD\.json|\d{20}\.(seg|json))|decisions/\d+/(HEAD\.json|\d{20}\.(jsonl\.zst|json|hpas))|"
    r"snapshots/\d+/\d{20}\.rows"
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

    It begins with the state as of `since_ms`, or where the source does.

    Raises:
        OverLimitError: it would be too large.
        ArchiveError: the source is damaged, or its decider has not come as far as its log.
    """
    rows = await _rows_before(past, number, since_ms)
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
        await _add_decisions(archiver, past, number, begin.seq)
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


async def _add_decisions(archiver: Archiver, past: Past, number: int, seq: int) -> None:
    """Add the decisions after number `seq`, up to the last that follows from the log records that were taken."""
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
    files = {str(path.relative_to(root)): path for path in sorted(root.rglob("*")) if path.is_file()}
    with tarfile.open(file, "w:", format=tarfile.USTAR_FORMAT) as tar:
        for name, path in files.items():
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
