"""Sources that ingest may not read on a Kafka that enforces permissions: the others go on, and it reads again later."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from runtime.kafkaclients import running_producer
from runtime.records import Publisher
from runtime.topicadmin import TopicAdmin
from runtime.topicneeds import Acl, WantedTopic, agent_topics
from schemas import topics
from schemas.agents import FROM_PREFIX, ONLY_PARTITION, AgentSet
from schemas.codec import encode
from schemas.entries import PublicRecord
from schemas.observed import PodDeleted
from tests.kafka.granting import grant
from tests.kafka.secured import Secured, scram, secured_broker
from tests.patience import PATIENCE_S
from tests.pipeline.ingesting import Log, Process, reading, sample

PUSHED = "telemetry"
AGENTS = {name: AgentSet(cluster=name, incarnation=7) for name in ("north", "south")}
INGEST = "User:ingest"


def may_read(topic: str) -> Acl:
    return Acl("topic", topic, ("READ",))


def reports(cluster: str) -> str:
    return AGENTS[cluster].topics.reports


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
    """A broker with two agents' topics and one of another producer, which ingest may read by their whole names."""
    async with secured_broker(tmp_path / "kafka", ["ingest"]) as found:
        async with TopicAdmin(found.admin) as admin:
            await admin.create([topic for agent in AGENTS.values() for topic in agent_topics(agent.topics, 1)])
            await admin.create([WantedTopic(PUSHED, 1, 1, {})])
            await admin.allow([may_read(name) for name in (*map(reports, AGENTS), PUSHED)], INGEST)
        await grant(found.admin, "ingest", INGEST, withheld=FROM_PREFIX)
        yield found


class Sources:
    """What comes from agents and from the other producer, numbered; `log` shows what of it came into the log."""

    def __init__(self, secured: Secured, log: Log) -> None:
        self._secured, self._log, self._number = secured, log, 0

    async def send(self) -> dict[str, int]:
        """Send one record to each; topic -> its number."""
        self._number += 1
        async with running_producer(self._secured.admin) as out:
            for name, agent in AGENTS.items():
                body = PodDeleted(name=f"pod-{self._number}", session=f"agent-{name}@1")
                record = PublicRecord(v=1, entries=[body], time=1, cluster=name, namespace="shop")
                await out.send_and_wait(agent.topics.reports, encode(record), partition=ONLY_PARTITION)
            await out.send_and_wait(PUSHED, sample(self._number), partition=0)
        return dict.fromkeys((*map(reports, AGENTS), PUSHED), self._number)

    async def arrive(self, wanted: dict[str, int]) -> None:
        await self._log.until(lambda _: wanted.items() <= self.newest().items())

    def newest(self) -> dict[str, int]:
        """Topic -> the number of the newest record of it in the log."""
        found: dict[str, int] = {}
        for _, entry in self._log.entries():
            if entry.source is None:
                continue
            if isinstance(entry.body, PodDeleted):
                found[entry.source.topic] = int(entry.body.name.removeprefix("pod-"))
            elif points := getattr(entry.body, "points", None):
                found[entry.source.topic] = points[-1].milli // 1000
        return found


async def ready_text(port: int, until: Callable[[str], bool]) -> str:
    """What /readyz says once it is ready and `until` holds of it."""
    deadline, text = time.monotonic() + PATIENCE_S, ""
    while time.monotonic() < deadline:
        try:
            text = await asyncio.to_thread(lambda: urlopen(f"http://127.0.0.1:{port}/readyz").read().decode())
        except URLError as error:
            text = f"{error}"
        if text.startswith("ok\n") and until(text):
            return text
        await asyncio.sleep(0.2)
    raise AssertionError(text)


async def ended_by_term(process: Process) -> str:
    process.popen.send_signal(signal.SIGTERM)
    code, text = await process.ended()
    assert code == 0, text
    return text


async def test_a_source_that_may_not_be_read_is_named_and_the_others_go_on(secured: Secured, tmp_path: Path) -> None:
    files = secured.properties(tmp_path / "ingest.properties", *scram("ingest"))
    ingest = ("--kafka-config", str(files), "--sample-topic", PUSHED)
    denied = [may_read(reports("north")), may_read(PUSHED)]
    async with reading(secured.admin, topics.LOG) as log, TopicAdmin(secured.admin) as admin:
        sources = Sources(secured, log)
        async with running_producer(secured.admin) as out:
            await Publisher(out).send(topics.SETTINGS, "", "", list(AGENTS.values()), 1)
        with Process(secured.admin, *ingest) as process:
            port = await process.port()
            await sources.arrive(await sources.send())

            await admin.disallow(denied, INGEST)
            sent = await sources.send()
            await sources.arrive({reports("south"): sent[reports("south")]})
            text = await ready_text(port, lambda text: reports("north") in text and PUSHED in text)
            assert f"[!] cluster north: Kafka denies READ on {reports('north')}" in text
            assert f"[!] Kafka denies READ on {PUSHED}" in text
            assert "south" not in text
            assert sources.newest()[reports("north")] == sources.newest()[PUSHED] == sent[PUSHED] - 1

            await admin.allow(denied, INGEST)
            await sources.arrive(sent)
            await ready_text(port, lambda text: "denies" not in text)
            await sources.arrive(await sources.send())

            await admin.disallow(denied[:1], INGEST)
            await ready_text(port, lambda text: "cluster north" in text)
            sent = await sources.send()
            logged = await ended_by_term(process)
            assert f"cluster north: Kafka denies READ on {reports('north')}" in logged
            assert "fleethpa admin topics acls ingest" in logged
            assert "Traceback" not in logged

        with Process(secured.admin, *ingest) as process:  # what is denied at the start stops no other cluster
            port = await process.port()
            await sources.arrive({reports("south"): sent[reports("south")]})
            await ready_text(port, lambda text: f"cluster north: Kafka denies READ on {reports('north')}" in text)
            await admin.allow(denied[:1], INGEST)
            await sources.arrive(sent)
            await ready_text(port, lambda text: "denies" not in text)
            await ended_by_term(process)

        await admin.disallow(denied[1:], INGEST)  # a name of the command line, which may be mistyped
        with Process(secured.admin, *ingest) as process:
            code, text = await process.ended()
            assert code == 3, text
            assert f"may not read the topic {PUSHED} of --sample-topic" in text
