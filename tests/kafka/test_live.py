"""Live on Apache Kafka: the broker's append time and ticks, and a rolling restart of two workers that share the log."""

import asyncio
from collections.abc import Iterable
from itertools import chain, pairwise
from pathlib import Path

import pytest
from aiokafka import ConsumerRecord

from schemas import topics
from schemas.codec import decode
from schemas.connection import KafkaSettings
from schemas.entries import LogRecord
from tests.kafka.broker import KafkaBroker
from tests.kafka.fleet import Part, Rig, World
from tests.kafka.run_reading import Run, count, first_difference, read_topic

APPEND_TIME = 1
"""`timestamp_type` of a record that the broker has stamped."""
LIVE_S = 20
"""At a tick a second."""
WAIT_S = 240.0


@pytest.mark.slow
async def test_two_live_workers_decide_as_the_log_folds_also_over_a_rolling_restart(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    async with Rig(kafka, tmp_path / "rig", World(clusters=2, namespaces=4, hpas=1)) as rig:
        for name in ("ingest-0", "decider-0", "decider-1", "reconciler-0", "observer-0"):
            rig.add(name)
        await decided_on(rig, 20)
        stops_s = [await restart(rig, name) for name in ("decider-0", "decider-1")]
        await ticked(rig.settings, LIVE_S)
        for name in ("observer-0", "ingest-0", "reconciler-0", "decider-0", "decider-1"):
            await rig.stop(name)
    run = await Run.read(rig.settings)
    check(run)
    spent = ", ".join(f"{seconds:.1f} s" for seconds in stops_s)
    print(f"rolling restart: SIGTERM took {spent}; longest time without a decision: {longest_gaps(run)}")


def check(run: Run) -> None:
    """The log's times are the broker's, decisions take theirs from it, and they are what a fold of the log gives."""
    assert {record.timestamp_type for records in run.log.values() for record in records} == {APPEND_TIME}
    times = {number: [record.timestamp for record in records] for number, records in run.log.items()}
    wrong = [one for one in run.recorded() if one.time_ms != max(times[one.partition][: one.decision.input.offset + 1])]
    assert wrong == []
    replayed = run.replayed()
    # What was appended while the last decider ended is decided by the next one.
    known = {number: values[: len(run.decisions[number])] for number, values in replayed.items()}
    assert first_difference(known, run.decisions) == ""
    assert sum(map(len, replayed.values())) - sum(map(len, known.values())) < sum(map(len, known.values()))


def ticks(records: Iterable[ConsumerRecord]) -> int:
    """How many records of the log hold no entry."""
    return sum(not decode(record.value, LogRecord).entries for record in records)


def longest_gaps(run: Run) -> str:
    """The longest time between two decisions, on any partition and on the worst one."""
    by_partition = [sorted(record.timestamp for record in records) for records in run.decided.values()]
    worst = max(longest_gap_s(times) for times in by_partition)
    return f"{longest_gap_s(sorted(chain(*by_partition))):.1f} s, on one partition {worst:.1f} s"


def longest_gap_s(times_ms: list[int]) -> float:
    """The longest step of these times."""
    return max((after - before for before, after in pairwise(times_ms)), default=0) / 1000


async def restart(rig: Rig, name: str) -> float:
    """SIGTERM, start again, and continue until it decides; how many seconds the end took."""
    took_s = await rig.stop(name)
    part = rig.add(name)
    await owning(part)
    await decided_on(rig, 20)
    return took_s


async def owning(part: Part) -> None:
    """Wait until a part that was just made owns partitions; it appends to the output of the one before it."""
    begun = part.output.stat().st_size
    async with asyncio.timeout(WAIT_S):
        while "owning log partitions" not in part.output.read_text(errors="replace")[begun:]:
            assert not part.ended, part.tail()
            await asyncio.sleep(0.2)


async def decided_on(rig: Rig, more: int) -> None:
    """Wait for so many more decisions."""
    wanted = await count(rig.settings, topics.DECISIONS) + more
    async with asyncio.timeout(WAIT_S):
        while await count(rig.settings, topics.DECISIONS) < wanted:
            assert not any(part.ended for part in rig.parts.values()), rig.tails()
            await asyncio.sleep(0.3)


async def ticked(settings: KafkaSettings, least: int) -> None:
    """Wait until every log partition holds so many ticks."""
    async with asyncio.timeout(WAIT_S):
        while min(ticks(records) for records in (await read_topic(settings, topics.LOG)).values()) < least:
            await asyncio.sleep(1)
