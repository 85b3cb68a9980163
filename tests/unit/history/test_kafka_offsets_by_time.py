"""At which offset a time is, where brokers find nothing as late, or look nothing up by time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from runtime import kafkaclients
from schemas.connection import KafkaSettings
from streams.archive.layout import LOG
from streams.history.kafkapast import KafkaPast

RECORDS = {7: 1_000, 8: 2_000, 9: 3_000}
"""Offset → timestamp."""


class Broker:
    """A consumer of brokers that hold these records."""

    def __init__(self, *, looks_up: bool) -> None:
        self._looks_up = looks_up

    async def offsets_for_times(self, asked: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        return {part: self._first(time_ms) for part, time_ms in asked.items()}

    def _first(self, time_ms: int) -> Any:
        late = [at for at, timestamp_ms in RECORDS.items() if timestamp_ms >= time_ms and self._looks_up]
        return SimpleNamespace(offset=late[0]) if late else None

    async def beginning_offsets(self, parts: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(parts, 7)

    async def end_offsets(self, parts: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(parts, 10)


@pytest.mark.parametrize(
    ("looks_up", "time_ms", "offset"),
    [
        pytest.param(True, 2_000, 8, id="as found"),
        pytest.param(True, 3_001, 10, id="nothing is as late"),
        pytest.param(False, 3_001, 10, id="nothing is as late, and nothing is looked up"),
        pytest.param(False, 2_000, 7, id="nothing is looked up"),
    ],
)
async def test_a_time_is_at_its_first_record_or_at_the_end_or_where_nothing_is_known_at_the_beginning(
    monkeypatch: pytest.MonkeyPatch, looks_up: bool, time_ms: int, offset: int
) -> None:
    @asynccontextmanager
    async def reader(*_: Any) -> AsyncIterator[Broker]:
        yield Broker(looks_up=looks_up)

    async def read_range(_: Any, __: TopicPartition, first: int, end: int) -> AsyncIterator[Any]:
        for at in range(first, end):
            yield SimpleNamespace(offset=at, timestamp=RECORDS[at])

    monkeypatch.setattr(kafkaclients, "reader", reader)
    monkeypatch.setattr(kafkaclients, "read_range", read_range)
    assert await KafkaPast(KafkaSettings()).offset_at(LOG, 0, time_ms) == offset
