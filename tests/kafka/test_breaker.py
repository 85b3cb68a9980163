"""The breaker on Apache Kafka, with its least permissions."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runtime.topicneeds import Component
from tests.kafka.granting import grant
from tests.kafka.secured import Secured, scram, secured_broker
from tests.kit.breakerpipeline import CLUSTERS, run_wave

PARTS: tuple[Component, ...] = ("ingest", "decider", "breaker")


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
    async with secured_broker(tmp_path / "kafka", PARTS) as found:
        yield found


async def test_a_breaker_pauses_with_its_least_permissions(
    secured: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for part in PARTS:
        await grant(secured.admin, part, f"User:{part}")
    files: dict[str, Path] = {part: secured.properties(tmp_path / f"{part}.properties", *scram(part)) for part in PARTS}
    wave = await run_wave(
        secured.admin, tmp_path, hpas=10, first=3, signed_in=lambda part: ("--kafka-config", str(files[part]))
    )
    with capsys.disabled():
        print(f"\nms from the trip of a guardrail to its pause in the log of Apache Kafka: {wave.delays_ms}")
    assert wave.delays_ms.keys() == set(CLUSTERS)
    assert (wave.held, wave.wanted) == (28, dict.fromkeys(CLUSTERS, 27))
    assert any("'command' is not read from fleethpa.breaker" in reason for reason in wave.rejected)
