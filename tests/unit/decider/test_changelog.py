"""Checkpoints on the changelog topic: whatever compaction left of them, folding on gives the recorded decisions."""

from __future__ import annotations

import random

import pytest

from schemas.keys import parse_hpa_id
from schemas.topics import CHANGELOG, DECISIONS, LOG
from streams.history.checkpointrows import NewestCheckpoint, OldestCheckpoint, restorable, without
from streams.partition import Partition
from streams.state.rowcodec import row_kind
from tests.kit.questions import FLEET, TopicRecord, world

Rows = list[tuple[bytes, bytes | None]]


@pytest.fixture(scope="module")
def records() -> list[TopicRecord]:
    return world()


def _of(records: list[TopicRecord], topic: str, number: int) -> list[TopicRecord]:
    return [each for each in records if (each.topic, each.partition) == (topic, number)]


def _changelog(records: list[TopicRecord], number: int) -> Rows:
    return [(each.key or b"", each.value) for each in _of(records, CHANGELOG, number)]


def _taken(rows: Rows, number: int, below: int | None = None, before_ms: int | None = None) -> dict[bytes, bytes]:
    """What is restored from when the records are read backwards, as far as they are needed."""
    wanted = NewestCheckpoint(number, below, before_ms)
    for key, value in reversed(rows):
        if wanted.own is not None and not wanted.missing:
            break
        wanted.add(key, value)
    wanted.end()
    return restorable(number, wanted.rows) if wanted.own is not None else {}


def _oldest(rows: Rows, number: int, least: int) -> dict[bytes, bytes]:
    wanted = OldestCheckpoint(number, least)
    for key, value in rows:
        if not wanted.add(key, value):
            break
    return restorable(number, wanted.rows)


def _folded_on(records: list[TopicRecord], number: int, rows: dict[bytes, bytes]) -> tuple[int, list[bytes]]:
    """How many records the checkpoint saves, and the decisions that follow from it. Each checkpoint is folded once."""
    place = (id(records), number, tuple(sorted(rows.items())))
    if place not in _FOLDED:
        _FOLDED[place] = _fold_on(records, number, rows)
    return _FOLDED[place]


_FOLDED: dict[tuple[int, int, tuple[tuple[bytes, bytes], ...]], tuple[int, list[bytes]]] = {}


def _fold_on(records: list[TopicRecord], number: int, rows: dict[bytes, bytes]) -> tuple[int, list[bytes]]:
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
    found = (_oldest(rows, 1, 0), _oldest(rows, 1, 60), _taken(rows, 1))
    oldest, later, newest = (_folded_on(records, 1, each)[0] for each in found)
    assert 0 < oldest < 60 < later < newest
    first, made = _folded_on(records, 1, _oldest(_compacted(rows, len(rows) * 2 // 3), 1, 0))
    assert oldest < first
    assert made


def test_older_rows_that_a_paused_worker_writes_late_lead_to_the_same_decisions(records: list[TopicRecord]) -> None:
    recorded = [each.value for each in _of(records, DECISIONS, 1)]
    rows = _changelog(records, 1)
    for late in ([*rows, *rows[: len(rows) // 3]], [*rows, *rows[3 : len(rows) // 2 : 2]], [*rows, (b"1|p", None)]):
        first, made = _folded_on(records, 1, _taken(late, 1))
        assert first > 0
        assert made == recorded[len(recorded) - len(made) :]


def test_rows_of_a_checkpoint_that_is_being_written_are_left_out(records: list[TopicRecord]) -> None:
    rows = _changelog(records, 1)
    ends = [at for at, (key, _) in enumerate(rows) if key == b"1|p"]
    for torn in range(ends[-2] + 1, ends[-1]):
        assert _taken(rows[:torn], 1) == _taken(rows[: ends[-2] + 1], 1)


def test_no_more_is_read_than_has_changed(records: list[TopicRecord]) -> None:
    rows = _changelog(records, 1)
    wanted, read = NewestCheckpoint(1), 0
    for key, value in reversed(rows):
        if wanted.own is not None and not wanted.missing:
            break
        wanted.add(key, value)
        read += 1
    assert read < len(rows) / 2


def test_rows_that_the_topic_has_lost_are_named_and_the_rest_is_restored(records: list[TopicRecord]) -> None:
    rows = _changelog(records, 1)
    hpa = next(key for key, _ in rows if key.startswith(b"1|h/"))
    wanted = NewestCheckpoint(1)
    for key, value in reversed([row for row in rows if row[0] != hpa]):
        wanted.add(key, value)
    assert set(wanted.missing) == {hpa}
    assert wanted.own is not None
    whole, left = (
        Partition.restore(1, _taken(rows, 1)),
        Partition.restore(1, without(wanted.rows, wanted.own, set(wanted.missing))),
    )
    assert left.state.hpas.keys() == whole.state.hpas.keys() - {parse_hpa_id(row_kind(hpa)[1])}
    assert (left.applied_offset, left.seq, left.prev) == (whole.applied_offset, whole.seq, whole.prev)
