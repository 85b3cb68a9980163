"""What somebody with the credentials of one agent can do: nothing outside its cluster. On a broker with permissions on.

Agents of clusters `prod` and `prod-eu`, one name the beginning of the other, added as `admin clusters add` does;
ingest runs with its least permissions.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
    for_code,
)

from fleethpa.cli.clusters import administering, create_topics, new_agent
from fleethpa.frame.errors import CommandError
from runtime.kafkaclients import aiokafka_kwargs, reader, running_producer
from runtime.records import Publisher
from runtime.topicneeds import agent_acls
from schemas import topics
from schemas.agentregistry import AgentRegistry
from schemas.agents import ONLY_PARTITION, AgentSet
from schemas.answers import Answers
from schemas.codec import decode, encode
from schemas.connection import KafkaSettings
from schemas.entries import Body, LogRecord, Outcome, PublicRecord
from schemas.observed import AutoscalerSet, Command, Heartbeat, PodDeleted, ScaleSet, Serving, Target
from schemas.settings import ClusterSettings, EngineSet, Restart, SettingsSet, WatermarkReset
from streams.ingest.preflight import IngestConfig
from streams.ingest.worker import run_ingest
from tests.kafka.conftest import PARTITIONS
from tests.kafka.granting import grant
from tests.kafka.secured import secured_broker
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.hostile, pytest.mark.asyncio(loop_scope="module")]

NOW_MS = 1_790_000_000_000


@dataclass
class Site:
    """The secured broker with two agents, ingest at work, and the credentials of the hostile one."""

    admin: KafkaSettings
    hostile: KafkaSettings
    own: AgentSet
    other: AgentSet

    def login(self, user: str) -> KafkaSettings:
        return replace(self.admin, username=user, password=f"{user}-secret")

    async def report(self, *bodies: Body, cluster: str = "prod", namespace: str = "shop") -> int:
        """Write a record to the hostile agent's own topic; gives its offset."""
        record = PublicRecord(v=1, entries=list(bodies), time=NOW_MS, cluster=cluster, namespace=namespace)
        return await self.write(encode(record), self.own.topics.reports)

    async def write(self, value: bytes, topic: str, **options: Any) -> int:
        """Write bytes with the hostile agent's credentials."""
        async with running_producer(self.hostile, **options) as producer:
            sent = await asyncio.wait_for(producer.send_and_wait(topic, value, partition=ONLY_PARTITION), PATIENCE_S)
            return int(sent.offset)

    async def refused(self, offset: int) -> tuple[str, str]:
        """Code and reason with which the record at an offset of the hostile agent's topic was rejected."""
        async for record in self._all(topics.REJECTED):
            headers = {name: value.decode() for name, value in record.headers}
            if (headers["topic"], headers["offset"]) == (self.own.topics.reports, str(offset)):
                return headers["code"], headers["reason"]
        raise AssertionError("the topic ended")

    async def logged(self, topic: str, offset: int) -> None:
        """Wait until an entry from a source position is in the log."""
        async for record in self._all(topics.LOG):
            for entry in decode(record.value, LogRecord).entries:
                if entry.source and (entry.source.topic, entry.source.offset) == (topic, offset):
                    return

    async def _all(self, topic: str) -> AsyncIterator[Any]:
        tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        async with asyncio.timeout(PATIENCE_S), reader(self.admin, tps) as consumer:
            while True:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    for record in records:
                        yield record

    async def entries(self) -> list[tuple[str, Any]]:
        """All entries of the log so far, with the topic that each came from."""
        found: list[tuple[str, Any]] = []
        tps = [TopicPartition(topics.LOG, number) for number in range(PARTITIONS)]
        async with reader(self.admin, tps) as consumer:
            ends = await consumer.end_offsets(tps)
            while any([await consumer.position(tp) < end for tp, end in ends.items()]):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    for record in records:
                        for entry in decode(record.value, LogRecord).entries:
                            found.append((entry.source.topic if entry.source else "", entry))
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("hostile") / "kafka"
    async with secured_broker(folder, ["ingest", "fleethpa-agent-prod", "fleethpa-agent-prod-eu"]) as found:
        await grant(found.admin, "ingest", "User:ingest")
        agents = []
        for name in ("prod", "prod-eu"):
            agent = new_agent(AgentRegistry(), name, 50, 100)
            async with administering(found.admin, agent.topics) as admin:
                await create_topics(admin, agent.topics, None)
                assert await admin.allow(agent_acls(agent.topics), f"User:fleethpa-agent-{name}")
            agents.append(agent)
        async with running_producer(found.admin) as producer:
            for agent in agents:
                await Publisher(producer).send(topics.SETTINGS, "", "", [agent], NOW_MS)
        made = Site(found.admin, found.admin, *agents)
        made.hostile = made.login("fleethpa-agent-prod")
        async with _ingest(made.login("ingest")):
            yield made


