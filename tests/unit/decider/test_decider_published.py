"""Decisions on the topic beyond the recovered state."""

import hashlib
import logging
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
import pytest
from aiokafka import TopicPartition

from schemas.connection import KafkaSettings
from schemas.observed import AutoscalerSet
from schemas.topics import DECISIONS
from streams.decider import tail
from streams.decider.app import ending_on_error
from streams.decider.tail import BrokenChainError, RecordedTail, TailHead, TailReader
from streams.partition import Partition
from streams.state.partitionrow import PartitionRow
from tests.kit.partition import LogBuilder, make_hpa


class Record(NamedTuple):
    """A record of the decisions topic."""

    offset: int
    value: bytes


NOTHING = TailHead(0, "")


def chain(log_offsets: Sequence[int], seq: int = 0, prev: str = "") -> list[bytes]:
    """Decisions caused by these log offsets, chained."""
    values = []
    for number, log_offset in enumerate(log_offsets, start=seq + 1):
        value = orjson.dumps({"id": f"3-{log_offset}-uid-a-{number}", "seq": number, "prev": prev, "more": [1]})
        values.append(value)
        prev = digest(value)
    return values


def digest(value: bytes) -> str:
    """SHA-256 as the chain holds it."""
    return hashlib.sha256(value).hexdigest()


