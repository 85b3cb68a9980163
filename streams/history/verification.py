"""Verification of a whole archive, or of log and decisions as read from topics, on all cores."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from streams.archive.filecheck import check_layout, check_segments, check_snapshots, next_head, signed_heads
from streams.archive.layout import DECISIONS, LOG
from streams.archive.lock import is_written
from streams.archive.segments import GENESIS, ArchiveError
from streams.archive.signing import Heads, read_checkpoints, read_public
from streams.history.archivepast import ArchivePast
from streams.history.decisioncheck import Report
from streams.history.parallel import ReplayPool, told
from streams.history.partitioncheck import check_partition
from streams.history.past import Past


@dataclass(frozen=True)
class Task:
    """One partition to verify. `checkpoints`: heads to hold it to."""

    past: Past
    partition: int
    since_ms: int | None = None
    checkpoints: list[Heads] = field(default_factory=list)


def verify_partition(task: Task) -> Report:
    """Verify one partition: its files first (an archive's), then every decision by recomputation."""
    return asyncio.run(_verify(task))


async def _verify(task: Task) -> Report:
    segments = 0
    try:
        for topic in (LOG, DECISIONS):
            wanted = signed_heads(task.checkpoints, topic, task.partition)
            if isinstance(task.past, ArchivePast):
                segments += check_segments(task.past.root, topic, task.partition, wanted, task.since_ms)
            elif wanted:
                await _check_topic(task.past, topic, task.partition, wanted)
        if isinstance(task.past, ArchivePast):
            check_snapshots(task.past.root, task.partition)
    except ArchiveError as error:
        return Report(partition=task.partition, fault=str(error))
    report = await check_partition(task.past, task.partition, task.since_ms, told)
    report.segments, report.signed = segments, len(task.checkpoints)
    return report


async def _check_topic(past: Past, topic: str, partition: int, wanted: dict[int, str]) -> None:
    head, last = GENESIS, -1
    async with aclosing(past.records(topic, partition)) as records:
        async for record in records:
            head = next_head(head, record, wanted, f"{topic}-{partition}")
            last = record.offset
            if last >= max(wanted):
                return
    raise ArchiveError(f"{topic}-{partition}: ends at offset {last}, a signed checkpoint names offset {max(wanted)}")


def checkpoints_of(root: Path, public: Path | None) -> list[Heads]:
    """The signed checkpoints of an archive, checked against a public key where one is given.

    Raises:
        ArchiveError: a checkpoint is wrong, or there is none although a key is given.
    """
    found = read_checkpoints(root, read_public(public) if public else None, written=is_written(root))
    if public and not found:
        raise ArchiveError(f"{root}: holds no signed checkpoint, so nothing can be checked with {public}")
    return found


async def verify(
    past: Past, since_ms: int | None, checkpoints: list[Heads], pool: ReplayPool[Task, Report]
) -> AsyncIterator[Report]:
    """Verify all partitions; a report for each, as they come.

    Raises:
        ArchiveError: the layout of the archive is wrong, or the source cannot be read at all.
    """
    if isinstance(past, ArchivePast):
        count = check_layout(past.root)
    else:
        count = await past.partitions()
    async for report in pool.run([Task(past, number, since_ms, checkpoints) for number in range(count)]):
        yield report
