"""Recorded decisions derived again from the log: `Refold` walks a log partition beside its recorded decisions."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from schemas import decisions as chain
from schemas.codec import WireError
from schemas.decisions import links_of
from streams.archive.layout import DECISIONS
from streams.archive.segments import BAD_JSON, ArchivedRecord, ArchiveError
from streams.history.parallel import reported
from streams.history.past import Past
from streams.history.recorded import place_of
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


def _log_offset(record: ArchivedRecord) -> int:
    """The log offset of a recorded decision; -1 where it cannot be read."""
    try:
        return place_of(0, record.offset, record.value)[0]
    except WireError:
        return -1


def _id_of(record: ArchivedRecord) -> str:
    """The id of a recorded decision; empty where it cannot be read."""
    try:
        return links_of(record.value).id
    except BAD_JSON:
        return ""


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
                self._ahead_offset = _log_offset(self._ahead)
        return self._ahead

    async def close(self) -> None:
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
    # As with log records: a tampered row may lead to any exception.
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
        next((record for record in recorded if _id_of(record) == id_), None),
        next((decision for decision in made if decision.id == id_), None),
    )
