"""Recorded decisions derived again from the log, and what comes out different: the first step, field and number on.

`Refold` walks a log partition beside its recorded decisions.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from schemas import decisions as chain
from schemas.codec import WireError
from schemas.decisions import links_of
from schemas.keys import HpaId
from streams.archive.layout import BAD_JSON, DECISIONS, ArchivedRecord, ArchiveError
from streams.archive.signing import Heads
from streams.history.parallel import reported
from streams.history.past import Past
from streams.history.recorded import place_of
from streams.partition import Partition
from streams.state.ledger import CoreError, DecisionRecord

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
        record = await self._peek()
        self._ahead = None
        return record

    async def newer_than(self, log_offset: int) -> bool:
        """Whether the next record is a decision of a later log record."""
        return await self._peek() is not None and self._ahead_offset > log_offset

    async def upto(self, log_offset: int, *, look: bool) -> list[ArchivedRecord]:
        """The next records, as far as they are of log records up to an offset, copies, or cannot be read.

        `look`: also where none were left the last time. That opens a consumer on Kafka.
        """
        records: list[ArchivedRecord] = []
        while look or not self.is_over:
            record = await self._peek()
            if record is None or self._ahead_offset > log_offset:
                break
            records.append(record)
            self._ahead = None
        return records

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
                decisions = self._applied(record)
                yield Refolded(record, decisions, await self.decisions.upto(record.offset, look=bool(decisions)))
                records_read, decisions_made = records_read + 1, decisions_made + len(decisions)
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

    `published`: None where the decisions do not hold it; `made`: None where the log gives no such decision.
    """

    id: str
    start: int
    folded: int
    published: ArchivedRecord | None
    made: DecisionRecord | None


async def derive(
    past: Past, partition: int, decision_id: str, named: Callable[[Iterable[str]], str | None] = lambda _: None
) -> Derived:
    """Re-derive one decision.

    `named`: picks the ID that a short form means from those of its log record; None: `decision_id` is whole.

    Raises ArchiveError: the source is damaged, or no longer reaches back far enough.
    """
    offset = log_offset_of(decision_id)
    folded, decisions, recorded = 0, list[DecisionRecord](), list[ArchivedRecord]()
    async with refold(past, partition, await past.checkpoint(partition, below=offset)) as again:
        start = again.partition.applied_offset
        async with aclosing(again.steps(upto=offset)) as steps:
            async for step in steps:
                folded += 1
                if step.record.offset == offset:
                    decisions, recorded = step.made, step.recorded
        recorded += await again.decisions.upto(offset, look=True)
    id_ = named(decision.id for decision in decisions) or decision_id
    return Derived(
        id_,
        start,
        folded,
        next((record for record in recorded if _id_of(record) == id_), None),
        next((decision for decision in decisions if decision.id == id_), None),
    )


# --- differences ------------------------------------------------------------------------------------------------------

_CHAIN = ("prev", "seq")
_PLACE = {"input.hash"}
_ORDER = (
    "cluster",
    "namespace",
    "name",
    "uid",
    "time",
    "kind",
    "specHash",
    "generation",
    "engine",
    "mode",
    "origin",
    "currentReplicas",
    "metrics",
    "m",
    "steps",
    "rawDesiredReplicas",
    "constraintsApplied",
    "finalDesiredReplicas",
)
"""Fields in the order in which a decision comes about; the rest follows in the record's own order."""


class Difference(NamedTuple):
    """One field: its place, its recorded value, and the re-derived one."""

    path: str
    recorded: Any
    recomputed: Any

    def __str__(self) -> str:
        return f"{self.path}: recorded {_text(self.recorded)}, recomputed {_text(self.recomputed)}"


def _text(value: Any) -> str:
    if value is NOTHING:
        return "nothing"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else text[:197] + "…"


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING: Final = _Nothing()
"""In place of a field that one of the two does not have."""


def differences(recorded: bytes, recomputed: bytes, *, chain: bool = True) -> list[Difference]:
    """The fields that differ, in the order in which a decision comes about.

    Args:
        recorded: value of the recorded decision.
        recomputed: value of the re-derived one.
        chain: also compare what only places it: number, hash of the record before, running hash of the log.
    """
    try:
        ours, theirs = msgspec.json.decode(recomputed), msgspec.json.decode(recorded)
    except BAD_JSON as error:
        return [Difference("value", f"not JSON: {error}", "a decision")]
    differing = list(_compare("", theirs, ours))
    if not chain:
        differing = [d for d in differing if d.path not in _CHAIN and d.path not in _PLACE]
    return sorted(differing, key=_rank)


def _rank(difference: Difference) -> int:
    head = difference.path.split(".")[0].split("[")[0]
    if head in _CHAIN or difference.path in _PLACE:
        return len(_ORDER) + 1
    return _ORDER.index(head) if head in _ORDER else len(_ORDER)


def _compare(path: str, recorded: Any, recomputed: Any) -> list[Difference]:
    if isinstance(recorded, dict) and isinstance(recomputed, dict):
        names = [*recomputed, *(name for name in recorded if name not in recomputed)]
        return [
            difference
            for name in names
            for difference in _compare(
                f"{path}.{name}" if path else name, recorded.get(name, NOTHING), recomputed.get(name, NOTHING)
            )
        ]
    if isinstance(recorded, list) and isinstance(recomputed, list) and path:
        longest = max(len(recorded), len(recomputed))
        return [
            difference
            for at in range(longest)
            for difference in _compare(
                f"{path}[{_label(recorded, recomputed, at)}]",
                recorded[at] if at < len(recorded) else NOTHING,
                recomputed[at] if at < len(recomputed) else NOTHING,
            )
        ]
    if type(recorded) is type(recomputed) and recorded == recomputed:
        return []
    return [Difference(path or "value", recorded, recomputed)]


def _label(recorded: list[Any], recomputed: list[Any], at: int) -> str:
    """A step or metric by its name, anything else by its number."""
    item = recomputed[at] if at < len(recomputed) else recorded[at]
    name = item.get("step") or item.get("name") if isinstance(item, dict) else None
    return str(name) if name else str(at)


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


class Report(Struct, kw_only=True, rename="camel"):
    """What was checked of one partition. `start`: the log offset after which recomputation began (-1: the beginning).

    `decisions`: those of the HPA and the window that are asked for. `engine`: in force at the end; `engineChanges`:
    (log offset, engine from there on). `duplicates`: copies of decisions. `signed`: checkpoints that it was held to.
    `engines`: decisions by the engine that recorded them. `paths`: divergences by what differs first. `fault`: what
    ended it, empty if nothing did.
    """

    partition: int
    start: int = -1
    log_records: int = 0
    decisions: int = 0
    identical: int = 0
    diverged: int = 0
    duplicates: int = 0
    snapshots: int = 0
    segments: int = 0
    signed: int = 0
    engine: int = 0
    engine_changes: list[tuple[int, int]] = []
    last_log_offset: int = -1
    last_seq: int = 0
    engines: dict[str, int] = {}
    paths: dict[str, int] = {}
    divergences: list[Divergence] = []
    fault: str = ""


@dataclass(frozen=True)
class Task:
    """One partition to verify. `checkpoints`: heads to hold it to. `hpa`, `since_ms`, `until_ms`: decisions of others
    and of other log times are not compared; None: all are.
    """

    past: Past
    partition: int
    since_ms: int | None = None
    checkpoints: list[Heads] = field(default_factory=list)
    until_ms: int | None = None
    hpa: HpaId | None = None
