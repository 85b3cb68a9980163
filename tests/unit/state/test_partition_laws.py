"""Same log, same bytes: whatever the grouping, the checkpoints, the crash, the repetition of input."""

import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from schemas import limits
from schemas.answers import Answers
from schemas.codec import encode
from schemas.entries import LogRecord
from schemas.observed import (
    AutoscalerDeleted,
    AutoscalerList,
    AutoscalerSet,
    Command,
    PodDeleted,
    PodList,
    PodSet,
    Point,
    Rival,
    Samples,
    Target,
)
from schemas.settings import SettingsSet
from schemas.topics import MAX_ROW_BYTES
from streams.history.checkpointrows import NewestCheckpoint
from streams.partition import Partition
from streams.state import rowcodec
from streams.state.namespace import Namespace
from streams.state.partitionrow import IndexRow, PartitionRow
from streams.state.rowcodec import applied_offset, bodies_of_namespace, encode_row, merge_rows
from tests.kit.central import central_log
from tests.kit.crashing import Crashing, restored_from, taken, usage
from tests.kit.generated_log import Fleet, partition_log
from tests.kit.partition import (
    ENFORCING,
    LogBuilder,
    Record,
    cpu_answer,
    disturbed_log,
    fold,
    make_hpa,
    make_pod,
    scale,
)
from tests.laws import examples

SEEDS = st.integers(0, 10_000)


@pytest.mark.parametrize("largest_row", [MAX_ROW_BYTES, 400, 1], ids=["one row of a kind", "several", "one a thing"])
@settings(max_examples=examples(25))
@given(seed=SEEDS, crashes=st.integers(0, 1_000_000))
@example(seed=19, crashes=1)
@example(seed=8, crashes=1)
def test_crashes_inside_checkpoints_change_no_byte(largest_row: int, seed: int, crashes: int) -> None:
    log = disturbed_log(seed)
    expected = [decision.value for decision in log.decisions]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streams.state.rowcodec.MAX_ROW_BYTES", largest_row)
        assert Crashing(log.records, crashes).run() == expected


@settings(max_examples=examples(40))
@given(seed=SEEDS, crashes=st.integers(0, 1_000_000))
def test_a_worker_that_crashes_inside_nearly_every_checkpoint_loses_nothing_to_compaction(
    seed: int, crashes: int
) -> None:
    log = disturbed_log(seed, 60)
    assert Crashing(log.records, crashes, torn=0.96).run() == [decision.value for decision in log.decisions]


@settings(max_examples=examples(40))
@given(seed=SEEDS, crashes=st.integers(0, 1_000_000))
@example(seed=1056, crashes=611_658)
def test_crashes_change_no_byte_where_each_checkpoint_cuts_a_namespace_in_another_way(seed: int, crashes: int) -> None:
    """As where its rows become too large and small again while a checkpoint is torn."""
    log, chosen = disturbed_log(seed), random.Random(crashes)
    with pytest.MonkeyPatch.context() as patch:

        def bodies(namespace: Namespace, side: int, pieces: int = 0) -> list[bytes]:
            patch.setattr(rowcodec, "MAX_ROW_BYTES", chosen.choice([1, 300, 1_000, MAX_ROW_BYTES]))
            return bodies_of_namespace(namespace, side, pieces)

        patch.setattr(rowcodec, "bodies_of_namespace", bodies)
        assert Crashing(log.records, crashes).run() == [decision.value for decision in log.decisions]


@settings(max_examples=examples(20))
@given(seed=SEEDS, crashes=st.integers(0, 1_000_000))
def test_crashes_change_no_byte_while_central_hpas_come_and_go(seed: int, crashes: int) -> None:
    log = central_log(seed)
    expected = [decision.value for decision in log.decisions]
    assert expected
    assert Crashing(log.records, crashes).run() == expected


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


@settings(max_examples=examples(15))
@given(seed=SEEDS, at=st.integers(1, 120))
def test_every_prefix_of_a_checkpoint_can_be_restored_from(seed: int, at: int) -> None:
    log = disturbed_log(seed)
    topic: dict[int, dict[str, bytes]] = {}
    partition = Partition.empty(0)
    first = random.Random(at).randrange(at)
    base: list[tuple[bytes, bytes]] = []
    for record in log.records[:at]:
        topic[record.offset] = {made.id: made.value for made in partition.apply(*record)}
        if record.offset == first:
            base = partition.checkpoint()
    written = partition.checkpoint()
    for length in range(len(written) + 1):
        restored = restored_from([*base, *written[:length]])
        has_ended = b"0|p" in dict(written[:length])
        assert restored.applied_offset == (at - 1 if has_ended else first)
        again = [
            made.value
            for record in log.records[restored.applied_offset + 1 :]
            for made in restored.apply(*record, topic.get(record.offset, {}))
        ]
        late = [made for made in log.decisions if int(made.id.split("-")[1]) >= at]
        assert again == [made.value for made in late]
        assert (restored.seq, restored.prev) == (log.partition.seq, log.partition.prev)


