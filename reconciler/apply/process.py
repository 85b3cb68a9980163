"""The reconciler: decisions in, `/scale` writes, HPA status and Events, outcomes out.

One loop reads the decisions topic and hands each wanted write to its cluster's pool. An offset is committed when all
that its record asked for has ended and the outcomes are acknowledged, so a kill at any point repeats work and loses
none; a repeated write finds the scale as wanted and ends as applied.
"""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from reconciler.apply.clusterwriters import ClusterWriters, WriterLimits
from reconciler.apply.reconcilermetrics import ReconcilerMetrics
from reconciler.clusters.client import ClusterClient
from reconciler.clusters.clusterfinder import ClusterFinder, ClusterSources, FleetConfig, JoinedCluster, Members
from reconciler.core.inbox import OffsetProgress, Position
from reconciler.core.writeplan import guards_of
from runtime import ending, kafkaclients
from runtime.brokerclock import BrokerClock
from runtime.driver import EndingConsumer, stop_soon
from runtime.ending import first_of
from runtime.groups import GroupMember, begin_of, group_consumer
from runtime.process import FreeMemory, PartHealth
from runtime.records import Publisher, follow_topic
from schemas.decisions import Decision
from schemas.entries import Outcome
from schemas.inforce import InForce, report_every_ms
from schemas.observed import Serving
from schemas.topics import DECISIONS, OUTCOMES, RECONCILER_GROUPS, SCALES, SETTINGS

_LONGEST_LIST = 120
"""A list of clusters with more characters is replaced by its hash in the name of a group."""


def sources_group(sources: ClusterSources) -> str:
    """The consumer group of all reconcilers that find their clusters in the same places.

    It does not name the clusters, which come and go: for a moment members may know different ones. A member that does
    not know a new cluster passes over its wanted writes, which the next evaluation asks for again.
    """
    digest = sha256(f"{sources.label} {reconciler_group(each.name for each in sources.fixed)}".encode()).hexdigest()
    return f"{RECONCILER_GROUPS}found-{digest[:16]}"


def reconciler_group(clusters: Iterable[str]) -> str:
    """The consumer group of all reconcilers that serve exactly these clusters.

    Members of one group share the decisions between them, so that each must serve the clusters of all of them.
    Reconcilers of other clusters read every decision in a group of their own. Where two groups both serve a cluster,
    both write there, which is harmless: the second finds the scale as wanted, and the first outcome counts.
    """
    names = sorted(set(clusters))
    listed = "+".join(names)
    if len(listed) > _LONGEST_LIST:
        listed = f"{len(names)}-clusters-{sha256(listed.encode()).hexdigest()[:16]}"
    return f"{RECONCILER_GROUPS}{listed}"


@dataclass(frozen=True, kw_only=True)
class ReconcilerConfig(FleetConfig):
    """Settings of a reconciler. Decisions for other clusters than its own are another reconciler's.

    `group`: the consumer group that decisions are read in; empty: the one that follows from the clusters
    (`reconciler_group`), or from where they are found (`sources_group`).
    """

    group: str = ""
    limits: WriterLimits = field(default_factory=WriterLimits)
    heartbeat_ms: int = 10_000

    @property
    def group_id(self) -> str:
        """The consumer group that decisions are read in."""
        if self.group or self.found.are_fixed:
            return self.group or reconciler_group(cluster.name for cluster in self.clusters)
        return sources_group(self.sources)


log = logging.getLogger(__name__)
SESSION_TIMEOUT_MS = 11_000
"""Longer than the time to live of a wanted write (10 s): a member that lost its partitions has nothing left to write.
Shorter than the wait for its outcome (15 s), by some seconds: after kill -9 between a write and its outcome another
member gets the partition and finds the write applied before the decider takes it for failed.
"""

FEW = 500
"""So many decisions may wait to be read while statuses are written: about as many as one fetch brings."""
SHUTDOWN_GRACE_S = 2.0
"""How long a process that ends waits for the writes that it has begun."""


