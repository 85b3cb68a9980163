"""Read the topics of agents: a consumer group of its own, one partition per topic, whichever agents are registered.

Each topic is in the order of its agent, and no two have anything to do with each other: nothing is merged by time, and
none waits for another. What is wrong with one topic stops that topic only.
"""

import asyncio
import logging
import time
from contextlib import suppress
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError

from runtime.driver import stop_soon
from runtime.groups import GroupMember, Partitions, group_consumer
from runtime.kafkaclients import bounds_of
from schemas.agents import ONLY_PARTITION, AgentRegistry, agent_of_reports
from schemas.topics import AGENT_INGEST_GROUP
from streams.ingest.agentrules import ReceivedAt, admit
from streams.ingest.convert import convert
from streams.ingest.logwriter import IngestMetrics, LogWriter, Recorder, raw_record
from streams.ingest.loop import unless
from streams.ingest.mapping import IngestConfig, Resolver
from streams.ingest.pieces import AgentRates, Conversion, RawRecord

log = logging.getLogger("fleethpa.ingest")

MAX_TAKEN = 1_000
"""Records written in one go; bounds memory while behind."""
METADATA_MAX_AGE_MS = 10_000
"""How soon a topic is found that was created after its agent was registered."""
CHANGES_S = 0.2
_APPEND_TIME = 1
"""`timestampType` of a record that the broker has stamped."""


class _Held(NamedTuple):
    tp: TopicPartition
    raw: RawRecord
    found: Conversion


