"""Verification of an archive, or of log and decisions as read from topics, on all cores.

Every decision is derived again from the log. Compared are its place (offset, number, hash of the one before), its id,
key and headers, the running hash of the log, and its content; a repeated copy must be a copy. A decision that differs
is reported, and verification continues: later ones are compared but for number and hash of the one before. A fault ends
the verification of its partition.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from schemas.codec import WireError
from schemas.decisions import REMEMBERED, links_of
from schemas.keys import HpaId
from schemas.partitioning import partition_for
from streams.archive.layout import BAD_JSON, DECISIONS, GENESIS, LOG, ArchivedRecord, ArchiveError, is_written
from streams.archive.signing import (
    Heads,
    check_layout,
    check_segments,
    check_snapshots,
    next_head,
    read_checkpoints,
    read_public,
    signed_heads,
)
from streams.history.archivepast import ArchivePast
from streams.history.parallel import ReplayPool
from streams.history.past import Past
from streams.history.replay import (
    KEPT,
    NOTHING,
    Difference,
    Divergence,
    FaultError,
    Refold,
    Refolded,
    Report,
    Task,
    differences,
    log_offset_of,
    refold,
)
from streams.partition import Partition
from streams.state.ledger import CoreError
from streams.state.rowcodec import merge_rows


class _Engine(Struct):
    engine: int = 1


class _Side(NamedTuple):
    """A decision on one side of a comparison."""

    seq: int
    key: bytes
    value: bytes
    headers: Sequence[tuple[str, bytes]]


class _MissingError(FaultError):
    """Decisions that follow from the log are missing."""


class _Checker:
    """Compares the decisions of one partition, as they are read, with the re-derived ones."""

    def __init__(self, task: Task, again: Refold, rows: dict[bytes, bytes], report: Report) -> None:
        self.task, self.again, self.rows, self.report = task, again, rows, report
        partition = again.partition
        self._marks = task.past.marks(partition.number)
        self._seq = self._from_seq = partition.seq
        self._prev = partition.prev
        self._digests: dict[int, str] = {partition.seq: partition.prev} if partition.seq else {}
        self._offset: int | None = None
        self._shift = 0
        """How much higher recorded numbers are than re-derived ones: decisions too many less those that lack."""
        self._differing: set[int] = set()
        """Numbers of the newest decisions that differ: the next one names the hash of what was decided."""
        self._breaks: dict[int, str] = {}
        """Number of a decision whose hash the next one does not name -> what is wrong, unless that one differs."""
        self._subject = b""
        if task.hpa is not None:
            cluster, namespace, name = task.hpa
            self._subject = f"/{cluster}/{namespace}/horizontalpodautoscaler/{name}".encode()

    async def run(self) -> None:
        """Fold to the end of the log, and compare. Raises FaultError: what is wrong."""
        try:
            await self._run()
        except _MissingError as error:
            number = self.report.partition
            first = (await self.task.past.offsets(DECISIONS, number)).start
            if self._seq != self._from_seq or not first:
                raise
            raise FaultError(
                f"decisions of partition {number} are kept from offset {first} on, and number {self._seq + 1} is not "
                "among them: they have expired (retention.ms of the topic) or were deleted",
                next_step="give a later --since, or verify an archive that has them (--from DIR)",
            ) from error

    async def _run(self) -> None:
        """Where decisions continue beyond the end of the log, see whether the log has grown meanwhile."""
        while True:
            before = self.report.log_records
            async with aclosing(self.again.steps(until_ms=self.task.until_ms)) as steps:
                async for step in steps:
                    await self._step(step)
            if self.task.until_ms is not None or not await self._continues(grown=self.report.log_records > before):
                return

    async def _continues(self, *, grown: bool) -> bool:
        """Check what is left at the end of the log: copies, or decisions of newer log records, to be read (True)."""
        decisions, last = self.again.decisions, self.report.last_log_offset
        self._check_copies(await decisions.upto(last, look=True))
        if grown and await decisions.newer_than(last):
            return True
        while (beyond := await decisions.next()) is not None:
            self._check_copies([beyond])
        return False

    def _check_copies(self, records: Iterable[ArchivedRecord]) -> None:
        """Check records for which the log has no decision. Raises FaultError: one is not a copy."""
        for id_ in self._placed(records):
            offset = log_offset_of(id_)
            is_beyond = offset > self.report.last_log_offset
            end = f"names log offset {offset}; the log ends before it" if is_beyond else "does not follow from the log"
            raise FaultError(f"decision {self.report.partition}@{self._offset} ({id_}): {end}")

    async def _step(self, step: Refolded) -> None:
        report, engine = self.report, self.again.partition.engine
        report.log_records += 1
        report.last_log_offset = step.record.offset
        if engine != report.engine:
            report.engine = engine
            report.engine_changes.append((step.record.offset, engine))
        if not self._are_as_recorded(step):
            await self._compare(step)
        if step.record.offset in self._marks:
            self._check_snapshot(step.record.offset)

    def _are_as_recorded(self, step: Refolded) -> bool:
        """Count the decisions of a log record where they are recorded byte for byte, in their places and with nothing
        else, as nearly all are. False: they are to be compared one by one.

        The bytes hold number and hash of the one before, so that neither is read or hashed again here.
        """
        decisions = step.made
        if self._shift or self._differing or len(decisions) != len(step.recorded):
            return False
        offset = self._offset
        for record, decision in zip(step.recorded, decisions, strict=True):
            if offset is not None and record.offset != offset + 1:
                return False
            if record.value != decision.value or record.key != decision.key.encode():
                return False
            if list(record.headers) != decision.headers:
                return False
            offset = record.offset
        if not decisions:
            return True
        self._offset, self._seq, self._prev = offset, decisions[-1].seq, self.again.partition.prev
        self.report.last_seq = self._seq
        for decision, digest in zip(decisions, [*(each.body.prev for each in decisions[1:]), self._prev], strict=True):
            self._remember(decision.seq, digest)
            if self._is_asked(decision.headers):
                self._count(self.again.partition.engine, is_identical=True)
        return True

    async def _compare(self, step: Refolded) -> None:
        report, recorded = self.report, self._placed(step.recorded)
        for decision in step.made:
            while decision.id not in recorded and self.again.decisions.is_over:
                late = await self.again.decisions.wait()
                if late is None:
                    raise _MissingError(
                        f"decisions of partition {report.partition} end at number {report.last_seq}, but {decision.id} "
                        "follows from the log: the end has been cut off, or the decider is behind"
                    )
                recorded |= self._placed([late])
            side = _Side(decision.seq, decision.key.encode(), decision.value, decision.headers)
            self._judge(decision.id, recorded.pop(decision.id, None), side)
        for id_, theirs in recorded.items():
            self._judge(id_, theirs, None)
        for seq, text in self._breaks.items():
            if seq not in self._differing:
                raise FaultError(text)
        self._breaks.clear()
        self._differing &= {self._seq}

    def _placed(self, records: Iterable[ArchivedRecord]) -> dict[str, _Side]:
        """Recorded decisions by id, without copies. Raises FaultError: one is not where it belongs."""
        sides, number = dict[str, _Side](), self.report.partition
        for record in records:
            where = f"decision {number}@{record.offset}"
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
                continue
            if links.seq != self._seq + 1:
                text = f"{where}: is number {links.seq} and follows number {self._seq}: records are missing"
                raise _MissingError(text)
            if links.id in sides:
                raise FaultError(f"{where}: has the id of another decision")
            if links.prev != self._prev:
                named, known = f"{links.prev[:16]}…", f"{self._prev[:16]}…"
                self._breaks[self._seq] = f"{where}: names {named} as the hash of the one before, which is {known}"
            self._seq, self._prev = links.seq, digest
            self._remember(links.seq, digest)
            self.report.last_seq = links.seq
            sides[links.id] = _Side(links.seq, record.key, record.value, record.headers)
        return sides

    def _remember(self, seq: int, digest: str) -> None:
        self._digests[seq] = digest
        self._digests.pop(seq - REMEMBERED, None)

    def _is_asked(self, headers: Sequence[tuple[str, bytes]]) -> bool:
        since_ms = self.task.since_ms
        in_window = since_ms is None or self.again.partition.clock_ms >= since_ms
        return in_window and (not self._subject or ("ce_subject", self._subject) in headers)

    def _judge(self, id_: str, recorded: _Side | None, made: _Side | None) -> None:
        either = made or recorded
        is_same = recorded is not None and made is not None and recorded.value == made.value
        verdict = self._compared(id_, recorded, made)
        if verdict and recorded is not None:
            self._differing.add(recorded.seq)
        if either is None or not self._is_asked(either.headers):
            return
        engine = self.again.partition.engine
        if recorded is not None and made is not None and not is_same:
            engine = msgspec.json.decode(recorded.value, type=_Engine).engine
        self._count(engine, is_identical=not verdict)
        if verdict:
            self._diverged(id_, recorded, made, verdict)

    def _count(self, engine: int, *, is_identical: bool) -> None:
        report, name = self.report, str(engine)
        report.decisions += 1
        report.engines[name] = report.engines.get(name, 0) + 1
        report.identical += is_identical

    def _compared(self, id_: str, recorded: _Side | None, made: _Side | None) -> list[Difference]:
        """Return what differs. Raises FaultError: the log is not the one from which was decided."""
        if recorded is None or made is None:
            self._shift += 1 if made is None else -1
            return [Difference("decision", *(None if side is None else "a decision" for side in (recorded, made)))]
        if recorded.value == made.value:
            both = (("key", recorded.key, made.key), ("headers", list(recorded.headers), made.headers))
            return [Difference(name, str(theirs), str(ours)) for name, theirs, ours in both if theirs != ours]
        if differing := differences(recorded.value, made.value, chain=False):
            return differing
        differing = differences(recorded.value, made.value)
        if any(each.path == "input.hash" for each in differing):
            raise FaultError(
                f"decision {self.report.partition}@{self._offset} ({id_}): names another hash of the log than its "
                f"records give: a log record up to offset {log_offset_of(id_)} and after the last decision that was "
                "right has been changed"
            )
        if recorded.seq != made.seq + self._shift:
            return [Difference("seq", recorded.seq, made.seq + self._shift)]
        # The hash of the one before: once a decision differs, those of all later ones do.
        return [] if differing else [Difference("value", "other bytes", "the same meaning")]

    def _diverged(self, id_: str, recorded: _Side | None, made: _Side | None, differences: list[Difference]) -> None:
        report, first = self.report, differences[0]
        report.diverged += 1
        report.paths[first.path] = report.paths.get(first.path, 0) + 1
        if len(report.divergences) >= KEPT:
            return
        bodies = [{} if side is None else msgspec.json.decode(side.value) for side in (recorded, made)]
        about = bodies[1] or bodies[0]
        replicas = [body.get("finalDesiredReplicas", 0) if body else None for body in bodies]
        report.divergences.append(
            Divergence(
                id=id_,
                hpa="/".join(str(about.get(name, "?")) for name in ("cluster", "namespace", "name")),
                time_ms=self.again.partition.clock_ms,
                engine=int((bodies[0] or about).get("engine", 1)),
                path=first.path,
                recorded=None if first.recorded is NOTHING else first.recorded,
                recomputed=None if first.recomputed is NOTHING else first.recomputed,
                fields=len(differences),
                recorded_replicas=replicas[0],
                recomputed_replicas=replicas[1],
            )
        )

    def _check_snapshot(self, offset: int) -> None:
        """Compare the rows at a segment's end with the stored ones, and continue from them as the archive did."""
        number, past = self.report.partition, self.task.past
        merge_rows(self.rows, self.again.partition.checkpoint())
        stored = past.snapshot_at(number, offset)
        where = f"the snapshot of log partition {number} at offset {offset}"
        if stored is not None:
            for key in sorted(self.rows.keys() | stored.keys()):
                if stored.get(key) != self.rows.get(key):
                    raise FaultError(f"{where}: row {key.decode(errors='replace')} is not what the log gives")
            self.report.snapshots += 1
        elif not past.is_live():
            raise FaultError(f"{where} is missing")
        self.again.partition = Partition.restore(number, self.rows)


