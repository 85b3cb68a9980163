"""What tests of agents share: replicas that run, a pen for what goes to them, a reader of what comes from them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from reconciler.agents.agent.process import HOME, Agent, AgentConfig
from reconciler.apply.clusterwriters import WriterLimits
from runtime.kafkaclients import reader
from runtime.log import wall_clock_ms
from schemas.agentknowledge import SNAPSHOT_TYPE, AgentKnowledge, CentralHpa
from schemas.agents import ONLY_PARTITION, AgentTopics
from schemas.codec import decode, encode
from schemas.decisions import Decision
from schemas.entries import VERSION, PublicRecord
from schemas.settings import SettingsSet
from tests.patience import PATIENCE_S
from tests.pipeline.cluster_rig import Rig, running

EAST = AgentTopics("east", 7)


@asynccontextmanager
async def replica(made: Rig, **changes: Any) -> AsyncIterator[Agent]:
    """One replica of the agent of cluster east."""
    made.sims["east"].apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
    named: dict[str, Any] = {"kafka": made.kafka, "clusters": made.clusters[:1], "incarnation": EAST.incarnation}
    named |= {"broker_time": False, "sync_period_ms": 1_000, "heartbeat_ms": 500}
    named |= {"limits": WriterLimits(request_timeout_s=2.0)}
    part = Agent(AgentConfig(**(named | changes)))
    async with running(part, asyncio.Event()):
        yield part


class Orders:
    """Writes to the agent's topic as a router would."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer

    async def knowledge(self, *hpas: CentralHpa, settings: tuple[SettingsSet, ...] = (), **changes: Any) -> None:
        """A whole snapshot, unless `snapshot` is empty."""
        named: dict[str, Any] = {"snapshot": "s1"} | changes
        record = AgentKnowledge(
            v=VERSION, cluster="east", time=wall_clock_ms(), settings=list(settings), hpas=list(hpas), **named
        )
        await self._send(record, b"snapshot", [("ce_type", SNAPSHOT_TYPE)])

    async def decision(self, decision: Decision, log_partition: int = 0) -> Decision:
        """A decision of a partition of the log."""
        headers = [("ce_type", b"io.fleethpa.decision.v1"), ("ce_source", f"/clusters/{decision.cluster}".encode())]
        await self._send(decision, b"%d" % log_partition, headers)
        return decision

    async def _send(self, body: Any, key: bytes, headers: list[tuple[str, bytes]]) -> None:
        await self._producer.send_and_wait(
            EAST.commands, encode(body), key=key, partition=ONLY_PARTITION, headers=headers
        )


class Reports:
    """Reads the agent's reports from their beginning and keeps every entry."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self.records: list[PublicRecord] = []

    def of(self, kind: type) -> list[Any]:
        """All bodies of a kind so far, in order."""
        return [body for record in self.records for body in record.entries if isinstance(body, kind)]

    async def until(self, found: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
        """Read on until `found` gives something true; returns it."""
        try:
            async with asyncio.timeout(timeout_s):
                while not (result := found()):
                    for records in (await self._consumer.getmany(timeout_ms=20)).values():
                        self.records += [decode(record.value, PublicRecord) for record in records]
                return result
        except TimeoutError:
            reported = "\n".join(repr(record)[:300] for record in self.records[-10:])
            raise AssertionError(f"{what}: not seen within {timeout_s:g} s; last records:\n{reported}") from None


@asynccontextmanager
async def agent_topics(made: Rig) -> AsyncIterator[tuple[Orders, Reports]]:
    """A pen for the orders and a reader of the reports."""
    async with reader(made.kafka, [TopicPartition(EAST.reports, ONLY_PARTITION)]) as consumer:
        producer = AIOKafkaProducer(bootstrap_servers=made.kafka.bootstrap_servers)
        await producer.start()
        try:
            yield Orders(producer), Reports(consumer)
        finally:
            await producer.stop()
