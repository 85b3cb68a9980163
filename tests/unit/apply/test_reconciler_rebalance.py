"""Partitions that a reconciler gets while it ends: nothing is begun for them, and nothing is left behind."""

import asyncio
import gc
import warnings

from aiokafka import TopicPartition

from reconciler.apply.process import Reconciler, ReconcilerConfig
from schemas.connection import KafkaSettings


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
