"""Reading an HPA's past: its decisions of a span, its changes, and one decision evaluated again.

What was read of the HPAs that are looked at is kept, so that a view that is read again reads only what came since.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, TypeVar

from fleethpa.changes.specs import FollowedRevisions
from fleethpa.fleet.decisionfinding import find_decision
from fleethpa.fleet.finding import Ref, Selection, check_known
from fleethpa.fleet.troubles import ClusterTrouble
from fleethpa.frame.errors import CommandError
from fleethpa.questions.explaining import Again, evaluated_again, troubles_of
from fleethpa.show.text import rfc3339
from schemas.decisionfields import DECISION_FIELDS, reader_of
from schemas.keys import HpaId
from schemas.partitioning import partition_for
from streams.analysis.revisions import Revision
from streams.archive.layout import DECISIONS, LOG
from streams.history.past import Past
from streams.history.recorded import DecisionWindow, Recorded, recorded_at

K = TypeVar("K")
V = TypeVar("V")
SPANS_FOLDED_MS: Final = (6 * 3_600_000, 3_600_000, 900_000)
"""How far back changes of the spec are read at most, and where that would fold too much of the log."""
FIRST_PART_MS: Final = 6 * 3_600_000
"""Of a longer span, so much is read for the timeline at first, and read on when the view is read again."""
EVALUATIONS_KEPT: Final = 32
HPAS_KEPT: Final = 4
"""HPAs whose past is read on, of all browsers together: each holds the state of its partition."""
MOST_FOLDED: Final = 25_000
"""Records of the log at most that are folded for them: those of 500 HPAs in an hour."""
DECISIONS_KEPT: Final = 20_000
"""Of one HPA: those of three and a half days."""

NOT_DRAWN: Final = {"status", "events", "labels", "input"}
"""Fields of a decision that neither the timeline nor the charts show. They take a third of the time of reading it."""
read_drawn: Final = reader_of(*(each.name for each in DECISION_FIELDS if each.name not in NOT_DRAWN))


@dataclass(frozen=True)
class Depth:
    """How much is read for one view of an HPA.

    `most_folded`: records of the log that are read for its changes; None: all. `most_again`: those that are folded to
    explain a decision, and decisions that have to be repeated for it.
    """

    most_folded: int | None = None
    most_again: int = 25_000


WHOLE: Final = Depth()
QUICK: Final = Depth(most_folded=3_000, most_again=500)
"""What is read before the view is shown first. The rest follows, where there is more."""
HOUR_MS: Final = 3_600_000
MOST_READ: Final = 125_000
"""Decisions of an HPA's partition, of all its HPAs, that are read of more than an hour: what 500 HPAs make in one."""
TIMELINE: Final = 200
"""Lines of the timeline at most."""


@dataclass(frozen=True)
class HpaPast:
    """What was read of an HPA: its evaluations and ended writes of a span, its changes, and one decision explained."""

    decisions: Sequence[Recorded]
    """The newest of the span, as many as the timeline shows; or all of them. Without the fields `NOT_DRAWN`."""
    revisions: Sequence[Revision]
    is_whole: bool
    """Whether the changes reach as far back as the span."""
    since_ms: int = 0
    """From when on all decisions were read, where that is later than the span begins; 0: it is not."""
    again: Again | None = None
    ending: Recorded | None = None
    troubles: Sequence[ClusterTrouble] = ()
    note: str = ""
    next_step: str = ""
    """The command that comes next after what the note says; empty: none."""
    has_more: bool = False
    """Whether a deeper reading finds more, or checks what was read."""
    is_checked: bool = True
    """Whether the files of an archive were found to be what the archive says of itself."""


def as_read_before(before: HpaPast | None) -> HpaPast:
    """Return what is shown of an HPA whose past cannot be read now: what was read before, with the time of its newest
    decision, which may be older than the state of the fleet.
    """
    note = "The past of this HPA cannot be read now."
    if before is None:
        return HpaPast((), (), is_whole=False, note=note, next_step="fleethpa doctor")
    if before.again is not None:
        note += f" What is shown of it was decided until {rfc3339(before.again.recorded.time_ms)}."
    return replace(before, note=note, next_step="fleethpa doctor")


