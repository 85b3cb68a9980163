"""The past of a fleet: state, log and decisions, from topics (`kafkapast`) or from an archive (`archivepast`).

Read verbs, verification, replay, rebuilding and the analysis all use `Past`. A backing gives records and stored rows;
the fold, lists of decisions and windows of log time are here.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from schemas.codec import WireError
from schemas.keys import HpaId
from schemas.topics import QuietProcess
from streams.archive.layout import DECISIONS, LOG, ArchivedRecord, ArchiveError
from streams.history.recorded import (
    DecisionSequence,
    DecisionWindow,
    NewestEvaluations,
    Recorded,
    in_sequence,
    recorded_at,
)
from streams.partition import Partition
from streams.state.answers import read_record
from streams.state.ledger import LogError
from streams.state.records import print_time
from streams.state.rowcodec import merge_rows, partition_key

NEAR_MS = 60_000
BEYOND_MS = 15 * 60_000
"""How far the times of the decisions topic are taken to be from log time at first, and if that does not reach."""
AHEAD_MS = 10_000
"""How far the present is folded beyond the last that the decider did: it ticks once a second. That is less than the
time in which a write has to end, so that nothing is concluded from outcomes which it has not asked for."""
TICKLESS_MS = 120_000
"""The same of a log in which there are no ticks, from the newest stored state on."""
_BREATH = 500
"""Records that are folded before other tasks of the process, such as the one that shows progress, get a turn."""

Enough = Callable[[int, list[Recorded]], bool]
"""Whether the decisions of a partition, oldest first, reach far enough back."""


def _ignore(_: str) -> None:
    """Show a remark to no one."""


class LogGoneError(ArchiveError):
    """The log does not reach back far enough; the text says what would."""


@dataclass(frozen=True)
class Folded:
    """The state of a log partition at some record. `stored`: the rows that it was folded from; empty: none were.

    `behind`: the log continues, but the decider of a running fleet has not come that far.
    """

    partition: Partition
    stored: Mapping[bytes, bytes]
    behind: bool = False

    def rows(self) -> dict[bytes, bytes]:
        """The state rows at that record; the partition's own row comes last, as in every checkpoint."""
        rows = dict(self.stored)
        merge_rows(rows, self.partition.checkpoint())
        own = partition_key(self.partition.number)
        return {key: value for key, value in rows.items() if key != own} | {own: rows[own]}


