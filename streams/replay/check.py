"""Verification of one partition: every decision is made again from the log and compared with what stands.

What is checked of each decision: its place (offset, number, hash of the one before), its id and key and headers, the
running hash of the log it names, and its bytes. A repeated copy must be a copy. The first fault ends the partition.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from hashlib import sha256

import msgspec
from msgspec import Struct

from streams.core.errors import CoreError
from streams.core.ledger import DecisionRecord
from streams.core.partition import Partition
from streams.replay.archive import DECISIONS, LOG
from streams.replay.differences import differences
from streams.replay.segments import BAD_JSON, ArchivedRecord, ArchiveError
from streams.replay.sources import Source

REMEMBERED = 20_000
"""How many decisions back a second copy is compared; a paused worker repeats at most what one take produced."""
LAG_S = 10.0
"""How long the newest decisions of a running fleet may be waited for."""
_POLL_S = 0.25
Progress = Callable[[int, int], None]
"""Told of (log records, decisions) checked since the last time."""


class FaultError(Exception):
    """The first thing found wrong; the text names the record and what differs."""


class Report(Struct, kw_only=True, rename="camel"):
    """What was checked of one partition. `start`: the log offset after which recomputation began (-1: the beginning).

    `fault`: the first thing found wrong, empty if nothing was. `missing`: decisions that the log asks for beyond the
    newest that stands. `engine`: in force at the end; `engineChanges`: (log offset, engine from there on).
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


class Links(Struct):
    """What places a decision in its partition."""

    id: str
    seq: int
    prev: str


_LINKS = msgspec.json.Decoder(Links)


def log_offset_of(decision_id: str) -> int:
    """The log offset that a decision id names.

    Raises:
        FaultError: not the id of a decision.
    """
    parts = decision_id.split("-", 2)
    if len(parts) < 3 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        raise FaultError(f"{decision_id!r} is no decision id")
    return int(parts[1])


