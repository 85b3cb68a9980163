"""Samples of one HPA's decisions, of a span that holds too many decisions of others to be read.

A few records are read from each of some offsets on, until there is one of the HPA among them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from itertools import pairwise
from typing import Final, TypeVar

from schemas.keys import HpaId
from streams.archive.layout import DECISIONS
from streams.history.past import Past
from streams.history.recorded import HpaSieve, Recorded, recorded_at

K = TypeVar("K")
V = TypeVar("V")
AT_ONCE: Final = 16
"""Searches that go on at the same time: each holds what was fetched for it."""
GAPS: Final = 4
"""So many times the usual distance between two decisions of an HPA are looked through for one."""


class Sampler:
    """Finds evaluations of one HPA in a range of offsets of its partition's decisions.

    Args:
        known: decisions of it that lie after the range; how far they are apart says how many records have to be read
            to find one.
        offsets: the range.
    """

    def __init__(self, past: Past, number: int, hpa: HpaId, known: Sequence[Recorded], offsets: range) -> None:
        self._past, self._number, self._hpa, self._offsets = past, number, hpa, offsets
        gaps = sorted(after.offset - before.offset for before, after in pairwise(known))
        self._size = max(64, gaps[len(gaps) * 9 // 10] if gaps else 1_000)
        self._end = known[-1].offset if known else offsets.stop

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
        """Find the first evaluations at some offsets or soon after them, several at once; the result is by offset."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(offset: int) -> Recorded | None:
            async with turns:
                return await self._evaluation_at(offset)

        found = await asyncio.gather(*map(one, offsets))
        return {each.offset: each for each in found if each is not None}

    async def _evaluation_at(self, offset: int) -> Recorded | None:
        within = range(offset, min(self._end, offset + GAPS * self._size))
        sieve = HpaSieve(self._hpa)
        async with aclosing(self._past.nearby(DECISIONS, self._number, within, sieve)) as stretches:
            async for stretch in stretches:
                for record in stretch:
                    found = recorded_at(self._number, record.offset, record.value)
                    if found.hpa == self._hpa and found.decision.kind == "evaluation":
                        return found
        return None


def bounds_of(recorded: Recorded) -> tuple[int, ...]:
    """What a chart shows every change of: replicas and the bounds of them."""
    decision = recorded.decision
    return decision.final_desired_replicas, decision.current_replicas, decision.min_replicas, decision.max_replicas