class AgentWorker:
    """Reads, converts, writes, commits; no rebalance comes within a write."""

    _consumer: AIOKafkaConsumer
    _member: GroupMember

    def __init__(
        self,
        config: IngestConfig,
        registry: AgentRegistry,
        changed: asyncio.Event,
        writer: LogWriter,
        metrics: IngestMetrics,
        partitions: int,
    ) -> None:
        """`changed` is set whenever the registry says something new."""
        self._config, self._registry, self._changed = config, registry, changed
        self._recorder = Recorder(config.mapping, metrics, partitions, writer, by_time=config.is_playback)
        self._resolver, self._limits = Resolver(config.mapping), AgentRates()
        self._held: list[_Held] = []
        self._read_to: dict[TopicPartition, int] = {}
        self._written: dict[TopicPartition, int] = {}
        self._unchecked: set[TopicPartition] = set()
        self._stopped: dict[str, str] = {}
        """Topic -> why nothing is read of it."""
        self._counted_to: dict[str, int] = {}
        """Topic -> offset of the next record to count."""

    def notes(self) -> list[str]:
        """What is wrong with single topics, for `/readyz`."""
        return [f"[!] {text}" for _, text in sorted(self._stopped.items())]

    # --- rebalance ----------------------------------------------------------------------------------------------------

    def _done(self) -> dict[TopicPartition, int]:
        return {tp: offset for tp, offset in self._written.items() if tp.topic not in self._stopped}

    def _revoked(self, _: Partitions) -> None:
        """Forget what is not written: the next owner reads it."""
        self._held.clear()
        self._read_to.clear()
        self._written.clear()
        self._unchecked.clear()

    async def _assigned(self, assigned: Partitions) -> None:
        """Let the next cycle check the new partitions."""
        self._unchecked = set(assigned)
        self._stopped.clear()
        log.info("topics of agents assigned", extra={"count": len(assigned)})

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; without agents no group is joined.

        Raises KafkaError: a denial, or a write that failed.
        """
        while not stop.is_set():
            if self._registry.agents():
                await self._serve(stop)
                await asyncio.sleep(CHANGES_S)  # batching, not synchronisation: changes that come together
            else:
                await unless(stop, self._changed.wait())
                self._changed.clear()

    async def _serve(self, stop: asyncio.Event) -> None:
        """Read the topics of the agents that there are now, until others are registered.

        A new set of topics is read by a new consumer: where the driver's consumer is subscribed anew while it fetches,
        its fetching may end for good, with no more than a line in the log (aiokafka 0.14).
        """
        self._changed.clear()
        topics = {agent.topics for agent in self._registry.agents()}
        self._limits.forget(topics)
        consumer = group_consumer(
            self._config.kafka,
            AGENT_INGEST_GROUP,
            begin="earliest",
            session_timeout_ms=self._config.session_timeout_ms,
            group_instance_id=self._config.member or None,
            partition_assignment_strategy=(RoundRobinPartitionAssignor,),
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
            fetch_max_wait_ms=100,
        )
        self._consumer, commit_s = consumer, self._config.commit_ms / 1000
        self._member = GroupMember(
            consumer, done=self._done, revoked=self._revoked, assigned=self._assigned, commit_s=commit_s
        )
        consumer.subscribe(sorted(each.reports for each in topics), listener=self._member)
        await consumer.start()
        try:
            while not stop.is_set() and not self._changed.is_set():
                await unless(stop, self._read())
                async with self._member.lock:
                    await self._cycle()
            async with self._member.lock:
                await self._commit()
        finally:
            await stop_soon(consumer)
            self._revoked(())

    async def _read(self) -> None:
        """Read and queue in one step, so that a rebalance in between cannot leave records of lost partitions."""
        got = await self._consumer.getmany(timeout_ms=200, max_records=MAX_TAKEN)
        now_s = time.monotonic()
        for tp, records in got.items():
            self._held += [self._converted(tp, record, now_s) for record in self._in_order(tp, records)]

    def _in_order(self, tp: TopicPartition, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """The records, unless their offsets go back: then the topic was created again, and is read no further."""
        if records and records[0].offset < (read := self._read_to.get(tp, 0)):
            self._stop(tp, records[0].offset, read)
        if tp.topic in self._stopped or tp.partition != ONLY_PARTITION or not records:
            return []
        self._read_to[tp] = records[-1].offset + 1
        return records

    def _converted(self, tp: TopicPartition, record: ConsumerRecord, now_s: float) -> _Held:
        raw = raw_record(record)
        found = convert(raw, self._resolver)
        whose = agent_of_reports(tp.topic)
        if whose is not None:
            if record.offset > self._counted_to.get(tp.topic, -1):
                self._limits.begin(whose)  # another worker has read what came before
            self._counted_to[tp.topic] = record.offset + 1
            appended = record.timestamp / 1000 if record.timestamp_type == _APPEND_TIME else now_s
            admit(found, self._registry.agent_of(whose), whose, self._limits, ReceivedAt(now_s, appended))
        return _Held(tp, raw, found)

    async def _cycle(self) -> None:
        if self._unchecked:
            await self._check_offsets()
        held, self._held = [each for each in self._held if each.tp.topic not in self._stopped], []
        await self._recorder.write([(each.raw, each.found) for each in held])
        self._written |= {each.tp: each.raw.offset + 1 for each in held}
        await self._commit(only_if_due=True)

    async def _check_offsets(self) -> None:
        """Look whether the topics still hold what was read of them."""
        unchecked, self._unchecked = sorted(self._unchecked), set()
        bounds = await bounds_of(self._consumer, unchecked)
        for tp in unchecked:
            committed = await self._consumer.committed(tp)
            if committed is not None and committed > bounds[tp].end:
                self._stop(tp, bounds[tp].end, committed)

    def _stop(self, tp: TopicPartition, offset: int, read: int) -> None:
        cluster = whose.cluster if (whose := agent_of_reports(tp.topic)) else tp.topic
        text = (
            f"{tp.topic} is at offset {offset}, but {read} records of it were read: the topic was created again; "
            f"no more is read of it. Next: fleethpa clusters remove {cluster}, then fleethpa clusters add {cluster}"
        )
        log.error(text)
        self._stopped[tp.topic] = text
        with suppress(ValueError):
            self._consumer.pause(tp)

    async def _commit(self, *, only_if_due: bool = False) -> None:
        try:
            await self._member.commit(only_if_due=only_if_due)
        except KafkaError as error:
            # What is read twice after a restart, the fold drops.
            log.warning("offsets of agents' topics not committed", extra={"error": repr(error)})
