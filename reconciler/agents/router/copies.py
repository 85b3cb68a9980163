"""Copies of records in the topics of agents: which decisions are copied, and whether the topic takes them. Each copy is
acknowledged, or its agent is late and the copy waits.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.errors import KafkaError, KafkaTimeoutError, TopicAuthorizationFailedError
from prometheus_client import CollectorRegistry, Counter, Gauge

from reconciler.core.knowledge import is_order
from runtime.log import Clock
from schemas.agents import ONLY_PARTITION, AgentSet
from schemas.codec import WireError, decode
from schemas.decisions import Decision, cluster_of

log = logging.getLogger(__name__)

TOPIC_TIMEOUT_S = 10.0
SIGN_EVERY_MS = 5_000


async def exists(producer: AIOKafkaProducer, topic: str) -> bool:
    """Whether the topic is there. One that may not be described counts as there: copies to it wait for the permission,
    where those to a missing topic would be passed over.
    """
    try:
        async with asyncio.timeout(TOPIC_TIMEOUT_S):
            return bool(await producer.partitions_for(topic))
    except TopicAuthorizationFailedError:
        return True
    except (KafkaError, TimeoutError) as error:
        log.warning("an agent's topic was not found", extra={"topic": topic, "error": repr(error)})
        return False


async def is_gone(producer: AIOKafkaProducer, topic: str) -> bool:
    """Whether the brokers say so. Where they do not answer, a record that failed must be copied later."""
    client = producer.client
    try:
        async with asyncio.timeout(TOPIC_TIMEOUT_S):
            answered: bool = await client.force_metadata_update()
    except TimeoutError:
        return False
    known = client.cluster.topics(), client.cluster.unauthorized_topics
    return answered and not any(topic in each for each in known)


class WantedRecords:
    """Looks at each record that may be copied, in order.

    To an agent, decisions are heartbeats of the hub: one per partition of the log and SIGN_EVERY_MS is copied for no
    other reason.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._copied_ms: dict[tuple[str, int], int] = {}

    def wants(self, record: ConsumerRecord) -> bool:
        """Whether to copy a record: the agent needs it, or it shows that the hub works."""
        where, now_ms = (cluster_of(record.headers), record.partition), self._clock()
        if not self._is_order(record) and abs(now_ms - self._copied_ms.get(where, 0)) < SIGN_EVERY_MS:
            return False
        self._copied_ms[where] = now_ms
        return True

    def _is_order(self, record: ConsumerRecord) -> bool:
        try:
            return is_order(decode(record.value, Decision))
        except WireError as error:
            log.error("not a decision record", extra={"offset": record.offset, "error": str(error)})
            return False


PATIENCE_S = 2.0
"""How long copies for other agents wait for room for a record of one agent."""
ANSWER_WITHIN_S = 20.0
"""An agent's topic that acknowledges nothing of what it was sent for this long does not take records."""


class RouterMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.copied = counter("fleethpa_router_records_total", "Records copied to agents", ["cluster", "what"])
        self.copied_bytes = counter("fleethpa_router_bytes_total", "Bytes copied to agents", ["cluster"])
        self.failed = counter(
            "fleethpa_router_failures_total", "Records that an agent's topic did not take", ["cluster"]
        )
        self.agents = gauge("fleethpa_router_agents", "Registered agents")
        self.late_agents = gauge(
            "fleethpa_router_late_agents", "Agents whose topic does not take records, so that their copies wait"
        )


Ended = Callable[[BaseException | None], None]


@dataclass
class _SendQueue:
    """How it goes with the copies of one agent."""

    producer: AIOKafkaProducer
    open: int = 0
    """Copies that are neither acknowledged nor failed."""
    moved_s: float = 0.0
    """When one ended last, or the only open one was begun."""
    all_ended: asyncio.Event = field(default_factory=asyncio.Event)


class Copies:
    """Sends to agents' topics.

    All agents share a producer until a copy fails. An idempotent producer counts on from the failed record, which the
    broker never saw, so its next records would be refused: from then on the agent has a producer of its own.
    """

    def __init__(self, producer: AIOKafkaProducer, metrics: RouterMetrics) -> None:
        self._producer, self._metrics = producer, metrics
        self._queues: dict[AgentSet, _SendQueue] = {}

    async def send(
        self,
        agent: AgentSet,
        value: bytes,
        key: bytes,
        headers: list[tuple[str, bytes]],
        what: str,
        ended: Ended,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Begin to copy a record. `ended` is called once: with None when the topic has it, else with the error."""
        queue = self._queue_of(agent)
        if not queue.open:
            queue.moved_s = time.monotonic()
        queue.open += 1
        queue.all_ended.clear()

        def answered(done: "asyncio.Future[Any]") -> None:
            error = KafkaError("given up by the producer") if done.cancelled() else done.exception()
            self._answered(agent, queue, len(value), what, error, ended)

        try:
            async with asyncio.timeout(patience_s):
                sent = await queue.producer.send(
                    agent.topics.commands, value, key=key, partition=ONLY_PARTITION, headers=headers
                )
        except KafkaError as error:
            self._answered(agent, queue, len(value), what, error, ended)
        except TimeoutError:
            full = KafkaTimeoutError(f"no room for another record within {patience_s:.0f} s")
            self._answered(agent, queue, len(value), what, full, ended)
        else:
            sent.add_done_callback(answered)

    def _queue_of(self, agent: AgentSet) -> _SendQueue:
        if (queue := self._queues.get(agent)) is None:
            queue = self._queues[agent] = _SendQueue(self._producer)
        return queue

    def _answered(
        self, agent: AgentSet, queue: _SendQueue, size: int, what: str, error: BaseException | None, ended: Ended
    ) -> None:
        queue.open -= 1
        queue.moved_s = time.monotonic()
        if error is None:
            self._metrics.copied.labels(agent.cluster, what).inc()
            self._metrics.copied_bytes.labels(agent.cluster).inc(size)
        else:
            self._metrics.failed.labels(agent.cluster).inc()
        ended(error)
        if not queue.open:
            queue.all_ended.set()

    def stuck(self) -> list[AgentSet]:
        """Agents whose topic has acknowledged nothing for ANSWER_WITHIN_S, although it was sent something."""
        before_s = time.monotonic() - ANSWER_WITHIN_S
        return [agent for agent, queue in self._queues.items() if queue.open and queue.moved_s < before_s]

    async def all_ended(self, agent: AgentSet) -> None:
        """Wait until each copy that was begun for an agent is acknowledged or has failed."""
        queue = self._queue_of(agent)
        while queue.open:
            await queue.all_ended.wait()

    async def settled(self) -> None:
        """Wait until each copy for any agent is acknowledged or has failed."""
        for agent in list(self._queues):
            await self.all_ended(agent)

    def use(self, agent: AgentSet, producer: AIOKafkaProducer) -> None:
        """Send to an agent with this producer from now on; nothing of it may be open."""
        self._queue_of(agent).producer = producer

    def forget(self, agent: AgentSet) -> None:
        self._queues.pop(agent, None)
