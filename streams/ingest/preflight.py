"""Before ingest reads: its settings, checks before the first record, errors, a reset of a topic, previews of messages.

Checked are topics, their partitions, and who stamps the log. Errors name the object and the next step. A reset forgets
the watermarks of a topic, then reads it from the start. A preview is what ingest would read from a message that is not
sent yet; there is an example of each format, for docs and tests too.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka
from aiokafka.errors import KafkaError
from msgspec import Struct, to_builtins

from runtime.errors import NextStepError
from runtime.kafkaclients import reader, running_producer
from runtime.process import PartConfig
from runtime.topicadmin import TopicAdmin
from runtime.topicneeds import stamp_problem
from schemas import topics
from schemas.answers import Answers, PodUsage, in_columns
from schemas.codec import encode, whole_number
from schemas.connection import KafkaSettings
from schemas.entries import VERSION, WHOLE_PARTITION_KEY, Entry, LogRecord
from schemas.keys import namespace_key
from schemas.limits import Refusal
from schemas.observed import Samples
from schemas.settings import WatermarkReset
from schemas.topics import INGEST_GROUP, LOG, MAX_LOG_RECORD_BYTES, PREFIX, PUBLIC_TOPICS, REJECTED, Headers
from streams.ingest import convert as messageformats
from streams.ingest import otlp
from streams.ingest import own as topickinds
from streams.ingest.bodies import kind_of
from streams.ingest.convert import convert
from streams.ingest.logwriter import log_entries
from streams.ingest.mapping import Mapping, Resolver
from streams.ingest.pieces import Conversion, RawRecord


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
    hub: str = ""
    """The name of the hub, which signs the records of the log; empty: they are not signed."""
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


class IngestError(NextStepError):
    """Ingest cannot go on."""


_RIGHTS = "fleethpa admin topics acls ingest"
_CREATE = "fleethpa admin topics init"


def is_pushed(topic: str) -> bool:
    """Whether a topic is one of another producer."""
    return not topic.startswith(PREFIX)


def explained(error: kafka.KafkaError, settings: KafkaSettings) -> IngestError:
    """Put a Kafka error into words for the operator."""
    text = str(error) or type(error).__name__
    where = settings.bootstrap_servers
    match error:
        case kafka.TopicAuthorizationFailedError(args=(str(topic),)) if is_pushed(topic):
            grant = f"kafka-acls.sh --add --topic {topic} --operation READ"
            return IngestError(
                f"ingest may not read the topic {topic} of --sample-topic at {where}, if there is one: Kafka denies it",
                next_step=f"check the name; {grant} for the user of ingest",
            )
        case kafka.TopicAuthorizationFailedError():
            return IngestError(
                f"Kafka at {where} denies access to a topic: {text}. Ingest needs READ on the public topics and those "
                "of agents, READ and WRITE on fleethpa.log, and WRITE on fleethpa.rejected",
                next_step=_RIGHTS,
            )
        case kafka.GroupAuthorizationFailedError():
            return IngestError(f"Kafka at {where} denies the consumer group: {text}", next_step=_RIGHTS)
        case kafka.ClusterAuthorizationFailedError():
            return IngestError(f"Kafka at {where} denies writing: {text}", next_step="grant WRITE on fleethpa.log")
        case kafka.KafkaConnectionError():
            return IngestError(
                f"cannot reach Kafka at {where} ({text})", next_step="check the address, TLS and credentials"
            )
        case kafka.UnknownTopicOrPartitionError():
            return IngestError(f"a topic is missing at {where}: {text}", next_step=_CREATE)
        case _:
            return IngestError(f"Kafka at {where}: {type(error).__name__}: {text}")


_SIZE = "max.message.bytes"
_OVERHEAD_BYTES = 4_096
"""Room for keys and the headers of a record batch."""


async def check_topics(config: IngestConfig) -> int:
    """Check that all topics exist and fit together; return the partition count of the log.

    Raises IngestError: naming the topic and the next step. Raises KafkaError: Kafka does not answer.
    """
    counts = await partition_counts(config.kafka, [LOG, REJECTED, *config.topics])
    _check_counts(counts)
    async with TopicAdmin(config.kafka) as admin:
        stated = await admin.config(LOG)
    if problem := stamp_problem(stated, is_playback=config.is_playback, option="--timestamp source"):
        raise IngestError(problem.what, next_step=problem.next_step)
    _check_size(stated.get(_SIZE, ""))
    return counts[LOG]


async def partition_counts(kafka: KafkaSettings, names: list[str]) -> dict[str, int]:
    """Partitions of each of these topics.

    Raises IngestError: naming those that do not exist. Raises KafkaError: Kafka does not answer, or denies a topic.
    """
    async with TopicAdmin(kafka) as admin:
        partitions = await admin.partitions(names)
    if missing := [name for name in names if name not in partitions]:
        is_named = all(map(is_pushed, missing))
        step = "check the names that --sample-topic states" if is_named else _CREATE
        raise IngestError(f"missing topics: {', '.join(missing)}", next_step=step)
    return partitions


def _check_counts(counts: dict[str, int]) -> None:
    wanted = counts[LOG]
    if wrong := [f"{name} ({counts[name]})" for name in PUBLIC_TOPICS if counts[name] != wanted]:
        raise IngestError(
            f"partition counts differ from the {wanted} of {LOG}: {', '.join(wrong)}; one worker could not own a "
            "namespace in all topics",
            next_step=f"create them again with the same count ({_CREATE})",
        )


def _check_size(text: str) -> None:
    size = whole_number(text)
    if size is not None and size < MAX_LOG_RECORD_BYTES + _OVERHEAD_BYTES:
        raise IngestError(f"{LOG} has {_SIZE}={text}, too small for our records", next_step=_CREATE)


async def last_times(config: IngestConfig, partitions: Iterable[int]) -> dict[int, int]:
    """Timestamp (ms) of the last record of each log partition that has one: playback never goes back before it."""
    times: dict[int, int] = {}
    tps = [TopicPartition(LOG, number) for number in partitions]
    async with reader(config.kafka, tps) as consumer:
        begins, ends = await consumer.beginning_offsets(tps), await consumer.end_offsets(tps)
        for tp in tps:
            if ends[tp] > begins[tp]:
                consumer.seek(tp, ends[tp] - 1)
                times[tp.partition] = (await consumer.getone(tp)).timestamp
    return times


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
            f"the offset of group {INGEST_GROUP} cannot be moved ({type(error).__name__}): a worker runs",
            next_step="stop ingest, then run this again",
        ) from error


# --- previews ---------------------------------------------------------------------------------------------------------

EXAMPLE_TIME_MS = 1_790_000_015_000
"""2026-09-21T14:13:35Z."""


def example(format_: str, now_ms: int = EXAMPLE_TIME_MS) -> bytes:
    """A message of that format whose samples are of `now_ms` (Unix ms).

    Raises ValueError: no such format.
    """
    examples = _OWN_EXAMPLES | {each.name: each.example for each in messageformats.SAMPLE_FORMATS}
    if format_ not in examples:
        raise ValueError(f"format must be one of {', '.join(examples)}, got {format_!r}")
    return examples[format_](now_ms)


def _sample(now_ms: int) -> bytes:
    return otlp.pretty(
        {
            "v": 1,
            "ts": now_ms,
            "cluster": "prod-eu",
            "namespace": "shop",
            "type": "External",
            "metric": "queue_depth",
            "value": 610,
            "labels": {"queue": "pay"},
        }
    )


def _record(now_ms: int) -> bytes:
    usage = PodUsage("checkout-7c9-abc", now_ms, 15_000, [("app", {"cpu": 335, "memory": 201_326_592_000})])
    answer = {"api": "resource", "selector": "app=checkout", "pods": to_builtins(in_columns([usage]))}
    return otlp.pretty(
        {
            "v": 1,
            "cluster": "prod-eu",
            "namespace": "shop",
            "time": now_ms,
            "entries": [{"kind": "answers", "session": "observer-1", "items": [answer]}],
        }
    )


_OWN_EXAMPLES: dict[str, Callable[[int], bytes]] = {messageformats.SAMPLE: _sample, messageformats.RECORD: _record}


_LONG_AGO_MS = 1
"""Kafka's timestamp of a record that no broker has stamped."""


class CheckReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer of `check_record`.

    `result`: `ok`, `partial` (some of it refused), `rejected`, or `unmatched` (nothing of it is wanted). `keys`: key in
    the log (`cluster/namespace`, `*` for every partition) → entries. `entries`: kind → count. `left_out`: reason →
    points that are not taken and not wrong. `reasons`: what is wrong. `metrics`: the HPA metrics that samples became.
    """

    format: str
    topic: str
    result: str
    samples: int
    entries: dict[str, int]
    keys: dict[str, int]
    metrics: dict[str, int]
    left_out: dict[str, int]
    reasons: list[str]

    @property
    def is_rejected(self) -> bool:
        """Whether the message, or a part of it, would go to the topic of rejected records."""
        return self.result != "ok"


def check_record(value: bytes, headers: Headers = (), mapping: Mapping | None = None, topic: str = "") -> CheckReport:
    """Return what ingest would make of a message.

    Args:
        topic: where it would be sent; empty: the topic that takes its first entry.
    """
    topic = topic or _fitting_topic(value, headers)
    raw = RawRecord(topic, 0, 0, _LONG_AGO_MS, value, headers)
    conversion = convert(raw, Resolver(mapping or Mapping()))
    for entry in log_entries(conversion.pieces, raw, conversion.time_ms, topics.DEFAULT_PARTITIONS):
        if isinstance(entry, Refusal):
            conversion.refuse(entry)
    why_nothing = [] if conversion.pieces else [conversion.reason()]
    return CheckReport(
        format=conversion.format,
        topic=topic,
        result=conversion.result,
        samples=conversion.points + _answered(conversion),
        entries=dict(Counter(kind_of(piece.body) for piece in conversion.pieces)),
        keys=dict(
            Counter("*" if p.is_whole_partition else namespace_key(p.cluster, p.namespace) for p in conversion.pieces)
        ),
        metrics=_metrics(conversion),
        left_out=conversion.left_out,
        reasons=list(dict.fromkeys(refusal.text for refusal in conversion.refusals)) or why_nothing,
    )


def _fitting_topic(value: bytes, headers: Headers) -> str:
    """The public topic of a record of ours; the topic of samples for everything else."""
    if messageformats.is_protobuf(value, headers):
        return topics.SAMPLES
    try:
        document: dict[str, Any] = messageformats.parse_document(value) if value else {}
    except Refusal:
        return topics.SAMPLES  # the conversion names the fault
    entries = document.get("entries")
    first = entries[0] if isinstance(entries, list) and entries else {}
    kind = str(first.get("kind", "")) if isinstance(first, dict) else ""
    if kind == "command" and not (document.get("namespace") and first.get("command") == "mode"):
        return topics.SETTINGS
    if isinstance(first, dict) and first.get("origin") == "central":
        return topics.SPECS
    return next(iter(topickinds.topics_of(kind)), topics.SAMPLES)


def _answered(conversion: Conversion) -> int:
    answers = [item for piece in conversion.pieces if isinstance(piece.body, Answers) for item in piece.body.items]
    return sum(len(each.items) + (0 if each.pods is None else each.pods.count) for each in answers)


def _metrics(conversion: Conversion) -> dict[str, int]:
    points = [point for piece in conversion.pieces if isinstance(piece.body, Samples) for point in piece.body.points]
    return dict(Counter(f"{point.type} {point.metric}" for point in points))
