"""Reset a source topic that was deleted and created again: forget its watermarks, then read it from the start."""

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from runtime.kafkaclients import aiokafka_kwargs, running_producer, started
from schemas.codec import encode
from schemas.connection import KafkaSettings
from schemas.entries import VERSION, WHOLE_PARTITION_KEY, Entry, LogRecord
from schemas.settings import WatermarkReset
from schemas.topics import INGEST_GROUP, LOG
from streams.ingest.ingesterrors import IngestError, explained
from streams.ingest.preflight import partition_counts


async def reset_source(
    kafka: KafkaSettings, topic: str, partition: int, *, author: str, reason: str, group: str = INGEST_GROUP
) -> int:
    """Append a reset of the watermark to every partition of the log, then set ingest's offset to the beginning.

    Ingest must be stopped: Kafka refuses to move offsets of a group that runs. In this order a crash in between only
    means to run it again. Gives the offset from which ingest will read.

    Raises:
        IngestError: the group runs, the partition does not exist, or Kafka denies something.
    """
    try:
        return await _reset(
            kafka,
            TopicPartition(topic, partition),
            WatermarkReset(topic=topic, source_partition=partition, author=author, reason=reason),
            group,
        )
    except KafkaError as error:
        raise explained(error, kafka) from error


async def _reset(kafka: KafkaSettings, source: TopicPartition, body: WatermarkReset, group: str) -> int:
    counts = await partition_counts(kafka, [LOG, source.topic])
    if source.partition >= counts[source.topic]:
        raise IngestError(f"{source.topic} has no partition {source.partition}: it has {counts[source.topic]}")
    consumer = AIOKafkaConsumer(**aiokafka_kwargs(kafka), group_id=group, enable_auto_commit=False)
    async with started(consumer):
        consumer.assign([source])
        begin: int = (await consumer.beginning_offsets([source]))[source]
        await _append(kafka, body, counts[LOG])
        await _move(consumer, source, begin, group)
    return begin


async def _append(kafka: KafkaSettings, body: WatermarkReset, partitions: int) -> None:
    value = encode(LogRecord(v=VERSION, entries=[Entry(key=WHOLE_PARTITION_KEY, body=body)]))
    async with running_producer(kafka) as producer:
        for partition in range(partitions):
            await producer.send_and_wait(LOG, value, key=WHOLE_PARTITION_KEY.encode(), partition=partition)


async def _move(consumer: AIOKafkaConsumer, source: TopicPartition, begin: int, group: str) -> None:
    try:
        await consumer.commit({source: begin})
    except KafkaError as error:
        raise IngestError(
            f"the offset of group {group} cannot be moved ({type(error).__name__}): a worker runs. "
            "Next: stop ingest, then run this again"
        ) from error
