"""Verification of a whole archive, or of log and decisions as read from topics, on all cores.

Every decision is derived again from the log. Compared are its place (offset, number, hash of the one before), its id,
key and headers, the running hash of the log, and its bytes; a repeated copy must be a copy. The first fault ends the
verification of its partition.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from schemas import decisions as chain
from schemas.decisions import REMEMBERED, Links, links_of
from streams.archive.filecheck import check_layout, check_segments, check_snapshots, next_head, signed_heads
from streams.archive.layout import DECISIONS, LOG, is_written
from streams.archive.segments import BAD_JSON, GENESIS, ArchivedRecord, ArchiveError
from streams.archive.signing import Heads, read_checkpoints, read_public
from streams.history.archivepast import ArchivePast
from streams.history.differences import Lookahead, differences
from streams.history.parallel import ReplayPool, reported
from streams.history.past import Past
from streams.state.ledger import CoreError, DecisionRecord, StateError
from streams.state.partition import Partition, stored_anew
from streams.state.rowcodec import merge_rows


class FaultError(Exception):
    """The first thing found wrong; the text names the record and what differs."""


class Report(Struct, kw_only=True, rename="camel"):
    """What was checked of one partition. `start`: the log offset after which recomputation began (-1: the beginning).

    `fault`: the first thing found wrong, empty if nothing was. `missing`: decisions that the log asks for beyond the
    newest recorded one. `engine`: in force at the end; `engineChanges`: (log offset, engine from there on).
    """

    partition: int
    start: int = -1
    log_records: int = 0
    decisions: int = 0
    duplicates: int = 0
    snapshots: int = 0
    segments: int = 0
    signed: int = 0
    engine: int = 0
    engine_changes: list[tuple[int, int]] = []
    last_log_offset: int = -1
    last_seq: int = 0
    fault: str = ""


def log_offset_of(decision_id: str) -> int:
    """The log offset that a decision id names. Raises FaultError: not the id of a decision."""
    try:
        return chain.log_offset_of(decision_id)
    except ValueError as error:
        raise FaultError(str(error)) from error


class Checker:
    """Compares the decisions of one partition, as they are read, with the re-derived ones."""

    def __init__(self, partition: Partition, report: Report) -> None:
        self.partition, self.report = partition, report
        self.expected: deque[DecisionRecord] = deque()
        self._seq, self._prev = partition.seq, partition.prev
        self._digests: dict[int, str] = {partition.seq: partition.prev} if partition.seq else {}
        self._offset: int | None = None
        self._from_seq = partition.seq

    def log(self, record: ArchivedRecord) -> None:
        """Fold a log record; what it causes is expected to stand.

        Raises FaultError: it is not the next one, or no log record.
        """
        where = f"log {self.report.partition}@{record.offset}"
        try:
            self.expected.extend(self.partition.apply(record.offset, record.timestamp_ms, record.value))
        # Whatever the fold of a record that was tampered with stumbles over, the record is what is wrong.
        except Exception as error:
            text = str(error) if isinstance(error, CoreError) else f"cannot be folded: {type(error).__name__}: {error}"
            raise FaultError(f"{where}: {text}") from error
        self.report.log_records += 1
        self.report.last_log_offset = record.offset
        engine = self.partition.engine
        if engine != self.report.engine:
            self.report.engine = engine
            self.report.engine_changes.append((record.offset, engine))

    def decision(self, record: ArchivedRecord) -> bool:
        """Check one record of the decisions; False for a copy, or one before the part that is checked.

        Raises FaultError: something is wrong with it.
        """
        where = f"decision {self.report.partition}@{record.offset}"
        if self._offset is not None and record.offset != self._offset + 1:
            raise FaultError(f"{where}: stands where offset {self._offset + 1} belongs")
        self._offset = record.offset
        try:
            links = links_of(record.value)
        except BAD_JSON as error:
            raise FaultError(f"{where}: is not a decision: {error}") from error
        digest = sha256(record.value).hexdigest()
        if links.seq <= self._seq:
            self._copy(where, links, digest)
            return False
        where = f"{where} ({links.id})"
        if links.seq != self._seq + 1:
            raise FaultError(f"{where}: is number {links.seq} and follows number {self._seq}: records are missing")
        if links.prev != self._prev:
            raise FaultError(
                f"{where}: names {links.prev[:16]}… as the hash of the one before, which is {self._prev[:16]}…"
            )
        self._compare(where, record, links)
        self._seq, self._prev = links.seq, digest
        self._digests[links.seq] = digest
        self._digests.pop(links.seq - REMEMBERED, None)
        self.report.decisions += 1
        self.report.last_seq = links.seq
        return True

    def _copy(self, where: str, links: Links, digest: str) -> None:
        if self._digests.get(links.seq, digest) != digest:
            raise FaultError(f"{where} ({links.id}): is another version of decision number {links.seq}")
        if links.seq > self._from_seq:
            self.report.duplicates += 1

    def _compare(self, where: str, record: ArchivedRecord, links: Links) -> None:
        if log_offset_of(links.id) > self.report.last_log_offset and not self.expected:
            raise FaultError(f"{where}: names log offset {log_offset_of(links.id)}; the log ends before it")
        if not self.expected:
            raise FaultError(f"{where}: does not follow from the log")
        made = self.expected.popleft()
        if record.value != made.value:
            raise FaultError(f"{where}: {_what_differs(record.value, made)}")
        if record.key != made.key.encode():
            raise FaultError(f"{where}: key is {record.key!r}, {made.key!r} was written")
        if list(record.headers) != made.headers:
            raise FaultError(f"{where}: headers are {list(record.headers)}, {made.headers} were written")


def _what_differs(standing: bytes, made: DecisionRecord) -> str:
    found = differences(standing, made.value)
    if not found:
        return f"the bytes differ from those of {made.id}, though not their meaning"
    if found[0].path == "input.hash":
        return (
            f"names another hash of the log than its records give: a log record up to offset {log_offset_of(made.id)} "
            "and after the last decision that was right has been changed"
        )
    more = f" (and {len(found) - 1} more fields)" if len(found) > 1 else ""
    return f"recomputation differs in {found[0]}{more}"


ReportProgress = Callable[[int, int], None]
"""Called with the (log records, decisions) checked since the last call."""


async def check_partition(
    past: Past, number: int, since_ms: int | None = None, progress: ReportProgress = lambda log, decisions: None
) -> Report:
    """Verify one partition, from the newest snapshot before `since_ms` on.

    Raises ArchiveError: the source cannot be read; FaultError is caught and becomes part of the report.
    """
    report = Report(partition=number, engine_changes=[])
    try:
        await _check(past, number, since_ms, report, progress)
    except (FaultError, ArchiveError) as error:
        report.fault = str(error)
    return report


async def _check(past: Past, number: int, since_ms: int | None, report: Report, progress: ReportProgress) -> None:
    start = past.snapshot(number, since_ms)
    rows = dict(start[1] if start else await past.checkpoint(number, before_ms=since_ms))
    try:
        partition = Partition.restore(number, rows)
    # As with log records: whatever a tampered row makes it stumble over.
    except Exception as error:
        raise FaultError(f"snapshot of log partition {number}: {type(error).__name__}: {error}") from error
    report.start = partition.applied_offset
    report.engine = partition.engine
    report.last_log_offset, report.last_seq = partition.applied_offset, partition.seq
    if start and start[0] != partition.applied_offset:
        raise FaultError(f"the snapshot named {start[0]} of log partition {number} is of {partition.applied_offset}")
    decisions = Lookahead(past, number, await past.first_decision(number, partition.seq))
    try:
        await _Run(past, Checker(partition, report), rows, decisions, progress).run()
    finally:
        await decisions.close()


class _Run:
    def __init__(
        self, past: Past, checker: Checker, rows: dict[bytes, bytes], decisions: Lookahead, progress: ReportProgress
    ) -> None:
        self.past, self.checker, self.rows, self.decisions = past, checker, rows, decisions
        self.progress = progress
        self.report = checker.report
        self.marks = past.marks(self.report.partition)

    async def run(self) -> None:
        """Fold to the end of the log; where decisions continue beyond it, see whether the log has grown meanwhile."""
        while True:
            before = self.report.log_records
            await self._fold()
            if not await self._rest(grown=self.report.log_records > before):
                return

    async def _fold(self) -> None:
        report, reported = self.report, (self.report.log_records, self.report.decisions)
        async with aclosing(self.past.following(self.checker.partition)) as records:
            async for record in records:
                self.checker.log(record)
                while self.checker.expected:
                    await self._next_decision()
                if record.offset in self.marks:
                    self._check_snapshot(record.offset)
                if report.log_records - reported[0] >= 500:
                    self.progress(report.log_records - reported[0], report.decisions - reported[1])
                    reported = (report.log_records, report.decisions)
        self.progress(report.log_records - reported[0], report.decisions - reported[1])

    async def _next_decision(self) -> None:
        record = await self.decisions.next() or await self.decisions.wait()
        if record is None:
            first, at = self.checker.expected[0].id, self.report.last_seq
            raise FaultError(
                f"decisions of partition {self.report.partition} end at number {at}, but {first} follows from the log: "
                "the end has been cut off, or the decider is behind"
            )
        self.checker.decision(record)

    async def _rest(self, *, grown: bool) -> bool:
        """Check the decisions beyond the log that was read: copies, or decisions of newer log records (True)."""
        while (record := await self.decisions.next()) is not None:
            if grown and self._is_newer(record):
                self.decisions.back(record)
                return True
            self.checker.decision(record)
        return False

    def _is_newer(self, record: ArchivedRecord) -> bool:
        try:
            return log_offset_of(links_of(record.value).id) > self.report.last_log_offset
        except BAD_JSON:
            return False

    def _check_snapshot(self, offset: int) -> None:
        """Compare the rows at a segment's end with the stored ones, and continue from them as the archive did."""
        checker, number = self.checker, self.report.partition
        merge_rows(self.rows, checker.partition.checkpoint())
        stored = self.past.snapshot_at(number, offset)
        if stored is None:
            if not self.past.is_live():
                raise FaultError(f"the snapshot of log partition {number} at offset {offset} is missing")
        else:
            self._compare_rows(stored, offset)
            self.report.snapshots += 1
        checker.partition = Partition.restore(number, self.rows)

    def _anew(self, rows: dict[bytes, bytes], offset: int) -> dict[bytes, bytes]:
        """Rows in the layout of this version: an older one may have written the snapshot."""
        try:
            return stored_anew(self.report.partition, rows)
        except StateError as error:
            raise FaultError(
                f"snapshot of log partition {self.report.partition} at offset {offset}: {error}"
            ) from error

    def _compare_rows(self, stored: dict[bytes, bytes], offset: int) -> None:
        if stored == self.rows:
            return
        ours, theirs = (self._anew(rows, offset) for rows in (self.rows, stored))
        for key in sorted(ours.keys() | theirs.keys()):
            if theirs.get(key) != ours.get(key):
                raise FaultError(
                    f"snapshot of log partition {self.report.partition} at offset {offset}: row "
                    f"{key.decode(errors='replace')} is not what the log gives"
                )


