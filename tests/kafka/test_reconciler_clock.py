"""A reconciler on a machine whose clock is wrong: wanted writes expire by the time of Apache Kafka's brokers."""

import asyncio
from pathlib import Path

import pytest

from reconciler.apply.process import Reconciler, ReconcilerConfig
from runtime import topicneeds
from runtime.log import wall_clock_ms
from schemas.connection import KafkaSettings
from schemas.entries import Outcome
from tests.kafka.broker import KafkaBroker
from tests.kafka.conftest import PARTITIONS, make_topics
from tests.pipeline.cluster_rig import Rig, deployment, hpa, rig_on, running

HOUR_MS = 3_600_000


@pytest.mark.parametrize("off_ms", [HOUR_MS, -HOUR_MS], ids=["an hour ahead", "an hour behind"])
async def test_a_write_is_made_in_time_and_not_later_whatever_the_clock_of_the_reconciler_shows(
    kafka: KafkaBroker, settings: KafkaSettings, tmp_path: Path, off_ms: int
) -> None:
    await make_topics(settings, topicneeds.wanted(PARTITIONS, 1))
    async with rig_on(kafka.bootstrap, tmp_path) as made:
        east = made.sims["east"]
        for name in ("web", "api"):
            east.apply(deployment(name))
            east.apply(hpa(name))
        part = Reconciler(
            ReconcilerConfig(kafka=settings, clusters=made.clusters, clock=lambda: wall_clock_ms() + off_ms)
        )
        async with running(part, asyncio.Event()):
            await made.decider.wants(east, "web", 5)
            await made.decider.wants(east, "api", 5, ttl_ms=-1)
            assert await result_of(made, "web") == "applied"
            assert await result_of(made, "api") == "stale"
    assert part.clock.is_stamped


async def result_of(made: Rig, name: str) -> str:
    """What the wanted write of an HPA ended as."""
    found = await made.topics.until(
        lambda: next((each for each in made.topics.of(Outcome) if each.name == name), None), f"outcome of {name}"
    )
    return str(found.result)