class Past(ABC):
    """State, log and decisions of all partitions of one fleet.

    A pickled copy reads the same fleet; it opens what it needs anew.

    Args:
        name: how messages call it.
        at_ms: log time up to and including which `fleet` and `tail` look; None: up to now.
    """

    def __init__(self, name: str, at_ms: int | None = None) -> None:
        self.name, self.at_ms = name, at_ms
        self.log_records_read = 0
        self.log_records_due = 0
        """How many the question at hand reads in all, about; 0: not known."""
        self.rows_gone: set[str] = set()
        """State rows that the newest checkpoint names and the changelog has lost; what they held is not known."""
        self.remark: Callable[[str], None] = _ignore
        """Receives the notes for a person about the state that was read."""

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"remark": _ignore}

    # --- what a backing gives ---------------------------------------------------------------------------------------

    @abstractmethod
    async def partitions(self) -> int:
        """Return how many partitions log and decisions have."""

    @abstractmethod
    def stretches(self, topic: str, partition: int, first: int = 0) -> AsyncGenerator[Sequence[ArchivedRecord], None]:
        """Yield the records from offset `first` (or the oldest kept) to the end as of now, many at a time; whoever
        stops closes it.
        """

    async def records(self, topic: str, partition: int, first: int = 0) -> AsyncGenerator[ArchivedRecord, None]:
        """Yield the same one by one."""
        async with aclosing(self.stretches(topic, partition, first)) as stretches:
            async for stretch in stretches:
                for record in stretch:
                    yield record

    @abstractmethod
    def backwards(
        self, topic: str, partition: int, upto_ms: int | None = None
    ) -> AsyncGenerator[list[ArchivedRecord], None]:
        """Yield the records in stretches, the newest stretch first, each in order.

        `upto_ms`: stretches whose records are all later than this topic time may be left out.
        """

    @abstractmethod
    async def newest_rows(self, partition: int) -> Mapping[bytes, bytes]:
        """Return the newest stored state rows; empty: none are stored."""

    @abstractmethod
    async def checkpoint(
        self, partition: int, *, below: int | None = None, before_ms: int | None = None
    ) -> Mapping[bytes, bytes]:
        """Return the newest stored rows that have applied nothing from a log offset, or from a log time, on.

        Empty: none are stored. With neither limit: the oldest stored rows if the log has lost its beginning, else none.
        """

    @abstractmethod
    def arriving(self, positions: dict[int, int]) -> AsyncGenerator[tuple[int, ArchivedRecord], None]:
        """Yield decisions as they are written, from an offset in each partition on, without end."""

    async def first_ms(self, partition: int) -> int | None:
        """Return the timestamp of the oldest log record; None if there is no record."""
        async with aclosing(self.records(LOG, partition)) as records:
            async for record in records:
                return record.timestamp_ms
        return None

    @abstractmethod
    async def offsets(self, topic: str, partition: int) -> range:
        """Return the offsets of the records that are kept now."""

    async def decided_from_ms(self, partition: int) -> int | None:
        """Return the log time of the oldest decision that is kept, where older ones were; None: there were none."""
        if (first := (await self.offsets(DECISIONS, partition)).start) == 0:
            return None
        async with aclosing(self.records(DECISIONS, partition, first)) as records:
            async for record in records:
                return recorded_at(partition, record.offset, record.value).time_ms
        return None

    finds_hpas = False
    """Whether the decisions of one HPA are found without reading those of all others."""

    def unchecked(
        self, topic: str, partition: int, first: int = 0, hpa: HpaId | None = None
    ) -> AsyncGenerator[Sequence[ArchivedRecord], None]:
        """Yield the records of `stretches`, those of an archive without checking them (`check`).

        `hpa`: of which decisions are needed; others may be left out. None: of all.
        """
        return self.stretches(topic, partition, first)

    async def check(self, topic: str, partition: int, within: range) -> None:
        """Check what is closed of an archive and holds records of a range, where this process has not done so before.

        Raises ArchiveError: it is not what the archive says of itself. What topics hold is not checked.
        """
        return

    async def is_checked(self, topic: str, partition: int, within: range) -> bool:
        """Whether nothing is left for `check` to do. Raises ArchiveError: an archive lacks a file, or it is damaged."""
        return True

    async def log_length(self, since_ms: int | None = None) -> int:
        """Return about how many log records of all partitions are kept, from a time on; progress is measured by it."""
        total = 0
        for number in range(await self.partitions()):
            kept = await self.offsets(LOG, number)
            first = kept.start if since_ms is None else await self.offset_at(LOG, number, since_ms)
            total += len(range(max(kept.start, first), kept.stop))
        return total

    async def expect(self, partitions: Iterable[int], since_ms: int) -> None:
        """Record for the progress that some partitions will be read, from a time on."""
        due = 0
        for number in sorted(partitions):
            first = await self.offset_at(LOG, number, since_ms)
            due += len(range(first, (await self.offsets(LOG, number)).stop))
        self.log_records_due = self.log_records_read + due

    @abstractmethod
    async def last_ms(self, partition: int) -> int:
        """Return the timestamp of the newest log record; 0 if there is no record."""

    @abstractmethod
    async def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        """Return an offset at or before the first record of this time, as near as can cheaply be known."""

    @abstractmethod
    async def first_decision(self, partition: int, seq: int) -> int:
        """Return an offset at or before that of decision number `seq`, as near as can cheaply be known."""

    def is_live(self) -> bool:
        """Whether more is being written now."""
        return True

    def now_ms(self) -> int:
        """Return the present (Unix milliseconds) by the writers' clock; 0: it is the end of the log."""
        return 0

    async def signs_of_life(self) -> Mapping[QuietProcess, int]:
        """Return when processes that write nothing while nothing happens gave their last heartbeat (Unix ms)."""
        return {}

    def marks(self, partition: int) -> frozenset[int]:
        """Return the log offsets at which an archive must hold a snapshot: the ends of closed segments."""
        return frozenset()

    def snapshot_at(self, partition: int, offset: int) -> dict[bytes, bytes] | None:
        """Return the rows of an archive's snapshot at a log offset; None if there is no snapshot."""
        return None

    # --- the fold ---------------------------------------------------------------------------------------------------

    async def following(
        self, partition: Partition, *, upto: int | None = None, until_ms: int | None = None
    ) -> AsyncGenerator[ArchivedRecord, None]:
        """Yield the log records that a partition has not applied yet; the caller applies each of them.

        Ends after offset `upto`, or before the first record that is not earlier than `until_ms` (timestamps may step
        back, log time does not).

        Raises LogGoneError: records are missing between what the partition has applied and the next one.
        """
        expected = partition.applied_offset + 1
        async with aclosing(self.records(LOG, partition.number, expected)) as records:
            async for record in records:
                # Missing records come first: whether they were from before `until_ms` is not known.
                if record.offset != expected:
                    raise await self._gone(partition.number, expected, record.offset)
                if until_ms is not None and record.timestamp_ms >= until_ms:
                    return
                if upto is not None and record.offset > upto:
                    return
                expected += 1
                self.log_records_read += 1
                if self.log_records_read % _BREATH == 0:
                    await asyncio.sleep(0)
                yield record

    async def _gone(self, number: int, expected: int, found: int) -> LogGoneError:
        async with aclosing(self.records(LOG, number)) as records:
            is_beginning = found == (await anext(records)).offset
        if not is_beginning:
            return LogGoneError(f"log partition {number}: offset {found} does not follow {expected - 1}")
        archive = (
            "an archive that was begun earlier has what is missing (fleethpa admin archive --to DIR, then --from DIR)"
        )
        lost = (
            f"what came after the stored state of offset {expected - 1} is gone"
            if expected
            else "earlier records are gone, and no stored state is old enough"
        )
        return LogGoneError(f"log partition {number} begins at offset {found}: {lost}; {archive}")

    async def restored(self, number: int, *, below: int | None = None, before_ms: int | None = None) -> Partition:
        """Return a partition as of the nearest stored rows before a log offset or time (`checkpoint`), or an empty one.

        Raises StateError: the rows are damaged.
        """
        return Partition.restore(number, await self.checkpoint(number, below=below, before_ms=before_ms))

    async def fold_to(self, number: int, *, offset: int | None = None, time_ms: int | None = None) -> Folded:
        """Return the state of a partition after a log offset, or as of a log time; with neither: as of now.

        Now is the end of the log, or, of a running fleet whose decider is far behind, what it decided last.

        Raises LogGoneError: neither log nor stored rows reach back far enough. Raises CoreError: a record cannot be
        folded.
        """
        now = offset is None and time_ms is None
        after_ms = None if time_ms is None else time_ms + 1
        below = None if offset is None else offset + 1
        stored = await (self.newest_rows(number) if now else self.checkpoint(number, below=below, before_ms=after_ms))
        partition = Partition.restore(number, stored)
        if time_ms is not None and partition.clock_ms > time_ms:
            raise LogGoneError(
                f"log partition {number} can be folded from {print_time(partition.clock_ms)} on, not from "
                f"{print_time(time_ms)}: the archive was begun later"
            )
        begun_ms, recorded_ms = partition.clock_ms, None
        async with aclosing(self.following(partition, upto=offset, until_ms=after_ms)) as records:
            async for record in records:
                begun_ms = begun_ms or record.timestamp_ms
                if now and self.is_live() and record.timestamp_ms > _decided_until_ms(partition, begun_ms):
                    recorded_ms = await self._recorded_ms(partition) if recorded_ms is None else recorded_ms
                    if record.timestamp_ms > recorded_ms + AHEAD_MS:
                        return Folded(partition, stored, behind=True)
                partition.apply(record.offset, record.timestamp_ms, record.value)
        return Folded(partition, stored)

    async def _recorded_ms(self, partition: Partition) -> int:
        """How far (log time) the decider of a partition has come since it last stored its state, by its newest
        decision, or by its newest tick where there is nothing to decide; 0: nothing shows it.
        """
        if not partition.state.hpas:
            return await self.ticked_ms(partition.number)
        async with aclosing(self.backwards(DECISIONS, partition.number)) as stretches:
            newest: list[ArchivedRecord] = await anext(stretches, [])
        try:
            return max((each.time_ms for each in _in_sequence(partition.number, [newest])), default=0)
        except WireError:  # who reads decisions names it
            return 0

    async def ticked_ms(self, number: int) -> int:
        """Return when a decider ticked last in a partition (log time), by the newest records of its log; 0: not in
        these.
        """
        async with aclosing(self.backwards(LOG, number)) as stretches:
            newest: list[ArchivedRecord] = await anext(stretches, [])
        return max((each.timestamp_ms for each in newest if _is_tick(number, each)), default=0)

    async def fleet(self, partitions: Iterable[int] | None = None) -> list[Folded]:
        """Return the state of every partition (or of some) as of `at_ms`; raises as `fold_to`."""
        numbers = range(await self.partitions()) if partitions is None else partitions
        return list(await asyncio.gather(*(self.fold_to(number, time_ms=self.at_ms) for number in numbers)))

    # --- decisions --------------------------------------------------------------------------------------------------

    async def tail(
        self, enough: Enough, partitions: Iterable[int] | None = None, upto_ms: int | None = None
    ) -> dict[int, list[Recorded]]:
        """Return the newest decisions of each partition, oldest first, as far back as `enough` asks (or are kept).

        `upto_ms`: decisions later than this log time are left out.
        """
        numbers = list(range(await self.partitions()) if partitions is None else partitions)
        limits = [limit for limit in (upto_ms, self.at_ms) if limit is not None]
        upto = min(limits) if limits else None
        tails = await asyncio.gather(*(self._tail(number, enough, upto) for number in numbers))
        return dict(zip(numbers, tails, strict=True))

    async def _tail(self, number: int, enough: Enough, upto_ms: int | None) -> list[Recorded]:
        def reached(decisions: list[Recorded]) -> bool:
            kept = _until(decisions, upto_ms)
            return bool(kept or not decisions) and enough(number, kept)

        beyond = None if upto_ms is None else upto_ms + BEYOND_MS
        decisions = await self._read_back(number, reached, beyond)
        if upto_ms is not None and (not decisions or decisions[-1].time_ms <= upto_ms):
            # It is the end, or the decider lagged: the topic's times are later than the decisions' own.
            decisions = await self._read_back(number, reached, None)
        return _until(decisions, upto_ms)

    async def newest_evaluations(self, uids: Mapping[int, Collection[str]], since_ms: int) -> dict[str, Recorded]:
        """Return the newest evaluation of each HPA, by uid, where it has one from log time `since_ms` on.

        `uids`: partition of the log → uids of HPAs.
        """
        newest = await asyncio.gather(*(self._newest_of(number, wanted, since_ms) for number, wanted in uids.items()))
        return {uid: recorded for each in newest for uid, recorded in each.items()}

    async def _newest_of(self, number: int, uids: Collection[str], since_ms: int) -> dict[str, Recorded]:
        # The topic's times are later than the decisions' own where the decider lagged: then the end is looked at, too.
        for beyond in (None,) if self.at_ms is None else (self.at_ms + BEYOND_MS, None):
            search = NewestEvaluations(number, uids, since_ms, self.at_ms)
            async with aclosing(self.backwards(DECISIONS, number, beyond)) as stretches:
                async for part in stretches:
                    if not all(search.add(record.offset, record.value) for record in reversed(part)):
                        break
            if search.passed_over:
                break
        return search.found

    async def _read_back(
        self, number: int, enough: Callable[[list[Recorded]], bool], upto_ms: int | None
    ) -> list[Recorded]:
        """Read decisions backwards until they are enough, or to the oldest kept."""
        parts: list[list[ArchivedRecord]] = []
        due = 1
        async with aclosing(self.backwards(DECISIONS, number, upto_ms)) as stretches:
            async for part in stretches:
                parts.append(part)
                # Looked at whenever there is twice as much: a long past is not decoded once for each stretch.
                if sum(map(len, parts)) >= due:
                    if enough(decisions := _in_sequence(number, parts)):
                        return decisions
                    due = 2 * sum(map(len, parts))
        return _in_sequence(number, parts)

    async def decisions(
        self,
        number: int,
        since_ms: int | None = None,
        until_ms: int | None = None,
        wanted: Callable[[HpaId], bool] | None = None,
    ) -> AsyncGenerator[Recorded, None]:
        """Yield the decisions of a log partition in order: from log time `since_ms` to before `until_ms`.

        `wanted`: of which HPAs; None: of all.
        """
        for window in await self.windows(number, since_ms, until_ms, wanted):
            async with aclosing(self.newer(window)) as stretches:
                async for taken in stretches:
                    for recorded in taken:
                        yield recorded
            if window.is_complete:
                return

    async def windows(
        self,
        number: int,
        since_ms: int | None = None,
        until_ms: int | None = None,
        wanted: Callable[[HpaId], bool] | None = None,
    ) -> list[DecisionWindow]:
        """Return where to read what `decisions` gives: the next one only where the one before is not whole."""
        firsts = [0]
        if since_ms is not None:
            # Where that does not reach, as the topic's times are behind the log's, more is read, then everything.
            firsts = [await self.offset_at(DECISIONS, number, since_ms - ms) for ms in (NEAR_MS, BEYOND_MS)] + [0]
        return [DecisionWindow(number, first, since_ms or 0, until_ms, wanted) for first in firsts]

    async def newer(self, window: DecisionWindow, *, checked: bool = True) -> AsyncGenerator[list[Recorded], None]:
        """Return those of the records that the window has not seen yet and takes.

        `checked`: what an archive has closed is checked as it is read; else the caller does so later (`check`).
        """
        place = DECISIONS, window.number, window.position
        async with aclosing(self.stretches(*place) if checked else self.unchecked(*place, window.hpa)) as stretches:
            async for stretch in stretches:
                yield window.add(stretch)
                if window.is_over or window.begins_late:
                    return

    async def follow(self) -> AsyncGenerator[Recorded, None]:
        """Yield decisions from now on, as they are made."""
        sequences: dict[int, DecisionSequence] = {}
        for number in range(await self.partitions()):
            sequences[number] = DecisionSequence()
            async with aclosing(self.backwards(DECISIONS, number)) as stretches:
                for record in await anext(stretches, []):
                    sequences[number].next_decision(number, record.offset, record.value)
        positions = {number: sequence.position for number, sequence in sequences.items()}
        async with aclosing(self.arriving(positions)) as records:
            async for number, record in records:
                taken = sequences[number].next_decision(number, record.offset, record.value)
                if taken is not None:
                    yield taken


def _decided_until_ms(partition: Partition, begun_ms: int) -> int:
    """Until when (log time) what is folded was decided, or soon will be, by a decider that works."""
    ticked_ms = partition.state.row.ticked_ms
    return max(begun_ms, ticked_ms) + AHEAD_MS if ticked_ms else begun_ms + TICKLESS_MS


def _is_tick(number: int, log: ArchivedRecord) -> bool:
    try:
        return read_record(number, log.offset, log.value).is_tick
    except LogError:
        return False


def _in_sequence(number: int, newest_first: list[list[ArchivedRecord]]) -> list[Recorded]:
    return in_sequence(number, ((r.offset, r.value) for part in reversed(newest_first) for r in part))


def _until(decisions: list[Recorded], upto_ms: int | None) -> list[Recorded]:
    """Decisions of one partition, which are in the order of log time, without those later than `upto_ms`."""
    end = len(decisions)
    while upto_ms is not None and end and decisions[end - 1].time_ms > upto_ms:
        end -= 1
    return decisions[:end]
