"""Checks of topics and permissions before Faust starts: Faust would idle if something is missing or denied."""

from collections.abc import Iterable, Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    TopicAuthorizationFailedError,
)

from runtime.kafkaclients import aiokafka_kwargs
from streams.decider.assignment import DeciderConfig
from streams.decider.tail import Exit

TIMESTAMP_TYPE = "message.timestamp.type"


class StartError(Exception):
    """The decider cannot start; the text says what to do."""

    def __init__(self, code: Exit, text: str) -> None:
        super().__init__(text)
        self.code = code


async def check(config: DeciderConfig) -> int:
    """Check what the decider needs; give the partition count of the log.

    Raises StartError: no broker answers, a topic is missing or unlike the others, a permission is denied.
    """
    try:
        async with AIOKafkaConsumer(
            **aiokafka_kwargs(config.kafka), group_id=config.app_id, enable_auto_commit=False
        ) as consumer:
            partitions = await _check_topics(consumer, config)
            await consumer.committed(TopicPartition(config.log_topic, 0))
        await _check_timestamps(config)
        return partitions
    except GroupAuthorizationFailedError as error:
        raise _denied("group", config.app_id, "READ") from error
    except TopicAuthorizationFailedError as error:
        raise StartError(Exit.DENIED, f"Kafka denies access: {error}; see `fleethpa topics acls`") from error
    except KafkaConnectionError as error:
        # A broker that is away and a wrong password look the same from here; the first goes by with time.
        raise StartError(Exit.STALLED, _unreachable(config, error)) from error
    except KafkaError as error:
        raise StartError(Exit.NEEDS_OPERATOR, _unreachable(config, error)) from error


async def _check_topics(consumer: AIOKafkaConsumer, config: DeciderConfig) -> int:
    names = (config.log_topic, config.decisions_topic, config.changelog_topic)
    await _name_topics(consumer, names)
    counts = {name: len(consumer.partitions_for_topic(name) or ()) for name in names}
    if denied := sorted(consumer._client.cluster.unauthorized_topics & set(names)):
        raise _denied("topic", ", ".join(denied), "READ")
    if missing := [name for name, count in counts.items() if not count]:
        raise StartError(Exit.NEEDS_OPERATOR, f"topics are missing: {', '.join(missing)}; run `fleethpa topics init`")
    if len(set(counts.values())) != 1:
        raise StartError(
            Exit.NEEDS_OPERATOR, f"topics must have one partition count, for life; they have {_listed(counts)}"
        )
    # What is not readable shows here, not as silence later.
    await consumer.end_offsets([TopicPartition(name, 0) for name in names])
    return counts[config.log_topic]


async def _name_topics(consumer: AIOKafkaConsumer, names: Iterable[str]) -> None:
    """Ask the broker about these topics by name; an embedded one brings them into being."""
    for name in names:
        await consumer._client.add_topic(name)
    await consumer._client.force_metadata_update()


async def _check_timestamps(config: DeciderConfig) -> None:
    kind = await _timestamp_type(config)
    if config.playback and kind == "LogAppendTime":
        raise StartError(
            Exit.NEEDS_OPERATOR,
            f"playback takes the producers' times, but {config.log_topic} has {TIMESTAMP_TYPE}=LogAppendTime: "
            "use a log topic of its own with CreateTime",
        )
    if not config.playback and kind == "CreateTime":
        raise StartError(
            Exit.NEEDS_OPERATOR,
            f"{config.log_topic} needs {TIMESTAMP_TYPE}=LogAppendTime, as decisions take their time from the broker; "
            "run `fleethpa topics check --fix`, or play a recording with --playback",
        )


async def _timestamp_type(config: DeciderConfig) -> str | None:
    """The log's timestamp type; None if the broker does not report it (embedded broker, missing permission)."""
    admin = AIOKafkaAdminClient(**aiokafka_kwargs(config.kafka))
    await admin.start()
    try:
        answers = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, config.log_topic)])
    except KafkaError:
        return None
    finally:
        await admin.close()
    entries = [entry for answer in answers for resource in answer.resources for entry in resource[4]]
    return next((str(entry[1]) for entry in entries if entry[0] == TIMESTAMP_TYPE), None)


def _denied(kind: str, name: str, operation: str) -> StartError:
    return StartError(Exit.DENIED, f"Kafka denies {operation} on {kind} {name}; see `fleethpa topics acls`")


def _unreachable(config: DeciderConfig, error: KafkaError) -> str:
    return (
        f"cannot use the brokers {config.kafka.bootstrap_servers} with {config.kafka.security_protocol}: {error}; "
        "check the address, the security settings and that the broker runs"
    )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
