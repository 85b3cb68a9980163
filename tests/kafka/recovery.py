"""How soon a decider decides again: `python -m tests.kafka.recovery --hpas 5000`. Prints figures, and checks the bytes.

A decider brings about the state of a fleet and is killed with -9; then the log continues and a decider is started:
first the same static member, then another one that has to wait for the dead member's session to end, as after a lost
host.
"""

import argparse
import asyncio
import hashlib
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition

from runtime.kafkaclients import read_range, reader, strict_producer
from schemas import topics
from schemas.connection import KafkaSettings
from streams.partition import Partition
from tests.kafka.broker import KafkaBroker, missing_tools
from tests.kafka.conftest import PARTITIONS, make_topics, playback_topics
from tests.kit.decider_process import Decider, append_log
from tests.kit.generated_log import START_MS, Fleet, generate
from tests.kit.playback import Log, TimedRecord

NUMBERS = range(PARTITIONS)
PART_S = 20.0
"""Log time that is added at each restart; every HPA is due in it."""
LIMIT_S = 1_800.0
BATCH = 100
MEMBERS = (("kill -9, same member, from its start", "decider-0"), ("lost host, another member, from the loss", "other"))


def load() -> str:
    """How busy the machine is, as far as the figures depend on it."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def used_cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used: what is left of its time on an idle machine, but for waits."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def make_parts(hpas: int, minutes: float) -> list[Log]:
    """A log of the fleet in parts: the first brings about the state, one more follows for each restart."""
    total = minutes + len(MEMBERS) * PART_S / 60
    fleet = Fleet(hpas=hpas, namespaces=max(1, hpas // 25), minutes=total, partitions=PARTITIONS, pods=2, clusters=3)
    ends = [START_MS + round(1000 * (60 * minutes + PART_S * number)) for number in range(len(MEMBERS) + 1)]
    parts: list[dict[int, list[TimedRecord]]] = [{number: [] for number in NUMBERS} for _ in ends]
    for record in generate(fleet):
        part = next(index for index, end in enumerate(ends) if record.timestamp_ms <= end)
        parts[part][record.partition].append(TimedRecord(record.timestamp_ms, record.value))
    return list(parts)


def expect(parts: Sequence[Log]) -> tuple[list[int], dict[int, str]]:
    """How many decisions there are after each part, and a digest of all of a partition's; by an undisturbed fold."""
    partitions = [Partition.empty(number) for number in NUMBERS]
    digests = [hashlib.sha256() for _ in NUMBERS]
    offsets, decided, counts = [0] * len(partitions), 0, []
    for part in parts:
        for number, records in part.items():
            for record in records:
                for decision in partitions[number].apply(offsets[number], record.timestamp_ms, record.value):
                    digests[number].update(decision.value)
                    decided += 1
                offsets[number] += 1
        counts.append(decided)
    return counts, {number: digests[number].hexdigest() for number in NUMBERS}


async def digests_of(settings: KafkaSettings) -> dict[int, str]:
    """A digest of the decisions topic after the readers' rule, by partition."""
    found = {}
    tps = [TopicPartition(topics.DECISIONS, number) for number in NUMBERS]
    async with reader(settings, tps) as consumer:
        ends = await consumer.end_offsets(tps)
        for tp in tps:
            digest, newest = hashlib.sha256(), 0
            async for record in read_range(consumer, tp, 0, ends[tp]):
                if (seq := orjson.loads(record.value)["seq"]) > newest:
                    newest = seq
                    digest.update(record.value)
            found[tp.partition] = digest.hexdigest()
    return found


