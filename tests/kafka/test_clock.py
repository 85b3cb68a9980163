"""The broker clock that the chaos harness sets really is the one that stamps the log."""

import time
from pathlib import Path

import pytest

from runtime import topicneeds
from runtime.kafkaclients import strict_producer
from schemas import topics
from schemas.connection import KafkaSettings
from tests.kafka.broker import KafkaBroker
from tests.kafka.clock import missing_compiler
from tests.kafka.conftest import PARTITIONS, make_topics

STEPS_S = (0, 400, 60, 0)
SLACK_MS = 10_000


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_compiler()), reason=f"BROKER CLOCK NOT TESTED: {missing_compiler()}")
async def test_log_time_goes_ahead_and_back_with_the_clock_that_is_set(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path / "kafka", with_clock=True) as broker:
        assert broker.clock is not None
        settings = KafkaSettings(bootstrap_servers=broker.bootstrap)
        await make_topics(settings, topicneeds.wanted(PARTITIONS, 1))
        async with strict_producer(settings) as producer:
            for ahead_s in STEPS_S:
                broker.clock.set_ahead(ahead_s)
                placed = await producer.send_and_wait(topics.LOG, b"{}", partition=0)
                off_ms = placed.timestamp - time.time() * 1000 - ahead_s * 1000
                assert abs(off_ms) < SLACK_MS, f"set {ahead_s} s ahead, stamped {off_ms:.0f} ms off"
        # Kafka's controller holds its writes back until the former time has come again: it would not end in order.
        broker.kill()
