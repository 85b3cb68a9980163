"""Whether the topic of an agent exists, as far as the brokers say."""

import asyncio
import logging

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

log = logging.getLogger(__name__)

TOPIC_TIMEOUT_S = 10.0


async def exists(producer: AIOKafkaProducer, topic: str) -> bool:
    """Whether the topic is there. One that may not be described counts as there: copies to it wait for the permission,
    where those to a missing topic would be passed over.
    """
    try:
        async with asyncio.timeout(TOPIC_TIMEOUT_S):
            return bool(await producer.partitions_for(topic))
    except TopicAuthorizationFailedError:
        return True
    except (KafkaError, TimeoutError) as error:
        log.warning("an agent's topic was not found", extra={"topic": topic, "error": repr(error)})
        return False


async def is_gone(producer: AIOKafkaProducer, topic: str) -> bool:
    """Whether the brokers say so. Where they do not answer, a record that failed must be copied later."""
    client = producer.client
    try:
        async with asyncio.timeout(TOPIC_TIMEOUT_S):
            answered: bool = await client.force_metadata_update()
    except TimeoutError:
        return False
    known = client.cluster.topics(), client.cluster.unauthorized_topics
    return answered and not any(topic in each for each in known)
