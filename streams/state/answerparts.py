"""Answers of metrics APIs that come in parts, because they do not fit into one record.

Each part has a slot of its own, with the newest parts that arrived for it. The answer in force depends only on
the slots, and a slot only on its own parts, so that slots may be stored in rows of different age.
"""

from collections.abc import Mapping, Sequence

from msgspec import structs

from streams.state.rows import AnswerRow, answer_row

KEPT = 3
"""Parts that a slot keeps: of the answer in force, of one that was interrupted, and of one that is coming in."""

Slots = Mapping[int, tuple[AnswerRow, ...]]
"""Number of a part -> what came for it, the newest first."""


def with_part(slots: Slots, row: AnswerRow) -> dict[int, tuple[AnswerRow, ...]]:
    """The slots after one more part; an answer that is not divided is its only part."""
    older = slots.get(row.part, ()) if row.parts > 1 else ()
    return {**slots, row.part: (row, *older[: KEPT - 1])}


def in_force(slots: Slots) -> list[AnswerRow]:
    """The parts of the newest complete answer, in order; empty if no answer is complete."""
    for first in slots.get(0, ()):
        parts = [_of_answer(slots.get(number, ()), first) for number in range(first.parts)]
        found = [part for part in parts if part is not None]
        if len(found) == len(parts):
            return found
    return []


def _of_answer(slot: Sequence[AnswerRow], first: AnswerRow) -> AnswerRow | None:
    wanted = first.answer_id, first.parts
    return next((row for row in slot if (row.answer_id, row.parts) == wanted), None)


def joined(parts: Sequence[AnswerRow]) -> AnswerRow:
    """Join the parts into one answer, with the time of the oldest part and the source of the last."""
    if len(parts) == 1:
        return parts[0]
    answers = [part.answer for part in parts]
    answer = structs.replace(
        answers[0],
        usages=[usage for each in answers for usage in each.usages],
        values=[value for each in answers for value in each.values],
        items=[item for each in answers for item in each.items],
        answer_id="",
        part=0,
        parts=1,
    )
    return answer_row(answer, min(part.time_ms for part in parts), parts[-1].source)
