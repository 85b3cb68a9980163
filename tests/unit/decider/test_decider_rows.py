"""State rows in the table and on the changelog: which copy wins, what is written, and in which order."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import faust
import pytest
from faust.types import TP
from hypothesis import given
from hypothesis import strategies as st

from streams.decider import batches, owned
from streams.decider.app import RowStore, StateTable
from streams.decider.assignment import DeciderConfig
from streams.decider.batches import Batches
from streams.decider.metrics import Metrics
from streams.decider.owned import BatchWriter, OwnedPartition, all_written, queue_checkpoint
from streams.state.partitionrow import PartitionRow
from streams.state.rowcodec import applied_offset, applied_prefix, encode_row, merge_row, rows_by_partition
from tests.kafka.chaos import armed
from tests.kafka.chaos.armed import CrashPoint
from tests.patience import PATIENCE_S


@pytest.mark.parametrize("offset", [-1, 0, 1, 255, 2**40])
def test_an_applied_offset_reads_back(offset: int) -> None:
    assert applied_offset(applied_prefix(offset) + b"body") == offset


@given(st.permutations([(-1, b"a"), (3, b"b"), (7, b"c"), (7, b"c"), (200, b"d"), (70_000, b"e")]))
def test_the_copy_that_has_applied_most_wins_in_any_order(copies: list[tuple[int, bytes]]) -> None:
    rows: dict[bytes, bytes] = {}
    for applied, body in copies:
        merge_row(rows, b"0|p", applied_prefix(applied) + body)
    assert rows == {b"0|p": applied_prefix(70_000) + b"e"}


def own_row(offset: int, *, rows_written: int = 0) -> bytes:
    """The partition's own row, the last one of a checkpoint."""
    return encode_row(offset, PartitionRow(number=1, offset=offset, rows_written=rows_written))


@pytest.fixture
def store() -> RowStore:
    app = faust.App("test", broker="kafka://127.0.0.1:1", store="memory://", Table=StateTable, web_enabled=False)
    return cast(RowStore, app.Table("state", key_type=bytes, value_type=bytes).data)


async def test_recovery_merges_and_keeps_only_own_partitions(store: RowStore) -> None:
    old, new, other = own_row(4), own_row(5), own_row(9)
    for key, value in ((b"1|p", new), (b"1|p", old), (b"12|p", other)):
        store.merge(key, value)
    await store.on_recovery_completed({TP("changelog", 1)}, set())
    assert dict(store.data) == {b"1|p": new}


async def test_recovery_passes_over_what_a_crash_has_left_of_a_checkpoint(store: RowStore) -> None:
    def at(offset: int) -> bytes:
        return applied_prefix(offset) + b"row"

    first = {b"1|h/c/n/a": at(5), b"1|n/c/n#0": at(5), b"1|p": own_row(5, rows_written=2)}
    torn = {b"1|h/c/n/a": at(9), b"1|h/c/n/b": at(9)}
    second = {b"1|n/c/n#0": at(7), b"1|p": own_row(7, rows_written=1)}
    for key, value in (*first.items(), *torn.items(), *second.items(), *torn.items()):
        store.merge(key, value)
    await store.on_recovery_completed({TP("changelog", 1)}, set())
    assert dict(store.data) == first | second


async def test_recovery_takes_each_of_two_checkpoints_that_came_at_once_whole(store: RowStore) -> None:
    """The first is of a worker that was taken for dead while it wrote."""

    first, second = [{b"1|h/c/n/a": applied_prefix(at) + b"row", b"1|p": own_row(at, rows_written=1)} for at in (9, 7)]
    for key, value in (*list(first.items())[:1], *second.items(), *list(first.items())[1:]):
        store.merge(key, value)
    await store.on_recovery_completed({TP("changelog", 1)}, set())
    assert dict(store.data) == first


def test_rows_are_distinguished_by_their_whole_partition_number() -> None:
    rows = {b"1|p": b"a", b"11|p": b"b", b"1|h/x/y/z": b"c", b"2|p": b"d"}
    assert rows_by_partition(rows, [1, 3]) == {1: {b"1|p": b"a", b"1|h/x/y/z": b"c"}, 3: {}}


@dataclass
class FakePartition:
    """The part of the core's machine that a checkpoint touches."""

    number: int = 2
    applied_offset: int = 41
    every: int = 1
    rows: list[tuple[bytes, bytes]] = field(
        default_factory=lambda: [
            (b"2|h/c/n/a", applied_prefix(41) + b"hpa"),
            (b"2|n/c/n#0", applied_prefix(41) + b"namespace"),
            (b"2|p", applied_prefix(41) + b"partition"),
        ]
    )

    def checkpoint(self) -> list[tuple[bytes, bytes]]:
        return self.rows


class FakeBatch:
    """Holds two records."""

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []

    def append(self, *, timestamp: None, key: bytes | None, value: bytes, headers: object) -> object | None:
        if len(self.keys) == 2:
            return None
        self.keys.append(key)
        return self

    def close(self) -> None:
        pass


