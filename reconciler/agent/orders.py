"""Read the topic that comes to an agent: decisions of its cluster, and what it must know beside them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from reconciler.apply.clusterwriters import ClusterWriters
from reconciler.core.inbox import Position
from reconciler.core.knowledge import KnowledgeFold, Learnt
from runtime import kafkaclients
from schemas.agents import ONLY_PARTITION, SNAPSHOT_TYPE, AgentKnowledge
from schemas.codec import WireError, decode
from schemas.connection import KafkaSettings
from schemas.decisions import Decision, ShortDecision
from schemas.texts import whole_number

log = logging.getLogger(__name__)

LOOK_BACK_MS = 660_000
"""How far back is read at the start of a term: full records, which short ones repeat, come every 10 minutes, snapshots
more often.
"""
LOOK_BACK_RECORDS = 2_000
"""Records that are read back where the broker cannot look up a time, as the embedded one cannot."""
RECONNECT_S = 2.0
OLD_MS = 60_000
"""Decisions older than this at the start of a term are only remembered: nobody waits for their outcome any more."""


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
        async with self._opened(settings) as (consumer, end):
            while True:
                for record in (await consumer.getmany(timeout_ms=1_000)).get(self._partition, ()):
                    is_new = record.offset >= end
                    is_past = not is_new and self._now_ms() - record.timestamp > OLD_MS
                    self.take(record, is_past=is_past, is_new=is_new)
                self._looked(await consumer.position(self._partition) >= end)

    @asynccontextmanager
    async def _opened(self, settings: KafkaSettings) -> AsyncIterator[tuple[AIOKafkaConsumer, int]]:
        tp = self._partition
        async with kafkaclients.reader(settings) as consumer:
            await kafkaclients.check_topic(consumer, tp.topic)  # or the driver would ask for a denied one without end
            consumer.assign([tp])
            begin, end = (await consumer.beginning_offsets([tp]))[tp], (await consumer.end_offsets([tp]))[tp]
            found = (await consumer.offsets_for_times({tp: max(0, self._now_ms() - LOOK_BACK_MS)})).get(tp)
            consumer.seek(tp, max(begin, found.offset if found is not None else end - LOOK_BACK_RECORDS))
            yield consumer, end

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
        partition = _log_partition(record.key)
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


def _log_partition(key: bytes | None) -> int | None:
    """The log partition that a decision's number counts in: the key of its record."""
    return whole_number(key.decode(errors="replace")) if key else None