class LastUsed(OrderedDict[K, V]):
    """What was used last, by key: no more than `most`."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: K, value: V) -> V:
        """Keep a value in place of the one that was used longest ago."""
        self[key] = value
        self.move_to_end(key)
        while len(self) > self._most:
            self.popitem(last=False)
        return value


class KeptEvaluations:
    """The decisions that were evaluated again last, by id: that of one decision is always the same.

    To evaluate one again folds the log since the newest stored state before it, which an archive has once an hour; a
    view is read again whenever something is new.
    """

    def __init__(self) -> None:
        self._kept = LastUsed[str, Again](EVALUATIONS_KEPT)

    async def of(self, past: Past, recorded: Recorded, most: int | None = None) -> Again:
        """A decision, evaluated again; one that could not be is tried again. `most`: as of `evaluated_again`."""
        id_ = recorded.decision.id
        again = self._kept[id_] if self.has(recorded) else await evaluated_again(past, recorded, most)
        return again if again.unknown or again.is_far else self._kept.keep(id_, again)

    def has(self, recorded: Recorded) -> bool:
        """Whether a decision was evaluated again."""
        again = self._kept.get(recorded.decision.id)
        return again is not None and again.recorded.value == recorded.value


@dataclass
class _Kept:
    """What was read of one HPA up to now, from `since_ms` on. None: nothing was."""

    since_ms: int = 0
    window: DecisionWindow | None = None
    decisions: list[Recorded] = field(default_factory=list)
    revisions: FollowedRevisions | None = None
    span_ms: int = 0
    """The span for which changes were read."""


class KeptPasts:
    """What was read of the HPAs that were looked at last, up to now; the next reading begins there."""

    def __init__(self) -> None:
        self.evaluations = KeptEvaluations()
        self._kept = LastUsed[HpaId, _Kept](HPAS_KEPT)
        self._turn = asyncio.Lock()

    def is_read(self, hpa: HpaId, span_ms: int) -> bool:
        """Whether everything of a span that ends now was read before, so that only what came since is."""
        kept = self._kept.get(hpa)
        return kept is not None and kept.revisions is not None and span_ms <= kept.span_ms

    async def decisions(self, past: Past, hpa: HpaId, since_ms: int) -> list[Recorded]:
        """The decisions of an HPA from a time up to now, oldest first."""
        async with self._turn:
            kept = self._kept.pop(hpa, None) or _Kept()  # put back only when nothing went wrong
            if kept.window is None or since_ms < kept.since_ms:
                await _begin(kept, past, hpa, since_ms)
            else:
                await _read_on(kept, past, kept.window)
            if len(kept.decisions) > DECISIONS_KEPT:
                del kept.decisions[:-DECISIONS_KEPT]
                kept.since_ms = kept.decisions[0].time_ms
            self._kept.keep(hpa, kept)
            return [each for each in kept.decisions if each.time_ms >= since_ms]

    async def check(self, past: Past, hpa: HpaId) -> None:
        """Check what was read of an HPA's decisions. Raises ArchiveError: it is not what the archive says of itself."""
        if (window := await self._window(hpa)) is not None:
            await past.check(DECISIONS, window.number, range(window.first, sys.maxsize))

    async def is_checked(self, past: Past, hpa: HpaId) -> bool:
        """Whether `check` has nothing to do. Raises ArchiveError: a file of the archive is missing or damaged."""
        window = await self._window(hpa)
        return window is None or await past.is_checked(DECISIONS, window.number, range(window.first, sys.maxsize))

    async def _window(self, hpa: HpaId) -> DecisionWindow | None:
        async with self._turn:  # who reads on has taken it out
            kept = self._kept.get(hpa)
        return None if kept is None else kept.window

    async def changes(self, past: Past, hpa: HpaId, now_ms: int, span_ms: int) -> tuple[list[Revision], int]:
        """The changes of an HPA in the span that ends now, oldest first, and from when on they were read."""
        async with self._turn:
            kept = self._kept.pop(hpa, None) or _Kept()
            if kept.revisions is None or span_ms > kept.span_ms:
                kept.revisions, kept.span_ms = await follow_changes(past, hpa, now_ms, span_ms), span_ms
            revisions = await kept.revisions.read_on(past)
            self._kept.keep(hpa, kept)
            since_ms = max(kept.revisions.since_ms, now_ms - span_ms)
            return [each for each in revisions if each.time >= since_ms], since_ms


async def _begin(kept: _Kept, past: Past, hpa: HpaId, since_ms: int) -> None:
    for window in await _windows(past, hpa, since_ms):
        kept.window, kept.decisions, kept.since_ms = window, [], since_ms
        await _read_on(kept, past, window)
        if window.is_complete:
            return


async def _windows(past: Past, hpa: HpaId, since_ms: int, until_ms: int | None = None) -> list[DecisionWindow]:
    number = await number_of(past, hpa)
    windows = await past.windows(number, since_ms, until_ms, hpa.__eq__)
    for window in windows:
        window.hpa, window.read = hpa, read_drawn
    return windows


async def _read_on(kept: _Kept, past: Past, window: DecisionWindow) -> None:
    """Read what is new. To be shown soon it is not checked; that is done once it is shown."""
    async with aclosing(past.newer(window, checked=False)) as stretches:
        async for taken in stretches:
            kept.decisions += taken