async def _check(task: Task, report: Report) -> None:
    """Verify one partition, from the newest snapshot before `since_ms` on."""
    past, number = task.past, task.partition
    rows = dict(await past.checkpoint(number, before_ms=task.since_ms))
    async with refold(past, number, rows) as again:
        partition = again.partition
        report.start = report.last_log_offset = partition.applied_offset
        report.engine, report.last_seq = partition.engine, partition.seq
        await _Checker(task, again, rows, report).run()


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
        await _check(task, report)
    except (ArchiveError, CoreError, WireError, *BAD_JSON) as error:
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
    checkpoints = read_checkpoints(root, read_public(public) if public else None, written=is_written(root))
    if public and not checkpoints:
        raise ArchiveError(f"{root}: holds no signed checkpoint, so nothing can be checked with {public}")
    return checkpoints


async def verify(
    past: Past,
    since_ms: int | None,
    checkpoints: list[Heads],
    pool: ReplayPool[Task, Report],
    *,
    until_ms: int | None = None,
    hpa: HpaId | None = None,
) -> AsyncIterator[Report]:
    """Verify all partitions, or that of an HPA; a report for each, as they come.

    Raises ArchiveError: the layout of the archive is wrong, or the source cannot be read at all.
    """
    count = check_layout(past.root) if isinstance(past, ArchivePast) else await past.partitions()
    numbers = range(count) if hpa is None else [partition_for(hpa.namespace_key, count)]
    async for report in pool.run([Task(past, number, since_ms, checkpoints, until_ms, hpa) for number in numbers]):
        yield report
