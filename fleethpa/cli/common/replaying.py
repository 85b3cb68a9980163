"""Reads the log again for the questions that only the log answers: from the nearest snapshot, or from its start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from fleethpa.cli.common.failures import CommandError
from schemas.keys import HpaId

if TYPE_CHECKING:
    from fleethpa.cli.common.decisionreading import Recorded
    from fleethpa.cli.common.readers import Reader
    from streams.history.evaluationinputs import Evaluated, Event, LogEntry
    from streams.state.partition import Partition


_BATCH: Final = 500


class LogGoneError(Exception):
    """The log does not reach back far enough; says what would."""


async def fold_from(
    reader: Reader, number: int, *, offset: int | None = None, time_ms: int | None = None
) -> tuple[Partition, AsyncGenerator[list[LogEntry], None]]:
    """Give a partition as it was before a log offset or time, as near as is stored, and the log from there on.

    Without both: as far back as the source goes. The log comes in batches; whoever stops early closes it (`aclosing`).

    Raises:
        LogGoneError: (while the log is read) it no longer begins at its first record, and no stored rows stand in.
    """
    from streams.state.partition import Partition

    rows = await reader.checkpoint(number, below=offset, before_ms=time_ms)
    partition = Partition.restore(number, rows) if rows else Partition.empty(number)
    return partition, _batches(reader, number, partition.applied_offset + 1)


async def _batches(reader: Reader, number: int, first: int) -> AsyncGenerator[list[LogEntry], None]:
    batch: list[LogEntry] = []
    async with aclosing(reader.log(number, first)) as records:
        async for each in records:
            if each.offset > first:
                raise LogGoneError(
                    f"log partition {number} begins at offset {each.offset}: earlier records are gone, and no stored "
                    "state is old enough; an archive keeps both (fleethpa archive --to DIR, then --from DIR)"
                )
            first = each.offset + 1
            batch.append((each.offset, each.timestamp_ms, each.value))
            if len(batch) == _BATCH:
                yield batch
                batch = []
                await asyncio.sleep(0)  # folding holds the loop: the progress is told in between
    yield batch


async def evaluated(reader: Reader, recorded: Recorded) -> Evaluated:
    """Give the inputs of a decision, after checking that the log gives exactly that decision again.

    Raises:
        LogGoneError: the log does not hold them any more, or gives another decision.
    """
    from schemas.chain import log_offset_of
    from streams.history.evaluationinputs import evaluation_of

    id_ = recorded.decision.id
    offset = log_offset_of(id_)
    partition, batches = await fold_from(reader, recorded.partition, offset=offset)
    found = None
    async with aclosing(batches):
        async for batch in batches:
            found = evaluation_of(partition, batch, id_)
            if found is not None or partition.applied_offset >= offset:
                break
    if found is None:
        raise LogGoneError(f"the log holds no evaluation {id_}")
    if found.value != recorded.value:
        raise LogGoneError(f"the log gives another decision {id_} than the recorded one: fleethpa verify {id_}")
    return found


async def events_of(
    reader: Reader, wanted: Callable[[HpaId], bool], number: int, since_ms: int, until_ms: int | None
) -> AsyncGenerator[Event, None]:
    """What became of HPAs of a log partition from a time on: evaluations with their inputs, and ends of writes.

    Raises:
        CommandError: the log does not reach back to the start (exit 2).
    """
    from streams.history.evaluationinputs import events

    partition, batches = await fold_from(reader, number, time_ms=since_ms)
    try:
        async with aclosing(batches):
            async for batch in batches:
                # The first of that time ends it: timestamps may step back, log time does not.
                upto = list(takewhile(lambda record: until_ms is None or record[1] < until_ms, batch))
                for each in events(partition, upto, wanted):
                    if _time(each) >= since_ms:
                        yield _slim(each)
                if len(upto) < len(batch):
                    break
    except LogGoneError as error:
        raise CommandError(str(error), code=2) from error


def _slim(event: Event) -> Event:
    """Without the record's bytes, which would be most of a long window."""
    from streams.history.evaluationinputs import Evaluated

    return Evaluated(event.inputs, b"") if isinstance(event, Evaluated) else event


def _time(event: Event) -> int:
    from streams.history.evaluationinputs import Evaluated

    return event.inputs.now_ms if isinstance(event, Evaluated) else event.now_ms
