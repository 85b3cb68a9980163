"""Checkpoints on the changelog topic: whatever compaction left of them, folding on gives the recorded decisions."""

from __future__ import annotations

import random

import pytest

from schemas.topics import CHANGELOG, DECISIONS, LOG
from streams.history.checkpoints import CheckpointRows
from streams.state.partition import Partition
from tests.questions_kit import FLEET, TopicRecord, world

Rows = list[tuple[bytes, bytes | None]]


@pytest.fixture(scope="module")
def records() -> list[TopicRecord]:
    return world()


def _of(records: list[TopicRecord], topic: str, number: int) -> list[TopicRecord]:
    return [each for each in records if (each.topic, each.partition) == (topic, number)]


def _changelog(records: list[TopicRecord], number: int) -> Rows:
    return [(each.key or b"", each.value) for each in _of(records, CHANGELOG, number)]


def _taken(
    rows: Rows, number: int, below: int | None = None, before_ms: int | None = None, least: int | None = None
) -> dict[bytes, bytes]:
    wanted = CheckpointRows(number, below=below, before_ms=before_ms, least=least)
    for key, value in rows:
        if not wanted.take(key, value):
            break
    return wanted.restorable()


def _folded_on(records: list[TopicRecord], number: int, rows: dict[bytes, bytes]) -> tuple[int, list[bytes]]:
    """How many records the checkpoint saves, and the decisions that follow from it."""
    partition = Partition.restore(number, rows)
    first = partition.applied_offset + 1
    log = _of(records, LOG, number)
    made = [d.value for at in range(first, len(log)) for d in partition.apply(at, log[at].timestamp_ms, log[at].value)]
    return first, made


@pytest.mark.parametrize("number", range(FLEET.partitions))
def test_folding_on_from_any_checkpoint_gives_the_recorded_decisions(records: list[TopicRecord], number: int) -> None:
    recorded = [each.value for each in _of(records, DECISIONS, number)]
    log, rows = _of(records, LOG, number), _changelog(records, number)
    starts = set()
    for below in range(0, len(log), 7):
        for found in (_taken(rows, number, below), _taken(rows, number, before_ms=log[below].timestamp_ms)):
            first, made = _folded_on(records, number, found)
            assert first <= below
            assert made == recorded[len(recorded) - len(made) :]
            starts.add(first)
    assert len(starts) > 5


@pytest.mark.parametrize("number", range(FLEET.partitions))
def test_what_compaction_left_is_right_or_nothing(records: list[TopicRecord], number: int) -> None:
    rng = random.Random(number)
    recorded = [each.value for each in _of(records, DECISIONS, number)]
    log, rows = _of(records, LOG, number), _changelog(records, number)
    nothing = useful = 0
    for _ in range(60):
        left = _compacted(rows, rng.randrange(len(rows) + 1))
        found = _taken(left, number, rng.randrange(len(log)))
        first, made = _folded_on(records, number, found)
        assert made == recorded[len(recorded) - len(made) :]
        nothing, useful = nothing + (first == 0), useful + (first > 0)
    assert nothing > 5
    assert useful > 5


def _compacted(rows: Rows, clean: int) -> Rows:
    """What is left once the first `clean` records have been compacted: of each key the newest of them."""
    newest = {key: at for at, (key, _) in enumerate(rows[:clean])}
    return [rows[at] for at in sorted(newest.values())] + rows[clean:]


def test_the_oldest_that_can_be_restored_after_compaction(records: list[TopicRecord]) -> None:
    rows = _changelog(records, 1)
    oldest, later, newest = (
        _folded_on(records, 1, _taken(rows, 1, **asked))[0] for asked in ({"least": 0}, {"least": 60}, {"below": 10**9})
    )
    assert 0 < oldest < 60 < later < newest
    first, made = _folded_on(records, 1, _taken(_compacted(rows, len(rows) * 2 // 3), 1, least=0))
    assert oldest < first
    assert made


def test_an_older_row_that_a_paused_worker_writes_late_does_not_count(records: list[TopicRecord]) -> None:
    rows = _changelog(records, 1)
    late = [*rows, *rows[: len(rows) // 3]]
    assert _taken(late, 1, below=10**9) == _taken(rows, 1, below=10**9)
    assert _taken([*rows, (b"1|p", None)], 1, below=10**9) == _taken(rows, 1, below=10**9)
