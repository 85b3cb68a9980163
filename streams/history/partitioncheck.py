"""Verification of one partition: every decision is re-derived from the log and compared with the recorded one."""

from collections.abc import Callable
from contextlib import aclosing

from schemas.chain import links_of
from streams.archive.segments import BAD_JSON, ArchivedRecord, ArchiveError
from streams.history.decisioncheck import Checker, FaultError, Report, log_offset_of
from streams.history.lookahead import Lookahead
from streams.history.past import Past
from streams.state.logerrors import StateError
from streams.state.partition import Partition, stored_anew
from streams.state.rowcopies import merge_rows

ReportProgress = Callable[[int, int], None]
"""Told of (log records, decisions) checked since the last time."""


async def check_partition(
    past: Past, number: int, since_ms: int | None = None, progress: ReportProgress = lambda log, decisions: None
) -> Report:
    """Verify one partition, from the newest snapshot before `since_ms` on.

    Raises:
        ArchiveError: the source cannot be read; FaultError is caught and becomes part of the report.
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
        """Fold to the end of the log; where decisions go on beyond it, see whether the log has grown meanwhile."""
        while True:
            before = self.report.log_records
            await self._fold()
            if not await self._rest(grown=self.report.log_records > before):
                return

    async def _fold(self) -> None:
        report, told = self.report, (self.report.log_records, self.report.decisions)
        async with aclosing(self.past.following(self.checker.partition)) as records:
            async for record in records:
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
        """Compare the rows at a segment's end with the stored ones, and go on from them as the archive did."""
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
