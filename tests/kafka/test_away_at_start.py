"""A process that starts while Kafka is away waits, and works once it is back: no supervisor's pause comes on top."""

import asyncio
from pathlib import Path

from runtime import topicneeds
from schemas import topics
from schemas.connection import KafkaSettings
from streams.decider.app import TICKS
from tests.kafka.broker import KafkaBroker
from tests.kafka.conftest import PARTITIONS, make_topics
from tests.kit.decider_process import Decider
from tests.patience import PATIENCE_S
from tests.pipeline.ingesting import Process, producer, reading, sample


async def test_ingest_and_decider_wait_for_brokers_and_then_work(kafka: KafkaBroker, tmp_path: Path) -> None:
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap)
    await make_topics(settings, topicneeds.wanted(PARTITIONS, 1))
    await asyncio.to_thread(kafka.stop)
    with Process(settings) as ingest, Decider(kafka.bootstrap, tmp_path / "decider.txt") as decider:
        assert ingest.popen.stderr
        assert "no broker accepts a connection" in await asyncio.to_thread(ingest.popen.stderr.readline)
        async with asyncio.timeout(PATIENCE_S):
            while "no broker accepts a connection" not in decider.tail():
                await asyncio.sleep(0.05)
        await asyncio.to_thread(kafka.start)
        async with producer(settings) as out, reading(settings, topics.LOG) as log:
            await out.send_and_wait(topics.SAMPLES, sample(7))
            await log.until(lambda log: 7 in log.values())
            await log.until(lambda log: any(record.value in TICKS for record in log.records))  # a decider's
        assert (ingest.popen.poll(), decider.ended) == (None, False)
