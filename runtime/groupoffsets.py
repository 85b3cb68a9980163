"""Where a member of a consumer group begins, and what it commits."""

import logging
from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError

from runtime import kafkaclients

log = logging.getLogger(__name__)

LOOK_BACK = 500
"""Records of a partition that are read again where the group has committed nothing yet: older wanted writes have long
been stale.
"""


async def begin_of(consumer: AIOKafkaConsumer, partition: TopicPartition) -> int:
    """Where an assigned partition is read from: what its group has committed, else LOOK_BACK records before its end."""
    committed: int | None = await consumer.committed(partition)
    if committed is not None:
        return committed
    first, end = (await kafkaclients.bounds_of(consumer, [partition]))[partition]
    begin = max(first, end - LOOK_BACK)
    consumer.seek(partition, begin)
    return begin


async def commit(consumer: AIOKafkaConsumer, offsets: Mapping[TopicPartition, int]) -> bool:
    """Commit; False: the group has moved on, and who owns the partitions now reads these records again."""
    try:
        await consumer.commit(dict(offsets))
    except (CommitFailedError, IllegalStateError) as error:
        log.warning("offsets not committed", extra={"error": str(error)})
        return False
    return True
