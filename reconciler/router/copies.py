"""Copies of records in the topics of agents: each is acknowledged, or given up with its agent, or still wanted."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from aiokafka.errors import KafkaError
from prometheus_client import CollectorRegistry, Counter, Gauge

from schemas.agents import ONLY_PARTITION, AgentSet

log = logging.getLogger(__name__)


class RouterMetrics:
    """What a router measures."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.copied = Counter(
            "fleethpa_router_records_total", "Records copied to agents", ["cluster", "what"], registry=registry
        )
        self.copied_bytes = Counter(
            "fleethpa_router_bytes_total", "Bytes copied to agents", ["cluster"], registry=registry
        )
        self.failed = Counter(
            "fleethpa_router_failures_total",
            "Records that an agent's topic did not take",
            ["cluster"],
            registry=registry,
        )
        self.agents = Gauge("fleethpa_router_agents", "Registered agents", registry=registry)


class _Sends(Protocol):
    """The part of a producer that copies need."""

    async def send(
        self, topic: str, value: bytes, *, key: bytes, partition: int, headers: list[tuple[str, bytes]]
    ) -> "asyncio.Future[Any]": ...


class _Failed(NamedTuple):
    agent: AgentSet
    error: BaseException
    ended: Callable[[], None]


def _nothing() -> None:
    pass


class Copies:
    """Sends to agents' topics, and remembers what they did not take."""

    def __init__(self, producer: _Sends, metrics: RouterMetrics) -> None:
        self._producer, self._metrics = producer, metrics
        self._failed: list[_Failed] = []

    async def send(
        self,
        agent: AgentSet,
        value: bytes,
        key: bytes,
        headers: list[tuple[str, bytes]],
        what: str,
        ended: Callable[[], None] = _nothing,
    ) -> None:
        """Begin to copy a record. `ended` is called once the record need not be copied again: the topic has it, or
        `check` found the topic gone. It is not called for a copy that failed and is still wanted.
        """

        def answered(done: "asyncio.Future[Any]") -> None:
            error = KafkaError("given up by the producer") if done.cancelled() else done.exception()
            self._answered(agent, len(value), what, error, ended)

        try:
            sent = await self._producer.send(
                agent.topics.orders, value, key=key, partition=ONLY_PARTITION, headers=headers
            )
        except KafkaError as error:
            self._answered(agent, len(value), what, error, ended)
        else:
            sent.add_done_callback(answered)

    def _answered(
        self, agent: AgentSet, size: int, what: str, error: BaseException | None, ended: Callable[[], None]
    ) -> None:
        if error is None:
            self._metrics.copied.labels(agent.cluster, what).inc()
            self._metrics.copied_bytes.labels(agent.cluster).inc(size)
            ended()
            return
        self._metrics.failed.labels(agent.cluster).inc()
        log.error("an agent's topic did not take a record", extra={"cluster": agent.cluster, "error": repr(error)})
        self._failed.append(_Failed(agent, error, ended))

    async def check(self, is_gone: Callable[[str], Awaitable[bool]]) -> list[AgentSet]:
        """Give up what failed for agents whose topic is gone, which is those clusters' trouble: their HPAs hold.

        Args:
            is_gone: whether the brokers report that the topic does not exist or may not be described.

        Returns:
            These agents.

        Raises:
            BaseException: a record was not taken by a topic that may still be there, and must be copied again.
        """
        gone: list[AgentSet] = []
        while self._failed:
            failed = self._failed[-1]
            if failed.agent not in gone:
                if not await is_gone(failed.agent.topics.orders):
                    raise failed.error
                gone.append(failed.agent)
            self._failed.remove(failed)
            failed.ended()
        return gone
