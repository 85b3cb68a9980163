"""An archive of a generated fleet in closed loop, without snapshots: each log partition is made by a process."""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson

from streams.archive.archiver import PartitionWriter, SegmentLimits
from streams.archive.layout import DECISIONS, LOG, archived_record, create
from streams.history.parallel import ReplayPool
from tests.kit.archive import as_record
from tests.kit.closedloop import ClosedLoop, steady_fleet
from tests.kit.generated_log import Fleet

PARTITIONS = 4
FLUSH_EVERY = 2_000
LIMITS = SegmentLimits()


@dataclass(frozen=True)
class ArchiveTask:
    """A generated fleet, to be archived as one partition in a directory of its own."""

    root: Path
    fleet: Fleet
    partition: int
    partitions: int = PARTITIONS


def archive_partition(task: ArchiveTask) -> int:
    """Archive one partition, without snapshots (a replay of all needs none); gives how many decisions it has."""
    create(task.root, task.partitions)
    log, decisions = (PartitionWriter(task.root, topic, task.partition) for topic in (LOG, DECISIONS))
    made, begun_ms = 0, task.fleet.start_ms
    for count, ((offset, time_ms, value), decided) in enumerate(ClosedLoop(task.fleet, task.partition).decided()):
        log.append(archived_record(offset, time_ms, b"", (), value))
        for decision in decided:
            decisions.append(as_record(made, time_ms, decision))
            made += 1
        if count % FLUSH_EVERY == FLUSH_EVERY - 1:
            is_over = time_ms - begun_ms >= LIMITS.segment_ms
            begun_ms = time_ms if is_over else begun_ms
            for writer in (log, decisions):
                writer.flush()
                if is_over or writer.open_bytes >= LIMITS.segment_bytes:
                    writer.close_segment()
    for writer in (log, decisions):
        writer.flush()
        writer.close_segment()
    return made


def partitions_of(root: Path) -> int:
    """Return how many partitions a generated archive has."""
    return int(orjson.loads((root / "bench.json").read_bytes())["partitions"])


def archive_of(root: Path, hpas: int, minutes: float, jobs: int = 1, partitions: int = PARTITIONS) -> int:
    """Archive a generated fleet, or take the archive that is there; gives how many decisions it has."""
    known = root / "bench.json"
    if known.exists():
        return int(orjson.loads(known.read_bytes())["decisions"])
    tasks = [
        ArchiveTask(root / f"part-{number}", steady_fleet(hpas // partitions, minutes, seed=number), number, partitions)
        for number in range(partitions)
    ]

    async def run() -> list[int]:
        return [made async for made in ReplayPool(archive_partition, jobs).run(tasks)]

    made = sum(asyncio.run(run()))
    for task in tasks:
        shutil.copytree(task.root, root, dirs_exist_ok=True, ignore=_others(task.partition))
        shutil.rmtree(task.root)
    known.write_bytes(orjson.dumps({"decisions": made, "partitions": partitions}))
    return made


def _others(partition: int) -> Callable[[str, list[str]], list[str]]:
    """Leave out the directories of the other partitions."""
    return lambda folder, names: [name for name in names if name.isdecimal() and name != str(partition)]
