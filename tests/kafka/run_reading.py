"""The records of the topics after a run, and whether they are the right ones."""

import asyncio
import bisect
import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from runtime.kafkaclients import read_range, reader
from schemas import topics
from schemas.codec import decode
from schemas.connection import KafkaSettings
from schemas.entries import LogRecord
from schemas.keys import HpaId
from schemas.settings import Restart
from streams.decider.rebuild import Tail, continue_chain
from streams.decider.tail import TailHead
from streams.history.recorded import Recorded, in_sequence
from streams.ingest.convert import convert
from streams.ingest.logwriter import raw_record
from streams.ingest.mapping import Mapping as SeriesMapping
from streams.ingest.mapping import Resolver
from streams.partition import Partition
from streams.state.timing import slack_ms
from tests.kafka.conftest import PARTITIONS

NUMBERS = range(PARTITIONS)
REBUILT = re.compile(r"rebuilt from log offset (\d+)")
_NOTHING_CUT: Mapping[int, Sequence[ConsumerRecord]] = {}


class RestartMark(NamedTuple):
    """A restart entry of a rebuild: its log offset, and the first one that the log then held."""

    offset: int
    first: int


async def read_topic(settings: KafkaSettings, topic: str) -> dict[int, list[ConsumerRecord]]:
    """Everything on a topic, by partition."""
    tps = [TopicPartition(topic, number) for number in NUMBERS]
    async with reader(settings, tps) as consumer:
        firsts, ends = await consumer.beginning_offsets(tps), await consumer.end_offsets(tps)
        return {tp.partition: [r async for r in read_range(consumer, tp, firsts[tp], ends[tp])] for tp in tps}


async def count(settings: KafkaSettings, topic: str) -> int:
    """How many records a topic holds."""
    tps = [TopicPartition(topic, number) for number in NUMBERS]
    async with reader(settings) as consumer:
        return sum((await consumer.end_offsets(tps)).values())


