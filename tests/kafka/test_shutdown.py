"""SIGTERM: every part ends in order and soon; deciders that restart in turn keep decisions flowing."""

import asyncio
import itertools
from pathlib import Path

import pytest

from schemas import topics
from schemas.decisions import ENGINE
from tests.kafka.broker import KafkaBroker
from tests.kafka.chaos.harness import Tally
from tests.kafka.chaos.pipeline import run_once
from tests.kafka.fleet import Rig, World
from tests.kafka.run_reading import count, read_topic
from tests.kafka.test_pipeline import fleethpa, until

SHORT = ("kill decider at a step", "kill ingest at a step", "repeated input")
EXIT_S = 5.0
LONGEST_GAP_S = 30.0


@pytest.mark.slow
async def test_deciders_restarted_in_turn_keep_deciding_and_all_parts_end_in_order(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    world = World(clusters=2, namespaces=2, hpas=1)
    async with Rig(kafka, tmp_path / "rig", world) as rig:
        rig.add_all()
        rig.add("decider-1")

        async def decided(at_least: int) -> bool:
            assert not any(part.ended for part in rig.parts.values()), rig.tails()
            return await count(rig.settings, topics.DECISIONS) >= at_least

        await until(lambda: decided(30), "both decide", 120)
        took_s = []
        for name in ("decider-0", "decider-1"):
            took_s.append(await rig.stop(name))
            rig.add(name)
            more = await count(rig.settings, topics.DECISIONS) + 10
            await until(lambda more=more: decided(more), "decisions continue", 120)  # type: ignore[misc]
        shown = await fleethpa(tmp_path, "admin", "topics", "engine", "--brokers", kafka.bootstrap)
        assert f"engine      {ENGINE}" in shown
        assert "partitions  4" in shown
        for name in ("observer-0", "reconciler-0", "ingest-0", "decider-0", "decider-1"):
            took_s.append(await rig.stop(name))
    gap_s = longest_gap_s(
        [r.timestamp for records in (await read_topic(rig.settings, topics.DECISIONS)).values() for r in records]
    )
    print(
        f"longest gap between decisions over a rolling restart: {gap_s:.1f} s; SIGTERM took {max(took_s):.1f} s at most"
    )
    assert gap_s < LONGEST_GAP_S
    assert max(took_s) < EXIT_S


def longest_gap_s(times_ms: list[int]) -> float:
    """The longest time between two decisions, of whatever HPA."""
    return max(later - earlier for earlier, later in itertools.pairwise(sorted(times_ms))) / 1000


async def test_an_engine_that_this_release_lacks_is_refused_and_one_it_has_is_recorded(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    async with Rig(kafka, tmp_path / "rig", World(clusters=1, namespaces=1, hpas=1)) as rig:
        rig.add("ingest-0")
        reach = ("--brokers", kafka.bootstrap)
        assert f"has engine {ENGINE}, not 99" in await fleethpa(
            tmp_path, "admin", "topics", "engine", "99", *reach, code=2
        )
        stated = await fleethpa(
            tmp_path, "admin", "topics", "engine", str(ENGINE), "--reason", "upgrade", "--wait", "30s", *reach
        )
        assert f"engine {ENGINE} and 4 partitions recorded" in stated
        await rig.stop("ingest-0")


@pytest.mark.slow
async def test_a_short_run_of_the_whole_pipeline_under_faults(tmp_path: Path) -> None:
    tally = Tally()
    await run_once(seed=5, names=SHORT, minutes=0.7, tally=tally, folder=tmp_path)
    assert tally.faults == len(SHORT), tally.report()
    assert tally.totals["decisions"] > 0


@pytest.mark.parametrize("away", [pytest.param("pause", id="stands still"), pytest.param("kill", id="was killed")])
async def test_every_part_ends_soon_while_the_broker(kafka: KafkaBroker, tmp_path: Path, away: str) -> None:
    async with Rig(kafka, tmp_path / "rig", World(clusters=1, namespaces=2, hpas=1)) as rig:
        rig.add_all()
        rig.add("router-0")

        async def decided() -> bool:
            assert not any(part.ended for part in rig.parts.values()), rig.tails()
            return await count(rig.settings, topics.DECISIONS) >= 10

        await until(decided, "decisions are made", 120)
        getattr(kafka, away)()
        try:
            ended = await asyncio.gather(*(part.terminate() for part in rig.parts.values()))
        finally:
            if away == "pause":
                kafka.resume()
            else:
                kafka.start()
    took_s = {name: took_s for name, (_, took_s) in zip(rig.parts, ended, strict=True)}
    assert max(took_s.values()) < EXIT_S, (took_s, rig.tails())
