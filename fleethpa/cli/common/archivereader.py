"""Reads an archive's folder for read verbs, with nothing running: rows, decisions and log as they were archived."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from fleethpa.cli.common.decisionreading import Expander, Recorded, expand_all
from fleethpa.cli.common.failures import CommandError, usage
from fleethpa.cli.common.readers import BEYOND_MS, Enough, LogRecordAt
from streams.archive.layout import DECISIONS, LOG, open_archive
from streams.archive.segmentreader import PartitionReader
from streams.archive.segments import ArchivedRecord, ArchiveError, reading
from streams.archive.snapshots import read_snapshot, snapshots
from streams.history.pastsources import ArchiveSource

_POLL_S: Final = 0.5


def damaged(error: ArchiveError, root: Path) -> CommandError:
    """The error for an archive that cannot be read."""
    return usage(
        str(error), cause="The archive is damaged or incomplete.", next_step=f"fleethpa audit verify --from {root}"
    )


def clock_ms(root: Path) -> int:
    """The timestamp of the newest log record of an archive; the wall clock where there is none.

    Raises:
        CommandError: the folder is no archive, or is damaged (exit 2).
    """
    newest = 0
    try:
        for number in range(ArchiveReader(root).partitions):
            newest = max(newest, PartitionReader(root, LOG, number).last_timestamp_ms())
    except ArchiveError as error:
        raise damaged(error, root) from error
    return newest or time.time_ns() // 1_000_000


class ArchiveReader:
    """A `fleethpa.cli.common.readers.Reader` of an archive, also while it is being written.

    Raises:
        CommandError: the folder is no archive that this version reads (exit 2).
    """

    def __init__(self, root: Path) -> None:
        self.root, self.name, self.read = root, str(root), 0
        try:
            with reading(root):
                there, is_folder = root.exists(), root.is_dir()
            if not is_folder:
                raise ArchiveError("is a file, not a folder" if there else "no such folder")
            self.partitions = open_archive(root).partitions
        except ArchiveError as error:
            raise usage(f"--from {root}: {error}", cause="--from takes `kafka` or the folder of an archive.") from error

    async def rows(self) -> Mapping[bytes, bytes]:
        """The rows of the newest snapshots; `log` from there on holds what came since."""
        return await asyncio.to_thread(self._rows)

    def _rows(self) -> Mapping[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for number in range(self.partitions):
            found |= self._newest(number)
        return found

    def _newest(self, number: int) -> Mapping[bytes, bytes]:
        try:
            stored = snapshots(self.root, number)
            return read_snapshot(stored[-1][1]) if stored else {}
        except ArchiveError as error:
            raise damaged(error, self.root) from error

    async def count(self) -> int:
        return self.partitions

    async def tail(
        self, enough: Enough, partitions: Iterable[int] | None = None, upto_ms: int | None = None
    ) -> dict[int, list[Recorded]]:
        wanted = range(self.partitions) if partitions is None else list(partitions)
        for number in wanted:
            if number not in range(self.partitions):
                raise KeyError(number)
        return {number: await asyncio.to_thread(self._tail, number, enough, upto_ms) for number in wanted}

    def _tail(self, number: int, enough: Enough, upto_ms: int | None) -> list[Recorded]:
        upto = None if upto_ms is None else upto_ms + BEYOND_MS
        decisions = self._read_back(number, enough, upto)
        if upto_ms is not None and (not decisions or decisions[-1].time_ms <= upto_ms):
            # It is the end, or the decider lagged: the topic's times are later than the decisions' own.
            return self._read_back(number, enough, None)
        return decisions

    def _read_back(self, number: int, enough: Enough, upto_ms: int | None) -> list[Recorded]:
        parts: list[list[ArchivedRecord]] = []
        due = 1
        try:
            for part in PartitionReader(self.root, DECISIONS, number, checked=True).backwards(upto_ms):
                parts.append(part)
                # Looked at whenever there is twice as much: a long past is not expanded once for each segment.
                if sum(map(len, parts)) >= due:
                    decisions, lacking = _expanded(number, parts)
                    if not lacking and enough(number, decisions):
                        return decisions
                    due = 2 * sum(map(len, parts))
        except ArchiveError as error:
            raise damaged(error, self.root) from error
        return _expanded(number, parts)[0]

    async def follow(self) -> AsyncIterator[Recorded]:
        """Decisions that are archived from now on."""
        expanders: dict[int, Expander] = {}
        positions: dict[int, int] = {}
        for number in range(self.partitions):
            expanders[number], positions[number] = await asyncio.to_thread(self._caught_up, number)
        while True:
            for number, expander in expanders.items():
                for record in await asyncio.to_thread(self._since, number, positions[number]):
                    positions[number] = record.offset + 1
                    taken = expander.take(number, record.offset, record.value)
                    if taken is not None:
                        yield taken
            await asyncio.sleep(_POLL_S)

    def _caught_up(self, number: int) -> tuple[Expander, int]:
        expander, position = Expander(), 0
        for record in self._since(number, 0):
            expander.take(number, record.offset, record.value)
            position = record.offset + 1
        return expander, position

    def _since(self, number: int, first: int) -> list[ArchivedRecord]:
        return list(self._records(DECISIONS, number, first))

    async def checkpoint(
        self, partition: int, *, below: int | None = None, before_ms: int | None = None
    ) -> Mapping[bytes, bytes]:
        try:
            return await ArchiveSource(self.root).checkpoint(partition, below=below, before_ms=before_ms)
        except ArchiveError as error:
            raise damaged(error, self.root) from error

    async def log(self, partition: int, first: int) -> AsyncGenerator[LogRecordAt, None]:
        for record in self._records(LOG, partition, first):
            self.read += 1
            yield LogRecordAt(partition, record.offset, record.timestamp_ms, record.value)

    def _records(self, topic: str, number: int, first: int) -> Iterator[ArchivedRecord]:
        try:
            yield from PartitionReader(self.root, topic, number, checked=True).records(first)
        except ArchiveError as error:
            raise damaged(error, self.root) from error


def _expanded(number: int, newest_first: list[list[ArchivedRecord]]) -> tuple[list[Recorded], bool]:
    return expand_all(number, ((r.offset, r.value) for part in reversed(newest_first) for r in part))
