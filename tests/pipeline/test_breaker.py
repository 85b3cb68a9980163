"""The breaker as a process beside ingest and decider."""

from pathlib import Path

import pytest

from fleethpa.simulator.broker import EmbeddedBroker
from schemas.connection import KafkaSettings
from tests.kit.breakerpipeline import CLUSTERS, REPLICAS, run_wave
from tests.pipeline.playing import ALL_TOPICS


@pytest.mark.slow
async def test_a_wave_is_paused_and_the_log_alone_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker() as broker:
        broker.ensure_topics(ALL_TOPICS)
        wave = await run_wave(KafkaSettings(bootstrap_servers=broker.bootstrap), tmp_path)
    with capsys.disabled():
        print(f"\nms from the trip of a guardrail to its pause in the log: {wave.delays_ms}")
    assert wave.delays_ms.keys() == set(CLUSTERS)
    assert wave.held == len(CLUSTERS) * 40
    assert wave.wanted == dict.fromkeys(CLUSTERS, 10 * (REPLICAS - 1)), "what fell before the pause, and no more"
    assert any("'command' is not read from fleethpa.breaker" in reason for reason in wave.rejected)
    recorded = {number: [each.value for each in records] for number, records in wave.decisions.items()}
    assert {number: made for number, made in wave.replayed().items() if made} == recorded