@asynccontextmanager
async def _ingest(kafka: KafkaSettings) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(run_ingest(IngestConfig(kafka=kafka, session_timeout_ms=3_000), stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait({task})
        task.result()


# --- with its own credentials, on its own topic -----------------------------------------------------------------------


async def test_what_it_reports_of_its_own_cluster_is_taken(site: Site) -> None:
    offset = await site.report(Heartbeat(session="agent-prod@1", watches=["pods"]))
    await site.logged(site.own.topics.reports, offset)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(PodDeleted(name="web-1", session="agent-prod-eu@9"), id="pods"),
        pytest.param(ScaleSet(target=Target(kind="Deployment", name="web"), spec_replicas=0), id="a scale"),
        pytest.param(Answers(items=[]), id="answers"),
        pytest.param(Heartbeat(session="agent-prod-eu@9"), id="a shutdown report"),
        pytest.param(Outcome(decision="0-1-u", name="web", uid="u", result="applied"), id="an outcome"),
    ],
)
async def test_forged_cluster_names_are_rejected(site: Site, body: Body) -> None:
    offset = await site.report(body, cluster="prod-eu")
    code, reason = await site.refused(offset)
    assert (code, "may not report on cluster 'prod-eu'" in reason) == ("otherCluster", True)


@pytest.mark.parametrize(
    ("body", "namespace"),
    [
        pytest.param(Command(command="pause", reason="mine"), "shop", id="a pause"),
        pytest.param(SettingsSet(cluster="*", settings=ClusterSettings(frozen=True)), "", id="settings of all"),
        pytest.param(EngineSet(engine=99), "", id="an engine that nobody has"),
        pytest.param(Restart(reason="x"), "", id="a restart"),
        pytest.param(WatermarkReset(topic=topics.SAMPLES, source_partition=0), "", id="a reset"),
        pytest.param(AgentSet(cluster="prod-eu", incarnation=2_000_000_000, left=True), "", id="another's end"),
        pytest.param(Serving(session="r", clusters=["prod-eu"]), "", id="serving another cluster"),
    ],
)
async def test_what_only_operators_may_write_is_rejected(site: Site, body: Body, namespace: str) -> None:
    offset = await site.report(body, cluster="prod" if namespace else "", namespace=namespace)
    code, _ = await site.refused(offset)
    assert code in ("wrongTopic", "otherCluster")


async def test_a_central_hpa_is_rejected(site: Site) -> None:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    manifest = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": reference, "maxReplicas": 500},
    }
    offset = await site.report(AutoscalerSet(hpa=manifest, origin="central", mode="enforce"))
    assert (await site.refused(offset))[0] == "notAllowed"


async def test_replayed_records_change_nothing(site: Site) -> None:
    beat = Heartbeat(session="agent-prod-eu@1", watches=["pods"])
    foreign = PublicRecord(v=1, entries=[beat], time=NOW_MS, cluster="prod-eu", namespace="shop")
    async with running_producer(site.login("fleethpa-agent-prod-eu")) as producer:
        await producer.send_and_wait(site.other.topics.reports, encode(foreign), partition=ONLY_PARTITION)
    # The record of the other agent, to the byte, on its own topic.
    assert (await site.refused(await site.write(encode(foreign), site.own.topics.reports)))[0] == "otherCluster"
    # A record of its own once more: it counts for its own cluster only, whatever it contains.
    offset = await site.report(Heartbeat(session="agent-prod@1", watches=["pods"]))
    await site.logged(site.own.topics.reports, offset)


async def test_what_goes_into_every_log_partition_has_a_rate(site: Site) -> None:
    """Numbers of namespaces and HPAs are limited by the fold (`tests/unit/ingest/test_hostile_reports.py`)."""
    body = Serving(session="agent-prod@1", clusters=["prod"])
    offsets = [await site.report(*[body] * 100, cluster="", namespace="") for _ in range(3)]
    assert (await site.refused(offsets[-1]))[0] == "overRate"


async def test_rubbish_stops_nobody(site: Site) -> None:
    offset = await site.write(b"\x00" * 1_000, site.own.topics.reports)
    assert (await site.refused(offset))[0] == "unknownFormat"
    offset = await site.report(Heartbeat(session="agent-prod@1"))
    await site.logged(site.own.topics.reports, offset)


async def test_records_of_10_mb_are_refused_by_the_broker_and_compressed_ones_by_ingest(site: Site) -> None:
    large = {"max_request_size": 20_000_000}
    with pytest.raises(MessageSizeTooLargeError):
        await site.write(b"x" * 10_000_000, site.own.topics.reports, compression_type=None, **large)
    offset = await site.write(b"x" * 10_000_000, site.own.topics.reports, **large)
    code, reason = await site.refused(offset)
    assert (code, "10000000 bytes, the limit is 4194304" in reason) == ("overLimit", True)


# --- on other topics --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topic",
    [
        pytest.param("other reports", id="another cluster's reports"),
        pytest.param("other orders", id="another cluster's orders"),
        pytest.param("own orders", id="its own orders"),
        *(pytest.param(topic, id=topic) for topic in (*topics.PUBLIC_TOPICS, topics.LOG, topics.DECISIONS)),
        pytest.param(topics.CHANGELOG, id=topics.CHANGELOG),
        pytest.param(topics.REJECTED, id=topics.REJECTED),
    ],
)
async def test_it_cannot_write_any_other_topic(site: Site, topic: str) -> None:
    named = {
        "other reports": site.other.topics.reports,
        "other orders": site.other.topics.commands,
        "own orders": site.own.topics.commands,
    }
    with pytest.raises(TopicAuthorizationFailedError):
        await site.write(b"{}", named.get(topic, topic))