class Reconciler:
    """Reads decisions and carries them out. `health.became_ready` is set once it reads."""

    def __init__(self, config: ReconcilerConfig) -> None:
        self._config = config
        self.clock = BrokerClock(None, config.clock)
        self.health = PartHealth("decisions", "settings", "brokers' time")
        self._metrics = ReconcilerMetrics(self.health.registry)
        self._in_force = InForce()
        self._writers = ClusterWriters(
            self,
            self._metrics,
            limits=config.limits,
            clock=self.clock.now_ms,
            forbids=self._forbids,
            guards=lambda cluster: guards_of(self._in_force, cluster, self.clock.now_ms()),
            status_every_ms=self._in_force.status_every_ms,
        )
        self._memory = FreeMemory()
        self._settings_known, self._time_known = asyncio.Event(), asyncio.Event()
        self._ended = asyncio.Event()
        self._reading = asyncio.Event()
        """Set whenever the topic of decisions was looked at; a beat that finds it unset waits."""
        self._session = f"reconciler-{uuid.uuid4().hex[:12]}"
        self._progress: dict[int, OffsetProgress] = {}
        self._assignments: Counter[int] = Counter()
        self._new_from: dict[int, int] = {}
        """Partition → its end when it was assigned: who had it before has read no further."""
        self._served: dict[str, JoinedCluster] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; then end what runs and commit. An unexpected error ends it by exception."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.health.served(self._config))
            producer = await stack.enter_async_context(kafkaclients.running_producer(self._config.kafka))
            self._publisher = Publisher(producer, waits_for_room=True)
            self.health.check("kafka", self._publisher.problem)
            # A group member that may not read its topic would wait for ever without an error.
            await kafkaclients.know_topics(producer, DECISIONS, OUTCOMES, SCALES)
            self._consumer = group_consumer(
                self._config.kafka,
                self._config.group_id,
                begin="latest",
                session_timeout_ms=SESSION_TIMEOUT_MS,
                fetch_max_wait_ms=kafkaclients.FETCH_MAX_WAIT_MS,
                fetch_min_bytes=kafkaclients.FETCH_MIN_BYTES,
            )
            stack.push_async_callback(stop_soon, self._consumer)
            await self._work(self._consumer, stop)

    async def _work(self, consumer: EndingConsumer, stop: asyncio.Event) -> None:
        self._member = GroupMember(consumer, done=self._done, revoked=self.revoked, assigned=self.assigned)
        finder = ClusterFinder(self._config.sources, self.health.record)
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                tasks = [group.create_task(self._follow_settings()), group.create_task(self._beat())]
                await self._adjust(finder.members())
                tasks.append(group.create_task(finder.run(self._adjust)))
                # A frozen or paused cluster must be known as such before the first write, and what has expired, too.
                await first_of(self._settings_known.wait(), stop.wait())
                await first_of(self._time_known.wait(), stop.wait())
                await kafkaclients.start(consumer)
                consumer.subscribe([DECISIONS], listener=self._member)
                await self._read(consumer, stop)
                await self._finish()
                await self._member.commit()
                for task in [*tasks, *(task for each in self._served.values() for task in each.tasks)]:
                    task.cancel()
        finally:
            for each in self._served.values():
                await each.client.close()

    # --- clusters that come and go ------------------------------------------------------------------------------------

    async def _adjust(self, members: Members) -> None:
        """Serve exactly these clusters from now on. What is served already notices nothing."""
        for name in set(self._served) - members.keys():
            await self._leave(name)
        for name, member in members.items():
            served = self._served.get(name)
            if served is None:
                client = ClusterClient(member.config, partial(self._in_force.cluster_uid, name))
                self._served[name] = JoinedCluster(member, client, self._writers.open(client, self._group))
                if member.origin:
                    log.info("a cluster joins", extra={"cluster": name, "origin": member.origin})
            else:
                served.follow(member)

    async def _leave(self, name: str) -> None:
        """Serve a cluster no more. What is being written there may end, which its timeouts bound."""
        served = self._served.pop(name)
        log.info("a cluster leaves", extra={"cluster": name, "origin": served.member.origin})
        await self._writers.close(name)
        await served.end()
        await served.client.close()
        self._metrics.forget(name)

    # --- settings -----------------------------------------------------------------------------------------------------

    async def _follow_settings(self) -> None:
        def caught_up() -> None:
            self.health.ready("settings")
            self._settings_known.set()

        await follow_topic(self._config.kafka, SETTINGS, self._in_force.apply, caught_up)

    def _forbids(self, cluster: str) -> str:
        """An agent alone writes to its cluster: it knows who is in charge there."""
        if self._in_force.agents.present(cluster) is None:
            return self.clock.problem
        return f"cluster {cluster} has an agent, which alone writes there"

    # --- heartbeat ----------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Report which clusters are served while decisions are read, so that readers notice a missing reconciler.

        The first report names none: its acknowledgement shows the brokers' time, without which none is read.
        """
        await self._report(Serving(session=self._session, clusters=[]))
        while self.clock.is_stamped is None:
            await asyncio.sleep(self._report_every_ms() / 1000)
            await self._report(Serving(session=self._session, clusters=[]))
        self._learnt_time()
        while True:
            await self._reading.wait()
            self._reading.clear()
            await self._report(self._serving())
            await asyncio.sleep(self._report_every_ms() / 1000)

    def _serving(self) -> Serving:
        return Serving(session=self._session, clusters=self._writers.clusters, problems=self._writers.problems())

    async def _report(self, body: Serving) -> None:
        try:
            await self._send(SCALES, "", "", body)
        except TopicAuthorizationFailedError:
            raise
        except KafkaError as error:
            # The brokers are away: no decision is read either, and readers rightly find this reconciler silent.
            log.warning("the clusters served could not be reported", extra={"error": repr(error)})

    def _learnt_time(self) -> None:
        self.health.ready("brokers' time")
        self._time_known.set()
        if not self.clock.is_stamped:
            log.warning(
                "the brokers do not stamp their time, so that writes expire by this machine's clock",
                extra={"topic": SCALES, "next": "fleethpa admin topics check"},
            )

    async def _send(self, topic: str, cluster: str, namespace: str, body: Serving | Outcome) -> None:
        sent_s = self.clock.seconds()
        ack = await self._publisher.send(topic, cluster, namespace, [body], self.clock.now_ms())
        self.clock.acknowledged(ack, sent_s)

    def _report_every_ms(self) -> int:
        longest_ms = self._config.heartbeat_ms
        periods_ms = (self._in_force.sync_period_ms(name, longest_ms) for name in self._writers.clusters)
        return report_every_ms(min(periods_ms, default=longest_ms), longest_ms)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _read(self, consumer: EndingConsumer, stop: asyncio.Event) -> None:
        while not stop.is_set():
            batches = await consumer.getmany(timeout_ms=200, max_records=500)
            if consumer.assignment():
                self.health.ready("decisions")
                self._reading.set()
            await self._process_batches(consumer, batches)
            is_behind = self._unread(consumer) > FEW
            self._writers.read(more=is_behind)
            if not is_behind:
                self._memory.give_back()
            await self._member.commit(only_if_due=True)
            for name, count in self._writers.waiting().items():
                self._metrics.waiting.labels(name).set(count)

    async def _process_batches(
        self, consumer: AIOKafkaConsumer, batches: Mapping[TopicPartition, Sequence[ConsumerRecord]]
    ) -> None:
        """Process what was read, but for partitions that are given up meanwhile: their new owner reads it again."""
        if batches and self.clock.problem:
            await self._report(self._serving())  # the brokers are back: what they acknowledge shows their time
        assignments = self._assignments.copy()
        for partition, records in batches.items():
            number = partition.partition
            known = self._progress.get(number)
            if known is not None and records[0].offset < known.next:
                end = (await kafkaclients.ends_of(consumer, [partition]))[partition]
                if self._assignments[number] == assignments[number]:
                    self.went_back(partition, end)
                    assignments[number] = self._assignments[number]
            if self._assignments[number] == assignments[number]:
                for record in records:
                    self._process(number, record)

    def _unread(self, consumer: EndingConsumer) -> int:
        """How many records wait on the brokers, as far as their last answers show."""
        ends = ((self._progress.get(partition.partition), end) for partition, end in consumer.ends_seen().items())
        return sum(max(0, end - progress.next) for progress, end in ends if progress is not None)

    def went_back(self, partition: TopicPartition, end: int) -> None:
        """Handle that reading went back in a partition that ends at `end`.

        Either records repeat, which the inbox ignores, or the topic was deleted and created again: then the sequence
        numbers start over, too, and those seen before no longer apply.
        """
        if end < self._progress[partition.partition].next:
            log.warning("the decisions begin again", extra={"partition": partition.partition, "end": end})
            self.revoked([partition])
            self._new_from[partition.partition] = end

    def _process(self, partition: int, record: ConsumerRecord) -> None:
        progress = self._progress.get(partition)
        if progress is None:
            progress = self._progress[partition] = OffsetProgress()
        offset = record.offset
        progress.begin(offset)
        decision = self._writers.decode(record)
        if decision is not None:
            new_from = self._new_from.get(partition)
            is_new = new_from is not None and offset >= new_from
            self._writers.add(decision, Position(partition, offset, self._assignments[partition], is_new))
        progress.done(offset)

    # --- bookkeeping of writers ---------------------------------------------------------------------------------------

    def begin(self, position: Position) -> None:
        self._progress[position.partition].begin(position.offset)

    def done(self, position: Position) -> None:
        if self.is_ours(position) and (progress := self._progress.get(position.partition)) is not None:
            progress.done(position.offset)
        self._ended.set()

    def is_ours(self, position: Position) -> bool:
        return position.assignment == self._assignments[position.partition]

    async def publish(self, decision: Decision, ended: Outcome) -> None:
        await self._send(OUTCOMES, decision.cluster, decision.namespace, ended)

    # --- offsets ------------------------------------------------------------------------------------------------------

    def _done(self) -> dict[TopicPartition, int]:
        return {TopicPartition(DECISIONS, number): each.committable for number, each in self._progress.items()}

    async def _finish(self) -> None:
        """Wait up to SHUTDOWN_GRACE_S for what was begun to end; the rest is read again by the next owner."""
        try:
            async with asyncio.timeout(ending.left_s(SHUTDOWN_GRACE_S)):
                while any(progress.open for progress in self._progress.values()):
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            log.warning("work was unfinished at shutdown; it is repeated at the next start")

    # --- rebalancing --------------------------------------------------------------------------------------------------

    async def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin where the group has committed, or a little before the end."""
        begins = {partition: await begin_of(self._consumer, partition) for partition in partitions}
        if begins:
            ends = await kafkaclients.ends_of(self._consumer, begins)
            self._new_from |= {partition.partition: end for partition, end in ends.items()}

    def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Give up the work that waits of these partitions: their new owner reads it again."""
        numbers = {partition.partition for partition in partitions}
        self._writers.forget(numbers)
        for number in numbers:
            self._assignments[number] += 1
            self._progress.pop(number, None)
            self._new_from.pop(number, None)
