"""Where partitions begin and end, asked for several at once over one connection."""

import asyncio
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaTimeoutError

from schemas.connection import KafkaSettings
from streams.history.kafkapast import KafkaPast

ONE, OTHER = (TopicPartition("fleethpa.log", number) for number in (0, 1))


class Consumer:
    """Answers once it is let; counts the questions."""

    def __init__(self, error: Exception | None = None) -> None:
        self.answers, self.error = asyncio.Event(), error
        self.asked: list[list[TopicPartition]] = []

    async def beginning_offsets(self, parts: list[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked.append(parts)
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        return dict.fromkeys(parts, 3)

    async def end_offsets(self, parts: list[TopicPartition]) -> dict[TopicPartition, int]:
        await self.answers.wait()
        return dict.fromkeys(parts, 9)


def asking(consumer: Consumer) -> tuple[KafkaPast, list["asyncio.Task[Any]"]]:
    past = KafkaPast(KafkaSettings())
    past._shared = consumer
    return past, [asyncio.ensure_future(past._span(consumer, part)) for part in (ONE, OTHER)]


async def test_one_question_answers_all_and_who_no_longer_waits_takes_it_from_nobody() -> None:
    consumer = Consumer()
    _, (first, second) = asking(consumer)
    while not consumer.asked:
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    consumer.answers.set()
    assert tuple(await second) == (3, 9)
    assert list(map(set, consumer.asked)) == [{ONE, OTHER}]
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_an_error_is_everybodys() -> None:
    consumer = Consumer(KafkaTimeoutError("too slow"))
    _, waiting = asking(consumer)
    consumer.answers.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in found] == [KafkaTimeoutError] * 2


async def test_a_question_that_is_cancelled_ends_for_all() -> None:
    consumer = Consumer()
    past, waiting = asking(consumer)
    while not consumer.asked:
        await asyncio.sleep(0)
    task = past._asking
    assert task is not None
    task.cancel()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in found] == [asyncio.CancelledError] * 2
    assert task.cancelled()
