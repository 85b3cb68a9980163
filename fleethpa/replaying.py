"""Reads the log again for the questions that only the log answers: from the nearest snapshot, or from its start."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fleethpa.errors import CommandError
from schemas.keys import HpaId

if TYPE_CHECKING:
    from fleethpa.decisions import Recorded
    from fleethpa.readers import Reader
    from streams.core.partition import Partition
    from streams.replay.inputs import Evaluated, Event, LogEntry


class LogGoneError(Exception):
    """The log does not reach back far enough; says what would."""


async def fold_from(
    reader: Reader, number: int, *, offset: int | None = None, time_ms: int | None = None
) -> tuple[Partition, list[LogEntry]]:
    """Give a partition as it was before a log offset or time, as near as is stored, and the log from there on.

    Raises:
        LogGoneError: the log no longer begins at its first record and no snapshot stands in for it.
    """
    from streams.core.partition import Partition

    rows = _stored(reader, number, offset, time_ms)
    partition = Partition.restore(number, rows) if rows else Partition.empty(number)
    first = partition.applied_offset + 1
    records = [(each.offset, each.timestamp_ms, each.value) async for each in reader.log(number, first)]
    if records and records[0][0] > first:
        raise LogGoneError(
            f"log partition {number} begins at offset {records[0][0]}: earlier records are gone; "
            "an archive keeps them (fleethpa archive --to DIR, then --from DIR)"
        )
    return partition, records


def _stored(reader: Reader, number: int, offset: int | None, time_ms: int | None) -> dict[bytes, bytes]:
    from fleethpa.archivereader import ArchiveReader

    if not isinstance(reader, ArchiveReader):
        return {}
    from streams.replay.snapshots import read_snapshot, snapshots
    from streams.replay.sources import ArchiveSource

    if offset is not None:
        before = [path for applied, path in snapshots(reader.root, number) if applied < offset]
        return dict(read_snapshot(before[-1])) if before else {}
    found = ArchiveSource(reader.root).snapshot(number, time_ms) if time_ms is not None else None
    return dict(found[1]) if found else {}


async def evaluated(reader: Reader, recorded: Recorded) -> Evaluated:
    """Give the inputs of a decision, after checking that the log gives exactly that decision again.

    Raises:
        LogGoneError: the log does not hold them any more, or gives another decision.
    """
    from streams.replay.inputs import evaluation_of

    id_ = recorded.decision.id
    partition, records = await fold_from(reader, recorded.partition, offset=int(id_.split("-", 2)[1]))
    found = evaluation_of(partition, records, id_)
    if found is None:
        raise LogGoneError(f"the log holds no evaluation {id_}")
    if found.value != recorded.value:
        raise LogGoneError(f"the log gives another decision {id_} than the recorded one: fleethpa verify {id_}")
    return found


async def events_of(
    reader: Reader, wanted: Callable[[HpaId], bool], partitions: list[int], since_ms: int, until_ms: int | None
) -> list[Event]:
    """What became of HPAs from a time on: evaluations with their inputs, and ends of writes.

    Raises:
        CommandError: the log does not reach back to the start (exit 2).
    """
    from streams.replay.inputs import events

    found: list[Event] = []
    for number in partitions:
        try:
            partition, records = await fold_from(reader, number, time_ms=since_ms)
        except LogGoneError as error:
            raise CommandError(str(error), code=2) from error
        upto = (record for record in records if until_ms is None or record[1] < until_ms)
        found += [_slim(each) for each in events(partition, upto, wanted) if _time(each) >= since_ms]
    return found


def _slim(event: Event) -> Event:
    """Without the record's bytes, which would be most of a long window."""
    from streams.replay.inputs import Evaluated

    return Evaluated(event.inputs, b"") if isinstance(event, Evaluated) else event


def _time(event: Event) -> int:
    from streams.replay.inputs import Evaluated

    return event.inputs.now_ms if isinstance(event, Evaluated) else event.now_ms
