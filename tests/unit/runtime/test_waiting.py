"""Waiting for one of several things."""

import asyncio

import pytest

from runtime.ending import first_of


async def test_the_first_ends_the_wait_and_the_others_are_cancelled() -> None:
    event, stop = asyncio.Event(), asyncio.Event()
    cancelled: list[str] = []

    async def never(name: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(name)
            raise

    waiting = asyncio.ensure_future(first_of(event.wait(), stop.wait(), never("other")))
    await asyncio.sleep(0)
    stop.set()
    await waiting
    await asyncio.sleep(0)
    assert cancelled == ["other"]

    waiting = asyncio.ensure_future(first_of(event.wait(), never("again")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)
    assert cancelled == ["other", "again"]
