"""The ingest worker without a broker: what it holds, and what it makes of offsets that go back."""

import time
from collections.abc import Iterable
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition

from schemas import topics
from streams.ingest import loop
from streams.ingest.convert import SAMPLE
from streams.ingest.logwriter import Batch, IngestMetrics, Rejected
from streams.ingest.loop import PartitionProgress, starting_places
from streams.ingest.preflight import EXAMPLE_TIME_MS, IngestConfig, IngestError, example

PODS = TopicPartition(topics.PODS, 1)
Records = dict[TopicPartition, list[ConsumerRecord]]


class Consumer:
    """Remembers which partitions are paused."""

    def __init__(self) -> None:
        self.stopped: set[TopicPartition] = set()

    def pause(self, tp: TopicPartition) -> None:
        self.stopped.add(tp)

    async def getmany(self, *, timeout_ms: int, max_records: int) -> Records:
        return records(*range(40, 40 + min(max_records, 5_000)))


@pytest.fixture
def worker() -> loop.Worker:
    return loop.Worker(IngestConfig(), Consumer(), None, IngestMetrics(), 24)  # type: ignore[arg-type]


def records(*offsets: int, tp: TopicPartition = PODS, size: int = 0) -> Records:
    value = example(SAMPLE) + b" " * size
    named: dict[str, Any] = {"timestamp": EXAMPLE_TIME_MS, "timestamp_type": 0, "key": None, "value": value}
    named |= {"checksum": None, "serialized_key_size": -1, "serialized_value_size": len(value), "headers": ()}
    return {tp: [ConsumerRecord(topic=tp.topic, partition=tp.partition, offset=each, **named) for each in offsets]}


def test_a_topic_that_is_made_again_while_it_is_read_ends_ingest_with_the_next_step(worker: loop.Worker) -> None:
    worker._hold(records(40, 41))
    worker._hold(records(43))  # a hole is no fault: markers of transactions, expired records
    with pytest.raises(IngestError, match=r"fleethpa\.pods partition 1 .* ingest reset fleethpa\.pods 1"):
        worker._hold(records(0, 1))


async def test_a_backlog_is_read_in_parts_between_which_heartbeats_can_be_sent(worker: loop.Worker) -> None:
    for number in range(2):
        assert await worker._read()
        assert len(worker._merge) == (number + 1) * loop.MAX_READ
        worker._read_to.clear()


async def test_after_a_rebalance_records_may_come_again(worker: loop.Worker) -> None:
    worker._hold(records(40, 41))
    await worker.member.on_partitions_revoked([PODS])
    await worker.member.on_partitions_assigned([PODS])
    worker._hold(records(40))


@pytest.mark.parametrize(
    ("partitions", "held", "pauses"),
    [
        pytest.param(6, 3_000_000, False, id="few partitions may hold much"),
        pytest.param(6, 5_000_000, True, id="but not without end"),
        pytest.param(144, 150_000, False, id="many may hold little"),
        pytest.param(144, 200_000, True, id="so that all together fit into memory"),
    ],
)
async def test_what_waits_of_all_partitions_together_is_bounded(
    worker: loop.Worker, partitions: int, held: int, pauses: bool
) -> None:
    await worker.member.on_partitions_assigned([TopicPartition(topics.PODS, number) for number in range(partitions)])
    worker._hold(records(1, size=held))
    assert (PODS in worker._consumer.stopped) is pauses


class Written:
    """Keeps what would go to the log."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    async def write(self, batches: Iterable[Batch], rejects: Iterable[Rejected]) -> None:
        self.batches += batches


async def test_ingest_shows_that_it_works_where_nothing_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    written, clock = Written(), [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    worker = loop.Worker(IngestConfig(), Quiet(), written, IngestMetrics(), 24)  # type: ignore[arg-type]
    places = {TopicPartition(topics.OUTCOMES, number): PartitionProgress(0, 0, 0, 0) for number in (3, 5)}
    for after_s, expected in ((0, []), (loop.BEAT_S - 0.1, []), (0.1, [3, 5]), (1, []), (loop.BEAT_S, [3, 5])):
        written.batches.clear()
        clock[0] += after_s
        await worker._write(places)
        assert [batch.partition for batch in written.batches] == expected
        assert {batch.value for batch in written.batches} <= {b'{"v":1,"entries":[],"by":"ingest"}'}


async def test_in_playback_no_time_passes_that_the_sources_do_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    written, clock = Written(), [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    worker = loop.Worker(IngestConfig(timestamp="source"), Quiet(), written, IngestMetrics(), 24)  # type: ignore[arg-type]
    for _ in range(3):
        clock[0] += 10 * loop.BEAT_S
        await worker._write({TopicPartition(topics.OUTCOMES, 3): PartitionProgress(0, 0, 0, 0)})
    assert written.batches == []


class Quiet:
    """A consumer to which nothing comes."""

    def ends_seen(self) -> dict[TopicPartition, int]:
        return {}


class Stood:
    """A consumer of which only the offsets are asked."""

    def __init__(self, begin: int, committed: int | None, end: int) -> None:
        self._begin, self._committed, self._end = begin, committed, end

    async def beginning_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, self._begin)

    async def end_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, self._end)

    async def committed(self, tp: TopicPartition) -> int | None:
        return self._committed


def no_new_topic(*of: object) -> None:
    raise AssertionError(f"{of} was not created again")


@pytest.mark.parametrize(
    ("begin", "committed", "start", "reported"),
    [
        pytest.param(0, None, 0, [], id="a new group begins at the beginning"),
        pytest.param(40, None, 40, [], id="of what there is"),
        pytest.param(40, 60, 60, [], id="a group continues where it was"),
        pytest.param(40, 25, 40, [15], id="what expired unread is reported"),
    ],
)
async def test_where_reading_starts(
    begin: int, committed: int | None, start: int, reported: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    places = await starting_places(Stood(begin, committed, 100), [PODS], no_new_topic)
    assert (places[PODS].next, places[PODS].end) == (start, 100)
    assert [record.__dict__["count"] for record in caplog.records] == reported
