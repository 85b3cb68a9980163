"""Topics of agents on several ingest workers: shared between them, and nothing lost when one is killed."""

import asyncio
import signal

from runtime import topicneeds
from runtime.kafkaclients import running_producer
from runtime.records import Publisher
from runtime.topicadmin import TopicAdmin
from runtime.topicneeds import agent_topics
from schemas import topics
from schemas.agents import ONLY_PARTITION, AgentSet
from schemas.codec import encode
from schemas.connection import KafkaSettings
from schemas.entries import PublicRecord
from schemas.observed import PodDeleted
from tests.kafka.conftest import make_topics
from tests.pipeline.ingesting import PARTITIONS, Log, Process, reading, without_duplicates

AGENTS = [AgentSet(cluster=f"c{number}", incarnation=7) for number in range(6)]
RECORDS = 400


def read(log: Log) -> set[tuple[str, int]]:
    return {(entry.source.topic, entry.source.offset) for _, entry in log.entries() if entry.source}


async def test_workers_share_the_topics_and_one_that_is_killed_loses_nothing(settings: KafkaSettings) -> None:
    await make_topics(settings, topicneeds.wanted(PARTITIONS, 1))
    async with TopicAdmin(settings) as client:
        await client.create([topic for agent in AGENTS for topic in agent_topics(agent.topics, 1)])
    total = RECORDS * len(AGENTS)
    async with running_producer(settings) as out, reading(settings, topics.LOG) as log:

        async def report() -> None:
            for number in range(RECORDS):
                for agent in AGENTS:
                    body = PodDeleted(name=f"pod-{number}", session=f"agent-{agent.cluster}@1")
                    record = PublicRecord(v=1, entries=[body], time=1, cluster=agent.cluster, namespace="shop")
                    await out.send(agent.topics.reports, encode(record), partition=ONLY_PARTITION)
                await asyncio.sleep(0.02)  # over the kill
            await out.flush()

        with Process(settings) as victim, Process(settings) as survivor:
            await victim.port()
            await survivor.port()
            for agent in AGENTS:
                await Publisher(out).send(topics.SETTINGS, "", "", [agent], 1)
            reporting = asyncio.create_task(report())
            reports = {agent.topics.reports for agent in AGENTS}
            await log.until(lambda log: {topic for topic, _ in read(log)} >= reports)
            victim.popen.send_signal(signal.SIGKILL)
            assert (await victim.ended())[0] == -signal.SIGKILL
            await reporting
            await log.until(lambda log: sum(topic in reports for topic, _ in read(log)) == total)
    kept: dict[str, list[str]] = {}
    for entries in without_duplicates(log).values():
        for entry in entries:
            if isinstance(entry.body, PodDeleted):
                kept.setdefault(entry.key, []).append(entry.body.name)
    assert kept == {f"{agent.cluster}/shop": [f"pod-{number}" for number in range(RECORDS)] for agent in AGENTS}