@pytest.mark.parametrize("topic", ["other reports", "other orders", "own reports", topics.DECISIONS])
async def test_it_cannot_read_any_other_topic(site: Site, topic: str) -> None:
    named = {
        "other reports": site.other.topics.reports,
        "other orders": site.other.topics.commands,
        "own reports": site.own.topics.reports,
    }
    name = named.get(topic, topic)
    async with running_producer(site.admin) as producer:
        await producer.send_and_wait(name, b"{}", partition=ONLY_PARTITION)
    # The driver asks for the topic again and again where its name is denied, too.
    with pytest.raises((TopicAuthorizationFailedError, TimeoutError)):
        await _read_one(site.hostile, name, timeout_s=4)
    if topic != "own reports":  # which it may write, so that it may know of it
        admin = AIOKafkaAdminClient(**aiokafka_kwargs(site.hostile))
        await admin.start()
        try:
            found = await admin.describe_topics([name])
        finally:
            await admin.close()
        assert [for_code(each["error_code"]) for each in found] == [TopicAuthorizationFailedError]


async def test_it_can_read_its_own_orders(site: Site) -> None:
    async with running_producer(site.admin) as producer:
        await producer.send_and_wait(site.own.topics.commands, b"{}", partition=ONLY_PARTITION)
    assert await _read_one(site.hostile, site.own.topics.commands) == b"{}"


@pytest.mark.parametrize("group", [topics.INGEST_GROUP, topics.AGENT_INGEST_GROUP, topics.ROUTER_GROUP])
async def test_it_cannot_move_the_offsets_of_the_hub(site: Site, group: str) -> None:
    tp = TopicPartition(site.own.topics.commands, ONLY_PARTITION)
    consumer = AIOKafkaConsumer(**aiokafka_kwargs(site.hostile), group_id=group, enable_auto_commit=False)
    try:
        await consumer.start()
        consumer.assign([tp])
        with pytest.raises(GroupAuthorizationFailedError):
            await asyncio.wait_for(consumer.commit({tp: 0}), PATIENCE_S)
    except GroupAuthorizationFailedError:
        pass  # the driver may find it out at the start
    finally:
        await consumer.stop()


async def _read_one(settings: KafkaSettings, topic: str, timeout_s: float = PATIENCE_S) -> bytes | None:
    tp = TopicPartition(topic, ONLY_PARTITION)
    async with asyncio.timeout(timeout_s), reader(settings, [tp]) as consumer:
        value: bytes | None = (await consumer.getone(tp)).value
        return value


# --- after all this ---------------------------------------------------------------------------------------------------


async def test_after_all_this_the_log_holds_nothing_of_it_about_another_cluster(site: Site) -> None:
    found = await site.entries()
    own = [entry for topic, entry in found if topic == site.own.topics.reports]
    assert {entry.key.partition("/")[0] for entry in own} == {"prod", "*"}
    assert {type(entry.body) for entry in own} == {Heartbeat, Serving}
    assert {tuple(entry.body.clusters) for entry in own if isinstance(entry.body, Serving)} == {("prod",)}
    others = [topic for topic, entry in found if entry.key.startswith("prod-eu/")]
    assert set(others) == {site.other.topics.reports}


async def test_a_topic_that_is_created_again_stops_that_topic_only(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """By hand, under the same name: the numbers of its records begin anew."""
    await site.logged(site.own.topics.reports, await site.report(Heartbeat(session="agent-prod@1")))
    async with administering(site.admin, site.own.topics) as admin:
        await admin.delete([site.own.topics.reports, site.own.topics.commands])
    async with asyncio.timeout(PATIENCE_S):
        while not await _created(site):
            await asyncio.sleep(0.5)  # the broker deletes in the background
    offset = await site.report(PodDeleted(name="late", session="agent-prod@1"))
    assert offset == 0
    async with asyncio.timeout(PATIENCE_S):
        while "no more is read of it" not in caplog.text:
            await asyncio.sleep(0.1)
    other = PublicRecord(
        v=1, entries=[Heartbeat(session="agent-prod-eu@1")], time=NOW_MS, cluster="prod-eu", namespace="shop"
    )
    async with running_producer(site.login("fleethpa-agent-prod-eu")) as producer:
        sent = await producer.send_and_wait(site.other.topics.reports, encode(other), partition=ONLY_PARTITION)
    await site.logged(site.other.topics.reports, sent.offset)
    assert not [entry for _, entry in await site.entries() if isinstance(entry.body, PodDeleted)]


async def _created(site: Site) -> bool:
    try:
        async with administering(site.admin, site.own.topics) as admin:
            return len(await create_topics(admin, site.own.topics, 1)) == 2
    except CommandError:
        return False
