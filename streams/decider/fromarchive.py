"""State from an archive, for when the changelog was lost and the log no longer begins at its beginning.

An archive outlives the topics: it holds the log from its first record, or from a snapshot of the state on. So nothing
is lost, nothing restarts, and the decisions go on as if nothing had been.
"""

import hashlib
from collections.abc import Mapping
from contextlib import aclosing
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from runtime.kafkaclients import OffsetBounds, read_range
from schemas.chain import links_of
from streams.decider.exits import Exit
from streams.decider.recordedtail import TailHead
from streams.decider.startupchecks import StartError
from streams.history.past import LogGoneError, Past

WITHOUT = "without --archive, --rebuild begins anew from what the log still holds, and a restart entry says so"


class ArchivedState(NamedTuple):
    """All state rows of a log partition, the log offset that they have applied, and the decision they follow from."""

    rows: Mapping[bytes, bytes]
    applied_offset: int
    head: TailHead


async def archived_state(past: Past, number: int, upto: int) -> ArchivedState:
    """Fold an archived log partition up to offset `upto`, or as far as the archive reaches.

    Raises:
        ArchiveError, CoreError: the archive is damaged.
        StartError: it begins later than the log did, and holds no snapshot.
    """
    try:
        folded = await past.fold_to(number, offset=upto)
    except LogGoneError as error:
        raise StartError(Exit.NEEDS_OPERATOR, f"{error}; {WITHOUT}") from error
    partition = folded.partition
    return ArchivedState(folded.rows(), partition.applied_offset, TailHead(partition.seq, partition.prev))


def check_reach(past: Past, number: int, state: ArchivedState, log: OffsetBounds, newest: TailHead) -> None:
    """Check that the log continues where the archived state ends, and that the topic has all decisions of the state.

    Raises:
        StartError: it does not.
    """
    if state.applied_offset + 1 < log.first:
        ends = f"ends at log offset {state.applied_offset}" if state.applied_offset >= 0 else "holds no log record"
        raise _unfit(past, number, f"{ends}, the log begins at {log.first}: what lies between is lost")
    if state.head.seq > newest.seq:
        raise _unfit(
            past,
            number,
            f"leads to decision number {state.head.seq} at log offset {state.applied_offset}, the decisions topic "
            f"ends with number {newest.seq}: those between were never published, or are lost",
        )


async def decision_offset(
    consumer: AIOKafkaConsumer, tp: TopicPartition, bounds: OffsetBounds, past: Past, state: ArchivedState
) -> int:
    """The offset of the decision that the state follows from.

    Raises:
        StartError: there is another decision in its place, or none: the archive is not of this log.
    """
    number, head = tp.partition, state.head
    if not head.seq:
        return bounds.first
    first = max(bounds.first, await past.first_decision(number, head.seq))
    async with aclosing(read_range(consumer, tp, first, bounds.end)) as records:
        async for record in records:
            if links_of(record.value).seq == head.seq:
                if hashlib.sha256(record.value).hexdigest() == head.digest:
                    return int(record.offset)
                raise _unfit(
                    past, number, f"leads to another decision number {head.seq} than stands: it is of another log"
                )
    raise _unfit(past, number, f"leads to decision number {head.seq}, which {tp.topic} does not hold")


def _unfit(past: Past, number: int, what: str) -> StartError:
    return StartError(Exit.NEEDS_OPERATOR, f"log partition {number}: the archive {past.name} {what}; {WITHOUT}")