async def number_of(past: Past, hpa: HpaId) -> int:
    """The log partition of an HPA."""
    return partition_for(hpa.namespace_key, await past.partitions())


async def read_hpa(
    past: Past, hpa: HpaId, at_ms: int | None, now_ms: int, span_ms: int, kept: KeptPasts, depth: Depth = WHOLE
) -> HpaPast:
    """Read what the view of an HPA shows, as of a moment; None: as of `now_ms`, which is the present.

    Raises CommandError: there is no such HPA; the source cannot be read.
    """
    is_now = at_ms is None
    decisions, since_ms = await read_timeline(past, hpa, now_ms, span_ms, kept if is_now else None)
    revisions: list[Revision] = []
    changed_ms = now_ms
    is_far = await _is_far(past, hpa, now_ms, span_ms, depth.most_folded)
    if not is_far:
        if is_now:
            revisions, changed_ms = await kept.changes(past, hpa, now_ms, span_ms)
        else:
            followed = await follow_changes(past, hpa, now_ms, span_ms)
            revisions, changed_ms = await followed.read_on(past), followed.since_ms
    fields: dict[str, Any] = {
        "decisions": decisions,
        "revisions": revisions,
        "is_whole": changed_ms <= max(0, now_ms - span_ms),
        "since_ms": since_ms,
        "has_more": depth != WHOLE and changed_ms == now_ms,
    }
    if depth == WHOLE:
        await (kept.check(past, hpa) if is_now else past.check(*await _place(past, hpa, now_ms, span_ms)))
    else:
        fields["is_checked"] = await (
            kept.is_checked(past, hpa) if is_now else past.is_checked(*await _place(past, hpa, now_ms, span_ms))
        )
        fields["has_more"] |= not fields["is_checked"]
    try:
        newest, ending = newest_of(decisions) or (await find_decision(past, str(hpa), None, at_ms=at_ms))[:2]
    except CommandError as error:
        note = "\n".join(filter(None, (error.what, error.cause)))
        return HpaPast(**fields, note=note, next_step=error.next_step)
    if is_far and not kept.evaluations.has(newest):  # the whole reading, which follows, does that
        again = Again(newest, is_far=True)
    else:
        again = await kept.evaluations.of(past, newest, depth.most_again)
    fields["has_more"] |= again.is_far and depth != WHOLE
    note, next_step = (
        f"What would have changed the answer cannot be found out: {again.unknown}" if again.unknown else "",
        "",
    )
    if again.is_far and depth == WHOLE:
        note = "What would have changed the answer needs many decisions of other HPAs to be repeated."
        next_step = f"fleethpa explain {newest.decision.id}"
    troubles = await troubles_of(past, newest, ending, now_ms)
    return HpaPast(**fields, again=again, ending=ending, troubles=troubles, note=note, next_step=next_step)


async def _place(past: Past, hpa: HpaId, at_ms: int, span_ms: int) -> tuple[str, int, range]:
    """Topic, partition and offsets of the decisions of the span that ends at a moment."""
    window, *_ = await _windows(past, hpa, max(0, at_ms - span_ms))
    end = await past.offset_at(DECISIONS, window.number, at_ms + 1)
    return DECISIONS, window.number, range(window.first, end + 1)


async def read_timeline(
    past: Past, hpa: HpaId, at_ms: int, span_ms: int, kept: KeptPasts | None = None
) -> tuple[list[Recorded], int]:
    """The newest decisions of an HPA in the span that ends at a moment, oldest first: at least what the timeline shows.

    Also returns from when on they were all read; 0: from where the span begins, or as far as the timeline shows.

    Args:
        kept: what was read before; None: the moment is in the past.

    Raises:
        CommandError: there are none, and there is no such HPA.
    """
    since_ms, whole_ms = max(0, at_ms - span_ms), await read_from(past, hpa, at_ms, span_ms)
    part_ms = max(whole_ms, at_ms - min(span_ms, FIRST_PART_MS))
    decisions = await _newest(past, hpa, part_ms, at_ms, kept)
    while part_ms > whole_ms and not is_enough(decisions):
        until_ms, part_ms = part_ms, max(whole_ms, part_ms - (at_ms - part_ms))
        decisions = [*await _decisions_of(past, hpa, part_ms, until_ms), *decisions]
    is_cut = part_ms > since_ms and not is_enough(decisions)
    return decisions or await _none_of(past, hpa), whole_ms if is_cut else 0


def is_enough(decisions: Sequence[Recorded]) -> bool:
    """Whether decisions fill the timeline. One line more than is shown: the oldest of them is whole then."""
    return sum(1 for _ in groupby(decisions, key=likeness)) > TIMELINE


