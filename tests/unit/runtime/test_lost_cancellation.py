"""A cancellation that the Kafka driver loses ends the reader all the same."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from runtime.driver import EndingConsumer
from tests.patience import PATIENCE_S


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> EndingConsumer:
    """One that never connects, whose driver has nothing to give."""

    async def nothing(self: object, *partitions: object, **options: object) -> dict[Any, Any]:
        await asyncio.sleep(0)
        return {}

    monkeypatch.setattr(AIOKafkaConsumer, "__init__", lambda self: None)
    monkeypatch.setattr(AIOKafkaConsumer, "__del__", lambda self: None)
    monkeypatch.setattr(AIOKafkaConsumer, "getmany", nothing)
    return EndingConsumer()


async def test_a_loop_ends_though_its_cancellation_was_lost(consumer: EndingConsumer) -> None:
    async def follow() -> None:
        with suppress(asyncio.CancelledError):  # as wait_for does where the answer is there
            await asyncio.Event().wait()
        while True:
            await consumer.getmany(timeout_ms=100)

    task = asyncio.create_task(follow())
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait({task})
    assert task.cancelled()


async def test_a_task_that_nobody_cancelled_continues(consumer: EndingConsumer) -> None:
    assert await consumer.getmany() == {}


async def test_after_a_time_limit_it_can_be_read_again(consumer: EndingConsumer) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
    assert await consumer.getmany() == {}
