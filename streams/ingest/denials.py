"""Topics that Kafka denies or no longer has while others can be read: which, in words, and when each is tried again.

A denied topic is one agent's or one other producer's, so it stops nobody else. Kafka shows a denial in two ways: by the
error of a fetch (the topic may be described, and not read), after which its partitions pause, and by leaving the topic
out of what it describes, after which nobody is assigned it. Both end by themselves when the right is given.
"""

import logging
import time
from collections.abc import Callable, Collection

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from runtime.driver import driver_of
from schemas.agents import agent_of_reports
from streams.ingest.sourcerates import is_trusted

log = logging.getLogger("fleethpa.ingest")

TRIED_EVERY_S = 5.0
METADATA_MAX_AGE_MS = 10_000
"""How soon a topic is found that was created after its agent was registered, or may be read again."""


def denial_text(topic: str) -> str:
    """Say which topic may not be read, whose it is, and what comes next."""
    if (agent := agent_of_reports(topic)) is None:
        step = f"kafka-acls.sh --add --topic {topic} --operation READ for the user of ingest"
        return f"Kafka denies READ on {topic}: its samples do not come into the log, all others do. Next: {step}"
    return (
        f"cluster {agent.cluster}: Kafka denies READ on {topic}: what its agent reports does not come into the log, "
        "all others do. Next: fleethpa admin topics acls ingest"
    )


def missing_text(topic: str) -> str:
    """Say which topic is not there, whose it is, and what comes next."""
    if (agent := agent_of_reports(topic)) is None:
        step = "fleethpa admin topics init" if is_trusted(topic) else f"create it, or leave out --sample-topic {topic}"
        return f"topic {topic} is not there any more: nothing of it comes into the log. Next: {step}"
    return (
        f"cluster {agent.cluster}: its agent's topic {topic} is not there: nothing comes from it, all others go on. "
        f"Next: fleethpa admin clusters remove {agent.cluster}, then fleethpa admin clusters add {agent.cluster}"
    )


class Denials:
    """The topics of one worker that cannot be read; `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tried_s: dict[str, float] = {}
        self._missing: set[str] = set()

    def __contains__(self, topic: str) -> bool:
        return topic in self._tried_s

    def notes(self) -> list[str]:
        """Return what may not be read, for `/readyz`."""
        texts = [*map(denial_text, sorted(self._tried_s)), *map(missing_text, sorted(self._missing))]
        return [f"[!] {text}" for text in texts]

    def add(self, consumer: AIOKafkaConsumer, topic: str) -> None:
        """Note that a topic is denied, and pause what is assigned of it."""
        if topic not in self._tried_s:
            log.error(denial_text(topic))
        self._tried_s[topic] = self._clock()
        consumer.pause(*_parts(consumer, topic))

    def keep(self, topics: Collection[str]) -> None:
        """Forget all other topics: they are no longer to be read."""
        self._tried_s = {topic: tried_s for topic, tried_s in self._tried_s.items() if topic in topics}

    def look(self, consumer: AIOKafkaConsumer, kept: Collection[TopicPartition]) -> None:
        """Try topics again whose time has come, but for partitions `kept` paused, and drop those that can be read."""
        hidden = hidden_topics(consumer)
        for topic, tried_s in list(self._tried_s.items()):
            parts = _parts(consumer, topic)
            if topic in hidden:
                continue
            if any(_fetched_s_ago(consumer, part) < self._clock() - tried_s for part in parts):
                log.warning("a topic that Kafka denied is read again", extra={"topic": topic})
            elif parts:
                if self._clock() - tried_s >= TRIED_EVERY_S:
                    self._tried_s[topic] = self._clock()
                    consumer.resume(*(part for part in parts if part not in kept))
                continue
            # Without a partition of it here: another worker's from now on.
            del self._tried_s[topic]
        missing = set(missing_topics(consumer)) - hidden
        for topic in missing - self._missing:
            log.error(missing_text(topic))
        self._missing = missing


def _parts(consumer: AIOKafkaConsumer, topic: str) -> list[TopicPartition]:
    return [part for part in consumer.assignment() if part.topic == topic]


def _fetched_s_ago(consumer: AIOKafkaConsumer, part: TopicPartition) -> float:
    """How long ago a fetch of it was answered without an error."""
    at_ms = consumer.last_poll_timestamp(part)
    return float("inf") if at_ms is None else time.time() - at_ms / 1000


def hidden_topics(consumer: AIOKafkaConsumer) -> set[str]:
    """Return the topics that Kafka did not describe to a consumer when it asked last, as it may not know of them."""
    hidden: set[str] = driver_of(consumer).cluster.unauthorized_topics
    return hidden


def missing_topics(consumer: AIOKafkaConsumer) -> list[str]:
    """Return the topics of a consumer that Kafka did not name when it was asked last."""
    return [topic for topic in consumer.subscription() if consumer.partitions_for_topic(topic) is None]


async def denied_topics(consumer: AIOKafkaConsumer, error: KafkaError) -> set[str]:
    """Return the topics whose denial an error is; empty: it is another error.

    The driver names a topic, a partition or several topics; where it asks for offsets, only the kind of the error.
    """
    if isinstance(error, TopicAuthorizationFailedError):
        named = error.args[0] if error.args else ()
        named = {named} if isinstance(named, str | TopicPartition) else set(named)
        if named:
            return {each.topic if isinstance(each, TopicPartition) else each for each in named}
    elif TopicAuthorizationFailedError.__name__ not in str(error):
        return set()
    await driver_of(consumer).force_metadata_update()
    return set(hidden_topics(consumer))
