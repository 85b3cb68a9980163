"""The settings of ingest, its checks before the first record, its errors, and the reset of a source topic.

Checked are topics, their partitions, and who stamps the log. Errors name the object and the next step. A reset forgets
a topic's watermarks, then reads it from the start.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka
from aiokafka.errors import KafkaError

from runtime.kafkaclients import reader, running_producer
from runtime.process import PartConfig
from runtime.topicadmin import TopicAdmin, stamp_problem
from schemas.codec import encode, whole_number
from schemas.connection import KafkaSettings
from schemas.entries import VERSION, WHOLE_PARTITION_KEY, Entry, LogRecord
from schemas.settings import WatermarkReset
from schemas.topics import INGEST_GROUP, LOG, MAX_LOG_RECORD_BYTES, PUBLIC_TOPICS, REJECTED
from streams.ingest.mapping import Mapping


@dataclass(frozen=True, kw_only=True)
class IngestConfig(PartConfig):
    """Settings of one worker.

    `sample_topics`: topics of other producers, read beside the public ones. `timestamp`: `append` lets the broker stamp
    the log, `source` (playback) stamps it with source times. `member`: a name that stays over restarts, so that a
    restart costs no rebalance.
    """

    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    mapping: Mapping = field(default_factory=Mapping)
    sample_topics: tuple[str, ...] = ()
    timestamp: Literal["append", "source"] = "append"
    member: str = ""
    commit_ms: int = 1_000
    """How often offsets are committed; what was read since is read again after a crash, and dropped by the fold."""
    hold_ms: int = 5_000
    """How long a partition that is behind may hold up the others; in playback there is no limit."""
    session_timeout_ms: int = 10_000
    """After this silence of a worker its partitions go to others."""

    @property
    def topics(self) -> tuple[str, ...]:
        return (*PUBLIC_TOPICS, *(topic for topic in self.sample_topics if topic not in PUBLIC_TOPICS))

    @property
    def is_playback(self) -> bool:
        """Whether log time is source time."""
        return self.timestamp == "source"


class IngestError(Exception):
    """Ingest cannot go on; the text says why and what to do."""


def explained(error: kafka.KafkaError, settings: KafkaSettings) -> IngestError:
    """Put a Kafka error into words for the operator."""
    text = str(error) or type(error).__name__
    where = settings.bootstrap_servers
    match error:
        case kafka.TopicAuthorizationFailedError():
            return IngestError(
                f"Kafka at {where} denies access to a topic: {text}. Ingest needs READ on the public topics and WRITE "
                "on fleethpa.log and fleethpa.rejected. Next: grant them, see docs/reference/topics.md"
            )
        case kafka.GroupAuthorizationFailedError():
            return IngestError(f"Kafka at {where} denies the consumer group: {text}. Next: grant READ on it")
        case kafka.ClusterAuthorizationFailedError():
            return IngestError(f"Kafka at {where} denies writing: {text}. Next: grant WRITE on fleethpa.log")
        case kafka.KafkaConnectionError():
            return IngestError(f"cannot reach Kafka at {where} ({text}). Next: check the address, TLS and credentials")
        case kafka.UnknownTopicOrPartitionError():
            return IngestError(f"a topic is missing at {where}: {text}. Next: fleethpa topics init")
        case _:
            return IngestError(f"Kafka at {where}: {type(error).__name__}: {text}")


_SIZE = "max.message.bytes"
_OVERHEAD_BYTES = 4_096
"""Room for keys and the headers of a record batch."""


async def check_topics(config: IngestConfig) -> int:
    """Check that all topics exist and fit together; gives the partition count of the log.

    Raises IngestError: naming the topic and the next step. Raises KafkaError: Kafka does not answer.
    """
    counts = await partition_counts(config.kafka, [LOG, REJECTED, *config.topics])
    _check_counts(counts)
    async with TopicAdmin(config.kafka) as admin:
        found = await admin.config(LOG)
    if problem := stamp_problem(found, is_playback=config.is_playback, option="--timestamp source"):
        raise IngestError(problem)
    _check_size(found.get(_SIZE, ""))
    return counts[LOG]


async def partition_counts(kafka: KafkaSettings, names: list[str]) -> dict[str, int]:
    """Partitions of each of these topics.

    Raises IngestError: naming those that do not exist. Raises KafkaError: Kafka does not answer, or denies a topic.
    """
    async with TopicAdmin(kafka) as admin:
        found = await admin.partitions(names)
    if missing := [name for name in names if name not in found]:
        raise IngestError(f"missing topics: {', '.join(missing)}. Next: fleethpa topics init")
    return found


def _check_counts(counts: dict[str, int]) -> None:
    wanted = counts[LOG]
    if wrong := [f"{name} ({counts[name]})" for name in PUBLIC_TOPICS if counts[name] != wanted]:
        raise IngestError(
            f"partition counts differ from the {wanted} of {LOG}: {', '.join(wrong)}; one worker could not own a "
            "namespace in all topics. Next: create them again with the same count (fleethpa topics init)"
        )


def _check_size(text: str) -> None:
    size = whole_number(text)
    if size is not None and size < MAX_LOG_RECORD_BYTES + _OVERHEAD_BYTES:
        raise IngestError(f"{LOG} has {_SIZE}={text}, too small for our records. Next: fleethpa topics init")


async def last_times(config: IngestConfig, partitions: Iterable[int]) -> dict[int, int]:
    """Timestamp (ms) of the last record of each log partition that has one: playback never goes back before it."""
    found: dict[int, int] = {}
    tps = [TopicPartition(LOG, number) for number in partitions]
    async with reader(config.kafka, tps) as consumer:
        begins, ends = await consumer.beginning_offsets(tps), await consumer.end_offsets(tps)
        for tp in tps:
            if ends[tp] > begins[tp]:
                consumer.seek(tp, ends[tp] - 1)
                found[tp.partition] = (await consumer.getone(tp)).timestamp
    return found


async def reset_source(kafka: KafkaSettings, topic: str, partition: int, *, author: str, reason: str) -> int:
    """Append a reset of the watermark to every partition of the log, then set ingest's offset to the beginning.

    Ingest must be stopped: Kafka refuses to move offsets of a group that runs. In this order a crash in between only
    means to run it again. Gives the offset from which ingest will read.

    Raises IngestError: the group runs, the partition does not exist, or Kafka denies something.
    """
    try:
        body = WatermarkReset(topic=topic, source_partition=partition, author=author, reason=reason)
        return await _reset(kafka, TopicPartition(topic, partition), body)
    except KafkaError as error:
        raise explained(error, kafka) from error


async def _reset(kafka: KafkaSettings, source: TopicPartition, body: WatermarkReset) -> int:
    counts = await partition_counts(kafka, [LOG, source.topic])
    if source.partition >= counts[source.topic]:
        raise IngestError(f"{source.topic} has no partition {source.partition}: it has {counts[source.topic]}")
    async with reader(kafka, [source], group_id=INGEST_GROUP) as consumer:
        begin: int = (await consumer.beginning_offsets([source]))[source]
        await _append(kafka, body, counts[LOG])
        await _move(consumer, source, begin)
    return begin


async def _append(kafka: KafkaSettings, body: WatermarkReset, partitions: int) -> None:
    value = encode(LogRecord(v=VERSION, entries=[Entry(key=WHOLE_PARTITION_KEY, body=body)]))
    async with running_producer(kafka) as producer:
        for partition in range(partitions):
            await producer.send_and_wait(LOG, value, key=WHOLE_PARTITION_KEY.encode(), partition=partition)


async def _move(consumer: AIOKafkaConsumer, source: TopicPartition, begin: int) -> None:
    try:
        await consumer.commit({source: begin})
    except KafkaError as error:
        raise IngestError(
            f"the offset of group {INGEST_GROUP} cannot be moved ({type(error).__name__}): a worker runs. "
            "Next: stop ingest, then run this again"
        ) from error
