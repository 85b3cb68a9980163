"""Taking partitions over while takes of what was fetched before are still under way."""

import asyncio
import gc
import weakref
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runtime.kafkaclients import OffsetBounds
from schemas.connection import KafkaSettings
from streams.decider import assignment
from streams.decider.assignment import DeciderConfig
from streams.decider.owned import OwnedPartition
from streams.decider.tail import Exit, Fence, LastRecord, RecordedTail, TailHead, TailReader
from streams.partition import Partition
from streams.state.partitionrow import PartitionRow
from streams.state.rowcodec import APPLIED_BYTES, WholeCheckpoints, applied_prefix
from tests.kit.generated_log import Fleet, partition_log

CONFIG = DeciderConfig(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:9"))


class SlowReader(TailReader):
    """A reader of an empty decisions topic, which takes its time to connect."""

    def __init__(self, *_: object) -> None:
        self.go_on = asyncio.Event()
        self.stops = 0
        self._published = []
        self.log = dict.fromkeys(range(3), OffsetBounds(0, 0))
        self.applied = {}

    async def start(self, rows: Iterable[PartitionRow]) -> None:
        await self.go_on.wait()

    async def stop(self) -> None:
        self.stops += 1

    def published(self, number: int, recovered: TailHead) -> RecordedTail:
        async def nothing() -> list[Any]:
            return []

        published = RecordedTail(number, TailHead(0, ""), 0, 0, nothing)
        self._published.append(published)
        return published


async def test_a_take_while_partitions_are_loaded_leaves_their_reader_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = SlowReader()
    monkeypatch.setattr(assignment, "TailReader", lambda *_: reader)
    owner = assignment.Assignment(CONFIG, 1, Fence(60.0), checkpoints=lambda: WholeCheckpoints({}))
    loading = asyncio.create_task(owner.load([0]))
    await asyncio.sleep(0)
    await owner.after_batch()
    assert reader.stops == 0
    reader.go_on.set()
    assert await loading == {0: 0}
    await owner.after_batch()
    assert reader.stops == 0
    owner.own_loaded()
    await owner.after_batch()
    assert reader.stops == 1


LOG_RECORDS = 25


def stored_rows(number: int) -> dict[bytes, bytes]:
    """The rows of a partition of a few HPAs, as a checkpoint left them."""
    partition = Partition.empty(number)
    for record in partition_log(Fleet(hpas=3, namespaces=2, minutes=1))[:LOG_RECORDS]:
        partition.apply(*record)
    return dict(partition.checkpoint())


async def nothing_to_write(_: Iterable[OwnedPartition]) -> None:
    """A checkpoint of what has not changed since the one before."""


class PromptReader(SlowReader):
    """The same, without a delay, beside a log that continues after the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on.set()
        self.log = dict.fromkeys(range(3), OffsetBounds(0, LOG_RECORDS))


async def test_rows_of_owned_partitions_are_not_held_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "TailReader", lambda *_: PromptReader())
    before, other = stored_rows(number=1), stored_rows(number=2)
    table = {**before, **other}
    owner = assignment.Assignment(CONFIG, 3, Fence(60.0), checkpoints=lambda: WholeCheckpoints(table))
    assert await owner.load([1]) == {1: LOG_RECORDS}
    assert table == {**before, **other}  # as long as another assignment may come before this one is taken over
    owner.own_loaded()
    assert table == other
    await owner.leave(nothing_to_write)
    assert table == {**before, **other}
    assert not owner.owned
    assert await owner.load([1]) == {1: LOG_RECORDS}


async def test_the_first_checkpoint_begins_with_the_rows_of_which_a_torn_one_left_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assignment, "TailReader", lambda *_: PromptReader())
    before, checkpoints = stored_rows(number=1), WholeCheckpoints({})
    for key, value in before.items():
        checkpoints.add(key, value)
    hpa, own = next(key for key in before if key.startswith(b"1|h/")), b"1|p"
    checkpoints.add(hpa, applied_prefix(LOG_RECORDS + 3) + before[hpa][APPLIED_BYTES:])
    checkpoints.end()
    owner = assignment.Assignment(CONFIG, 3, Fence(60.0), checkpoints=lambda: checkpoints)
    await owner.load([1])
    assert await owner.load([1]) == {1: LOG_RECORDS}  # as where another assignment comes before the take-over
    owner.own_loaded()
    assert not checkpoints.torn
    partition = owner.owned[1].partition
    assert partition.checkpoint()[:2] == [(hpa, before[hpa]), (own, before[own])]
    assert partition.checkpoint()[0] != (hpa, before[hpa])


async def test_no_cycles_are_looked_for_while_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[bool] = []

    def restored(number: int, rows: Mapping[bytes, bytes], torn: Collection[bytes]) -> Partition:
        searched.append(gc.isenabled())
        return Partition.restore(number, rows, torn)

    monkeypatch.setattr(assignment, "TailReader", lambda *_: PromptReader())
    monkeypatch.setattr(assignment, "restored", restored)
    owner = assignment.Assignment(CONFIG, 3, Fence(60.0), checkpoints=lambda: WholeCheckpoints(stored_rows(number=1)))
    assert gc.isenabled()
    await owner.load([1])
    assert searched == [False]
    assert gc.isenabled()


async def apply(owned: OwnedPartition, *records: tuple[int, int, bytes]) -> None:
    for offset, timestamp_ms, value in records:
        await owned.fold(cast(Any, SimpleNamespace(offset=offset, timestamp=timestamp_ms, value=value)))


async def test_partitions_are_recovered_one_after_another_the_one_with_the_shortest_way_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class GrownReader(PromptReader):
        def __init__(self) -> None:
            super().__init__()
            self.log = {number: OffsetBounds(0, LOG_RECORDS + more) for number, more in enumerate((0, 3, 2))}

    monkeypatch.setattr(assignment, "TailReader", lambda *_: GrownReader())
    records = partition_log(Fleet(hpas=3, namespaces=2, minutes=1))[LOG_RECORDS:]
    stored = [stored_rows(number) for number in range(3)]
    table = {key: value for rows in stored for key, value in rows.items()}
    owner = assignment.Assignment(CONFIG, 3, Fence(60.0), checkpoints=lambda: WholeCheckpoints(table))
    assert await owner.load([0, 1, 2]) == dict.fromkeys(range(3), LOG_RECORDS)
    owner.own_loaded()
    assert (list(owner.owned), list(owner.waiting), table) == ([0, 2], [1], stored[1])
    await apply(owner.owned[2], records[0])
    await owner.after_batch()
    assert list(owner.waiting) == [1]
    await apply(owner.owned[2], records[1])
    await owner.after_batch()
    assert (list(owner.owned), list(owner.waiting), table) == ([0, 2, 1], [], {})
    await apply(owner.owned[1], *records[:3])


async def test_the_rows_of_a_partition_that_was_not_recovered_yet_stay_for_the_next_assignment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class GrownReader(PromptReader):
        def __init__(self) -> None:
            super().__init__()
            self.log = dict.fromkeys(range(3), OffsetBounds(0, LOG_RECORDS + 1))

    monkeypatch.setattr(assignment, "TailReader", lambda *_: GrownReader())
    before = {**stored_rows(1), **stored_rows(2)}
    table, own = {**before}, b"2|p"
    checkpoints = WholeCheckpoints(table)
    checkpoints.torn[2] = [own]
    owner = assignment.Assignment(CONFIG, 3, Fence(60.0), checkpoints=lambda: checkpoints)
    await owner.load([1, 2])
    owner.own_loaded()
    assert list(owner.waiting) == [2]
    await owner.leave(nothing_to_write)
    assert (table, checkpoints.torn, owner.waiting) == (before, {2: [own]}, {})
    assert await owner.load([2]) == {2: LOG_RECORDS}
    owner.own_loaded()
    assert owner.owned[2].partition.checkpoint()[0] == (own, before[own])


async def test_nothing_holds_the_state_of_a_partition_that_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "TailReader", lambda *_: PromptReader())
    table = stored_rows(number=1)
    owner = assignment.Assignment(CONFIG, 3, Fence(60.0), checkpoints=lambda: WholeCheckpoints(table))
    await owner.load([1])
    owner.own_loaded()
    state = weakref.ref(owner.owned[1].partition)
    await owner.leave(nothing_to_write)
    gc.collect()
    assert state() is None


async def test_rows_are_not_put_back_at_the_end_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "TailReader", lambda *_: PromptReader())
    table = stored_rows(number=1)
    owner = assignment.Assignment(CONFIG, 3, Fence(60.0), checkpoints=lambda: WholeCheckpoints(table))
    await owner.load([1])
    owner.own_loaded()
    await owner.leave(nothing_to_write, for_good=True)
    assert not table


async def test_partitions_that_were_never_given_up_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    class EndedError(Exception):
        pass

    def die(code: Exit, reason: str) -> None:
        assert code == Exit.STALLED
        raise EndedError

    monkeypatch.setattr(assignment, "TailReader", lambda *_: PromptReader())
    monkeypatch.setattr(assignment, "die", die)
    table = stored_rows(number=1)
    owner = assignment.Assignment(CONFIG, 3, Fence(60.0), checkpoints=lambda: WholeCheckpoints(table))
    await owner.load([1])
    owner.own_loaded()
    with pytest.raises(EndedError):
        await owner.load([1])


@pytest.mark.parametrize("cut", [False, True], ids=["the same log", "a log that was cut and has grown again"])
async def test_the_record_that_the_state_goes_up_to_is_compared_with_the_log(
    monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    class EndedError(Exception):
        pass

    def die(code: Exit, reason: str) -> None:
        raise EndedError(int(code), reason)

    record = partition_log(Fleet(hpas=3, namespaces=2, minutes=1))[LOG_RECORDS - 1]
    found = LastRecord(record[1], sha256(b"another" if cut else record[2]).digest())

    class GrownReader(PromptReader):
        def __init__(self) -> None:
            super().__init__()
            self.applied = {1: found}

    monkeypatch.setattr(assignment, "TailReader", lambda *_: GrownReader())
    monkeypatch.setattr(assignment, "die", die)
    rows = stored_rows(number=1)
    owner = assignment.Assignment(CONFIG, 3, Fence(60.0), checkpoints=lambda: WholeCheckpoints(rows))
    if not cut:
        assert await owner.load([1]) == {1: LOG_RECORDS}
        return
    with pytest.raises(EndedError) as ended:
        await owner.load([1])
    code, reason = ended.value.args
    assert code == Exit.NEEDS_OPERATOR
    for reported in (
        sha256(record[2]).hexdigest(),
        found.digest.hex(),
        f"at offset {LOG_RECORDS - 1}",
        "Next: put back",
    ):
        assert reported in reason


async def test_where_decisions_were_lost_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is folded anew, and what the topic lacks is published again."""

    class EndedError(Exception):
        pass

    def die(code: Exit, reason: str) -> None:
        raise EndedError(int(code), reason)

    class EmptyReader(PromptReader):
        def published(self, number: int, recovered: TailHead) -> RecordedTail:
            return RecordedTail(number, TailHead(7, "hash"), 0, 0, list)  # type: ignore[arg-type]

    monkeypatch.setattr(assignment, "TailReader", lambda *_: EmptyReader())
    monkeypatch.setattr(assignment, "die", die)
    rows = stored_rows(number=1)
    with pytest.raises(EndedError) as ended:
        await assignment.Assignment(CONFIG, 3, Fence(60.0), checkpoints=lambda: WholeCheckpoints(rows)).load([1])
    code, reason = ended.value.args
    assert code == Exit.NEEDS_OPERATOR
    assert "decisions were lost. Stop all deciders, delete the changelog topic" in reason


def test_a_record_that_has_expired_is_not_compared() -> None:
    partition = Partition.restore(1, stored_rows(number=1))
    assignment.check_same_log(partition.state.row, None)
