"""What is checked before the first record is read: topics, their partitions, and who stamps the log."""

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError, for_code

from runtime.kafkaclients import aiokafka_kwargs, reader
from schemas.connection import KafkaSettings
from schemas.topics import LOG, MAX_LOG_RECORD_BYTES, PUBLIC_TOPICS, REJECTED
from schemas.wholenumbers import whole_number
from streams.ingest.ingestconfig import IngestConfig
from streams.ingest.ingesterrors import IngestError

_STAMP = "message.timestamp.type"
_SIZE = "max.message.bytes"
_OVERHEAD_BYTES = 4_096
"""Room for keys and the headers of a record batch."""

log = logging.getLogger("fleethpa.ingest")


async def check_topics(config: IngestConfig) -> int:
    """Check that all topics exist and fit together; gives the partition count of the log.

    Raises:
        IngestError: naming the topic and the next step.
        KafkaError: Kafka does not answer.
    """
    async with _admin(config.kafka) as admin:
        counts = await _partition_counts(admin, [LOG, REJECTED, *config.topics])
        _check_counts(counts)
        found = await _log_settings(admin)
        _check_stamp(config, found.get(_STAMP, ""))
        _check_size(found.get(_SIZE, ""))
    return counts[LOG]


async def partition_counts(kafka: KafkaSettings, names: list[str]) -> dict[str, int]:
    """Partitions of each of these topics.

    Raises:
        IngestError: naming those that do not exist.
        KafkaError: Kafka does not answer, or denies a topic.
    """
    async with _admin(kafka) as admin:
        return await _partition_counts(admin, names)


@asynccontextmanager
async def _admin(kafka: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**aiokafka_kwargs(kafka))
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


async def _partition_counts(admin: AIOKafkaAdminClient, names: list[str]) -> dict[str, int]:
    described: list[dict[str, Any]] = await admin.describe_topics(names)
    found: dict[str, int] = {}
    for topic in described:
        error = for_code(topic["error_code"])
        if error is TopicAuthorizationFailedError:
            raise TopicAuthorizationFailedError(topic["topic"])
        if topic["error_code"] == 0:
            found[topic["topic"]] = len(topic["partitions"])
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


async def _log_settings(admin: AIOKafkaAdminClient) -> dict[str, str]:
    """Settings of the log; empty if the broker does not report them (the embedded broker, or a missing permission)."""
    try:
        responses = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, LOG)])
    except KafkaError as error:
        log.info("the settings of the log cannot be checked", extra={"reason": str(error) or type(error).__name__})
        return {}
    entries = (entry for response in responses for resource in response.resources for entry in resource[4])
    return {str(entry[0]): str(entry[1]) for entry in entries}


def _check_size(text: str) -> None:
    size = whole_number(text)
    if size is not None and size < MAX_LOG_RECORD_BYTES + _OVERHEAD_BYTES:
        raise IngestError(f"{LOG} has {_SIZE}={text}, too small for our records. Next: fleethpa topics init")


def _check_stamp(config: IngestConfig, stamp: str) -> None:
    if config.is_playback and stamp == "LogAppendTime":
        raise IngestError(
            f"playback stamps the log with source times, but {LOG} has {_STAMP}=LogAppendTime, which overwrites them. "
            "Next: leave out --timestamp source, or use another cluster"
        )
    if not config.is_playback and stamp == "CreateTime":
        raise IngestError(
            f"{LOG} has {_STAMP}=CreateTime: log time would be this machine's clock. Next: fleethpa topics init "
            "(sets LogAppendTime), or --timestamp source for playback"
        )


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
