"""Work in a thread of its own: `fleethpa.page.livereader`."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fleethpa.page.livereader import Aside


async def _thread() -> int:
    return threading.get_ident()


async def test_work_is_done_in_one_other_thread_also_after_it_was_ended() -> None:
    aside = Aside()
    first, second = await aside.run(_thread()), await aside.run(_thread())
    assert first == second != threading.get_ident()
    await aside.close()
    assert await aside.run(_thread()) != threading.get_ident()
    await aside.close()
    await aside.close()


async def test_errors_are_raised_where_the_work_is_awaited() -> None:
    async def fails() -> None:
        raise LookupError("not there")

    aside = Aside()
    with pytest.raises(LookupError, match="not there"):
        await aside.run(fails())
    await aside.close()


@pytest.mark.parametrize("by", ["who asked for it", "the end"])
async def test_work_ends_when_it_is_cancelled_by(by: str) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    aside = Aside()
    asked = asyncio.create_task(aside.run(waits()))
    assert await asyncio.to_thread(begun.wait, 30)
    if by == "the end":
        await aside.close()
        assert ended.is_set()
    else:
        asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert await asyncio.to_thread(ended.wait, 30)
    await aside.close()