@dataclass(frozen=True)
class Task:
    """One partition to verify. `checkpoints`: heads to hold it to."""

    past: Past
    partition: int
    since_ms: int | None = None
    checkpoints: list[Heads] = field(default_factory=list)


def verify_partition(task: Task) -> Report:
    """Verify one partition: its files first (an archive's), then every decision by recomputation."""
    return asyncio.run(_verify(task))


async def _verify(task: Task) -> Report:
    segments = 0
    try:
        for topic in (LOG, DECISIONS):
            wanted = signed_heads(task.checkpoints, topic, task.partition)
            if isinstance(task.past, ArchivePast):
                segments += check_segments(task.past.root, topic, task.partition, wanted, task.since_ms)
            elif wanted:
                await _check_topic(task.past, topic, task.partition, wanted)
        if isinstance(task.past, ArchivePast):
            check_snapshots(task.past.root, task.partition)
    except ArchiveError as error:
        return Report(partition=task.partition, fault=str(error))
    report = await check_partition(task.past, task.partition, task.since_ms, reported)
    report.segments, report.signed = segments, len(task.checkpoints)
    return report


async def _check_topic(past: Past, topic: str, partition: int, wanted: dict[int, str]) -> None:
    head, last = GENESIS, -1
    async with aclosing(past.records(topic, partition)) as records:
        async for record in records:
            head = next_head(head, record, wanted, f"{topic}-{partition}")
            last = record.offset
            if last >= max(wanted):
                return
    raise ArchiveError(f"{topic}-{partition}: ends at offset {last}, a signed checkpoint names offset {max(wanted)}")


def checkpoints_of(root: Path, public: Path | None) -> list[Heads]:
    """The signed checkpoints of an archive, checked against a public key where one is given.

    Raises ArchiveError: a checkpoint is wrong, or there is none although a key is given.
    """
    found = read_checkpoints(root, read_public(public) if public else None, written=is_written(root))
    if public and not found:
        raise ArchiveError(f"{root}: holds no signed checkpoint, so nothing can be checked with {public}")
    return found


async def verify(
    past: Past, since_ms: int | None, checkpoints: list[Heads], pool: ReplayPool[Task, Report]
) -> AsyncIterator[Report]:
    """Verify all partitions; a report for each, as they come.

    Raises ArchiveError: the layout of the archive is wrong, or the source cannot be read at all.
    """
    if isinstance(past, ArchivePast):
        count = check_layout(past.root)
    else:
        count = await past.partitions()
    async for report in pool.run([Task(past, number, since_ms, checkpoints) for number in range(count)]):
        yield report
