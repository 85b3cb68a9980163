"""The progress in each assigned source partition: read, written, committed."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition

from runtime.kafkaclients import bounds_of
from streams.ingest.ingesterrors import IngestError

log = logging.getLogger("fleethpa.ingest")


@dataclass(slots=True)
class PartitionProgress:
    """One source partition: the next offset to read, the end that was seen, what is written and what is committed."""

    next: int
    end: int
    written: int
    committed: int
    is_given_up: bool = False
    """Whether others no longer wait for it, until it delivers again."""

    @property
    def is_behind(self) -> bool:
        """Whether the broker holds more of it than was read."""
        return self.next < self.end and not self.is_given_up


async def starting_places(
    consumer: AIOKafkaConsumer, tps: Iterable[TopicPartition]
) -> dict[TopicPartition, PartitionProgress]:
    """Where reading starts in freshly assigned partitions.

    Raises:
        IngestError: a committed offset lies beyond the end: the topic was deleted and created again.
    """
    tps = sorted(tps)
    if not tps:
        return {}
    bounds = await bounds_of(consumer, tps)
    places: dict[TopicPartition, PartitionProgress] = {}
    for tp in tps:
        committed = await consumer.committed(tp)
        first, end = bounds[tp]
        _check_committed(tp, committed, end)
        _tell_expired(tp, committed, first)
        start = max(committed or 0, first)
        places[tp] = PartitionProgress(start, end, start, start)
    return places


def _check_committed(tp: TopicPartition, committed: int | None, end: int) -> None:
    if committed is not None and committed > end:
        raise made_again(tp, end, committed)


def _tell_expired(tp: TopicPartition, committed: int | None, begin: int) -> None:
    if committed is not None and committed < begin:
        # They are lost. Observers report their state again within minutes; pushed samples do not come again.
        log.warning(
            "records expired before they were read",
            extra={"partition": f"{tp.topic}-{tp.partition}", "count": begin - committed},
        )


def made_again(tp: TopicPartition, offset: int, read: int) -> IngestError:
    """The error for a partition whose end or next offset is below what was read of it."""
    return IngestError(
        f"{tp.topic} partition {tp.partition} is at offset {offset}, but {read} records of it were read: the topic was "
        "made again, and the log would take its records for duplicates. "
        f"Next: fleethpa ingest reset {tp.topic} {tp.partition}"
    )


def commits(places: Mapping[TopicPartition, PartitionProgress]) -> dict[TopicPartition, int]:
    """The offsets that are written and not yet committed."""
    return {tp: place.written for tp, place in places.items() if place.written > place.committed}
