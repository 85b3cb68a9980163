"""The topics around a router, in both the embedded broker and Apache Kafka."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer
from msgspec import structs

from reconciler.agents.router.process import Router, RouterConfig
from reconciler.core.knowledge import KnowledgeFold
from runtime.records import Publisher
from schemas.agentknowledge import SNAPSHOT_TYPE, AgentKnowledge
from schemas.agents import AgentSet
from schemas.codec import decode, encode
from schemas.connection import KafkaSettings
from schemas.decisions import Decision, InputPosition
from schemas.keys import namespace_key
from schemas.partitioning import partition_for
from schemas.topics import DECISIONS, SETTINGS
from tests.patience import PATIENCE_S
from tests.pipeline.cluster_rig import running


class Hub:
    """The topics around a router."""

    def __init__(self, kafka: KafkaSettings, producer: AIOKafkaProducer) -> None:
        self.kafka, self._producer, self.publisher = kafka, producer, Publisher(producer)

    async def register(self, agent: AgentSet) -> None:
        await self.publisher.send(SETTINGS, "", "", [agent], 1)

    async def decide(self, seq: int, cluster: str = "east", **changes: Any) -> str:
        id_ = f"0-{seq}-web"
        decision = Decision(
            id=id_,
            seq=seq,
            prev="",
            cluster=cluster,
            namespace="shop",
            name="web",
            uid="u",
            time=f"2026-11-21T12:{seq // 60:02}:{seq % 60:02}.000Z",
            input=InputPosition(partition=0, offset=seq, hash=""),
            mode="enforce",
            wants=5,
        )
        await self._write(structs.replace(decision, **changes), cluster, b"io.fleethpa.decision.v1")
        return id_

    async def _write(self, record: Any, cluster: str, kind: bytes) -> None:
        key = namespace_key(cluster, "shop")
        headers = [("ce_type", kind), ("ce_source", f"/clusters/{cluster}".encode())]
        await self._producer.send_and_wait(
            DECISIONS, encode(record), key=key.encode(), partition=partition_for(key, 4), headers=headers
        )


class Copied:
    """What an agent's topic holds."""

    def __init__(self, consumer: Any, cluster: str = "east") -> None:
        self._consumer, self._cluster = consumer, cluster
        self.decisions: list[tuple[int, str]] = []
        """(partition of the log, id)."""
        self.knowledge = KnowledgeFold()
        self.snapshots = 0

    async def until(self, found: Any, what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not found():
                    for records in (await self._consumer.getmany(timeout_ms=20)).values():
                        for record in records:
                            self._take(record)
        except TimeoutError:
            raise AssertionError(f"{what}: {self.decisions} {self.knowledge.hpas}") from None

    def _take(self, record: Any) -> None:
        if dict(record.headers)["ce_type"] == SNAPSHOT_TYPE:
            knowledge = decode(record.value, AgentKnowledge)
            assert knowledge.cluster == self._cluster
            self.snapshots += bool(knowledge.snapshot)
            self.knowledge.add(knowledge)
        else:
            self.decisions.append((int(record.key), decode(record.value, Decision).id))

    @property
    def ids(self) -> list[str]:
        return [id_ for _, id_ in self.decisions]


@asynccontextmanager
async def router(made: Hub, **changes: Any) -> AsyncIterator[Router]:
    part = Router(RouterConfig(kafka=made.kafka, session_timeout_ms=2_000, **changes))
    async with running(part, asyncio.Event()):
        yield part
