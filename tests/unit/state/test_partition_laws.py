"""Same log, same bytes: whatever the grouping, the checkpoints, the crash, the repetition of input."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import limits
from schemas.codec import encode
from schemas.entries import LogRecord
from streams.history.checkpointrows import NewestCheckpoint
from streams.state.partitionrow import IndexRow, PartitionRow
from streams.state.rowcodec import applied_offset, encode_row
from tests.kit.crashing import taken
from tests.kit.crowded import TIGHT, crowded_log, tight
from tests.kit.generated_log import Fleet, partition_log
from tests.kit.partition import Record, disturbed_log, fold
from tests.laws import examples

SEEDS = st.integers(0, 10_000)


@pytest.mark.parametrize(
    ("changelog", "row", "read"),
    [
        pytest.param("row1 p1 row4", 1, 1, id="torn"),
        pytest.param("row1 p1 row3 p2 p4", 1, 1, id="torn, and a later checkpoint has reached it"),
        pytest.param("row3 p2 p4", 3, 3, id="the copy before the torn one was compacted away"),
        pytest.param("row1 p1 row3 row2 p2 row4 p4", 4, 4, id="torn, and written anew"),
        pytest.param("row1 p1 row3 row1 p1 p4", 1, 1, id="torn, and the copy that counts was written again"),
        pytest.param("row1 p1 p4 row3 p3", 1, 1, id="a whole one that a paused worker wrote late"),
        pytest.param("row1 p1 row4 p2 p4", 4, 4, id="one that a paused worker's late one has come into"),
        pytest.param("row1 row2 p4", 2, 1, id="of which the checkpoints before were compacted away"),
    ],
)
def test_of_each_row_the_copy_of_the_newest_whole_checkpoint_counts(changelog: str, row: int, read: int) -> None:
    """Each word is a row and the log offset that it has applied; `p` is the partition's own, the last one.

    Args:
        row: which copy a worker takes that reads all.
        read: which one a verb takes that reads backwards.
    """
    rows = []
    for word in changelog.split():
        at = int(word[-1])
        its = changelog.count(f"row{at}")
        own = PartitionRow(number=0, offset=at, index=[at if its else 1, 1], rows_written=its)
        rows.append((b"0|p", encode_row(at, own)) if word[0] == "p" else (b"0|i/2.0", encode_row(at, IndexRow())))
    assert applied_offset(taken(rows).rows[b"0|i/2.0"]) == row
    backwards = NewestCheckpoint(0)
    for key, value in reversed(rows):
        backwards.add(key, value)
    assert applied_offset(backwards.rows[b"0|i/2.0"]) == read


def test_a_crowded_log_reaches_the_limits() -> None:
    reached: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        for seed in range(12):
            tight(patch, CLUSTER_BYTES=4_000 if seed > 8 else 16_000, NAMESPACE_ANSWERS=300)
            state = crowded_log(seed).partition.state
            reached |= {limit for space in state.namespaces.values() for limit in space.held.refused}
            reached |= {limit for rows in state.row.refused.values() for limit in rows}
        assert {getattr(limits, name).what for name in TIGHT} <= reached


def without_position(value: bytes) -> dict[str, Any]:
    decision: dict[str, Any] = msgspec.json.decode(value)
    for field in ("id", "input", "seq", "prev", "completes"):
        decision.pop(field, None)
    return decision


@settings(max_examples=examples(15))
@given(seed=SEEDS, repeats=st.integers(0, 1_000_000))
def test_a_batch_that_comes_twice_changes_no_decision(seed: int, repeats: int) -> None:
    """In shadow, since outcomes name decision ids, which hold offsets."""
    log = disturbed_log(seed, 60)
    chosen = random.Random(repeats)
    again: list[Record] = []
    for record in log.records:
        again.append(Record(len(again), record.timestamp_ms, record.value))
        if chosen.random() < 0.3:
            entries = msgspec.json.decode(record.value, type=LogRecord).entries
            kept = [entry for entry in entries if entry.source is not None]
            if len(kept) == len(entries):
                again.append(Record(len(again), record.timestamp_ms, record.value))
    once, twice = _shadow(log.records), _shadow(again)
    assert [without_position(value) for value in once] == [without_position(value) for value in twice]


def _shadow(records: list[Record]) -> list[bytes]:
    """Fold with nothing enforced: outcomes name decision ids, which hold offsets."""
    calm = []
    for record in records:
        log_record = msgspec.json.decode(record.value, type=LogRecord)
        entries = [entry for entry in log_record.entries if not _enforces(entry.body)]
        calm.append(Record(record.offset, record.timestamp_ms, encode(LogRecord(v=1, entries=entries))))
    return fold(calm)[1]


def _enforces(body: Any) -> bool:
    kind = type(body).__name__
    return kind in ("Outcome", "Command") or (kind == "SettingsSet" and body.settings.default_mode == "enforce")


@settings(max_examples=examples(10))
@given(seed=SEEDS, cuts=st.integers(0, 1_000_000))
def test_a_poll_may_come_in_one_record_or_in_several(seed: int, cuts: int) -> None:
    """Pod changes, heartbeat and answers of one moment, in this order, cut anywhere."""
    chosen = random.Random(cuts)
    whole = [Record(*record) for record in partition_log(Fleet(hpas=4, namespaces=2, minutes=2, seed=seed, churn=0.5))]
    split: list[Record] = []
    for record in whole:
        entries = msgspec.json.decode(record.value, type=LogRecord).entries
        cut = chosen.randrange(len(entries)) if entries else 0
        for part in (entries[:cut], entries[cut:]) if cut else (entries,):
            split.append(Record(len(split), record.timestamp_ms, encode(LogRecord(v=1, entries=part))))
    once, cut_up = fold(whole)[1], fold(split)[1]
    assert len(split) > len(whole)
    assert len(once) > 20
    assert [without_position(value) for value in once] == [without_position(value) for value in cut_up]


def test_disturbed_logs_contain_what_they_promise() -> None:
    """The laws are worth what the logs contain."""
    seen: set[str] = set()
    for seed in range(24):
        for decision in disturbed_log(seed).decisions:
            full = msgspec.json.decode(decision.value)
            seen.add(full.get("kind", "evaluation"))
            seen.update(full.get("outcome", {}).get("result", "").split())
            seen.update(full.get("constraintsApplied", ()))
            seen.update(f"mode {full['mode']}".split("|") if "mode" in full else ())
            seen.update(["refused"] if full.get("refused") else [])
            seen.update(["restart"] if "restart" in full.get("observed", {}) else [])
            seen.update(
                ["changed by " + full["observed"]["change"]["by"]] if "change" in full.get("observed", {}) else []
            )
    wanted = {"evaluation", "completion", "applied", "failed", "timeout", "refused", "restart", "Paused", "Frozen"}
    assert wanted | {"MaxStep", "mode enforce", "changed by other", "changed by decision"} <= seen


@pytest.mark.parametrize("seed", range(3))
def test_folding_twice_gives_the_same_bytes(seed: int) -> None:
    log = disturbed_log(seed)
    assert fold(log.records)[1] == [decision.value for decision in log.decisions]
