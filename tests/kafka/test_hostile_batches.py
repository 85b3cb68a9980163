"""Batches that are more than they look: on Apache Kafka with permissions, with the credentials that each needs.

A metric producer and somebody with an agent's credentials write to the one topic that theirs allow. Ingest is a process
of its own, the broker ends if its heap does not suffice; an observer and another agent go on reporting.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import pytest_asyncio
from aiokafka import TopicPartition

from fleethpa.cli.clusters import administering, create_topics, new_agent
from runtime.kafkaclients import reader, running_producer
from runtime.records import Publisher
from runtime.topicadmin import TopicAdmin
from runtime.topicneeds import Acl, WantedTopic, agent_acls
from schemas import topics
from schemas.agentregistry import AgentRegistry
from schemas.agents import ONLY_PARTITION, AgentSet
from schemas.codec import decode, encode
from schemas.connection import KafkaSettings
from schemas.entries import LogRecord, PublicRecord
from schemas.observed import Heartbeat, Point, Samples
from tests.kafka.broker import JAVA
from tests.kafka.conftest import PARTITIONS, make_topics
from tests.kafka.fleet import Part
from tests.kafka.granting import grant
from tests.kafka.rawbatches import GZIP, LZ4, ZSTD, RawProducer, bomb, flood
from tests.kafka.secured import Secured, scram, secured_broker

pytestmark = [pytest.mark.hostile, pytest.mark.asyncio(loop_scope="module")]

SAMPLE_TOPIC = "shop.samples"
FLOOD_S = 20
SYNC_S = 15
CHART_LIMIT_MB = 1_024
"""Memory of ingest in the chart."""
BOMBS = [
    pytest.param(ZSTD, 1_900, id="zstd, 1,900 MiB in 61 kB"),
    pytest.param(GZIP, 900, id="gzip, 900 MiB"),
    pytest.param(LZ4, 200, id="lz4, 200 MiB"),
]

Source = tuple[str, int, int]
"""Topic, partition and offset of a record."""


@dataclass
class Site:
    """Broker and ingest, what reaches the log and what is rejected, and who reports."""

    secured: Secured
    ingest: Part
    rogue: AgentSet
    calm: AgentSet
    logged: dict[Source, float] = field(default_factory=dict)
    """Source of an entry -> when it was read from the log (monotonic seconds)."""
    rejected: dict[Source, tuple[str, str]] = field(default_factory=dict)
    """Source -> code and reason."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def login(self, user: str) -> KafkaSettings:
        return replace(self.secured.admin, username=user, password=f"{user}-secret")

    def agent(self, agent: AgentSet) -> KafkaSettings:
        return self.login(f"fleethpa-agent-{agent.cluster}")

    async def follow(self) -> None:
        tps = [TopicPartition(topic, number) for topic in (topics.LOG, topics.REJECTED) for number in range(PARTITIONS)]
        async with reader(self.secured.admin, tps) as consumer:
            async for record in consumer:
                self._note(record.topic, record.value, {name: value.decode() for name, value in record.headers})
                self.changed.set()

    def _note(self, topic: str, value: bytes, headers: dict[str, str]) -> None:
        if topic == topics.REJECTED:
            source = headers["topic"], int(headers["partition"]), int(headers["offset"])
            self.rejected[source] = headers["code"], headers["reason"]
            return
        for entry in decode(value, LogRecord).entries:
            if entry.source:
                source = entry.source.topic, entry.source.partition, entry.source.offset
                self.logged.setdefault(source, time.monotonic())

    async def until(self, sources: dict[Source, float] | dict[Source, tuple[str, str]], source: Source) -> None:
        """Wait until a source is among these. Raises AssertionError: ingest has ended, or it took too long."""
        async with asyncio.timeout(120):
            while source not in sources:
                assert not self.ingest.ended, self.ingest.tail()
                self.changed.clear()
                try:
                    async with asyncio.timeout(1):
                        await self.changed.wait()
                except TimeoutError:
                    continue

    async def taken_s(self, who: KafkaSettings, topic: str, cluster: str) -> float:
        """How long a record of an observer or agent takes to the log."""
        beat = Heartbeat(session=f"agent-{cluster}@1", watches=["pods"])
        point = Point(type="External", metric="depth", milli=1, time=time.time_ns() // 1_000_000)
        body = beat if topic != topics.SAMPLES else Samples(points=[point])
        now_ms = time.time_ns() // 1_000_000
        # Heartbeats of one namespace have a rate, too.
        namespace = f"n{len(self.logged)}"
        record = PublicRecord(v=1, entries=[body], time=now_ms, cluster=cluster, namespace=namespace)
        async with running_producer(who) as producer:
            begun = time.monotonic()
            sent = await producer.send_and_wait(topic, encode(record), partition=ONLY_PARTITION)
        await self.until(self.logged, (topic, ONLY_PARTITION, sent.offset))
        return self.logged[topic, ONLY_PARTITION, sent.offset] - begun

    async def after(self, who: KafkaSettings, topic: str) -> int:
        """Write a record that ingest rejects behind what was written, and wait for it; its offset."""
        async with running_producer(who) as producer:
            sent = await producer.send_and_wait(topic, b"the next one", partition=ONLY_PARTITION)
        await self.until(self.rejected, (topic, ONLY_PARTITION, sent.offset))
        return int(sent.offset)

    async def of_others_s(self) -> float:
        """How long what the others report takes to the log: an observer, and another agent."""
        observed = await self.taken_s(self.login("observer"), topics.SAMPLES, "plain")
        return max(observed, await self.taken_s(self.agent(self.calm), self.calm.topics.reports, self.calm.cluster))

    def most_mb(self) -> int:
        """The most memory that ingest has had."""
        status = Path(f"/proc/{self.ingest.running.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) // 1024


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("hostile-batches")
    agents = [new_agent(AgentRegistry(), name, 50, 100) for name in ("rogue", "calm")]
    users = ["ingest", "producer", "observer", *(f"fleethpa-agent-{agent.cluster}" for agent in agents)]
    ends = (*JAVA, "-XX:+ExitOnOutOfMemoryError")
    async with secured_broker(folder / "kafka", users, java=ends) as secured:
        await grant(secured.admin, "ingest", "User:ingest")
        await grant(secured.admin, "observer", "User:observer")
        await make_topics(secured.admin, [WantedTopic(SAMPLE_TOPIC, PARTITIONS, 1, {})])
        async with TopicAdmin(secured.admin) as admin:
            assert await admin.allow([Acl("topic", SAMPLE_TOPIC, ("READ",))], "User:ingest")
            assert await admin.allow([Acl("topic", SAMPLE_TOPIC, ("WRITE",))], "User:producer")
        for agent in agents:
            async with administering(secured.admin, agent.topics) as admin:
                await create_topics(admin, agent.topics, None)
                assert await admin.allow(agent_acls(agent.topics), f"User:fleethpa-agent-{agent.cluster}")
        async with running_producer(secured.admin) as producer:
            for agent in agents:
                await Publisher(producer).send(topics.SETTINGS, "", "", [agent], 1)
        properties = secured.properties(folder / "ingest.properties", *scram("ingest"))
        arguments = ["run", "ingest", "--brokers", secured.broker.bootstrap, "--kafka-config", str(properties)]
        ingest = Part("ingest", [*arguments, "--sample-topic", SAMPLE_TOPIC], folder, {"PYTHONUNBUFFERED": "1"})
        made = Site(secured, ingest, agents[0], agents[1])
        ingest.start()
        following = asyncio.create_task(made.follow())
        try:
            await made.of_others_s()
            yield made
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            ingest.kill()


@pytest.mark.parametrize(("codec", "megabytes"), BOMBS)
@pytest.mark.parametrize("who", ["metric producer", "agent"])
async def test_a_batch_bomb_ends_neither_ingest_nor_broker(site: Site, who: str, codec: int, megabytes: int) -> None:
    made = await asyncio.to_thread(bomb, megabytes, codec)
    pid = site.ingest.running.pid
    credentials = site.login("producer") if who == "metric producer" else site.agent(site.rogue)
    topic = SAMPLE_TOPIC if who == "metric producer" else site.rogue.topics.reports
    assert await RawProducer(credentials).send(topic, ONLY_PARTITION, made) == [0]
    following = await site.after(credentials, topic)
    code, reason = site.rejected[topic, ONLY_PARTITION, following]
    # The third within seconds may be beyond the rate, and is then passed over together with what follows.
    if f"offsets {following - 1} to" not in reason:  # rejections have an order within a partition only
        await site.until(site.rejected, (topic, ONLY_PARTITION, following - 1))
        code, reason = site.rejected[topic, ONLY_PARTITION, following - 1]
    print(f"{len(made)} bytes: {reason}; ingest has had {site.most_mb()} MB at most")
    assert code in ("overLimit", "overRate")
    assert f"offsets {following - 1} to" in reason
    assert await site.of_others_s() < 30
    assert (site.ingest.ended, site.ingest.running.pid) == (False, pid)
    assert site.most_mb() < CHART_LIMIT_MB / 2


@pytest.mark.parametrize("records", [300_000, 2_000], ids=["beyond the rate", "small enough to be read"])
@pytest.mark.parametrize("who", ["metric producer", "agent"])
async def test_floods_of_tiny_records_delay_no_others(site: Site, who: str, records: int) -> None:
    """Records of a byte: 300,000 of them are 218 kB. An agent's quota counts 2 MB/s of that, or of less."""
    batch = await asyncio.to_thread(flood, records, b"x", 1)
    credentials = site.login("producer") if who == "metric producer" else site.agent(site.rogue)
    topic = SAMPLE_TOPIC if who == "metric producer" else site.rogue.topics.reports
    partitions = PARTITIONS if who == "metric producer" else 1
    together = 5 if records > 100_000 else 100
    begun, waits_s, sent = time.monotonic(), [await site.of_others_s()], 0

    async def attack() -> None:
        nonlocal sent
        while time.monotonic() - begun < FLOOD_S:
            for partition in range(partitions):
                assert await RawProducer(credentials).send(topic, partition, *[batch] * together) == [0] * together
                sent += together

    attacking = asyncio.create_task(attack())
    while not attacking.done():
        waits_s.append(await site.of_others_s())
    await attacking
    waits_s += [await site.of_others_s() for _ in range(3)]
    if records > 100_000:
        assert await site.after(credentials, topic) > records  # it is worked off, and not only waits
    refused = [source for source in site.rejected if source[0] == topic]
    waits_s.sort()
    print(
        f"{who}: {sent * records:,} records in {sent * len(batch):,} bytes, {len(refused):,} rejected, after "
        f"{time.monotonic() - begun:.0f} s; others waited {waits_s[-1]:.2f} s of {len(waits_s)} times; ingest had "
        f"{site.most_mb()} MB"
    )
    assert waits_s[-1] < 2 * SYNC_S
    assert site.most_mb() < CHART_LIMIT_MB / 2