async def committed(settings: KafkaSettings, group: str, topic: str) -> int:
    """The sum of a group's committed offsets in a topic."""
    consumer = AIOKafkaConsumer(bootstrap_servers=settings.bootstrap_servers, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        found = [await consumer.committed(TopicPartition(topic, number)) for number in NUMBERS]
        return sum(offset or 0 for offset in found)
    finally:
        await consumer.stop()


@dataclass
class Run:
    """A run as the topics hold it. `decisions`: after the readers' rule, by partition."""

    log: dict[int, list[ConsumerRecord]]
    decided: dict[int, list[ConsumerRecord]]
    public: dict[str, dict[int, list[ConsumerRecord]]]
    rejected: dict[int, list[ConsumerRecord]]
    decisions: dict[int, list[bytes]] = field(default_factory=dict)
    restarts: dict[int, list[RestartMark]] = field(default_factory=dict)
    """Where state was lost and rebuilt, by partition."""
    copies: int = 0
    """Decision records that repeat one before them."""
    repeated_entries: int = 0
    """Log entries that the fold drops by their source position."""

    @classmethod
    async def read(cls, settings: KafkaSettings, cut: Mapping[int, Sequence[ConsumerRecord]] = _NOTHING_CUT) -> "Run":
        """Read all topics of a run; `cut`: log records that were deleted meanwhile."""
        log, decided, rejected, *public = await asyncio.gather(
            *(read_topic(settings, topic) for topic in (topics.LOG, topics.DECISIONS, topics.REJECTED)),
            *(read_topic(settings, topic) for topic in topics.PUBLIC_TOPICS),
        )
        log = {number: [*cut.get(number, ()), *records] for number, records in log.items()}
        run = cls(log, decided, dict(zip(topics.PUBLIC_TOPICS, public, strict=True)), rejected)
        run.restarts = {number: restart_marks(records) for number, records in log.items()}
        for number, records in decided.items():
            run.decisions[number] = _each_once([record.value for record in records])
            run.copies += len(records) - len(run.decisions[number])
        return run

    def replayed(self) -> dict[int, list[bytes]]:
        """What an offline fold of this run's log decides; where state was rebuilt, as `refolded` does."""
        return {n: refolded(n, records, self.restarts[n], self.decisions[n]) for n, records in self.log.items()}

    def lost_inputs(self) -> list[str]:
        """Public records that stand neither in the log nor among the rejected and are not empty of entries."""
        seen = self._arrived()
        resolver = Resolver(SeriesMapping())
        lost = []
        for topic, partitions in self.public.items():
            for number, records in partitions.items():
                for record in records:
                    if (topic, number, record.offset) not in seen and convert(raw_record(record), resolver).pieces:
                        lost.append(f"{topic}-{number}@{record.offset}")
        return lost

    def _arrived(self) -> set[tuple[str, int, int]]:
        seen: set[tuple[str, int, int]] = set()
        for records in self.log.values():
            marks: dict[tuple[str, int], tuple[int, int]] = {}
            for record in records:
                for entry in decode(record.value, LogRecord).entries:
                    if (source := entry.source) is None:
                        continue
                    seen.add((source.topic, source.partition, source.offset))
                    place, mark = (source.offset, source.index), (source.topic, source.partition)
                    self.repeated_entries += place <= marks.get(mark, (-1, -1))
                    marks[mark] = max(place, marks.get(mark, (-1, -1)))
        for records in self.rejected.values():
            for record in records:
                headers = dict(record.headers)
                seen.add((headers["topic"].decode(), int(headers["partition"]), int(headers["offset"])))
        return seen

    def recorded(self) -> list[Recorded]:
        """The decisions."""
        return [
            one
            for number, records in self.decided.items()
            for one in in_sequence(number, [(record.offset, record.value) for record in records])
        ]

    def early_scale_downs(self, windows_s: Mapping[HpaId, int], most: int, period_ms: int) -> list[str]:
        """Scale-downs below a recommendation that the stabilization window still holds.

        An evaluation may decide as of a time up to `slack_ms` after its log time, so that after n periods a window of n
        periods has passed (`streams.state.timing.as_of`): by log time a window may end that much sooner.
        """
        wanted: dict[HpaId, list[tuple[int, int]]] = defaultdict(list)
        early = []
        for one in sorted(self.recorded(), key=lambda one: (one.partition, one.decision.seq)):
            decision = one.decision
            if decision.kind != "evaluation" or one.hpa not in windows_s or decision.raw_desired_replicas is None:
                continue
            recommendations = wanted[one.hpa]
            recommendations.append((one.time_ms, min(decision.raw_desired_replicas, most)))
            if decision.wants is not None and decision.wants < decision.current_replicas:
                # Upstream keeps a recommendation while it is younger than the window.
                oldest_ms = one.time_ms + slack_ms(period_ms) - windows_s[one.hpa] * 1000
                begin = bisect.bisect_right(recommendations, (oldest_ms, most))
                if decision.wants < (highest := max(value for _, value in recommendations[begin:])):
                    early.append(f"{decision.id}: {one.hpa} to {decision.wants}, though {highest} were recommended")
        return early

    def unended_writes(self, before_ms: int) -> list[str]:
        """Wanted writes, decided before this log time, without a completion, which not even lost state explains."""
        return [one.decision.id for one in self._unended(before_ms) if not self._is_before_restart(one)]

    def forgotten_writes(self) -> list[str]:
        """Wanted writes whose completion is missing because the state that waited for it was lost."""
        return [one.decision.id for one in self._unended() if self._is_before_restart(one)]

    def _unended(self, before_ms: float = math.inf) -> list[Recorded]:
        recorded = self.recorded()
        completed = {one.decision.completes for one in recorded}
        wants = [one for one in recorded if one.decision.wants is not None and one.time_ms < before_ms]
        return [one for one in wants if one.decision.id not in completed]

    def _is_before_restart(self, one: Recorded) -> bool:
        return any(log_offset(one.decision.id) < mark.offset for mark in self.restarts[one.partition])

    def phantom_ends(self) -> list[str]:
        """Completions of a decision that is nowhere."""
        recorded = self.recorded()
        ids = {one.decision.id for one in recorded}
        return [one.decision.id for one in recorded if one.decision.completes and one.decision.completes not in ids]

    def last(self) -> dict[HpaId, Recorded]:
        """The newest evaluation of each HPA."""
        return {one.hpa: one for one in self.recorded() if one.decision.kind == "evaluation"}


def log_offset(decision: str) -> int:
    """The log offset that an id of a decision names."""
    return int(decision.split("-", 2)[1])


def restart_marks(log: Sequence[ConsumerRecord]) -> list[RestartMark]:
    """Where `decider --rebuild` began anew, and from which log offset."""
    return [
        RestartMark(record.offset, int(found[1]))
        for record in log
        if b"--rebuild" in record.value
        for entry in decode(record.value, LogRecord).entries
        if isinstance(entry.body, Restart) and (found := REBUILT.search(entry.body.reason))
    ]


def refolded(
    number: int, log: Sequence[ConsumerRecord], marks: Sequence[RestartMark], in_force: Sequence[bytes]
) -> list[bytes]:
    """What a partition's log decides.

    Where state was lost and rebuilt, the log says from which offset; how far the decider had come before, and so which
    decisions nobody made, only the decisions topic can say: that one number is taken from there, no bytes.
    """
    decided: list[bytes] = []
    partition, begin = Partition.empty(number), 0
    for mark in marks:
        decided += apply(partition, between(log, begin, mark.offset))
        before = [value for value in in_force if log_offset(orjson.loads(value)["id"]) < mark.offset]
        decided = decided[: len(before)]
        partition, begin = rebuilt(number, between(log, mark.first, mark.offset), decided), mark.offset
    return decided + apply(partition, between(log, begin))


def between(log: Sequence[ConsumerRecord], first: int, end: float = math.inf) -> list[ConsumerRecord]:
    """The records from one offset up to, without, another."""
    return [record for record in log if first <= record.offset < end]


def rebuilt(number: int, log: Sequence[ConsumerRecord], decided: Sequence[bytes]) -> Partition:
    """The state that `decider --rebuild` makes of what is left of the log and of the decisions that stand."""
    partition = Partition.empty(number)
    apply(partition, log)
    newest = TailHead(len(decided), hashlib.sha256(decided[-1]).hexdigest() if decided else "")
    continue_chain(partition, Tail(newest, frozenset(orjson.loads(value)["id"] for value in decided)))
    return Partition.restore(number, dict(partition.checkpoint()))


def apply(partition: Partition, log: Sequence[ConsumerRecord]) -> list[bytes]:
    """Fold these records; what they decide."""
    return [made.value for r in log for made in partition.apply(r.offset, r.timestamp, r.value)]


def _each_once(values: Sequence[bytes]) -> list[bytes]:
    newest, kept = 0, []
    for value in values:
        if (seq := orjson.loads(value)["seq"]) > newest:
            newest = seq
            kept.append(value)
    return kept


def first_difference(want: Mapping[int, Sequence[bytes]], got: Mapping[int, Sequence[bytes]]) -> str:
    """Where the decisions differ from the wanted ones, in words; empty where they do not."""
    for number, values in want.items():
        for index, (one, other) in enumerate(zip(values, got[number], strict=False)):
            if one != other:
                return f"partition {number}, decision {index}:\n want {one.decode()}\n got  {other.decode()}"
        if len(values) != len(got[number]):
            return f"partition {number}: wanted {len(values)} decisions, got {len(got[number])}"
    return ""