class Topic:
    """A decisions partition that hands out two records at a time."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self.records = [Record(offset, value) for offset, value in enumerate(values)]
        self.position = 0

    async def fetch(self) -> Sequence[Record]:
        """The next two records."""
        found = self.records[self.position : self.position + 2]
        self.position += len(found)
        return found

    def from_offset(self, begin: int, recovered: TailHead) -> RecordedTail:
        """Read this topic from an offset on."""
        self.position = begin

        async def earlier(missing: range) -> Sequence[Record]:
            found = {orjson.loads(record.value)["seq"]: record for record in self.records[:begin]}
            return [found[seq] for seq in missing if seq in found]

        return RecordedTail(3, recovered, begin, len(self.records), self.fetch, earlier)

    def published(self, recovered: TailHead = NOTHING, end: int | None = None) -> RecordedTail:
        """Read this topic from its first record."""
        return RecordedTail(3, recovered, 0, len(self.records) if end is None else end, self.fetch)


def numbers(found: object) -> list[int]:
    """Sequence numbers of the decisions found."""
    assert isinstance(found, dict)
    return [orjson.loads(value)["seq"] for value in found.values()]


async def test_each_log_offset_gets_the_decisions_that_it_caused() -> None:
    standing = Topic(chain([4, 4, 9])).published()
    assert [numbers(await standing.at(offset)) for offset in (3, 4, 5, 9, 10)] == [[], [1, 2], [], [3], []]


async def test_decisions_on_two_hpas_of_one_uid_are_recognized_where_a_restart_folds_their_record_again() -> None:
    """As in clusters that were restored from one backup, of which the namespaces share a partition."""
    log = LogBuilder()
    for name in ("web", "api"):
        hpa = make_hpa(name)
        hpa["metadata"]["uid"] = "one"
        log.add(AutoscalerSet(hpa=hpa, session="s"))
    for _ in range(3):
        log.add(after_ms=15_000)
    assert len({made.id for made in log.decisions}) < len(log.decisions)
    standing, partition = Topic([made.value for made in log.decisions]).published(), Partition.empty(0)
    for record in log.records:
        assert partition.apply(*record, await standing.at(record.offset)) == []
    assert (partition.seq, partition.prev) == (log.partition.seq, log.partition.prev)


async def test_no_more_is_read_than_the_fold_needs() -> None:
    topic = Topic(chain([1, 2, 3, 4, 5, 6]))
    standing = topic.published()
    await standing.at(1)
    assert topic.position == 2
    assert not standing.exhausted


async def test_decisions_that_the_recovered_state_knows_are_passed_over() -> None:
    values = chain([1, 2, 3])
    standing = Topic(values).published(TailHead(2, digest(values[1])))
    assert [numbers(await standing.at(offset)) for offset in (1, 2, 3)] == [[], [], [3]]


async def test_a_second_copy_of_the_same_bytes_is_harmless() -> None:
    values = chain([1, 2, 3])
    standing = Topic([*values[:2], values[0], values[1], values[2]]).published()
    assert [numbers(await standing.at(offset)) for offset in (1, 2, 3)] == [[1], [2], [3]]
    assert standing.duplicates == 2


async def test_records_that_came_after_the_partition_was_taken_over_are_our_own() -> None:
    standing = Topic(chain([1, 2, 3])).published(end=2)
    assert [numbers(await standing.at(offset)) for offset in (1, 2, 3)] == [[1], [2], []]
    assert standing.exhausted


async def fold_all(standing: RecordedTail) -> None:
    """Ask for every log offset, as the fold does."""
    for offset in range(-1, 10):
        await standing.at(offset)


ONE, TWO, THREE = chain([1, 2, 3])
OTHER_TWO = TWO.replace(b'"more":[1]', b'"more":[2]')


@pytest.mark.parametrize(
    ("values", "recovered", "reason"),
    [
        pytest.param([ONE, THREE], TailHead(0, ""), "number 3 follows number 1", id="a hole"),
        pytest.param([TWO], TailHead(0, ""), "number 2 follows number 0", id="a beginning that is missing"),
        pytest.param([ONE, TWO, OTHER_TWO], TailHead(0, ""), "second version of decision number 2", id="two versions"),
        pytest.param([ONE, OTHER_TWO, THREE], TailHead(0, ""), "does not name the record before", id="a broken chain"),
        pytest.param([ONE], TailHead(2, digest(TWO)), "decisions were lost", id="an end before the recovered state"),
        pytest.param(
            [], TailHead(2, digest(TWO)), "decisions were lost", id="an empty topic under a state that decided"
        ),
        pytest.param(
            [ONE, OTHER_TWO], TailHead(2, digest(TWO)), "not the one that the state follows", id="another past"
        ),
    ],
)
async def test_a_topic_that_does_not_continue_the_state_stops_the_worker(
    values: list[bytes], recovered: TailHead, reason: str
) -> None:
    standing = Topic(values).published(recovered)
    with pytest.raises(BrokenChainError, match=reason):
        await fold_all(standing)


TEN = chain([1, 1, 2, 3, 5, 5, 5, 8, 9, 9])
"""Numbers 1 to 10."""


def in_turns(*runs: tuple[int, int]) -> list[bytes]:
    """What two deciders of one name have written by turns: numbers from one to another, and the same ones again."""
    return [value for first, last in runs for value in TEN[first - 1 : last]]


@pytest.mark.parametrize(
    ("runs", "begin", "recovered"),
    [
        pytest.param([(1, 7), (4, 6), (8, 10)], 7, 9, id="a hole among those that the state knows"),
        pytest.param([(1, 7), (4, 6), (8, 10)], 7, 6, id="the missing one is before the begin"),
        pytest.param([(1, 9), (4, 5), (10, 10)], 9, 5, id="many that are missing are before the begin"),
        pytest.param([(1, 5), (2, 4), (6, 8), (5, 7), (9, 10)], 6, 4, id="more than once"),
        pytest.param([(1, 5), (2, 4), (6, 8), (5, 7), (9, 10)], 11, 7, id="at the end of the second run"),
    ],
)
async def test_what_two_of_one_name_wrote_by_turns_is_read_as_one_chain(
    runs: list[tuple[int, int]], begin: int, recovered: int
) -> None:
    standing = Topic(in_turns(*runs)).from_offset(begin, TailHead(recovered, digest(TEN[recovered - 1])))
    found = [number for offset in range(-1, 10) for number in numbers(await standing.at(offset))]
    assert found == list(range(recovered + 1, 11))
    assert standing.finished


@pytest.mark.parametrize("recovered", [1, 4, 6])
async def test_what_is_nowhere_is_lost(recovered: int) -> None:
    values = [value for value in in_turns((1, 6), (4, 5), (8, 10)) if value != TEN[6]]
    standing = Topic(values).from_offset(6, TailHead(recovered, digest(TEN[recovered - 1])))
    with pytest.raises(BrokenChainError, match="number 8 follows number 6: decisions were lost"):
        await fold_all(standing)


@pytest.mark.parametrize(
    ("values", "code", "stated"),
    [
        pytest.param([ONE, THREE], 78, "delete the decisions topic with the changelog", id="a hole"),
        pytest.param([ONE, OTHER_TWO, THREE], 70, "does not name the record before", id="a broken chain"),
    ],
)
async def test_a_refold_that_meets_a_fault_of_the_topic_ends_with_the_next_step(
    values: list[bytes], code: int, stated: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def leave(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    standing = Topic(values).published(TailHead(0, ""))
    with pytest.raises(SystemExit) as ended, ending_on_error():
        await fold_all(standing)
    assert ended.value.code == code
    assert stated in capsys.readouterr().err


class Brokers:
    """A consumer of a decisions partition of which the first records may have expired; gives two records at a time."""

    def __init__(self, values: Sequence[bytes], first: int = 0) -> None:
        self.records = [Record(offset, value) for offset, value in enumerate(values, start=first)]
        self.first, self.end = first, first + len(values)
        self.at, self.is_paused = -1, False
        self.read = 0

    async def start(self) -> None:
        pass

    async def beginning_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.first if tp.topic == DECISIONS else 0 for tp in tps}

    async def end_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.end if tp.topic == DECISIONS else 0 for tp in tps}

    def assign(self, tps: Sequence[TopicPartition]) -> None:
        pass

    def seek(self, tp: TopicPartition, offset: int) -> None:
        assert self.first <= offset <= self.end
        self.at = offset

    def pause(self, tp: TopicPartition) -> None:
        self.is_paused = True

    def resume(self, tp: TopicPartition) -> None:
        self.is_paused = False

    async def position(self, tp: TopicPartition) -> int:
        return self.at

    async def getmany(
        self, tp: TopicPartition, timeout_ms: int, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record]]:
        found = [record for record in self.records if record.offset >= self.at][:2]
        self.at += len(found)
        self.read += len(found)
        return {tp: found}


FIVE = chain([1, 2, 3, 4, 5])


@pytest.mark.parametrize(
    ("values", "first", "read"),
    [
        pytest.param(FIVE, 0, 2, id="all"),
        pytest.param([*FIVE[:2], *FIVE[:4], *FIVE[2:]], 0, 6, id="with copies"),
        pytest.param(FIVE[3:], 3, 2, id="the older ones have expired"),
        pytest.param(FIVE[2:], 0, 5, id="the topic was made anew under a running decider"),
        pytest.param([FIVE[0], *FIVE[2:]], 0, 4, id="one before was lost"),
        pytest.param([*FIVE[3:], *chain([6] * 9, 5, digest(FIVE[4]))], 0, 13, id="made anew, and has grown"),
    ],
)
async def test_the_decision_that_a_state_follows_from_is_found(
    values: list[bytes], first: int, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers: Any = Brokers(values, first)
    monkeypatch.setattr(tail, "new_consumer", lambda *_, **__: brokers)
    row = PartitionRow(number=3, seq=4, prev=digest(FIVE[3]))
    reader = TailReader(KafkaSettings())
    await reader.start([row])
    standing = reader.published(3, TailHead(row.seq, row.prev))
    assert [numbers(await standing.at(offset)) for offset in (4, 5)] == [[], [5]]
    assert brokers.read <= read


async def test_where_nothing_was_decided_for_so_long_that_all_decisions_have_expired_the_next_one_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tail, "new_consumer", lambda *_, **__: Brokers([], first=5))
    row = PartitionRow(number=3, seq=5, prev=digest(FIVE[4]))
    reader = TailReader(KafkaSettings())
    await reader.start([row])
    standing = reader.published(3, TailHead(row.seq, row.prev))
    assert [numbers(await standing.at(offset)) for offset in (-1, 5)] == [[], []]
    assert standing.finished


@pytest.mark.parametrize(
    ("values", "first"),
    [
        pytest.param([], 0, id="the topic was made anew"),
        pytest.param([], 2, id="the topic was made anew, and all have expired"),
        pytest.param(FIVE[:2], 0, id="the newest are lost"),
        pytest.param(FIVE[4:], 0, id="the topic was made anew, and the one that the state follows from is lost"),
    ],
)
async def test_where_the_topic_lacks_the_decision_that_a_state_follows_from_that_is_an_error(
    values: list[bytes], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers: Any = Brokers(values, first)
    monkeypatch.setattr(tail, "new_consumer", lambda *_, **__: brokers)
    row = PartitionRow(number=3, seq=3, prev=digest(FIVE[2]))
    reader = TailReader(KafkaSettings())
    await reader.start([row])
    with pytest.raises(BrokenChainError):
        await fold_all(reader.published(3, TailHead(row.seq, row.prev)))


async def test_a_decision_before_the_begin_is_read_back_and_reading_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A topic that was made anew, in which two of one name have written by turns: offsets say nothing of numbers."""
    values = chain([1] * 20)
    runs = [*values[10:17], *values[13:16], *values[17:20]]
    brokers: Any = Brokers(runs, 0)
    monkeypatch.setattr(tail, "new_consumer", lambda *_, **__: brokers)
    reader = TailReader(KafkaSettings())
    await reader.start([PartitionRow(number=3, seq=15, prev=digest(values[14]))])
    standing = reader.published(3, TailHead(15, digest(values[14])))
    assert sorted(numbers(await standing.at(1))) == [16, 17, 18, 19, 20]
    assert (standing.finished, brokers.is_paused) == (True, False)
