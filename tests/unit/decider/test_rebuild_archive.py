"""A rebuild from an archive: the state is what it was, and an archive that cannot give it is recognised."""

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from runtime.kafkaclients import OffsetBounds
from schemas.topics import DECISIONS as DECISIONS_TOPIC
from schemas.topics import LOG as LOG_TOPIC
from streams.archive.layout import DECISIONS, LOG, ArchivedRecord
from streams.decider import rebuild as fromarchive
from streams.decider.rebuild import ArchivedState, archived_state, check_decision, check_reach, check_record, head_after
from streams.decider.strict import StartError
from streams.decider.tail import TailHead
from streams.history.archivepast import ArchivePast
from streams.partition import Partition
from tests.kit.archive import SMALL, Topics, topics_of, write_archive

NUMBER = 1
TP = TopicPartition(DECISIONS_TOPIC, NUMBER)


@pytest.fixture(scope="module")
def made() -> Topics:
    return topics_of(SMALL)


@pytest.fixture(scope="module")
def source(made: Topics, tmp_path_factory: pytest.TempPathFactory) -> ArchivePast:
    return ArchivePast(write_archive(tmp_path_factory.mktemp("a") / "archive", topics=made), checked=True)


def decisions_of(partition: Partition, records: Iterable[ArchivedRecord]) -> list[bytes]:
    return [made.value for each in records for made in partition.apply(each.offset, each.timestamp_ms, each.value)]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
async def test_the_decisions_go_on_as_if_nothing_had_been(made: Topics, source: ArchivePast, share: float) -> None:
    records = made[LOG, NUMBER]
    upto = round((len(records) - 1) * share)
    state = await archived_state(source, NUMBER, upto)
    assert state.applied_offset == upto
    *_, last = state.rows
    assert last == b"%d|p" % NUMBER
    undisturbed = Partition.empty(NUMBER)
    decisions_of(undisturbed, records[: upto + 1])
    rebuilt = Partition.restore(NUMBER, state.rows)
    assert (rebuilt.seq, rebuilt.prev, rebuilt.log_hash) == (*state.head, undisturbed.log_hash)
    assert decisions_of(rebuilt, records[upto + 1 :]) == decisions_of(undisturbed, records[upto + 1 :])


async def test_an_archive_that_ends_early_gives_what_it_has(made: Topics, source: ArchivePast) -> None:
    end = len(made[LOG, NUMBER])
    assert (await archived_state(source, NUMBER, end + 100)).applied_offset == end - 1


async def test_an_archive_that_begins_late_needs_a_snapshot(made: Topics, tmp_path: Path) -> None:
    late: Topics = {key: [each for each in records if each.offset >= 40] for key, records in made.items()}
    source = ArchivePast(write_archive(tmp_path / "late", topics=late))
    for path in (source.root / "snapshots").rglob("*.rows"):
        path.unlink()
    with pytest.raises(StartError, match="begins at offset 40: earlier records are gone"):
        await archived_state(source, NUMBER, 60)


def state(applied: int, head: TailHead) -> ArchivedState:
    return ArchivedState({}, applied, head)


@pytest.mark.parametrize(
    ("applied", "seq", "stated"),
    [
        pytest.param(9, 5, "", id="it reaches the record before the log's first"),
        pytest.param(30, 7, "", id="it reaches into the log, up to the newest decision"),
        pytest.param(8, 5, "ends at log offset 8, the log begins at 10", id="a record is in neither"),
        pytest.param(-1, 0, "holds no log record, the log begins at 10", id="an empty archive"),
        pytest.param(9, 8, "ends with number 7", id="it knows of a decision that does not stand"),
    ],
)
def test_the_archive_must_reach_the_log_and_no_further_than_the_decisions(
    source: ArchivePast, applied: int, seq: int, stated: str
) -> None:
    found = state(applied, TailHead(seq, "digest"))
    if not stated:
        check_reach(source, NUMBER, found, OffsetBounds(10, 50), TailHead(7, "digest"))
        return
    with pytest.raises(StartError, match=stated) as caught:
        check_reach(source, NUMBER, found, OffsetBounds(10, 50), TailHead(7, "digest"))
    assert "without --archive, --rebuild begins anew" in str(caught.value)


def test_an_archive_may_lead_to_a_decision_that_has_expired_with_all_others(source: ArchivePast) -> None:
    newest = head_after(TailHead(0, ""), OffsetBounds(7, 7))
    check_reach(source, NUMBER, state(9, TailHead(7, "digest")), OffsetBounds(10, 50), newest)
    with pytest.raises(StartError, match="leads to decision number 8"):
        check_reach(source, NUMBER, state(9, TailHead(8, "digest")), OffsetBounds(10, 50), newest)


@pytest.mark.parametrize(
    ("first", "is_other", "is_refused"),
    [
        pytest.param(10, False, False, id="the same record"),
        pytest.param(10, True, True, id="another record"),
        pytest.param(10_000, False, True, id="the archive ends before"),
    ],
)
async def test_where_all_decisions_have_expired_the_first_record_of_the_log_shows_whose_archive_it_is(
    made: Topics, source: ArchivePast, monkeypatch: pytest.MonkeyPatch, first: int, is_other: bool, is_refused: bool
) -> None:
    async def read_range(consumer: Any, tp: TopicPartition, begin: int, end: int) -> AsyncIterator[Any]:
        assert end == begin + 1
        for record in made[LOG, NUMBER][begin:end]:
            yield SimpleNamespace(offset=record.offset, value=record.value + b" " * is_other)

    monkeypatch.setattr(fromarchive, "read_range", read_range)
    consumer: Any = None
    checked = check_record(consumer, TopicPartition(LOG_TOPIC, NUMBER), OffsetBounds(first, first + 50), source)
    if not is_refused:
        await checked
        return
    with pytest.raises(StartError, match=f"does not hold the record at log offset {first}"):
        await checked


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch, made: Topics) -> OffsetBounds:
    """The decisions topic, which holds what the archive does."""
    records = made[DECISIONS, NUMBER]

    async def read_range(consumer: Any, tp: TopicPartition, first: int, end: int) -> AsyncIterator[Any]:
        assert tp == TP
        for record in records[first:end]:
            yield SimpleNamespace(offset=record.offset, value=record.value)

    monkeypatch.setattr(fromarchive, "read_range", read_range)
    return OffsetBounds(0, len(records))


async def test_the_decision_that_the_state_follows_from_is_found(
    topic: OffsetBounds, made: Topics, source: ArchivePast
) -> None:
    found = await archived_state(source, NUMBER, len(made[LOG, NUMBER]) // 2)
    consumer: Any = None
    await check_decision(consumer, TP, topic, source, found)
    await check_decision(consumer, TP, OffsetBounds(3, 9), source, state(5, TailHead(0, "")))


@pytest.mark.parametrize(
    ("seq", "bounds", "stated"),
    [
        pytest.param(
            5, (0, 20), "another decision number 5 than the topic has: it is of another log", id="another log"
        ),
        pytest.param(5, (0, 4), "decision number 5, which fleethpa.decisions does not hold", id="it does not stand"),
    ],
)
async def test_an_archive_of_another_log_is_refused(
    topic: OffsetBounds, source: ArchivePast, seq: int, bounds: tuple[int, int], stated: str
) -> None:
    consumer: Any = None
    with pytest.raises(StartError, match=stated):
        await check_decision(consumer, TP, OffsetBounds(*bounds), source, state(9, TailHead(seq, "another")))
