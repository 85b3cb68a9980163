"""`python -m tests.bench.guardrails`: `fleethpa guardrails test` over a day of decisions of 1,000 enforced HPAs.

An hour of a generated fleet is decided by the core; the archive then repeats that hour with later times. What is timed
is the command itself, as a process, with the rules of `examples/guardrails.yaml`.
"""

import argparse
import asyncio
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
from msgspec import structs

from schemas.kubernetes.gotimes import parse_time_ms
from streams.archive.archiver import PartitionWriter
from streams.archive.layout import DECISIONS, LOG, ArchivedRecord, create
from streams.history.parallel import ReplayPool, cores
from tests.bench.replay import FLUSH_EVERY, PARTITIONS, SEGMENT_BYTES
from tests.kit.archive import ENFORCING, decided
from tests.kit.generated_log import START_MS, Fleet, generate

ROOT = Path(__file__).parents[2]
_HOUR_MS = 3_600_000
_TIME = re.compile(rb'"time":"([^"]+)"')


@dataclass(frozen=True)
class DayTask:
    """One partition to be archived: `hours` times the same hour."""

    root: Path
    fleet: Fleet
    partition: int
    hours: int


def archive_day(task: DayTask) -> int:
    """Archive the decisions of a partition; gives their number."""
    records = (record for record in generate(task.fleet) if record.partition == task.partition)
    hour, log = list[ArchivedRecord](), PartitionWriter(task.root, LOG, task.partition)
    for topic, _, record in decided(records, PARTITIONS):
        if topic == DECISIONS:
            hour.append(record)
        elif not record.offset:  # the command reads none of the log, but wants to find one
            log.append(record)
    log.flush()
    log.close_segment()
    writer = PartitionWriter(task.root, DECISIONS, task.partition)
    for number in range(task.hours):
        for count, record in enumerate(_later(hour, number)):
            writer.append(record)
            if count % FLUSH_EVERY == FLUSH_EVERY - 1:
                writer.flush()
                if writer.open_bytes >= SEGMENT_BYTES:
                    writer.close_segment()
        writer.flush()
    writer.close_segment()
    return len(hour) * task.hours


def _later(hour: list[ArchivedRecord], hours: int) -> Iterator[ArchivedRecord]:
    known: dict[bytes, bytes] = {}
    for record in hour:
        found = _TIME.search(record.value)
        assert found is not None
        text = known.setdefault(found[1], _text(found[1], hours))
        value = record.value[: found.start(1)] + text + record.value[found.end(1) :]
        offset, at_ms = record.offset + hours * len(hour), record.timestamp_ms + hours * _HOUR_MS
        yield structs.replace(record, offset=offset, timestamp_ms=at_ms, value=value)


def _text(time_text: bytes, hours: int) -> bytes:
    at_ms = parse_time_ms(time_text.decode()) + hours * _HOUR_MS
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ms // 1000))
    return f"{whole}.{at_ms % 1000:03}Z".encode()


def archive_of(root: Path, hpas: int, hours: int, jobs: int) -> int:
    """Make the archive, or take the one that is there; gives the number of its decisions."""
    known = root / "bench.json"
    if known.exists():
        return int(orjson.loads(known.read_bytes())["decisions"])
    create(root, PARTITIONS)
    fleet = Fleet(
        hpas=hpas,
        namespaces=max(PARTITIONS, hpas // 10),
        clusters=4,
        minutes=60,
        partitions=PARTITIONS,
        settings=ENFORCING,
    )
    tasks = [DayTask(root, fleet, number, hours) for number in range(PARTITIONS)]
    made = asyncio.run(_sum(archive_day, tasks, jobs))
    known.write_bytes(orjson.dumps({"decisions": made}))
    return made


async def _sum(work: Callable[[DayTask], int], tasks: list[DayTask], jobs: int) -> int:
    return sum([made async for made in ReplayPool(work, jobs).run(tasks)])


def measure(root: Path, hours: int) -> Iterator[tuple[str, float, str]]:
    """Run the command over the archive: (what, value, unit)."""
    since, until = (_text(b"1970-01-01T00:00:00Z", START_MS // _HOUR_MS + each).decode() for each in (0, hours))
    command = [sys.executable, "-m", "fleethpa", "guardrails", "test", "-f", str(ROOT / "examples" / "guardrails.yaml")]
    command += ["--from", str(root), "--since", since, "--until", until, "-o", "json"]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    report = orjson.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout)
    took_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    yield "decisions read", report["decisions"], ""
    yield "trips", len(report["trips"]), ""
    yield "guardrails test", took_s, "s"
    yield f"guardrails test, of {cores()} cores", cpu_s, "CPU s"
    yield "per decision", cpu_s / max(1, report["decisions"]) * 1_000_000, "CPU us"


def main() -> None:
    """Print the measures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.guardrails", description=__doc__)
    parser.add_argument("--hpas", type=int, default=1_000)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--archive", type=Path, help="folder of the archive [default: a temporary one]")
    parser.add_argument("--only-archive", action="store_true", help="make the archive and measure nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        root = options.archive or Path(made) / "archive"
        count = archive_of(root, options.hpas, options.hours, cores())
        sys.stdout.write(f"{'archive':<40} {count:>12,} decisions\n")
        for what, value, unit in () if options.only_archive else measure(root, options.hours):
            sys.stdout.write(f"{what:<40} {value:>12,.1f} {unit}\n")


if __name__ == "__main__":
    main()