class Checker:
    """Compares the decisions of one partition, as they are read, with those made again."""

    def __init__(self, partition: Partition, report: Report) -> None:
        self.partition, self.report = partition, report
        self.expected: deque[DecisionRecord] = deque()
        self._seq, self._prev = partition.seq, partition.prev
        self._digests: dict[int, str] = {partition.seq: partition.prev} if partition.seq else {}
        self._offset: int | None = None
        self._from_seq = partition.seq

    def log(self, record: ArchivedRecord) -> None:
        """Fold a log record; what it causes is expected to stand.

        Raises:
            FaultError: it is not the next one, or no log record.
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
        """Check one record of the decisions; False for one that stands before the part that is checked, or a copy.

        Raises:
            FaultError: something is wrong with it.
        """
        where = f"decision {self.report.partition}@{record.offset}"
        if self._offset is not None and record.offset != self._offset + 1:
            raise FaultError(f"{where}: stands where offset {self._offset + 1} belongs")
        self._offset = record.offset
        try:
            links = _LINKS.decode(record.value)
        except BAD_JSON as error:
            raise FaultError(f"{where}: is no decision: {error}") from error
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


class Lookahead:
    """The decisions of one partition, one at a time; reads on where a running fleet has written more."""

    def __init__(self, source: Source, partition: int, first: int) -> None:
        self._source, self._partition, self._next = source, partition, first
        self._iterator: AsyncGenerator[ArchivedRecord, None] | None = None
        self._given_back: ArchivedRecord | None = None

    def back(self, record: ArchivedRecord) -> None:
        """Give a record back: it is the next one again."""
        self._given_back = record

    async def next(self) -> ArchivedRecord | None:
        """The next record; None: none stands (yet)."""
        if self._given_back is not None:
            record, self._given_back = self._given_back, None
            return record
        if self._iterator is None:
            self._iterator = self._source.records(DECISIONS, self._partition, self._next)
        found = await anext(self._iterator, None)
        if found is None:
            self._iterator = None
            return None
        self._next = found.offset + 1
        return found

    async def close(self) -> None:
        """Let go of the source."""
        if self._iterator is not None:
            await self._iterator.aclose()

    async def wait(self) -> ArchivedRecord | None:
        """The next record, waiting for it as long as a running fleet may lag."""
        deadline = asyncio.get_running_loop().time() + (LAG_S if self._source.is_live() else 0)
        while (record := await self.next()) is None:
            if asyncio.get_running_loop().time() >= deadline:
                return None
            await asyncio.sleep(_POLL_S)
        return record


async def check_partition(
    source: Source, number: int, since_ms: int | None = None, progress: Progress = lambda log, decisions: None
) -> Report:
    """Verify one partition, from the newest snapshot before `since_ms` on.

    Raises:
        ArchiveError: the source cannot be read; FaultError is caught and told in the report.
    """
    report = Report(partition=number, engine_changes=[])
    try:
        await _check(source, number, since_ms, report, progress)
    except (FaultError, ArchiveError) as error:
        report.fault = str(error)
    return report


async def _check(source: Source, number: int, since_ms: int | None, report: Report, progress: Progress) -> None:
    start = source.snapshot(number, since_ms)
    rows = dict(start[1] if start else await source.checkpoint(number, before_ms=since_ms))
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
    decisions = Lookahead(source, number, await source.first_decision(number, partition.seq))
    try:
        await _Run(source, Checker(partition, report), rows, decisions, progress).run()
    finally:
        await decisions.close()


class _Run:
    def __init__(
        self, source: Source, checker: Checker, rows: dict[bytes, bytes], decisions: Lookahead, progress: Progress
    ) -> None:
        self.source, self.checker, self.rows, self.decisions = source, checker, rows, decisions
        self.progress = progress
        self.report = checker.report
        self.marks = source.marks(self.report.partition)

    async def run(self) -> None:
        """Fold to the end of the log; where decisions go on beyond it, see whether the log has grown meanwhile."""
        while True:
            before = self.report.log_records
            await self._fold()
            if not await self._rest(grown=self.report.log_records > before):
                return

    async def _fold(self) -> None:
        report, told = self.report, (self.report.log_records, self.report.decisions)
        first = report.last_log_offset + 1
        async with aclosing(self.source.records(LOG, report.partition, first)) as records:
            async for record in records:
                if record.offset != report.last_log_offset + 1 and report.last_log_offset >= 0:
                    raise FaultError(f"log {report.partition}@{record.offset}: follows {report.last_log_offset}")
                if report.start == -1 and report.log_records == 0 and record.offset:
                    raise FaultError(
                        f"log partition {report.partition} begins at offset {record.offset} and no snapshot is older: "
                        "its decisions cannot be made again; keep an archive: fleethpa archive --to DIR"
                    )
                self.checker.log(record)
                while self.checker.expected:
                    await self._next_decision()
                if record.offset in self.marks:
                    self._check_snapshot(record.offset)
                if report.log_records - told[0] >= 500:
                    self.progress(report.log_records - told[0], report.decisions - told[1])
                    told = (report.log_records, report.decisions)
        self.progress(report.log_records - told[0], report.decisions - told[1])

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
        """Check what stands beyond the log that was read: copies, or decisions of newer log records (True)."""
        while (record := await self.decisions.next()) is not None:
            if grown and self._is_newer(record):
                self.decisions.back(record)
                return True
            self.checker.decision(record)
        return False

    def _is_newer(self, record: ArchivedRecord) -> bool:
        try:
            return log_offset_of(_LINKS.decode(record.value).id) > self.report.last_log_offset
        except BAD_JSON:
            return False

    def _check_snapshot(self, offset: int) -> None:
        """Compare the rows at a segment's end with the stored ones, and go on from them as the archive did."""
        checker, number = self.checker, self.report.partition
        self.rows.update(checker.partition.checkpoint())
        stored = self.source.stored(number, offset)
        if stored is None:
            if not self.source.is_live():
                raise FaultError(f"the snapshot of log partition {number} at offset {offset} is missing")
        else:
            self._compare_rows(stored, offset)
            self.report.snapshots += 1
        checker.partition = Partition.restore(number, self.rows)

    def _compare_rows(self, stored: dict[bytes, bytes], offset: int) -> None:
        for key in sorted(stored.keys() | self.rows.keys()):
            if stored.get(key) != self.rows.get(key):
                raise FaultError(
                    f"snapshot of log partition {self.report.partition} at offset {offset}: row "
                    f"{key.decode(errors='replace')} is not what the log gives"
                )