class Measurement:
    """One worker after another on one broker."""

    def __init__(self, settings: KafkaSettings, folder: Path, session_s: float) -> None:
        self.settings = settings
        self._session_s = session_s
        self._output = folder / "decider.txt"

    async def run(self, parts: Sequence[Log], counts: Sequence[int]) -> None:
        """Kill and restart with each part after the first, and print the figures."""
        begun = time.monotonic()
        await self._append(parts[0])
        running = self._start("decider-0")
        await self._until(counts[0], running)
        print(f"state brought about in {time.monotonic() - begun:.0f} s, {counts[0]} decisions", flush=True)
        for (name, member), part, (before, after) in zip(MEMBERS, parts[1:], pairwise(counts), strict=True):
            running.kill()
            held, ends = sum((await self._ends(topics.CHANGELOG)).values()), await self._ends(topics.DECISIONS)
            begun = time.monotonic()
            running = self._start(member)
            appending = asyncio.create_task(self._append(part))
            await self._until(before + 1, running)
            first_s, cpu_s = time.monotonic() - begun, used_cpu_s(running.process.pid)
            await self._until_each(ends, running)
            each_s = time.monotonic() - begun
            await appending
            await self._until(after, running)
            print(f"{name}: first new decision after {first_s:.1f} s ({cpu_s:.1f} s of CPU)", end=", ")
            print(f"in each partition after {each_s:.1f} s", end="; ")
            print(f"all {after - before} after", end=" ")
            print(f"{time.monotonic() - begun:.1f} s; changelog of {held} records; {load()}", flush=True)
        running.kill()

    def _start(self, member: str) -> Decider:
        limits = ("--stall-seconds", "600", "--recovery-seconds", "600")
        return Decider(
            self.settings.bootstrap_servers,
            self._output,
            "--playback",
            *limits,
            instance_id=member,
            session_timeout_s=self._session_s,
        )

    async def _append(self, part: Log) -> None:
        async with strict_producer(self.settings) as producer:
            for first in range(0, max(map(len, part.values())), BATCH):
                batch = {number: records[first : first + BATCH] for number, records in part.items()}
                await append_log(producer, batch)

    async def _until(self, least: int, running: Decider) -> None:
        await self._until_ends(lambda ends: sum(ends.values()) >= least, running, f"{least} decisions")

    async def _until_each(self, before: Mapping[int, int], running: Decider) -> None:
        def have_grown(ends: Mapping[int, int]) -> bool:
            return all(ends[number] > before[number] for number in NUMBERS)

        await self._until_ends(have_grown, running, f"more than {before}")

    async def _until_ends(self, reached: Callable[[Mapping[int, int]], bool], running: Decider, wanted: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        async with reader(self.settings) as consumer:
            while not reached(ends := await _ends(consumer, topics.DECISIONS)):
                if running.ended or time.monotonic() > deadline:
                    raise AssertionError(f"{ends}, wanted {wanted}\n{running.tail()}")
                await asyncio.sleep(0.02)

    async def _ends(self, topic: str) -> Mapping[int, int]:
        async with reader(self.settings) as consumer:
            return await _ends(consumer, topic)


async def _ends(consumer: AIOKafkaConsumer, topic: str) -> Mapping[int, int]:
    found = await consumer.end_offsets([TopicPartition(topic, number) for number in NUMBERS])
    return {tp.partition: end for tp, end in found.items()}


async def measure(hpas: int, minutes: float, session_s: float, folder: Path) -> int:
    """Measure on a broker of its own; 0 when the decisions are the undisturbed fold's."""
    parts = make_parts(hpas, minutes)
    records = [record for part in parts for held in part.values() for record in held]
    size = sum(len(record.value) for record in records)
    print(f"{hpas} HPAs, {len(records)} log records, {size / 1e6:.0f} MB", flush=True)
    counts, want = expect(parts)
    with KafkaBroker(folder / "kafka") as broker:
        settings = KafkaSettings(bootstrap_servers=broker.bootstrap)
        await make_topics(settings, playback_topics())
        await Measurement(settings, folder, session_s).run(parts, counts)
        same = await digests_of(settings) == want
    print(f"{counts[-1]} decisions, {'the same bytes as undisturbed' if same else 'NOT THE SAME BYTES AS UNDISTURBED'}")
    return 0 if same else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; 0 when every decision came out the same."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.recovery", description=__doc__)
    parser.add_argument("--hpas", type=int, default=5000)
    parser.add_argument("--minutes", type=float, default=0.5, help="log time that brings about the state")
    parser.add_argument("--session-timeout", type=float, default=15.0, help="seconds; raise it on a busy machine")
    options = parser.parse_args(arguments)
    if missing := missing_tools():
        print(f"APACHE KAFKA NOT TESTED: {missing}", file=sys.stderr)
        return 1
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a new topic has no leader for a while
    with tempfile.TemporaryDirectory(prefix="fleethpa-recovery-") as folder:
        return asyncio.run(measure(options.hpas, options.minutes, options.session_timeout, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
