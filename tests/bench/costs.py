"""`fleethpa cost` over many decisions: `python -m tests.bench.costs [--minutes N] [--hpas N] [--archive DIR]`.

Decisions of a generated fleet in closed loop, read as the verb reads them, each partition in a process. Printed are
decisions per second of CPU (those of all processes), of time, and the memory of the largest process.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path

from schemas.keys import HpaId
from streams.analysis.costs import Cost, CostTask, costs
from streams.archive.layout import DECISIONS
from streams.archive.segmentreader import PartitionReader
from streams.history.archivepast import ArchivePast
from streams.history.parallel import DecisionsTask, ReplayPool, cores
from tests.bench.replay import PARTITIONS, archive_of

FAR_MS = 1 << 60


def _hpas(root: Path, number: int) -> frozenset[HpaId]:
    reader = PartitionReader(root, DECISIONS, number)
    names = {name for manifest in reader.manifests() for name in reader.hpas(manifest) if name}
    return frozenset(HpaId(*name.split("/")) for name in names)


def _read(task: CostTask) -> list[Cost]:
    found, faults = asyncio.run(costs(task))
    assert not faults
    return found


def _cpu_s() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def measured(root: Path, jobs: int) -> list[str]:
    """Read all decisions of an archive; lines of figures."""
    past = ArchivePast(root, True)
    tasks = [CostTask(DecisionsTask(past, number, 0, FAR_MS), _hpas(root, number)) for number in range(PARTITIONS)]
    began, before = time.monotonic(), _cpu_s()

    async def run() -> list[Cost]:
        return [each async for part in ReplayPool(_read, jobs).run(tasks) for each in part]

    found = asyncio.run(run())
    took_s, cpu_s = time.monotonic() - began, _cpu_s() - before
    read = sum(each.evaluations for each in found)
    memory = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024
    return [
        f"{read:,} evaluations of {len(found):,} HPAs, {jobs} processes",
        f"{read / cpu_s:,.0f} decisions per second of CPU, {read / took_s:,.0f} per second of time",
        f"{memory:,.0f} MiB in the largest process",
        f"a week of 1,000 HPAs at 15 s (40,320,000): {40_320_000 / (read / cpu_s) / 60:.1f} minutes of CPU",
    ]


def main() -> None:
    """Make or take the archive, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hpas", type=int, default=1_000)
    parser.add_argument("--minutes", type=float, default=16.0)
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--archive", type=Path, help="where it is kept, or already is")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = given.archive or Path(folder) / "archive"
        archive_of(root, given.hpas, given.minutes, given.jobs)
        sys.stdout.write("\n".join(measured(root, given.jobs)) + "\n")


if __name__ == "__main__":
    main()
