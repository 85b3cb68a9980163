"""A broker that stops answering for longer than a request may take: what is written meanwhile arrives afterwards."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys

import pytest
from aiokafka import TopicPartition

from fleethpa.simulator.broker import PARTITIONS
from runtime.kafkaclients import reader, running_producer
from runtime.publicrecords import Publisher
from schemas.codec import decode
from schemas.connection import KafkaSettings
from schemas.entries import PublicRecord
from schemas.scales import Heartbeat
from schemas.topics import SCALES

TIMEOUT_MS, BATCH_BYTES, RECORDS = 300, 2_048, 64


async def sessions(kafka: KafkaSettings, wanted: int) -> set[str]:
    """The sessions of all heartbeats on the topic, once there are so many."""
    found: set[str] = set()
    async with (
        asyncio.timeout(60),
        reader(kafka, [TopicPartition(SCALES, number) for number in range(PARTITIONS)]) as consumer,
    ):
        while len(found) < wanted:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                found |= {body.session for each in records for body in decode(each.value, PublicRecord).entries}
    return found


async def test_what_is_written_while_a_broker_stands_still_arrives(caplog: pytest.LogCaptureFixture) -> None:
    command = [sys.executable, "-m", "fleethpa.simulator.broker", "--topics", SCALES]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        try:
            line = await asyncio.to_thread(broker.stdout.readline)
            kafka = KafkaSettings(bootstrap_servers=json.loads(line)["bootstrap"])
            async with running_producer(kafka, max_batch_size=BATCH_BYTES) as producer:
                producer._request_timeout_ms = TIMEOUT_MS  # for room in the queue only: requests may take longer
                publisher = Publisher(producer, waits_for_room=True)
                names = {f"session-{number}".ljust(300, "x") for number in range(RECORDS)}
                await publisher.send(SCALES, "east", "shop", [Heartbeat(session="first")], 1)
                os.kill(broker.pid, signal.SIGSTOP)
                with caplog.at_level(logging.WARNING, "runtime.publicrecords"):
                    sent = asyncio.gather(
                        *(publisher.send(SCALES, "east", "shop", [Heartbeat(session=name)], 1) for name in names)
                    )
                    async with asyncio.timeout(60):
                        while "the brokers are slower than records come" not in caplog.messages:
                            await asyncio.sleep(0.02)
                os.kill(broker.pid, signal.SIGCONT)
                async with asyncio.timeout(60):
                    await sent
            assert await sessions(kafka, RECORDS + 1) == names | {"first"}
        finally:
            broker.kill()
