"""Taking partitions over while takes of what was fetched before are still under way."""

import asyncio
from collections.abc import Iterable, Mapping

import pytest

from runtime.kafkaclients import OffsetBounds
from schemas.connection import KafkaSettings
from streams.decider import assignment
from streams.decider.deciderconfig import DeciderConfig
from streams.decider.fence import Fence
from streams.decider.recordedtail import RecordedTail, TailHead
from streams.decider.tail import TailReader

CONFIG = DeciderConfig(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:9"))


class SlowReader(TailReader):
    """A reader of an empty decisions topic, which takes its time to connect."""

    def __init__(self, *_: object) -> None:
        self.go_on = asyncio.Event()
        self.stops = 0
        self._standing = []

    async def start(self, numbers: Iterable[int], from_offsets: Mapping[int, int]) -> None:
        await self.go_on.wait()

    async def stop(self) -> None:
        self.stops += 1

    def log_bounds(self, number: int) -> OffsetBounds:
        return OffsetBounds(0, 0)

    def standing(self, number: int, recovered: TailHead) -> RecordedTail:
        standing = RecordedTail.none(number)
        self._standing.append(standing)
        return standing


async def test_a_take_while_partitions_are_loaded_leaves_their_reader_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = SlowReader()
    monkeypatch.setattr(assignment, "TailReader", lambda *_: reader)
    owner = assignment.Assignment(CONFIG, 1, Fence(60.0), rows=dict)
    loading = asyncio.create_task(owner.load([0]))
    await asyncio.sleep(0)
    await owner.after_take()
    assert reader.stops == 0
    reader.go_on.set()
    assert await loading == {0: 0}
    await owner.after_take()
    assert reader.stops == 0
    owner.take_over()
    await owner.after_take()
    assert reader.stops == 1
