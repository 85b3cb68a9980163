"""Partitions that a reconciler gets while it ends: nothing is begun for them, and nothing is left behind. Partitions
that it loses while it reads.
"""

import asyncio
import gc
import warnings
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition

from reconciler.apply.process import Reconciler, ReconcilerConfig
from schemas.connection import KafkaSettings
from schemas.decisions import source_header


class Committed:
    """A consumer of a group that has committed everywhere."""

    async def committed(self, partition: TopicPartition) -> int:
        return 5

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    end_offsets = beginning_offsets


async def test_a_rebalance_while_the_process_ends_leaves_no_coroutine_behind() -> None:
    reconciler = Reconciler(ReconcilerConfig(kafka=KafkaSettings(), clusters=()))
    async with asyncio.TaskGroup() as ended:
        pass
    reconciler._group, reconciler._consumer = ended, Committed()
    with warnings.catch_warnings(record=True) as received:
        warnings.simplefilter("always")
        await reconciler.assigned([TopicPartition("decisions", 0)])
        gc.collect()
    assert [str(each.message) for each in received] == []


class Moving(Committed):
    """A consumer that reads two partitions, and loses one of them while it asks for the end of the other."""

    def __init__(self, reconciler: Reconciler, lost: list[TopicPartition]) -> None:
        self._reconciler, self._lost = reconciler, lost

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        self._reconciler.revoked(self._lost)
        return dict.fromkeys(partitions, 9)


@pytest.mark.parametrize("lost", [pytest.param({0}, id="that one"), pytest.param({1}, id="another one")])
async def test_partitions_that_are_lost_while_reading_goes_back_are_read_by_their_new_owner(lost: set[int]) -> None:
    reconciler = Reconciler(ReconcilerConfig(kafka=KafkaSettings(), clusters=()))
    places = [TopicPartition("decisions", number) for number in range(2)]
    for number in range(2):
        reconciler._process(number, unread(7))
    consumer = Moving(reconciler, [places[number] for number in lost])
    await reconciler._process_batches(consumer, {place: [unread(5)] for place in places})
    assert set(reconciler._progress) == {0, 1} - lost


class BegunAgain(Committed):
    """A consumer of a topic that was created again, and has six records."""

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 6)


async def test_decisions_of_a_topic_that_was_created_again_are_taken() -> None:
    reconciler, place = Reconciler(ReconcilerConfig(kafka=KafkaSettings(), clusters=())), TopicPartition("decisions", 0)
    reconciler._process(0, unread(7))
    consumer: Any = BegunAgain()
    await reconciler._process_batches(consumer, {place: [unread(5)]})
    assert reconciler._progress[0].next == 6


def unread(offset: int) -> ConsumerRecord[bytes, bytes]:
    """A record of a cluster that is not served."""
    named: dict[str, Any] = {"timestamp": 0, "timestamp_type": 0, "key": None, "checksum": None}
    named |= {"serialized_key_size": -1, "serialized_value_size": -1, "headers": [source_header("elsewhere")]}
    return ConsumerRecord("decisions", 0, offset, value=b"", **named)
