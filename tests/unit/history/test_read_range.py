"""Reading a range of a topic partition: `runtime.kafkaclients.read_batches` and `read_range`."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from runtime.kafkaclients import read_batches, read_range

PART = TopicPartition("decisions", 0)


class Kept(NamedTuple):
    """A record of the topic."""

    offset: int


class Consumer:
    """Gives the records of one partition in batches of these sizes, again and again; offsets may have holes."""

    def __init__(self, offsets: list[int], sizes: list[int]) -> None:
        self._offsets, self._sizes, self._position, self._end = offsets, sizes, 0, max(offsets, default=-1) + 1

    def seek(self, _: TopicPartition, offset: int) -> None:
        self._position = offset

    def resume(self, _: TopicPartition) -> None:
        self.is_paused = False

    def pause(self, _: TopicPartition) -> None:
        self.is_paused = True

    async def getmany(
        self, *_: TopicPartition, timeout_ms: int, max_records: int | None
    ) -> dict[TopicPartition, list[Any]]:
        self._sizes = [*self._sizes[1:], self._sizes[0]]
        found = [Kept(offset) for offset in self._offsets if offset >= self._position][: self._sizes[0]]
        self._position = found[-1].offset + 1 if found else self._position + (0 if self._sizes[0] == 0 else 1)
        return {PART: found} if found else {}

    async def position(self, _: TopicPartition) -> int:
        return self._position


@given(
    st.lists(st.integers(0, 40), unique=True).map(sorted),
    st.lists(st.integers(0, 7), min_size=1, max_size=5).filter(any),
    st.integers(0, 45),
    st.integers(0, 45),
)
async def test_a_range_is_read_whole_and_nothing_beyond_it(
    offsets: list[int], sizes: list[int], first: int, end: int
) -> None:
    wanted = [offset for offset in offsets if first <= offset < end]

    def consumer() -> AIOKafkaConsumer:
        return cast(AIOKafkaConsumer, Consumer(offsets, sizes))

    assert [record.offset async for record in read_range(consumer(), PART, first, end)] == wanted
    batches = [batch async for batch in read_batches(consumer(), PART, first, end)]
    assert [record.offset for batch in batches for record in batch] == wanted
    assert all(batches)
