"""Verification of a whole archive, or of log and decisions as read from topics, on all cores.

Every decision is derived again from the log. Compared are its place (offset, number, hash of the one before), its id,
key and headers, the running hash of the log, and its bytes; a repeated copy must be a copy. The first fault ends the
verification of its partition.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from schemas.decisions import REMEMBERED, links_of
from streams.archive.filecheck import check_layout, check_segments, check_snapshots, next_head, signed_heads
from streams.archive.layout import DECISIONS, LOG, is_written
from streams.archive.segments import BAD_JSON, GENESIS, ArchivedRecord, ArchiveError
from streams.archive.signing import Heads, read_checkpoints, read_public
from streams.history.archivepast import ArchivePast
from streams.history.differences import differences
from streams.history.parallel import ReplayPool
from streams.history.past import Past
from streams.history.replay import FaultError, Refold, Refolded, log_offset_of, refold
from streams.state.ledger import DecisionRecord
from streams.state.partition import Partition
from streams.state.rowcodec import merge_rows


class Report(Struct, kw_only=True, rename="camel"):
    """What was checked of one partition. `start`: the log offset after which recomputation began (-1: the beginning).

    `fault`: the first thing found wrong, empty if nothing was. `engine`: in force at the end; `engineChanges`: (log
    offset, engine from there on). `duplicates`: copies of decisions. `signed`: checkpoints that it was held to.
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


class _Checker:
    """Compares the decisions of one partition, as they are read, with the re-derived ones."""

    def __init__(self, past: Past, again: Refold, rows: dict[bytes, bytes], report: Report) -> None:
        self.past, self.again, self.rows, self.report = past, again, rows, report
        partition = again.partition
        self._marks = past.marks(partition.number)
        self._expected: deque[DecisionRecord] = deque()
        self._seq, self._prev = partition.seq, partition.prev
        self._digests: dict[int, str] = {partition.seq: partition.prev} if partition.seq else {}
        self._offset: int | None = None
        self._from_seq = partition.seq

    async def run(self) -> None:
        """Fold to the end of the log; where decisions continue beyond it, see whether the log has grown meanwhile."""
        while True:
            before = self.report.log_records
            async with aclosing(self.again.steps()) as steps:
                async for step in steps:
                    await self._step(step)
            if not await self._continues(grown=self.report.log_records > before):
                return

    async def _continues(self, *, grown: bool) -> bool:
        """Check what is left at the end of the log: copies, or decisions of newer log records, to be read (True)."""
        decisions, last = self.again.decisions, self.report.last_log_offset
        for record in await decisions.upto(last, look=True):
            self._decision(record)
        if grown and await decisions.newer_than(last):
            return True
        while (beyond := await decisions.next()) is not None:
            self._decision(beyond)
        return False

    async def _step(self, step: Refolded) -> None:
        report, engine = self.report, self.again.partition.engine
        report.log_records += 1
        report.last_log_offset = step.record.offset
        if engine != report.engine:
            report.engine = engine
            report.engine_changes.append((step.record.offset, engine))
        self._expected.extend(step.made)
        for record in step.recorded:
            self._decision(record)
        while self._expected:
            late = await self.again.decisions.wait()
            if late is None:
                raise FaultError(
                    f"decisions of partition {report.partition} end at number {report.last_seq}, but "
                    f"{self._expected[0].id} follows from the log: the end has been cut off, or the decider is behind"
                )
            self._decision(late)
        if step.record.offset in self._marks:
            self._check_snapshot(step.record.offset)

    def _decision(self, record: ArchivedRecord) -> None:
        """Check one record of the decisions. Raises FaultError: something is wrong with it."""
        where = f"decision {self.report.partition}@{record.offset}"
        if self._offset is not None and record.offset != self._offset + 1:
            raise FaultError(f"{where}: is where offset {self._offset + 1} belongs")
        self._offset = record.offset
        try:
            links = links_of(record.value)
        except BAD_JSON as error:
            raise FaultError(f"{where}: is not a decision: {error}") from error
        where = f"{where} ({links.id})"
        digest = sha256(record.value).hexdigest()
        if links.seq <= self._seq:
            # A copy, or a record from before the part that is checked.
            if self._digests.get(links.seq, digest) != digest:
                raise FaultError(f"{where}: is another version of decision number {links.seq}")
            self.report.duplicates += links.seq > self._from_seq
            return
        if links.seq != self._seq + 1:
            raise FaultError(f"{where}: is number {links.seq} and follows number {self._seq}: records are missing")
        if links.prev != self._prev:
            raise FaultError(
                f"{where}: names {links.prev[:16]}… as the hash of the one before, which is {self._prev[:16]}…"
            )
        if not self._expected:
            beyond = log_offset_of(links.id) > self.report.last_log_offset
            end = f"names log offset {log_offset_of(links.id)}; the log ends before it"
            raise FaultError(f"{where}: {end if beyond else 'does not follow from the log'}")
        if wrong := _what_differs(record, self._expected.popleft()):
            raise FaultError(f"{where}: {wrong}")
        self._seq, self._prev = links.seq, digest
        self._digests[links.seq] = digest
        self._digests.pop(links.seq - REMEMBERED, None)
        self.report.decisions += 1
        self.report.last_seq = links.seq

    def _check_snapshot(self, offset: int) -> None:
        """Compare the rows at a segment's end with the stored ones, and continue from them as the archive did."""
        number = self.report.partition
        merge_rows(self.rows, self.again.partition.checkpoint())
        stored = self.past.snapshot_at(number, offset)
        where = f"the snapshot of log partition {number} at offset {offset}"
        if stored is not None:
            for key in sorted(self.rows.keys() | stored.keys()):
                if stored.get(key) != self.rows.get(key):
                    raise FaultError(f"{where}: row {key.decode(errors='replace')} is not what the log gives")
            self.report.snapshots += 1
        elif not self.past.is_live():
            raise FaultError(f"{where} is missing")
        self.again.partition = Partition.restore(number, self.rows)


