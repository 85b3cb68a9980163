"""Recorded decisions derived again from the log: one of them, or all of a partition compared one by one.

`Refold` walks a log partition beside its recorded decisions. A replay continues after a difference. It does not compare
number and hash of the record before: once a decision differs, those of all later ones do.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from schemas import decisions as chain
from schemas.codec import WireError
from schemas.decisions import links_of
from schemas.keys import HpaId
from streams.archive.layout import DECISIONS
from streams.archive.segments import BAD_JSON, ArchivedRecord, ArchiveError
from streams.history.differences import NOTHING, Difference, differences
from streams.history.parallel import reported
from streams.history.past import Past
from streams.history.recorded import Expander, Recorded, head_of
from streams.state.ledger import CoreError, DecisionRecord
from streams.state.partition import Partition

LAG_S: Final = 10.0
"""How long the newest decisions of a running fleet may be waited for."""
_POLL_S: Final = 0.25
_REPORTED_EVERY: Final = 500
"""Log records after which progress is reported."""


class FaultError(ArchiveError):
    """The first thing found wrong; the text names the record and what differs."""


def log_offset_of(decision_id: str) -> int:
    """The log offset that a decision id names. Raises FaultError: not the id of a decision."""
    try:
        return chain.log_offset_of(decision_id)
    except ValueError as error:
        raise FaultError(str(error)) from error


def _named(record: ArchivedRecord) -> tuple[str, int]:
    """The id of a recorded decision and its log offset; ("", -1) where the record cannot be read."""
    try:
        id_ = links_of(record.value).id
        return id_, chain.log_offset_of(id_)
    except (*BAD_JSON, ValueError):
        return "", -1


class RecordedDecisions:
    """The recorded decisions of one partition, in their order; reads on where a running fleet has written more."""

    def __init__(self, past: Past, number: int, first: int) -> None:
        self._past, self._number, self._first = past, number, first
        self._iterator: AsyncGenerator[ArchivedRecord, None] | None = None
        self._ahead: ArchivedRecord | None = None
        self._ahead_offset = -1
        self.is_over = False
        """Whether no more were there when they were last looked for."""

    async def next(self) -> ArchivedRecord | None:
        """The next record; None: there is none (yet)."""
        found = await self._peek()
        self._ahead = None
        return found

    async def newer_than(self, log_offset: int) -> bool:
        """Whether the next record is a decision of a later log record."""
        return await self._peek() is not None and self._ahead_offset > log_offset

    async def upto(self, log_offset: int, *, look: bool) -> list[ArchivedRecord]:
        """The next records, as far as they are of log records up to an offset, copies, or cannot be read.

        `look`: also where none were left the last time. That opens a consumer on Kafka.
        """
        found: list[ArchivedRecord] = []
        while look or not self.is_over:
            record = await self._peek()
            if record is None or self._ahead_offset > log_offset:
                break
            found.append(record)
            self._ahead = None
        return found

    async def wait(self) -> ArchivedRecord | None:
        """The next record, waiting for it as long as a running fleet may lag."""
        deadline = asyncio.get_running_loop().time() + (LAG_S if self._past.is_live() else 0)
        while (record := await self.next()) is None:
            if asyncio.get_running_loop().time() >= deadline:
                return None
            await asyncio.sleep(_POLL_S)
        return record

    async def _peek(self) -> ArchivedRecord | None:
        if self._ahead is None:
            if self._iterator is None:
                self._iterator = self._past.records(DECISIONS, self._number, self._first)
            self._ahead = await anext(self._iterator, None)
            self.is_over = self._ahead is None
            if self._ahead is None:
                self._iterator = None
            else:
                self._first = self._ahead.offset + 1
                self._ahead_offset = _named(self._ahead)[1]
        return self._ahead

    async def close(self) -> None:
        """Let go of the source."""
        if self._iterator is not None:
            await self._iterator.aclose()


class Refolded(NamedTuple):
    """A log record that was folded again, the decisions that it gives, and the recorded ones up to it.

    Recorded ones are those that no earlier record took: its own, copies of earlier ones, and what cannot be read.
    """

    record: ArchivedRecord
    made: list[DecisionRecord]
    recorded: list[ArchivedRecord]


class Refold:
    """A log partition that is folded again beside its recorded decisions."""

    def __init__(self, past: Past, partition: Partition, decisions: RecordedDecisions) -> None:
        self.past, self.partition, self.decisions = past, partition, decisions

    async def steps(self, *, upto: int | None = None, until_ms: int | None = None) -> AsyncGenerator[Refolded, None]:
        """Fold the records that follow, and report progress. Arguments as for `Past.following`.

        Raises FaultError: a record cannot be folded. Raises LogGoneError: records are missing.
        """
        records_read = decisions_made = 0
        async with aclosing(self.past.following(self.partition, upto=upto, until_ms=until_ms)) as records:
            async for record in records:
                made = self._applied(record)
                yield Refolded(record, made, await self.decisions.upto(record.offset, look=bool(made)))
                records_read, decisions_made = records_read + 1, decisions_made + len(made)
                if records_read >= _REPORTED_EVERY:
                    reported(records_read, decisions_made)
                    records_read = decisions_made = 0
        reported(records_read, decisions_made)

    def _applied(self, record: ArchivedRecord) -> list[DecisionRecord]:
        try:
            return self.partition.apply(record.offset, record.timestamp_ms, record.value)
        # Whatever the fold of a record that was tampered with stumbles over, the record is what is wrong.
        except Exception as error:
            text = str(error) if isinstance(error, CoreError) else f"cannot be folded: {type(error).__name__}: {error}"
            raise FaultError(f"log {self.partition.number}@{record.offset}: {text}") from error


@asynccontextmanager
async def refold(past: Past, number: int, rows: Mapping[bytes, bytes]) -> AsyncGenerator[Refold, None]:
    """Begin to fold a log partition again from stored rows. Raises FaultError: the rows are damaged."""
    try:
        partition = Partition.restore(number, rows)
    # As with log records: whatever a tampered row makes it stumble over.
    except Exception as error:
        raise FaultError(f"snapshot of log partition {number}: {type(error).__name__}: {error}") from error
    decisions = RecordedDecisions(past, number, await past.first_decision(number, partition.seq))
    try:
        yield Refold(past, partition, decisions)
    finally:
        await decisions.close()


# --- one decision -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Derived:
    """A decision as recorded and as re-derived. `start`: log offset of the snapshot used for it (-1: none).

    `standing`: None where the decisions do not hold it; `made`: None where the log gives no such decision.
    """

    id: str
    start: int
    folded: int
    standing: ArchivedRecord | None
    made: DecisionRecord | None


async def derive(
    past: Past, partition: int, decision_id: str, named: Callable[[Iterable[str]], str | None] = lambda _: None
) -> Derived:
    """Re-derive one decision.

    `named`: picks the ID that a short form means from those of its log record; None: `decision_id` is whole.

    Raises ArchiveError: the source is damaged, or no longer reaches back far enough.
    """
    offset = log_offset_of(decision_id)
    folded, made, recorded = 0, list[DecisionRecord](), list[ArchivedRecord]()
    async with refold(past, partition, await past.checkpoint(partition, below=offset)) as again:
        start = again.partition.applied_offset
        async with aclosing(again.steps(upto=offset)) as steps:
            async for step in steps:
                folded += 1
                if step.record.offset == offset:
                    made, recorded = step.made, step.recorded
        recorded += await again.decisions.upto(offset, look=True)
    id_ = named(decision.id for decision in made) or decision_id
    return Derived(
        id_,
        start,
        folded,
        next((record for record in recorded if _named(record)[0] == id_), None),
        next((decision for decision in made if decision.id == id_), None),
    )


# --- all of a partition -----------------------------------------------------------------------------------------------

KEPT: Final = 20
"""How many divergences of a partition are reported in full."""


class Divergence(Struct, kw_only=True, rename="camel"):
    """A decision that comes out different: where first, and what is recorded and recomputed there.

    `recordedReplicas`, `recomputedReplicas`: the final count on both sides, None where there is no decision.
    """

    id: str
    hpa: str
    time_ms: int
    engine: int
    path: str
    recorded: Any = None
    recomputed: Any = None
    fields: int = 1
    recorded_replicas: int | None = None
    recomputed_replicas: int | None = None


class ReplayReport(Struct, kw_only=True, rename="camel"):
    """What came out of one partition. `unrecorded`: decisions beyond the newest recorded one.

    `engines`: decisions by the engine that recorded them. `paths`: divergences by what differs first.
    """

    partition: int
    start: int = -1
    log_records: int = 0
    evaluations: int = 0
    identical: int = 0
    diverged: int = 0
    unrecorded: int = 0
    engines: dict[str, int] = {}
    paths: dict[str, int] = {}
    divergences: list[Divergence] = []
    fault: str = ""


@dataclass(frozen=True)
class ReplayTask:
    """One partition to replay; only decisions of `hpa` (None: all) whose log time is in the window are compared."""

    past: Past
    partition: int
    since_ms: int | None = None
    until_ms: int | None = None
    hpa: HpaId | None = None


def replay_partition(task: ReplayTask) -> ReplayReport:
    """Replay one partition."""
    return asyncio.run(_replayed(task))


async def _replayed(task: ReplayTask) -> ReplayReport:
    report = ReplayReport(partition=task.partition)
    try:
        rows = await task.past.checkpoint(task.partition, before_ms=task.since_ms)
        async with refold(task.past, task.partition, rows) as again:
            report.start = again.partition.applied_offset
            replay = _Replay(task, report, again)
            async with aclosing(again.steps(until_ms=task.until_ms)) as steps:
                async for step in steps:
                    replay.compare(step)
    except (ArchiveError, CoreError, WireError, *BAD_JSON) as error:
        report.fault = str(error)
    return report


class _Engine(Struct):
    engine: int = 1


class _Side(NamedTuple):
    """A decision on one side of a comparison. `record`: None where the full one that it repeats is not known."""

    value: bytes
    headers: Sequence[tuple[str, bytes]]
    record: Recorded | None

    @property
    def whole(self) -> bytes:
        """The decision as a full record, as far as that is known."""
        if self.record is None or not self.record.short:
            return self.value
        return msgspec.json.encode(self.record.decision)


class _Replay:
    """Compares the decisions of one partition with the recorded ones and counts."""

    def __init__(self, task: ReplayTask, report: ReplayReport, again: Refold) -> None:
        self.task, self.report, self.again = task, report, again
        self._recorded, self._made = Expander(), Expander()
        self._seq = again.partition.seq
        self._subject = b""
        if task.hpa is not None:
            cluster, namespace, name = task.hpa
            self._subject = f"/{cluster}/{namespace}/horizontalpodautoscaler/{name}".encode()

    def compare(self, step: Refolded) -> None:
        """Take the next log record."""
        self.report.log_records += 1
        recorded = self._new(step.recorded)
        for made in step.made:
            record = self._made.take(self.task.partition, made.seq, made.value)
            self._judge(made.id, recorded.pop(made.id, None), _Side(made.value, made.headers, record))
        for id_, theirs in recorded.items():
            self._judge(id_, theirs, None)

    def _new(self, records: Iterable[ArchivedRecord]) -> dict[str, _Side]:
        """Recorded decisions by id, without copies and without those from before the part that is compared."""
        found = {}
        for record in records:
            head = head_of(self.task.partition, record.offset, record.value)
            taken = self._recorded.take(self.task.partition, record.offset, record.value, head)
            if head.seq > self._seq:
                self._seq = head.seq
                found[head.id] = _Side(record.value, record.headers, taken)
        return found

    def _is_asked(self, side: _Side) -> bool:
        since_ms = self.task.since_ms
        in_window = since_ms is None or self.again.partition.clock_ms >= since_ms
        return in_window and (not self._subject or ("ce_subject", self._subject) in side.headers)

    def _judge(self, id_: str, recorded: _Side | None, made: _Side | None) -> None:
        report, either = self.report, made or recorded
        if either is None or not self._is_asked(either):
            return
        if recorded is None and self.again.decisions.is_over:
            report.unrecorded += 1
            return
        report.evaluations += made is not None
        if recorded is None or made is None:
            sides = (None if side is None else "a decision" for side in (recorded, made))
            self._diverged(id_, recorded, made, [Difference("decision", *sides)])
            return
        found: list[Difference] = []
        engine = str(self.again.partition.engine)
        if recorded.value != made.value:
            engine = str(msgspec.json.decode(recorded.whole, type=_Engine).engine)
            if differences(recorded.value, made.value, chain=False):
                found = differences(recorded.whole, made.whole, chain=False)
        report.engines[engine] = report.engines.get(engine, 0) + 1
        if found:
            self._diverged(id_, recorded, made, found)
        else:
            report.identical += 1

    def _diverged(self, id_: str, recorded: _Side | None, made: _Side | None, found: list[Difference]) -> None:
        report, first = self.report, found[0]
        report.diverged += 1
        report.paths[first.path] = report.paths.get(first.path, 0) + 1
        if len(report.divergences) >= KEPT:
            return
        bodies = [{} if side is None else msgspec.json.decode(side.whole) for side in (recorded, made)]
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
                fields=len(found),
                recorded_replicas=replicas[0],
                recomputed_replicas=replicas[1],
            )
        )
