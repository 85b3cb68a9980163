"""Why ingest stops: errors that name the object and the next step."""

from aiokafka import errors as kafka

from schemas.connection import KafkaSettings


class IngestError(Exception):
    """Ingest cannot go on; the text says why and what to do."""


class BrokersUnreachableError(IngestError):
    """Kafka does not answer."""


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
            return BrokersUnreachableError(
                f"cannot reach Kafka at {where} ({text}). Next: check the address, TLS and credentials"
            )
        case kafka.UnknownTopicOrPartitionError():
            return IngestError(f"a topic is missing at {where}: {text}. Next: fleethpa topics init")
        case _:
            return IngestError(f"Kafka at {where}: {type(error).__name__}: {text}")
