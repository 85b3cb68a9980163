"""A cancellation that the Kafka driver loses ends the task all the same."""

import asyncio
from contextlib import suppress

from runtime.kafkaclients import raise_if_cancelled


async def test_a_loop_ends_though_its_cancellation_was_lost() -> None:
    async def follow() -> None:
        with suppress(asyncio.CancelledError):  # as wait_for does where the answer is there
            await asyncio.Event().wait()
        while True:
            raise_if_cancelled()
            await asyncio.sleep(0)

    task = asyncio.create_task(follow())
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(10):
        await asyncio.wait({task})
    assert task.cancelled()


async def test_a_task_that_nobody_cancelled_continues() -> None:
    raise_if_cancelled()
