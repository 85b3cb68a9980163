"""Speed and memory of replay: `python -m tests.bench.replay [--minutes N] [--hpas N] [--jobs N] [--profile]`.

A generated fleet in closed loop (1,000 HPAs, evaluated every 15 s, whose wanted writes are applied) is archived, then
replayed as `fleethpa replay` does it, every decision compared byte for byte. A whole day is `--minutes 1440`: 5.76
million evaluations. `--archive DIR` keeps the
archive there, or replays the one that is there.
"""

import argparse
import asyncio
import cProfile
import pstats
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from streams.archive.archiver import PartitionWriter, SegmentLimits
from streams.archive.layout import DECISIONS, LOG, archived_record, create
from streams.history.archivepast import ArchivePast
from streams.history.parallel import ReplayPool, cores
from streams.history.replay import Report, Task
from streams.history.verify import verify_partition
from tests.bench.steady import ClosedLoop, steady_fleet
from tests.kit.archive import as_record
from tests.kit.generated_log import Fleet

PARTITIONS = 4
MINUTES = 12.0
FLUSH_EVERY = 2_000
SEGMENT_BYTES = SegmentLimits().segment_bytes


@dataclass(frozen=True)
class ArchiveTask:
    """A generated fleet, to be archived as one partition in a directory of its own."""

    root: Path
    fleet: Fleet
    partition: int


def archive_partition(task: ArchiveTask) -> int:
    """Archive one partition, without snapshots (a replay of all needs none); gives how many decisions it has."""
    create(task.root, PARTITIONS)
    log, decisions = (PartitionWriter(task.root, topic, task.partition) for topic in (LOG, DECISIONS))
    made = 0
    for count, ((offset, time_ms, value), decided) in enumerate(ClosedLoop(task.fleet, task.partition).decided()):
        log.append(archived_record(offset, time_ms, b"", (), value))
        for decision in decided:
            decisions.append(as_record(made, time_ms, decision))
            made += 1
        if count % FLUSH_EVERY == FLUSH_EVERY - 1:
            for writer in (log, decisions):
                writer.flush()
                if writer.open_bytes >= SEGMENT_BYTES:
                    writer.close_segment()
    for writer in (log, decisions):
        writer.flush()
        writer.close_segment()
    return made


def archive_of(root: Path, hpas: int, minutes: float, jobs: int = 1) -> int:
    """Archive a generated fleet, or take the archive that is there; gives how many decisions it has."""
    known = root / "bench.json"
    if known.exists():
        return int(orjson.loads(known.read_bytes())["decisions"])
    tasks = [
        ArchiveTask(root / f"part-{number}", steady_fleet(hpas // PARTITIONS, minutes, seed=number), number)
        for number in range(PARTITIONS)
    ]

    async def run() -> list[int]:
        return [made async for made in ReplayPool(archive_partition, jobs).run(tasks)]

    made = sum(asyncio.run(run()))
    for task in tasks:
        shutil.copytree(task.root, root, dirs_exist_ok=True, ignore=_others(task.partition))
        shutil.rmtree(task.root)
    known.write_bytes(orjson.dumps({"decisions": made}))
    return made


def _others(partition: int) -> Callable[[str, list[str]], list[str]]:
    """Leave out the directories of the other partitions."""
    return lambda folder, names: [name for name in names if name.isdecimal() and name != str(partition)]


def replayed(root: Path, jobs: int) -> tuple[list[Report], float]:
    """Replay the archive: reports and seconds."""

    async def run() -> list[Report]:
        tasks = [Task(ArchivePast(root), number) for number in range(PARTITIONS)]
        return [report async for report in ReplayPool(verify_partition, jobs).run(tasks)]

    began = time.monotonic()
    return asyncio.run(run()), time.monotonic() - began


def replay_slice(
    hpas: int = 1_000, minutes: float = MINUTES, jobs: int = 0, kept: Path | None = None
) -> Iterator[tuple[str, float, str]]:
    """Replay of a slice of a day of 1,000 HPAs; the archive is `kept`, or made for the time being."""
    jobs = jobs or cores()
    with tempfile.TemporaryDirectory() as folder:
        root = kept or Path(folder) / "archive"
        made = archive_of(root, hpas, minutes, jobs)
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        before = _cpu_s()
        reports, took_s = replayed(root, jobs)
        cpu_s = _cpu_s() - before
    assert sum(report.identical for report in reports) == made
    speed = made / took_s
    yield f"replay, {hpas} HPAs, {minutes:g} min, {jobs} processes", speed, "evaluations/s of time"
    yield f"replay, {hpas} HPAs, {minutes:g} min, per core", made / cpu_s, "evaluations/CPU s"
    yield "replay, times real time of 1,000 HPAs at 15 s", speed / (1_000 / 15), "x"
    used = resource.getrusage(resource.RUSAGE_CHILDREN if jobs > 1 else resource.RUSAGE_SELF).ru_maxrss / 1024
    yield "replay, memory of the largest process", used, "MiB"
    yield "archive, per decision and its share of the log", size / made, "bytes"


def _cpu_s() -> float:
    """CPU time of this process and its ended children, seconds: what other processes do does not count."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    """Print the measures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.replay", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--hpas", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--archive", type=Path, help="directory of the archive [default: a temporary one]")
    parser.add_argument("--profile", action="store_true", help="profile one partition instead")
    options = parser.parse_args()
    if options.profile:
        _profile(options.hpas, options.minutes)
        return
    for what, value, unit in replay_slice(options.hpas, options.minutes, options.jobs, options.archive):
        sys.stdout.write(f"{what:<58} {value:>12,.0f} {unit}\n")


def _profile(hpas: int, minutes: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "archive"
        archive_of(root, hpas, minutes)
        profile = cProfile.Profile()
        profile.runcall(verify_partition, Task(ArchivePast(root), 0))
    pstats.Stats(profile).sort_stats("tottime").print_stats(35)


if __name__ == "__main__":
    main()
