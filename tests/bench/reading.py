"""What reading costs: a replay and `fleethpa cost` over an archive, and `fleethpa get` as a process.

`python -m tests.bench.reading replay [--minutes N] [--hpas N] [--jobs N] [--profile]`: a generated fleet in closed loop
(1,000 HPAs, evaluated every 15 s, whose wanted writes are applied) is archived, then replayed as `fleethpa replay` does
it, every decision compared byte for byte. A whole day is `--minutes 1440`: 5.76 million evaluations.

`python -m tests.bench.reading cost`: the decisions of such a fleet are read as `fleethpa cost` reads them, each
partition in a process. Printed are decisions per second of CPU (that of all processes), of time, and the memory of the
largest process. `--times 7` has all decisions seven times, one after the other in log time: seven days, where a day was
generated. `--copies 16` reads each partition sixteen times, as that many partitions: a fleet of so many times the HPAs.

`--archive DIR` keeps the archive there, or reads the one that is there. `python -m tests.bench present` reads the
present: the topics hold state rows, log and decisions of a while (the embedded broker keeps some 5 MB of each
partition, which is a past of an hour for 100 HPAs), and the log continues for half a checkpoint's time after the newest
one, as it does on average; CPU time of the whole process counts, its start included.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import os
import pstats
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

from fleethpa.lab.simulator.broker import EmbeddedBroker
from schemas import topics
from schemas.connection import KafkaSettings
from schemas.keys import HpaId
from schemas.kubernetes.gotimes import parse_time_ms
from schemas.topics import EMBEDDED_PARTITIONS
from streams.analysis.costs import Cost, CostTask, costs
from streams.archive.layout import DECISIONS, ArchivedRecord, archived_record
from streams.archive.segmentreader import PartitionReader
from streams.history.archivepast import ArchivePast
from streams.history.parallel import DecisionsTask, ReplayPool, cores
from streams.history.replay import Report, Task
from streams.history.verify import verify_partition
from streams.partition import Partition
from streams.state.records import print_time
from tests.kit.archive import ENFORCING, as_record
from tests.kit.generated_archive import PARTITIONS, archive_of, partitions_of
from tests.kit.generated_log import Fleet, generate
from tests.kit.questions import TopicRecord, produce

Line = tuple[str, float, str]
MINUTES = 12.0
FAR_MS = 1 << 60
PERIOD_MS = 15_000


_SEQ, _TIME = re.compile(rb'"seq":(\d+)'), re.compile(rb'"time":"([^"]+)"')
RUNS = 5
NOTHING = Fleet(hpas=100, namespaces=10, minutes=0.625, partitions=EMBEDDED_PARTITIONS, settings=ENFORCING)
HOUR = Fleet(hpas=100, namespaces=10, minutes=60.125, partitions=EMBEDDED_PARTITIONS, settings=ENFORCING)
LARGE = Fleet(hpas=5_000, namespaces=250, minutes=1.125, partitions=EMBEDDED_PARTITIONS, settings=ENFORCING)


# --- replay -----------------------------------------------------------------------------------------------------------


def replayed(root: Path, jobs: int) -> tuple[list[Report], float]:
    """Replay the archive: reports and seconds."""

    async def run() -> list[Report]:
        tasks = [Task(ArchivePast(root), number) for number in range(partitions_of(root))]
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


def _profile(hpas: int, minutes: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "archive"
        archive_of(root, hpas, minutes)
        profile = cProfile.Profile()
        profile.runcall(verify_partition, Task(ArchivePast(root), 0))
    pstats.Stats(profile).sort_stats("tottime").print_stats(35)


# --- cost -------------------------------------------------------------------------------------------------------------


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


def _cost(task: CostTask) -> list[Cost]:
    found, faults = asyncio.run(costs(task))
    assert not faults
    return found


def cost_lines(past: ArchivePast, jobs: int, copies: int = 1) -> list[str]:
    """Read all decisions of an archive, each partition as often as `copies` says; lines of figures."""
    hpas = [(number, _hpas(past.root, number)) for number in range(partitions_of(past.root))] * copies
    tasks = [CostTask(DecisionsTask(past, number, 0, FAR_MS), of_one) for number, of_one in hpas if of_one]
    began, before = time.monotonic(), _cpu_s()

    async def run() -> list[Cost]:
        return [each async for part in ReplayPool(_cost, jobs).run(tasks) for each in part]

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


# --- the present ------------------------------------------------------------------------------------------------------


def present() -> Iterator[Line]:
    """Print the start-up, and the reading of a young fleet, of one with a past, and of a large one."""
    yield "fleethpa version, CPU", _command_cpu_ms("version"), "ms"
    for what, fleet in (("100 HPAs, begun", NOTHING), ("100 HPAs, an hour old", HOUR), ("5,000 HPAs", LARGE)):
        with EmbeddedBroker() as broker:
            broker.ensure_topics([topics.LOG, topics.DECISIONS, topics.CHANGELOG])
            produce(KafkaSettings(bootstrap_servers=broker.bootstrap), list(_topics(fleet)))
            for verb in (("get", "hpa", "-A"), ("get", "hpa", "-A", "-o", "wide"), ("history", "c0/ns0/nosuch")):
                cost = _command_cpu_ms(*verb, "--brokers", broker.bootstrap)
                yield f"fleethpa {' '.join(verb)}, {what}, CPU", cost, "ms"


def _topics(fleet: Fleet) -> Iterator[TopicRecord]:
    folds = {number: Partition.empty(number) for number in range(fleet.partitions)}
    decided = dict.fromkeys(folds, 0)
    for number, offset, time_ms, value in generate(fleet):
        yield TopicRecord(topics.LOG, number, time_ms, None, value)
        for decision in folds[number].apply(offset, time_ms, value):
            made = as_record(decided[number], time_ms, decision)
            yield TopicRecord(topics.DECISIONS, number, time_ms, made.key, made.value, made.headers)
            decided[number] += 1
        if folds[number].due_checkpoint:
            yield from (TopicRecord(topics.CHANGELOG, number, time_ms, *row) for row in folds[number].checkpoint())


def _command_cpu_ms(*arguments: str) -> float:
    """The least CPU time of some runs."""
    environment = os.environ | {"FLEETHPA_RUNTIME_DIR": os.devnull, "FLEETHPA_CONFIG": ""}
    found = []
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "fleethpa", *arguments], env=environment, capture_output=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return 1_000 * min(found)


# --- the command ------------------------------------------------------------------------------------------------------


def main() -> None:
    """Make or take the archive, and print the measures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.reading", description=__doc__)
    parser.add_argument("what", choices=("replay", "cost"))
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--hpas", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="cost: log partitions of the archive")
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--archive", type=Path, help="where it is kept, or already is [default: a temporary one]")
    parser.add_argument("--profile", action="store_true", help="replay: profile one partition instead")
    parser.add_argument("--times", type=int, default=1, help="cost: so many times the decisions, one after the other")
    parser.add_argument("--copies", type=int, default=1, help="cost: so many times the HPAs")
    given = parser.parse_args()
    if given.profile:
        _profile(given.hpas, given.minutes)
    elif given.what == "replay":
        for what, value, unit in replay_slice(given.hpas, given.minutes, given.jobs, given.archive):
            sys.stdout.write(f"{what:<58} {value:>12,.0f} {unit}\n")
    else:
        with tempfile.TemporaryDirectory() as folder:
            root = given.archive or Path(folder) / "archive"
            archive_of(root, given.hpas, given.minutes, given.jobs, given.partitions)
            past = RepeatedPast(root, given.times) if given.times > 1 else ArchivePast(root, checked=True)
            sys.stdout.write("\n".join(cost_lines(past, given.jobs, given.copies)) + "\n")


if __name__ == "__main__":
    main()
