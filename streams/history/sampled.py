"""Samples of one HPA's decisions, of a span that holds too many decisions of others to be read.

A partition's decisions are in the order of its log, and each names its log record in its id. So one is found by its
number: a few records are read where it should be, and the next reading knows more.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from itertools import pairwise
from typing import Final, TypeVar

from schemas.decisions import log_offset_of, uid_of
from schemas.keys import HpaId
from streams.archive.layout import DECISIONS, ArchivedRecord
from streams.history.past import Past
from streams.history.recorded import HpaSieve, Recorded, RecordHead, head_of, place_of

K = TypeVar("K")
V = TypeVar("V")
AT_ONCE: Final = 16
"""Searches that go on at the same time: each holds what was fetched for it."""
TRIES: Final = 4
"""Readings in which a full record has to be found."""
GAPS: Final = 4
"""So many times the usual distance between two decisions of an HPA are looked through for one."""


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
            further: how many more at most, each halfway between two that differ; first where these are furthest apart.
        """
        first, end = self._offsets.start, self._offsets.stop
        found = await self._at_each([first + (end - first) * at // count for at in range(count)])
        tried: set[int] = set()
        while between := [at for at in self._between(found) if at not in tried][:further]:
            further -= len(between)
            tried.update(between)
            found |= await self._at_each(between)
        return [found[at] for at in sorted(found)]

    def _between(self, found: Mapping[int, Recorded]) -> list[int]:
        """Where to look for changes that lie between two evaluations, the longest distances first."""
        pairs = [(found[one], found[other]) for one, other in pairwise(sorted(found)) if other - one > self._size]
        apart = [(one.offset, other.offset) for one, other in pairs if bounds_of(one) != bounds_of(other)]
        return [(one + other) // 2 for one, other in sorted(apart, key=lambda pair: pair[0] - pair[1])]

    async def _at_each(self, offsets: Sequence[int]) -> dict[int, Recorded]:
        """Find the first evaluations at some offsets or soon after them, several at once; the result is by offset.

        An offset gives nothing if no evaluation follows soon, or if the full record that it repeats is not found.
        """
        records = {each.offset: each for each in await self._each(self._evaluation_at, offsets) if each is not None}
        fulls = await self._each(
            self._full, sorted({head.same_as for each in records.values() if (head := self._head(each)).same_as})
        )
        known = {each.head.id: each for each in fulls if each is not None}
        return {
            at: Recorded(head, self._number, at, record.value, known.get(head.same_as))
            for at, record in records.items()
            if not (head := self._head(record)).same_as or head.same_as in known
        }

    async def _each(self, find: Callable[[K], Awaitable[V]], wanted: Iterable[K]) -> list[V]:
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(each: K) -> V:
            async with turns:
                return await find(each)

        return await asyncio.gather(*map(one, wanted))

    async def _evaluation_at(self, offset: int) -> ArchivedRecord | None:
        return await self._first(offset, self._uids, self._is_evaluation)

    async def _first(
        self, offset: int, needles: Iterable[bytes], fits: Callable[[ArchivedRecord], bool]
    ) -> ArchivedRecord | None:
        """The first record at an offset or soon after it that fits. It holds one of some bytes, or the HPA's name."""
        within = range(offset, min(self._end, offset + GAPS * self._size))
        sieve = HpaSieve(self._hpa, self._end, needles)
        async with aclosing(self._past.nearby(DECISIONS, self._number, within, sieve)) as stretches:
            async for stretch in stretches:
                self._note(stretch[0])
                self._note(stretch[-1])
                for record in stretch:
                    if fits(record):
                        return record
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
                (id_.encode(),),
                lambda record: record.value.startswith(start) or self._place(record)[0] > wanted,
            )
            if found is None:
                continue
            if found.value.startswith(start):
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
