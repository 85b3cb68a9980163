"""Read the topic that comes to an agent: decisions of its cluster, and what it must know beside them."""

import asyncio
import logging
from collections.abc import Callable

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from reconciler.apply.clusterwriters import ClusterWriters
from reconciler.core.inbox import LEARN_BACK_MS, LEARN_BACK_RECORDS, Position
from reconciler.core.knowledge import KnowledgeFold, Learnt
from runtime import kafkaclients
from schemas.agents import ONLY_PARTITION, SNAPSHOT_TYPE, AgentKnowledge
from schemas.codec import WireError, decode, whole_number
from schemas.connection import KafkaSettings
from schemas.decisions import Decision, ShortDecision

log = logging.getLogger(__name__)

OLD_MS = 60_000
"""Decisions older than this at the start of a term are only remembered: their outcome is awaited no longer."""


class OrderReader:
    """Hands decisions to the writers and knowledge to `learnt`.

    Args:
        now_ms: the brokers' time.
        received: is called with each decision, and whether it is only remembered.
        looked: called whenever the topic was looked at, with whether all was read that it held when it was opened.
    """

    def __init__(
        self,
        topic: str,
        writers: ClusterWriters,
        knowledge: KnowledgeFold,
        *,
        learnt: "Callable[[Learnt], None]",
        received: Callable[[Decision | ShortDecision, bool], None],
        looked: Callable[[bool], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._partition = TopicPartition(topic, ONLY_PARTITION)
        self._writers, self._knowledge = writers, knowledge
        self._learnt, self._received, self._looked, self._now_ms = learnt, received, looked, now_ms

    async def run(self, settings: KafkaSettings) -> None:
        """Read until cancelled; brokers that are away are asked again without limit."""
        while True:
            try:
                await self._read(settings)
            except KafkaError as error:
                log.error("nothing can be read", extra={"topic": self._partition.topic, "error": repr(error)})
            await asyncio.sleep(RECONNECT_S)

    async def _read(self, settings: KafkaSettings) -> None:
        tp = self._partition
        async with kafkaclients.reader(settings) as consumer:
            await kafkaclients.check_topic(consumer, tp.topic)  # or the driver would ask for a denied one without end
            consumer.assign([tp])
            end = (await consumer.end_offsets([tp]))[tp]
            await kafkaclients.seek_back(consumer, {tp: end}, self._now_ms() - LEARN_BACK_MS, LEARN_BACK_RECORDS)
            while True:
                for record in (await consumer.getmany(timeout_ms=1_000)).get(tp, ()):
                    is_new = record.offset >= end
                    is_past = not is_new and self._now_ms() - record.timestamp > OLD_MS
                    self.take(record, is_past=is_past, is_new=is_new)
                self._looked(await consumer.position(tp) >= end)

    def take(self, record: ConsumerRecord, *, is_past: bool, is_new: bool = False) -> None:
        """Take one record in. A record that cannot be read is logged and passed over.

        Args:
            is_past: it is only remembered.
            is_new: it came after this process began to read.
        """
        if dict(record.headers).get("ce_type") == SNAPSHOT_TYPE:
            self._learn(record)
            return
        where = f"{record.topic}@{record.offset}"
        decision = self._writers.decode(record.value or b"", record.headers, where)
        # The key is the log partition that the decision's number counts in.
        partition = whole_number(record.key.decode(errors="replace")) if record.key else None
        if decision is None or partition is None:
            return
        self._received(decision, is_past)
        if not is_past:
            self._writers.take(decision, Position(partition, record.offset, is_new=is_new))
        elif isinstance(decision, Decision):
            self._writers.learn(decision, partition)

    def _learn(self, record: ConsumerRecord) -> None:
        try:
            knowledge = decode(record.value or b"", AgentKnowledge)
        except WireError as error:
            log.error("not a snapshot", extra={"position": f"{record.topic}@{record.offset}", "error": str(error)})
            return
        learnt = self._knowledge.take(knowledge)
        if learnt.hpas or learnt.has_settings:
            self._learnt(learnt)