class FakeProducer:
    """Takes batches as aiokafka's producer does, and runs a hook after each."""

    def __init__(self, after: Callable[[int], Awaitable[None] | None] = lambda _: None) -> None:
        self.sent: list[tuple[str, bytes | None, int]] = []
        self._after = after

    async def send_batch(self, batch: FakeBatch, topic: str, *, partition: int) -> "asyncio.Future[Any]":
        first = len(self.sent)
        self.sent += [(topic, key, partition) for key in batch.keys]
        self._after(len(self.sent))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result(SimpleNamespace(offset=first))
        return future


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned, "new_batch", FakeBatch)


def owned_partition() -> OwnedPartition:
    return OwnedPartition(cast(Any, FakePartition()), cast(Any, None))


async def write(producer: FakeProducer, ours: Callable[[], bool] = lambda: True) -> int:
    writer = BatchWriter(producer, "c", 2)
    row_bytes = await queue_checkpoint(owned_partition(), writer, ours)
    await all_written([writer])
    return row_bytes


async def test_a_checkpoint_writes_the_cores_rows_in_order() -> None:
    producer = FakeProducer()
    await write(producer)
    assert producer.sent == [("c", key, 2) for key in (b"2|h/c/n/a", b"2|n/c/n#0", b"2|p")]


async def test_a_checkpoint_of_a_partition_that_was_lost_meanwhile_stops_at_a_prefix() -> None:
    ours = [True]
    producer = FakeProducer(after=lambda sent: ours.__setitem__(0, sent < 2))
    await write(producer, ours=lambda: ours[0])
    assert [key for _, key, _ in producer.sent] == [b"2|h/c/n/a", b"2|n/c/n#0"]


class TogetherProducer(FakeProducer):
    """Answers once something of two partitions was sent."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    async def send_batch(self, batch: FakeBatch, topic: str, *, partition: int) -> "asyncio.Future[Any]":
        await super().send_batch(batch, topic, partition=partition)
        found = self._waiting.setdefault(partition, asyncio.get_running_loop().create_future())
        if len(self._waiting) == 2:
            for future in self._waiting.values():
                if not future.done():
                    future.set_result(None)
        return found


async def test_checkpoints_that_are_due_together_are_waited_for_together() -> None:
    first, second = owned_partition(), owned_partition()
    cast(Any, second.partition).number = 3
    producer, metrics = TogetherProducer(), Metrics()
    around: Any = SimpleNamespace(epoch=1, check=lambda: None)
    worker = Batches(DeciderConfig(), around, around, metrics, producer=lambda: producer, generation=lambda: 1)
    async with asyncio.timeout(PATIENCE_S):
        await worker.checkpoint([first, second])
    assert [(key, partition) for _, key, partition in producer.sent] == [
        *((key, 2) for key in (b"2|h/c/n/a", b"2|n/c/n#0", b"2|p")),
        *((key, 3) for key in (b"2|h/c/n/a", b"2|n/c/n#0", b"2|p")),
    ]
    assert b"fleethpa_checkpoint_seconds_count 1.0" in metrics.exposition()


async def test_many_decisions_of_a_take_are_published_before_more_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MOST_PENDING", 3)
    made = [[f"{record}-{decision}" for decision in range(2)] for record in range(5)]
    steps: list[str] = []

    async def fold(record: Any) -> Any:
        steps.append("fold")
        return made[record.offset]

    around: Any = SimpleNamespace(owned={2: SimpleNamespace(fold=fold)}, check_partitions=lambda: None)
    worker = Batches(DeciderConfig(), around, around, Metrics(), producer=lambda: None, generation=lambda: 1)
    records: Any = [SimpleNamespace(partition=2, offset=offset) for offset in range(5)]
    published: list[Any] = []
    async for part in worker._folded(records):
        steps.append("publish")
        published += [decision for _, decision in part]
    assert steps == ["fold", "fold", "publish", "fold", "fold", "publish", "fold", "publish"]
    assert published == [decision for each in made for decision in each]


async def test_a_crash_in_a_checkpoint_comes_after_the_named_row(monkeypatch: pytest.MonkeyPatch) -> None:
    class CrashedError(Exception):
        pass

    def crash() -> None:
        raise CrashedError

    monkeypatch.setattr(armed, "crash", crash)
    monkeypatch.setattr(BatchWriter, "add", BatchWriter.add)  # as it was, when the test ends
    armed.arm_rows(BatchWriter, CrashPoint("checkpoint-row:2"), "c")
    producer = FakeProducer()
    with pytest.raises(CrashedError):
        await write(producer)
    assert [key for _, key, _ in producer.sent] == [b"2|h/c/n/a", b"2|n/c/n#0"]


def test_an_armed_step_is_due_once_at_its_turn() -> None:
    point = CrashPoint("after-publish*2")
    steps = ["after-publish", "before-publish", "after-publish", "after-publish"]
    assert [point.is_due(step) for step in steps] == [False, False, True, False]
    assert not CrashPoint("").is_due("after-publish")
