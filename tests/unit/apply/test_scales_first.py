"""Statuses wait for scales, but not for long."""

import asyncio

import pytest

from reconciler.apply import clusterwriters as scalesfirst
from reconciler.apply.clusterwriters import STRETCH_S, ScalesFirst
from runtime.process import WorkerPool


class World:
    """A queue of scales, which are written once `allowed` is set, and a clock."""

    def __init__(self) -> None:
        self.now_s, self.allowed = 100.0, asyncio.Event()
        self.writes: WorkerPool[str, str] = WorkerPool(self._write, workers=1, limit=10)
        self.first = ScalesFirst(lambda: [self.writes], lambda: self.now_s)

    async def _write(self, name: str) -> None:
        await self.allowed.wait()

    def scale(self, name: str) -> None:
        self.first.begin()
        self.writes.put(name, name)


async def is_let_through(waiting: "asyncio.Task[None]") -> bool:
    for _ in range(20):
        await asyncio.sleep(0)
    return waiting.done()


async def test_a_status_waits_until_all_scales_are_written() -> None:
    world = World()
    async with asyncio.TaskGroup() as group:
        working = group.create_task(world.writes.run())
        world.scale("web")
        world.scale("api")
        status = group.create_task(world.first.wait())
        assert not await is_let_through(status)
        world.allowed.set()
        assert await is_let_through(status)
        working.cancel()


async def test_a_status_does_not_wait_where_no_scale_is_to_be_written() -> None:
    world = World()
    await asyncio.wait_for(world.first.wait(), 5)


async def test_a_status_does_not_wait_for_a_scale_that_was_taken_back() -> None:
    world = World()
    world.scale("web")
    status = asyncio.create_task(world.first.wait())
    assert not await is_let_through(status)
    world.writes.take_back("web")
    assert await is_let_through(status)
    world.scale("api")
    status = asyncio.create_task(world.first.wait())
    assert not await is_let_through(status)
    world.writes.take_all()
    assert await is_let_through(status)


async def test_a_cluster_that_gives_no_answer_delays_statuses_by_one_stretch_only() -> None:
    world = World()
    world.scale("web")
    world.now_s += STRETCH_S / 2
    world.scale("api")  # one more within the stretch does not make it longer
    world.now_s += STRETCH_S / 2
    await asyncio.wait_for(world.first.wait(), 5)


async def test_the_wait_ends_with_the_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalesfirst, "STRETCH_S", 0.01)
    world = World()
    world.scale("web")
    await asyncio.wait_for(world.first.wait(), 5)
    assert len(world.writes) == 1
