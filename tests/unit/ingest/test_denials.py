"""Topics that ingest may not read, without a broker: what an error names, how they are named, when they are tried."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, NotEnoughReplicasError, TopicAuthorizationFailedError

from schemas import topics
from schemas.agentregistry import AgentRegistry
from streams.ingest.denials import TRIED_EVERY_S, Denials, denied_topics
from streams.ingest.logwriter import IngestMetrics
from streams.ingest.loop import Worker
from streams.ingest.preflight import IngestConfig, explained
from streams.ingest.worker import Agents, AgentWorker

NORTH, PUSHED = "fleethpa.from.north.7", "telemetry"


class Consumer:
    """Is assigned the partitions of its topics but those that Kafka does not describe, or does not have any more."""

    def __init__(self, *names: str) -> None:
        self.names, self.hidden, self.gone = names, set[str](), set[str]()
        self.paused: set[TopicPartition] = set()
        self.fetched_ms: dict[TopicPartition, int] = {}
        cluster = SimpleNamespace(unauthorized_topics=self.hidden)
        self._client = SimpleNamespace(cluster=cluster, force_metadata_update=self._ask)

    async def _ask(self) -> None:
        self.hidden |= {PUSHED}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return None if topic in self.gone else {0}

    def subscription(self) -> frozenset[str]:
        return frozenset(self.names)

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition(name, 0) for name in self.names if name not in self.hidden | self.gone}

    def pause(self, *parts: TopicPartition) -> None:
        self.paused |= set(parts)

    def resume(self, *parts: TopicPartition) -> None:
        self.paused -= set(parts)

    def last_poll_timestamp(self, part: TopicPartition) -> int | None:
        return self.fetched_ms.get(part)


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (TopicAuthorizationFailedError(NORTH), {NORTH}),
        (TopicAuthorizationFailedError(TopicPartition(NORTH, 0)), {NORTH}),
        (TopicAuthorizationFailedError({NORTH, PUSHED}), {NORTH, PUSHED}),
        (KafkaError("TopicAuthorizationFailedError()"), {PUSHED}),  # as the driver says it of offsets: Kafka is asked
        (NotEnoughReplicasError(), set()),
    ],
)
async def test_the_topics_of_a_denial_are_found_in_each_form_of_the_error(error: KafkaError, named: set[str]) -> None:
    assert await denied_topics(Consumer(NORTH, PUSHED), error) == named


def test_a_denied_topic_pauses_is_tried_again_and_is_over_once_it_was_fetched() -> None:
    now_s = [100.0]
    denials, consumer, part = Denials(lambda: now_s[0]), Consumer(NORTH, PUSHED), TopicPartition(NORTH, 0)
    denials.add(consumer, NORTH)
    assert consumer.paused == {part}
    assert len(denials.notes()) == 1
    assert denials.notes()[0].startswith(f"[!] cluster north: Kafka denies READ on {NORTH}")
    assert denials.notes()[0].endswith("Next: fleethpa admin topics acls ingest")
    denials.look(consumer, set())
    assert consumer.paused == {part}
    now_s[0] += TRIED_EVERY_S
    denials.look(consumer, {part})
    assert consumer.paused == {part}, "what waits for room is not read on"
    now_s[0] += TRIED_EVERY_S
    denials.look(consumer, set())
    assert not consumer.paused
    assert NORTH in denials
    now_s[0] += 1.0
    consumer.fetched_ms[part] = int(time.time() * 1000)
    denials.look(consumer, set())
    assert denials.notes() == []


def test_a_topic_that_another_worker_reads_from_now_on_is_no_longer_named() -> None:
    denials, consumer = Denials(), Consumer(NORTH)
    consumer.hidden.add(NORTH)
    denials.add(consumer, NORTH)
    denials.look(consumer, set())
    assert NORTH in denials
    consumer.hidden.clear()
    consumer.names = ()
    denials.look(consumer, set())
    assert denials.notes() == []


def test_a_topic_that_is_not_there_is_named_with_its_cluster() -> None:
    denials, consumer = Denials(), Consumer(NORTH, PUSHED)
    consumer.gone = {NORTH}
    denials.look(consumer, set())
    assert [note.partition(" is not there")[0] for note in denials.notes()] == [
        f"[!] cluster north: its agent's topic {NORTH}"
    ]
    consumer.gone = set()
    denials.look(consumer, set())
    assert denials.notes() == []


def test_ingest_goes_on_without_topics_of_agents_and_producers_and_not_without_its_own() -> None:
    parts: Any = (Consumer(), None, IngestMetrics(), 4)
    assert Worker(IngestConfig(), *parts).goes_on_without(PUSHED)
    assert not Worker(IngestConfig(), *parts).goes_on_without(topics.PODS)
    assert not Worker(IngestConfig(timestamp="source"), *parts).goes_on_without(PUSHED), "all times count in playback"
    given: Any = (AgentRegistry(), None, None, IngestMetrics(), 4)
    agents = AgentWorker(Agents(IngestConfig(), *given), Consumer())
    assert agents.goes_on_without(NORTH)
    assert not agents.goes_on_without(topics.LOG)


def test_at_the_start_a_topic_of_the_command_line_is_named_with_its_option() -> None:
    kafka = IngestConfig().kafka
    assert "--sample-topic" in str(explained(TopicAuthorizationFailedError(PUSHED), kafka))
    assert "--sample-topic" not in str(explained(TopicAuthorizationFailedError(topics.PODS), kafka))
