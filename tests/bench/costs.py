"""`fleethpa cost` over many decisions: `python -m tests.bench.costs [--minutes N] [--hpas N] [--archive DIR]`.

Decisions of a generated fleet in closed loop, read as the verb reads them, each partition in a process. Printed are
decisions per second of CPU (those of all processes), of time, and the memory of the largest process.

`--times 7` has all decisions seven times, one after the other in log time: seven days, where a day was generated.
`--copies 16` reads each partition sixteen times, as that many partitions: a fleet of so many times the HPAs.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import resource
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from schemas.keys import HpaId
from schemas.kubernetes.gotimes import parse_time_ms
from streams.analysis.costs import Cost, CostTask, costs
from streams.archive.layout import DECISIONS, ArchivedRecord, archived_record
from streams.archive.segmentreader import PartitionReader
from streams.history.archivepast import ArchivePast
from streams.history.parallel import DecisionsTask, ReplayPool, cores
from streams.state.records import print_time
from tests.bench.replay import PARTITIONS, archive_of

FAR_MS = 1 << 60
PERIOD_MS = 15_000


_SEQ, _TIME = re.compile(rb'"seq":(\d+)'), re.compile(rb'"time":"([^"]+)"')


class RepeatedPast(ArchivePast):
    """An archive whose records are there several times, each time later by the time that all of them take."""

    def __init__(self, root: Path, times: int) -> None:
        super().__init__(root, checked=True)
        self.times = times

    async def stretches(self, topic: str, partition: int, first: int = 0) -> AsyncGenerator[list[ArchivedRecord], None]:
        manifests = self._topic(topic, partition).manifests()
        count = manifests[-1].last_offset + 1
        span_ms = manifests[-1].last_timestamp_ms - manifests[0].first_timestamp_ms + PERIOD_MS
        for number in range(self.times):
            async for stretch in super().stretches(topic, partition, first):
                yield [_later(each, number * count, number * span_ms) for each in stretch] if number else [*stretch]


def _later(record: ArchivedRecord, more: int, by_ms: int) -> ArchivedRecord:
    value = _SEQ.sub(lambda found: b'"seq":%d' % (int(found[1]) + more), record.value, count=1)
    value = _TIME.sub(
        lambda found: b'"time":"%s"' % print_time(parse_time_ms(found[1].decode()) + by_ms).encode(), value, count=1
    )
    return archived_record(record.offset + more, record.timestamp_ms + by_ms, record.key, (), value)


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


def measured(past: ArchivePast, jobs: int, copies: int = 1) -> list[str]:
    """Read all decisions of an archive, each partition as often as `copies` says; lines of figures."""
    hpas = [(number, _hpas(past.root, number)) for number in range(PARTITIONS)] * copies
    tasks = [CostTask(DecisionsTask(past, number, 0, FAR_MS), of_one) for number, of_one in hpas if of_one]
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
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--archive", type=Path, help="where it is kept, or already is")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = given.archive or Path(folder) / "archive"
        archive_of(root, given.hpas, given.minutes, given.jobs)
        past = RepeatedPast(root, given.times) if given.times > 1 else ArchivePast(root, checked=True)
        sys.stdout.write("\n".join(measured(past, given.jobs, given.copies)) + "\n")


if __name__ == "__main__":
    main()
