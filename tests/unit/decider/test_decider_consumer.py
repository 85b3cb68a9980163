"""What the decider's consumer hands to Faust: the log records of a fetch as one message, rows merged, nothing stale."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import ConsumerRecord
from faust.types import TP

from schemas import topics
from streams.decider import strict
from streams.decider.app import DeciderApp, create_app
from streams.decider.assignment import DeciderConfig
from streams.decider.strict import LogRecords, StrictConsumer

CONFIG = DeciderConfig()
LOG = [TP(topics.LOG, number) for number in range(3)]
ROWS = TP(topics.CHANGELOG, 1)
Fetched = Mapping[TP, Sequence[ConsumerRecord]]


def record(tp: TP, offset: int) -> ConsumerRecord:
    value = b"%d" % offset
    return ConsumerRecord(tp.topic, tp.partition, offset, 1_760_000_000_123, 1, b"key", value, None, 3, len(value), ())


class Rig:
    """A consumer that is started without brokers: `fetches` are what they would give."""

    def __init__(self) -> None:
        self.app: DeciderApp = create_app(CONFIG, len(LOG))
        self.app.finalize()
        self.consumer: StrictConsumer = self.app.consumer
        self.merged: list[tuple[bytes, bytes]] = []
        self.fetches: list[Fetched] = []
        self.app.transport.merge = lambda key, value: self.merged.append((key, value))
        self.app.topics._acking_topics.add(topics.LOG)
        self.consumer._set_active_tps({*LOG, ROWS})
        self.consumer.resume_flow()
        self.consumer._getmany = self._fetch
        self.passed_on: list[LogRecords] = []
        self.consumer.callback = self._take

    async def _take(self, message: LogRecords) -> None:
        self.passed_on.append(message)

    async def _fetch(self, **_: Any) -> Fetched:
        return self.fetches.pop(0) if self.fetches else {}

    async def fetch(self) -> list[Any]:
        """Fetch once; gives the rows."""
        return [message async for _, message in self.consumer.getmany(timeout=1.0)]

    async def messages(self, fetched: Fetched) -> list[LogRecords]:
        """The messages of one fetch, each acknowledged when it is passed on."""
        self.fetches.append(fetched)
        self.passed_on.clear()
        self.consumer.callback = self._acknowledge
        await self.fetch()
        return self.passed_on

    async def _acknowledge(self, message: LogRecords) -> None:
        await self._take(message)
        message.ack(self.consumer)


@pytest.fixture
async def rig() -> Rig:
    return Rig()


def of(message: LogRecords) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in message.records]


async def test_the_log_records_of_a_fetch_are_one_message_with_each_partition_in_order(rig: Rig) -> None:
    [message] = await rig.messages({LOG[0]: [record(LOG[0], 7), record(LOG[0], 8)], LOG[2]: [record(LOG[2], 3)]})
    assert of(message) == [(0, 7), (0, 8), (2, 3)]
    assert (message.tp, message.offset) == (LOG[2], 3)


@pytest.mark.parametrize(("active", "most"), [({LOG[0]}, strict.MOST_RECORDS), ({ROWS}, 2000)])
async def test_a_fetch_brings_as_many_records_as_partitions_that_are_current_can_wait_for(
    rig: Rig, active: set[TP], most: int
) -> None:
    asked: list[int] = []

    async def fetch(_: Any, __: set[TP], timeout: float, max_records: int) -> Fetched:
        asked.append(max_records)
        return {}

    thread: Any = rig.consumer._thread
    thread._consumer = SimpleNamespace(_max_poll_records=2000)
    thread.thread_loop, thread._fetch_records = asyncio.get_running_loop(), fetch
    await thread.getmany(active, 0.1)
    assert asked == [most]


async def test_partitions_that_are_not_active_are_left_out(rig: Rig) -> None:
    rig.consumer.pause_partitions({LOG[0]})
    [message] = await rig.messages({LOG[0]: [record(LOG[0], 7)], LOG[1]: [record(LOG[1], 1)]})
    assert of(message) == [(1, 1)]


async def test_partitions_whose_turn_to_be_recovered_has_not_come_are_not_fetched(rig: Rig) -> None:
    rig.app.transport.waiting = lambda: {1}
    found = {LOG[1]: [record(LOG[1], 1)], LOG[2]: [record(LOG[2], 4)], ROWS: [record(ROWS, 4)]}
    [message] = await rig.messages(found)
    assert of(message) == [(2, 4)]
    assert rig.merged == [(b"key", b"4")]


async def test_rows_are_merged_and_the_last_one_says_how_far_the_recovery_is(rig: Rig) -> None:
    rig.fetches.append({ROWS: [record(ROWS, 4), record(ROWS, 5)]})
    [last] = await rig.fetch()
    assert rig.merged == [(b"key", b"4"), (b"key", b"5")]
    assert (last.tp, last.offset, rig.passed_on) == (ROWS, 5, [])


@pytest.mark.parametrize(("earliest", "newest", "end", "begin"), [(3, 40, 60, 40), (3, 0, 60, 3), (3, 70, 60, 61)])
async def test_recovery_reads_what_comes_after_the_newest_checkpoint(
    rig: Rig, earliest: int, newest: int, end: int, begin: int
) -> None:
    async def from_broker(*tps: TP) -> Mapping[TP, int]:
        return dict.fromkeys(tps, earliest)

    async def load_newest(number: int) -> int:
        assert number == ROWS.partition
        return newest

    thread: Any = rig.consumer._thread
    thread.earliest_offsets, rig.app.transport.load_newest = from_broker, load_newest
    rig.app.tables.recovery.active_highwaters[ROWS] = end
    assert await rig.consumer.earliest_offsets(ROWS) == {ROWS: begin}


async def test_the_next_message_waits_until_the_agent_has_the_one_before(rig: Rig) -> None:
    rig.fetches += [{LOG[0]: [record(LOG[0], 0)]}, {LOG[0]: [record(LOG[0], 1)]}]
    await rig.fetch()
    waiting = asyncio.ensure_future(rig.fetch())
    for _ in range(10):
        await asyncio.sleep(0)
    [first] = rig.passed_on
    first.ack(rig.consumer)
    await waiting
    assert [of(message) for message in rig.passed_on] == [[(0, 0)], [(0, 1)]]


async def test_a_rebalance_ends_the_wait_and_drops_what_was_fetched_before_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.fetches += [{LOG[0]: [record(LOG[0], 0)]}, {LOG[0]: [record(LOG[0], 1)]}, {LOG[0]: [record(LOG[0], 5)]}]
    await rig.fetch()
    waiting = asyncio.ensure_future(rig.fetch())
    await asyncio.sleep(0)
    rig.consumer.stop_flow()
    await waiting
    monkeypatch.setattr(rig.consumer, "_seek_to_state", _nothing)
    await rig.consumer.perform_seek()
    rig.consumer.resume_flow()
    await rig.fetch()
    assert [of(message) for message in rig.passed_on] == [[(0, 0)], [(0, 5)]]


async def test_what_was_fetched_before_a_seek_is_dropped(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.consumer, "_seek_to_state", _nothing)
    rig.fetches += [{LOG[0]: [record(LOG[0], 0)]}, {LOG[0]: [record(LOG[0], 1)]}]
    await rig.fetch()
    waiting = asyncio.ensure_future(rig.fetch())
    while rig.fetches:
        await asyncio.sleep(0)
    await rig.consumer.perform_seek()
    await waiting
    assert [of(message) for message in rig.passed_on] == [[(0, 0)]]


async def test_an_ack_lets_the_offset_after_the_newest_record_of_each_partition_be_committed_once(rig: Rig) -> None:
    await rig.messages({LOG[0]: [record(LOG[0], 7), record(LOG[0], 8)], LOG[2]: [record(LOG[2], 3)]})
    await rig.messages({LOG[0]: [record(LOG[0], 9)]})
    assert rig.consumer._filter_committable_offsets(LOG) == {LOG[0]: 10, LOG[2]: 4}
    assert rig.consumer._filter_committable_offsets(LOG) == {}


async def test_what_is_read_again_is_not_committed_again(rig: Rig) -> None:
    rig.consumer._count_acks_from(LOG[0], 5, {LOG[0]: 9})
    await rig.messages({LOG[0]: [record(LOG[0], offset) for offset in range(5, 8)]})
    assert rig.consumer._filter_committable_offsets(LOG) == {}
    await rig.messages({LOG[0]: [record(LOG[0], offset) for offset in range(8, 11)]})
    assert rig.consumer._filter_committable_offsets(LOG) == {LOG[0]: 11}


async def _nothing() -> None:
    return None
