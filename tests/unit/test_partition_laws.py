"""Same log, same bytes: whatever the grouping, the checkpoints, the crash, the repetition of input."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.codec import encode
from schemas.decisions import Decision, ShortDecision, expand
from schemas.entries import LogRecord
from schemas.topics import MAX_ROW_BYTES
from streams.state import decisionrecords as records
from streams.state.partition import Partition
from tests.central_kit import central_log
from tests.generated_log import Fleet, partition_log
from tests.partition_kit import Record, disturbed_log, fold

SEEDS = st.integers(0, 10_000)


class Crashing:
    """A worker that checkpoints, crashes inside checkpoints, and goes on from whatever rows were written."""

    def __init__(self, records: list[Record], seed: int) -> None:
        self.records = records
        self.random = random.Random(seed)
        self.rows: dict[bytes, bytes] = {}
        self.topic: dict[int, dict[str, bytes]] = {}
        self.values: list[bytes] = []
        self.crashes = 0

    def run(self) -> list[bytes]:
        partition = Partition.empty(0)
        while partition.applied_offset < len(self.records) - 1:
            partition = self._take(partition)
            if self.random.random() < 0.25:
                partition = self._checkpoint(partition)
            elif self.random.random() < 0.1:
                partition = self._crash()
        return self.values

    def _take(self, partition: Partition) -> Partition:
        first = partition.applied_offset + 1
        for record in self.records[first : first + self.random.randrange(1, 12)]:
            made = partition.apply(*record, self.topic.get(record.offset, {}))
            torn = bool(made) and self.random.random() < 0.05
            for decision in made[: self.random.randrange(len(made))] if torn else made:
                self.topic.setdefault(record.offset, {})[decision.id] = decision.value
                self.values.append(decision.value)
            if torn:
                return self._crash()
        return partition

    def _checkpoint(self, partition: Partition) -> Partition:
        written = partition.checkpoint()
        if self.random.random() < 0.5:
            self.rows.update(written)
            again = dict(partition.rows())  # what a partition that is given up puts back
            assert again.items() <= self.rows.items()
            # Missing are at most parts of a namespace that nothing is read from: of before or after its split.
            missing = {key.decode() for key in self.rows.keys() - again.keys()}
            assert all("|n/" in key for key in missing)
            assert not missing & partition.state.row.manifest.keys()
            if self.random.random() < 0.2:
                return Partition.restore(0, again)
            return partition
        for key, value in written[: self.random.randrange(len(written))]:
            # A revived worker may have written newer ones: the higher offset wins.
            if key not in self.rows or self.rows[key][:8] <= value[:8]:
                self.rows[key] = value
        return self._crash()

    def _crash(self) -> Partition:
        self.crashes += 1
        return Partition.restore(0, self.rows)


@pytest.mark.parametrize("largest_row", [MAX_ROW_BYTES, 0], ids=["two rows a namespace", "64 rows a namespace"])
@settings(max_examples=25)
@given(seed=SEEDS, crashes=st.integers(0, 1_000_000))
@example(seed=19, crashes=1)
@example(seed=8, crashes=1)
def test_crashes_inside_checkpoints_change_no_byte(largest_row: int, seed: int, crashes: int) -> None:
    log = disturbed_log(seed)
    expected = [decision.value for decision in log.decisions]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streams.state.partition.MAX_ROW_BYTES", largest_row)
        assert Crashing(log.records, crashes).run() == expected


@settings(max_examples=20)
@given(seed=SEEDS, crashes=st.integers(0, 1_000_000))
def test_crashes_change_no_byte_while_central_hpas_come_and_go(seed: int, crashes: int) -> None:
    log = central_log(seed)
    expected = [decision.value for decision in log.decisions]
    assert expected
    assert Crashing(log.records, crashes).run() == expected


@settings(max_examples=15)
@given(seed=SEEDS, at=st.integers(1, 120))
def test_every_prefix_of_a_checkpoint_can_be_restored_from(seed: int, at: int) -> None:
    log = disturbed_log(seed)
    topic: dict[int, dict[str, bytes]] = {}
    partition = Partition.empty(0)
    first = random.Random(at).randrange(at)
    base: dict[bytes, bytes] = {}
    for record in log.records[:at]:
        topic[record.offset] = {made.id: made.value for made in partition.apply(*record)}
        if record.offset == first:
            base = dict(partition.checkpoint())
    written = partition.checkpoint()
    for length in range(len(written) + 1):
        restored = Partition.restore(0, base | dict(written[:length]))
        again = [
            made.value
            for record in log.records[restored.applied_offset + 1 :]
            for made in restored.apply(*record, topic.get(record.offset, {}))
        ]
        late = [made for made in log.decisions if int(made.id.split("-")[1]) >= at]
        assert again == [made.value for made in late]
        assert (restored.seq, restored.prev) == (log.partition.seq, log.partition.prev)


@settings(max_examples=15)
@given(seed=SEEDS)
def test_restored_rows_are_the_rows_that_were_never_stored(seed: int) -> None:
    log = disturbed_log(seed, 80)
    partition = Partition.empty(0)
    rows: dict[bytes, bytes] = {}
    for record in log.records:
        partition.apply(*record)
        rows.update(partition.checkpoint())
        partition = Partition.restore(0, rows)
    assert (partition.seq, partition.prev, partition.log_hash) == (
        log.partition.seq,
        log.partition.prev,
        log.partition.log_hash,
    )


def without_position(value: bytes) -> dict[str, Any]:
    decision: dict[str, Any] = msgspec.json.decode(value)
    for field in ("id", "input", "seq", "prev", "sameAs", "completes"):
        decision.pop(field, None)
    return decision


@settings(max_examples=15)
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


@settings(max_examples=10)
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


def steady(decision: Decision) -> dict[str, Any]:
    """All but what a short record does not repeat: its place, and what explains the steps."""
    fields: dict[str, Any] = msgspec.to_builtins(decision)
    for field in ("prev", "input", "observed"):
        fields.pop(field, None)
    for step in fields.get("steps", ()):
        step.pop("detail", None)
        step.pop("until", None)
    for metric in fields.get("metrics", ()):
        metric.pop("oldest", None)
    if decision.mode == "shadow" and decision.status:
        # The native object may lack a condition: then each evaluation begins it anew.
        for condition in fields["status"].get("conditions", ()):
            condition.pop("lastTransitionTime")
    return fields


@settings(max_examples=10)
@given(seed=SEEDS)
def test_an_expanded_short_record_is_the_full_one(seed: int) -> None:
    log = disturbed_log(seed)
    shadowed = fold(log.records)[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "FULL_EVERY_MS", 0)
        whole = [msgspec.json.decode(value, type=Decision) for value in fold(log.records)[1]]
    known: dict[str, Decision] = {}
    for value, full in zip(shadowed, whole, strict=True):
        if b'"sameAs"' in value:
            short = msgspec.json.decode(value, type=ShortDecision)
            assert steady(expand(short, known[short.same_as])) == steady(full)
        else:
            known[full.id] = full


def test_disturbed_logs_contain_what_they_promise() -> None:
    """The laws are worth what the logs contain."""
    seen: set[str] = set()
    for seed in range(24):
        for decision in disturbed_log(seed).decisions:
            full = msgspec.json.decode(decision.value)
            seen.add(full.get("kind", "short" if "sameAs" in full else "evaluation"))
            seen.update(full.get("outcome", {}).get("result", "").split())
            seen.update(full.get("constraintsApplied", ()))
            seen.update(f"mode {full['mode']}".split("|") if "mode" in full else ())
            seen.update(["refused"] if full.get("refused") else [])
            seen.update(["restart"] if "restart" in full.get("observed", {}) else [])
            seen.update(
                ["changed by " + full["observed"]["change"]["by"]] if "change" in full.get("observed", {}) else []
            )
    wanted = {
        "evaluation",
        "completion",
        "short",
        "applied",
        "failed",
        "timeout",
        "refused",
        "restart",
        "Paused",
        "Frozen",
    }
    assert wanted | {"MaxStep", "mode enforce", "changed by other", "changed by decision"} <= seen


@pytest.mark.parametrize("seed", range(3))
def test_folding_twice_gives_the_same_bytes(seed: int) -> None:
    log = disturbed_log(seed)
    assert fold(log.records)[1] == [decision.value for decision in log.decisions]
