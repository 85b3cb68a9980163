"""The past as an archive's folder holds it, with nothing running; also while it is being written."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from pathlib import Path

from schemas.topics import QuietProcess
from streams.archive.layout import DECISIONS, LOG, is_written, last_sign_ms, open_archive, read_snapshot, snapshots
from streams.archive.segmentreader import PartitionReader, SegmentManifest
from streams.archive.segments import ArchivedRecord, ArchiveError, reading
from streams.history.past import Past
from streams.history.recorded import HpaSieve
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
        self._manifests: dict[tuple[str, int], list[SegmentManifest]] = {}
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

    def unchecked(
        self, topic: str, partition: int, first: int = 0, sieve: HpaSieve | None = None
    ) -> AsyncGenerator[Sequence[ArchivedRecord], None]:
        return _stretches(PartitionReader(self.root, topic, partition, sieve=sieve), first)

    async def nearby(
        self, topic: str, partition: int, within: range, sieve: HpaSieve | None = None
    ) -> AsyncGenerator[Sequence[ArchivedRecord], None]:
        reader, key = PartitionReader(self.root, topic, partition, sieve=sieve), (topic, partition)
        if key not in self._manifests:
            self._manifests[key] = reader.manifests()
        first = within.start
        for manifest in self._manifests[key]:
            if first <= manifest.last_offset:
                for stretch in reader.frames(manifest, first):
                    yield stretch
                    await asyncio.sleep(0)  # as above
                    first = stretch[-1].offset + 1
                    if first >= within.stop:
                        return
        for stretch in reader.stretches(first):  # what has come since
            yield stretch

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
    if (found := stored_row(partition, rows).offset) != offset:
        raise ArchiveError(f"{path}: the rows are those of log offset {found}")
    return rows
