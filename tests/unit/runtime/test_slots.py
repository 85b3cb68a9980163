"""Slots in turn by key, for tasks."""

import asyncio

import pytest

from runtime.slots import FairSlots


async def settle() -> None:
    """Let every task go on until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


class Tasks:
    """Tasks that keep a slot until they are told to end."""

    def __init__(self, slots: FairSlots[str]) -> None:
        self._slots = slots
        self.running: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, *names: str) -> None:
        """Begin tasks, each for the key that its name begins with."""
        for name in names:
            self.ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._run(name))
        await settle()

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await self.tasks[name]
        await settle()

    async def _run(self, name: str) -> None:
        async with self._slots.turn(name[0]):
            self.running.append(name)
            await self.ends[name].wait()
            self.running.remove(name)


async def test_requests_that_hang_in_one_namespace_leave_the_slots_of_others() -> None:
    tasks = Tasks(FairSlots(8))
    await tasks.begin(*(f"hangs{number}" for number in range(50)))
    assert tasks.running == ["hangs0", "hangs1"]
    await tasks.begin("other")
    assert tasks.running[-1] == "other"
    await tasks.end("other")
    await tasks.end("hangs0")
    assert tasks.running == ["hangs1", "hangs2"]
    for task in tasks.tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.tasks.values(), return_exceptions=True)


@pytest.mark.parametrize("is_in_time", [True, False], ids=["while it waits", "in the moment of its turn"])
async def test_who_is_cancelled_leaves_no_slot_taken(is_in_time: bool) -> None:
    tasks = Tasks(FairSlots(1))
    await tasks.begin("a", "b", "c")
    if not is_in_time:
        tasks.ends["a"].set()
        await asyncio.sleep(0)
    tasks.tasks["b"].cancel()
    tasks.ends["a"].set()
    await settle()
    assert tasks.running == ["c"]
    await tasks.end("c")


async def test_an_error_of_a_task_frees_its_slot() -> None:
    slots: FairSlots[str] = FairSlots(1)
    with pytest.raises(LookupError):
        async with slots.turn("a"):
            raise LookupError
    async with slots.turn("b"):
        pass
