"""Samples of one HPA's decisions, of a span that holds too many decisions of others to be read.

A partition's decisions are in the order of its log, and each names its log record in its id. So one is found by its
number: a few records are read where it should be, and the next reading knows more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import aclosing
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Final

from schemas.decisions import log_offset_of, uid_of
from schemas.keys import HpaId
from streams.archive.layout import DECISIONS
from streams.archive.segments import ArchivedRecord
from streams.history.past import Past
from streams.history.recorded import Recorded, RecordHead, head_of, place_of

TRIES: Final = 4
"""Readings in which a full record has to be found."""
GAPS: Final = 4
"""So many times the usual distance between two decisions of an HPA are looked through for one."""
FULLS_KEPT: Final = 512


class Sampler:
    """Finds evaluations of one HPA in a range of offsets of its partition's decisions.

    Args:
        known: decisions of it that lie after the range; their uids are its own, and how far they are apart says how
            many records have to be read to find one.
        offsets: the range.
    """

    def __init__(self, past: Past, number: int, hpa: HpaId, known: Sequence[Recorded], offsets: range) -> None:
        self._past, self._number, self._hpa, self._offsets = past, number, hpa, offsets
        self._name = f'"name":"{hpa.name}"'.encode()
        self._uids = {uid_of(each.head.id).encode() for each in known}
        gaps = sorted(after.offset - before.offset for before, after in pairwise(known))
        self._size = max(64, gaps[len(gaps) * 9 // 10] if gaps else 1_000)
        self._end = known[-1].offset if known else offsets.stop
        self._fulls: dict[str, Recorded] = {}
        self._places: list[tuple[int, int]] = []
        """Log offsets and the offsets of the decisions that follow from them, in order."""

    async def samples(self, count: int, further: int) -> list[Recorded]:
        """Return evaluations in order: some at equal distances, and more where replicas or bounds changed in between.

        Args:
            count: how many are looked for at equal distances.
            further: how many more at most, each halfway between two that differ.
        """
        first, end = self._offsets.start, self._offsets.stop
        found: dict[int, Recorded] = {}
        for at in range(count):
            if (taken := await self._at(first + (end - first) * at // count)) is not None:
                found[taken.offset] = taken
        apart = [self._apart(*pair) for pair in pairwise(found[at] for at in sorted(found))]
        heapify(apart)
        while apart and further and -apart[0][0] > self._size:
            _, one, other = heappop(apart)
            further -= 1
            between = await self._at((one + other) // 2)
            if between is not None and one < between.offset < other:
                found[between.offset] = between
                heappush(apart, self._apart(found[one], between))
                heappush(apart, self._apart(between, found[other]))
        return [found[at] for at in sorted(found)]

    @staticmethod
    def _apart(one: Recorded, other: Recorded) -> tuple[int, int, int]:
        """The two offsets after the distance between them, which counts only where something changed (negative)."""
        is_same = bounds_of(one) == bounds_of(other)
        return (0 if is_same else one.offset - other.offset), one.offset, other.offset

    async def _at(self, offset: int) -> Recorded | None:
        """The first evaluation at an offset or soon after it; None: there is none, or what it repeats is not found."""
        record = await self._first(offset, GAPS * self._size, self._is_evaluation)
        if record is None:
            return None
        head = self._head(record)
        full = await self._full(head.same_as) if head.same_as else None
        if head.same_as and full is None:
            return None
        return Recorded(head, self._number, record.offset, record.value, full)

    async def _first(self, offset: int, most: int, fits: Callable[[ArchivedRecord], bool]) -> ArchivedRecord | None:
        """The first record at an offset or after it that fits, among so many."""
        looked_at = 0
        async with aclosing(self._past.nearby(DECISIONS, self._number, offset)) as stretches:
            async for stretch in stretches:
                self._note(stretch[0])
                self._note(stretch[-1])
                for record in stretch:
                    if fits(record):
                        return record
                looked_at += len(stretch)
                if looked_at >= most or stretch[-1].offset >= self._end:
                    return None
        return None

    def _note(self, record: ArchivedRecord) -> None:
        """Remember which log record a decision follows from."""
        place = self._place(record)[0], record.offset
        if (at := bisect_left(self._places, place)) == len(self._places) or self._places[at] != place:
            self._places.insert(at, place)

    def _head(self, record: ArchivedRecord) -> RecordHead:
        return head_of(self._number, record.offset, record.value)

    def _is_evaluation(self, record: ArchivedRecord) -> bool:
        return self._is_own(record) and self._head(record).kind == "evaluation"

    def _is_own(self, record: ArchivedRecord) -> bool:
        value = record.value
        if self._place(record)[1] in self._uids:
            return True
        if self._name not in value:
            return False
        head = self._head(record)
        if (head.cluster, head.namespace, head.name) != tuple(self._hpa):
            return False
        self._uids.add(self._place(record)[1])
        return True

    def _place(self, record: ArchivedRecord) -> tuple[int, bytes]:
        return place_of(self._number, record.offset, record.value)

    async def _full(self, id_: str) -> Recorded | None:
        """The full record of an id, looked for between those places that are known to be before and after it."""
        if (known := self._fulls.get(id_)) is not None:
            return known
        wanted, start = log_offset_of(id_), f'{{"id":"{id_}"'.encode()
        for _ in range(TRIES):
            found = await self._first(
                self._guess(wanted),
                GAPS * self._size,
                lambda record: record.value.startswith(start) or self._place(record)[0] > wanted,
            )
            if found is None:
                continue
            if found.value.startswith(start):
                while len(self._fulls) >= FULLS_KEPT:
                    del self._fulls[next(iter(self._fulls))]
                self._fulls[id_] = Recorded(self._head(found), self._number, found.offset, found.value)
                return self._fulls[id_]
            self._note(found)
        return None

    def _guess(self, wanted: int) -> int:
        """The offset from which on to read the decisions of a log offset."""
        at = bisect_left(self._places, (wanted, 0))
        (low_log, low), (high_log, high) = self._places[max(0, at - 1)], self._places[min(at, len(self._places) - 1)]
        if low_log >= wanted:  # nothing before it is known
            return max(0, low - self._size)
        share = (wanted - low_log) / max(1, high_log - low_log) if high_log > low_log else 0.0
        return max(low, low + int((high - low) * share) - self._size // 3)


def bounds_of(recorded: Recorded) -> tuple[int, ...]:
    """What a chart shows every change of: replicas and the bounds of them."""
    facts = recorded.facts
    return (facts.final_desired_replicas, facts.current_replicas, facts.min_replicas, facts.max_replicas)