def likeness(recorded: Recorded) -> tuple[Any, ...]:
    """Return what decisions that are one line of the timeline have in common."""
    decision = recorded.decision
    if decision.kind == "completion" or decision.direction != "None":
        return (recorded.decision.id,)
    return (decision.final_desired_replicas, tuple(decision.constraints_applied), decision.reason, decision.error)


def newest_of(decisions: Sequence[Recorded]) -> tuple[Recorded, Recorded | None] | None:
    """The newest evaluation among some decisions and, where its write has ended, the record that completed it; with all
    their fields.
    """
    for recorded in reversed(decisions):
        if recorded.decision.kind == "evaluation":
            id_ = recorded.decision.id
            ending = next((each for each in decisions if each.decision.completes == id_), None)
            return _with_all_fields(recorded), None if ending is None else _with_all_fields(ending)
    return None


def _with_all_fields(recorded: Recorded) -> Recorded:
    return recorded_at(recorded.partition, recorded.offset, recorded.value)


async def read_decisions(
    past: Past, hpa: HpaId, at_ms: int, span_ms: int, kept: KeptPasts | None = None
) -> tuple[list[Recorded], int]:
    """The decisions of an HPA in the span that ends at a moment, oldest first, and from when on they are read.

    0: since the span begins. `kept` and errors: as of `read_timeline`.
    """
    begin_ms = await read_from(past, hpa, at_ms, span_ms)
    decisions = await _newest(past, hpa, begin_ms, at_ms, kept)
    return decisions or await _none_of(past, hpa), 0 if begin_ms <= max(0, at_ms - span_ms) else begin_ms


async def read_from(past: Past, hpa: HpaId, at_ms: int, span_ms: int) -> int:
    """From when on the decisions of a span are read: since it begins, unless all those of the partition have to be read
    for them and are too many; then of as many whole hours, doubled each time, as are not.
    """
    number, since_ms = await number_of(past, hpa), max(0, at_ms - span_ms)
    if past.finds_hpas:
        return since_ms
    end = await past.offset_at(DECISIONS, number, at_ms) or (await past.offsets(DECISIONS, number)).stop

    async def are_too_many(from_ms: int) -> bool:
        return end - await past.offset_at(DECISIONS, number, from_ms) > MOST_READ

    if not await are_too_many(since_ms):
        return since_ms
    begin_ms = at_ms - HOUR_MS
    while (earlier_ms := 2 * begin_ms - at_ms) > since_ms and not await are_too_many(earlier_ms):
        begin_ms = earlier_ms
    return max(since_ms, begin_ms)


async def _is_far(past: Past, hpa: HpaId, at_ms: int, span_ms: int, most: int | None) -> bool:
    """Whether more than `most` records of the log lie in the part of a span of which changes are read."""
    if most is None:
        return False
    number, since_ms = await number_of(past, hpa), max(0, at_ms - min(span_ms, SPANS_FOLDED_MS[0]))
    end = await past.offset_at(LOG, number, at_ms) or (await past.offsets(LOG, number)).stop
    return end - await past.offset_at(LOG, number, since_ms) > most


async def follow_changes(past: Past, hpa: HpaId, at_ms: int, span_ms: int) -> FollowedRevisions:
    """Return what reads the changes of the span that ends at a moment, or of a shorter one where that costs too much.

    The topics keep the state as of each moment for an hour. Before that, the whole log would have to be folded.
    """
    number = await number_of(past, hpa)
    end = await past.offset_at(LOG, number, at_ms) or (await past.offsets(LOG, number)).stop
    for longest_ms in SPANS_FOLDED_MS:
        since_ms = max(0, at_ms - min(span_ms, longest_ms))
        partition = await past.restored(number, before_ms=since_ms)
        if end - partition.applied_offset - 1 <= MOST_FOLDED:
            return FollowedRevisions(partition, hpa, since_ms)
    partition = await past.restored(number, below=end)
    return FollowedRevisions(partition, hpa, partition.clock_ms)


async def _newest(past: Past, hpa: HpaId, since_ms: int, at_ms: int, kept: KeptPasts | None) -> list[Recorded]:
    if kept is None:
        return await _decisions_of(past, hpa, since_ms, at_ms + 1)
    return await kept.decisions(past, hpa, since_ms)


async def _none_of(past: Past, hpa: HpaId) -> list[Recorded]:
    await check_known(past, Selection((Ref(hpa.name, hpa.namespace, hpa.cluster),)))
    return []


async def _decisions_of(past: Past, hpa: HpaId, since_ms: int, until_ms: int) -> list[Recorded]:
    """The decisions of an HPA from a time to before another one, not checked (`_read_on`)."""
    decisions: list[Recorded] = []
    for window in await _windows(past, hpa, since_ms, until_ms):
        async with aclosing(past.newer(window, checked=False)) as stretches:
            async for taken in stretches:
                decisions += taken
        if window.is_complete:
            break
    return decisions