@settings(max_examples=examples(15))
@given(seed=SEEDS)
def test_restored_rows_are_the_rows_that_were_never_stored(seed: int) -> None:
    log = disturbed_log(seed, 80)
    partition = Partition.empty(0)
    rows: dict[bytes, bytes] = {}
    for record in log.records:
        partition.apply(*record)
        merge_rows(rows, partition.checkpoint())
        partition = Partition.restore(0, rows)
    assert (partition.seq, partition.prev, partition.log_hash) == (
        log.partition.seq,
        log.partition.prev,
        log.partition.log_hash,
    )


TIGHT = {
    "NAMESPACE_PODS": 600,
    "NAMESPACE_ANSWERS": 700,
    "NAMESPACE_SAMPLES": 180,
    "NAMESPACE_SCALES": 330,
    "NAMESPACE_HPAS": 800,
    "NAMESPACE_RIVALS": 150,
    "NAMESPACE_COMMANDS": 200,
    "CLUSTER_BYTES": 16_000,
    "CLUSTER_HPAS": 5,
    "CLUSTER_NAMESPACES": 3,
}


def tight(patch: pytest.MonkeyPatch, **others: int) -> None:
    """Set limits that a few objects reach."""
    for name, most in (TIGHT | others).items():
        patch.setattr(limits, name, replace(getattr(limits, name), most=most))


def crowded_log(seed: int) -> LogBuilder:
    """Namespaces of one cluster in which things come and go, more of them than the limits take."""
    chosen, log = random.Random(seed), LogBuilder()
    names = [f"{letter}{number}" for letter in "abc" for number in range(5)]
    log.add(SettingsSet(cluster="*", settings=ENFORCING))
    for _ in range(120):
        entries = []
        for _ in range(chosen.randrange(4)):
            name, number = chosen.choice(names), log.now_ms % 1_000
            place = chosen.choice(("one", "two", "three", "four"))
            made = make_hpa(name, f"uid-{place}-{name}-{len(log.records)}", number)
            rivals = [Rival(kind="X", name=name * 9, target=Target(kind="Deployment", name=name))] * 2
            point = Point(type="Pods", metric=name[0], milli=number, time=log.now_ms, pod=name)
            body: Any = chosen.choice(
                (
                    PodSet(pod=make_pod(name, name[0], uid="u" * number)),
                    PodDeleted(name=name),
                    PodList(list_id=f"p{number}", pods=[make_pod(each) for each in names[: number % 9]]),
                    AutoscalerSet(hpa=made | {"metadata": made["metadata"] | {"annotations": {"a": "x" * number}}}),
                    AutoscalerDeleted(name=name),
                    AutoscalerList(list_id=f"h{number}", hpas=[made], rivals=rivals),
                    scale(name, number % 9),
                    Samples(points=[point]),
                    Answers(items=[cpu_answer(name[0], dict.fromkeys(names[: number % 9], number), log.now_ms)]),
                    Command(command="pause", name=name, reason="r" * (number // 9)),
                )
            )
            entries.append(log.entry(body, f"eu/{place}"))
        log.add(*entries, after_ms=chosen.choice((20, 700, 3_000, 600_000)))
    return log


def stored(partition: Partition) -> list[Any]:
    """What is stored of namespaces and clusters, and the sums of it."""
    state = partition.state
    spaces = [
        (
            key,
            sorted(space.pods),
            space.directory,
            space.scales,
            space.answers,
            space.series,
            space.arrivals,
            space.rivals,
            space.commands,
            (space.held.bytes, space.held.hpas),
            {row: size for row, size in space.held.sums.items() if size},
        )
        for key, space in sorted(state.namespaces.items())
    ]
    return [usage(partition), *[each for each in spaces if any(each[1:])]]


def sums_of(records: list[Record]) -> dict[int, Any]:
    """The sums after each record, as a fold has them that never crashes."""
    partition, sums = Partition.empty(0), {}
    for record in records:
        partition.apply(*record)
        sums[record.offset] = usage(partition)
    return sums


@pytest.mark.parametrize("largest_row", [MAX_ROW_BYTES, 400, 1], ids=["one row of a kind", "several", "one a thing"])
@settings(max_examples=examples(10), phases=(Phase.explicit, Phase.generate))
@given(seed=SEEDS, crashes=st.integers(0, 1_000_000))
@example(seed=564, crashes=2911)
def test_what_is_over_a_limit_does_not_depend_on_checkpoints_and_crashes(
    largest_row: int, seed: int, crashes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        tight(patch)
        patch.setattr("streams.state.rowcodec.MAX_ROW_BYTES", largest_row)
        log = crowded_log(seed)
        crashing = Crashing(log.records, crashes, sums_of(log.records))
        assert crashing.run() == [decision.value for decision in log.decisions]
        assert stored(crashing.partition) == stored(log.partition)


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