def _what_differs(recorded: ArchivedRecord, made: DecisionRecord) -> str:
    """Say what sets a recorded decision apart from the one that the log gives; empty: nothing."""
    if recorded.value == made.value:
        if recorded.key != made.key.encode():
            return f"key is {recorded.key!r}, {made.key!r} was written"
        if list(recorded.headers) != made.headers:
            return f"headers are {list(recorded.headers)}, {made.headers} were written"
        return ""
    found = differences(recorded.value, made.value)
    if not found:
        return f"the bytes differ from those of {made.id}, though not their meaning"
    if found[0].path == "input.hash":
        return (
            f"names another hash of the log than its records give: a log record up to offset {log_offset_of(made.id)} "
            "and after the last decision that was right has been changed"
        )
    more = f" (and {len(found) - 1} more fields)" if len(found) > 1 else ""
    return f"recomputation differs in {found[0]}{more}"


async def _check(past: Past, number: int, since_ms: int | None, report: Report) -> None:
    """Verify one partition, from the newest snapshot before `since_ms` on."""
    start = past.snapshot(number, since_ms)
    rows = dict(start[1] if start else await past.checkpoint(number, before_ms=since_ms))
    async with refold(past, number, rows) as again:
        partition = again.partition
        report.start = report.last_log_offset = partition.applied_offset
        report.engine, report.last_seq = partition.engine, partition.seq
        if start and start[0] != report.start:
            raise FaultError(f"the snapshot named {start[0]} of log partition {number} is of {report.start}")
        await _Checker(past, again, rows, report).run()


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
    report = Report(partition=task.partition)
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
        report.segments, report.signed = segments, len(task.checkpoints)
        await _check(task.past, task.partition, task.since_ms, report)
    except ArchiveError as error:
        report.fault = str(error)
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
