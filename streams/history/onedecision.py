"""One decision derived again: from the newest snapshot before its log record, or from the log's start."""

from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass

from schemas.chain import links_of
from streams.archive.layout import DECISIONS
from streams.archive.segments import ArchivedRecord
from streams.history.decisioncheck import log_offset_of
from streams.history.past import Past
from streams.state.ledger import DecisionRecord


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

    Raises:
        ArchiveError: the source is damaged, or no longer reaches back far enough.
    """
    offset = log_offset_of(decision_id)
    state = await past.restored(partition, below=offset)
    began, folded, made = state.applied_offset, 0, None
    seq = state.seq
    async with aclosing(past.following(state, upto=offset)) as records:
        async for record in records:
            decisions = state.apply(record.offset, record.timestamp_ms, record.value)
            folded += 1
            if record.offset == offset:
                decision_id = named(decision.id for decision in decisions) or decision_id
            made = next((decision for decision in decisions if decision.id == decision_id), None)
            if made is not None:
                break
    return Derived(decision_id, began, folded, await _standing(past, partition, decision_id, seq), made)


async def _standing(past: Past, partition: int, decision_id: str, seq: int) -> ArchivedRecord | None:
    wanted = log_offset_of(decision_id)
    async with aclosing(past.records(DECISIONS, partition, await past.first_decision(partition, seq))) as records:
        async for record in records:
            links = links_of(record.value)
            if links.id == decision_id:
                return record
            if log_offset_of(links.id) > wanted:
                return None
    return None
