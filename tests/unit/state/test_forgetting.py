"""What is gone is forgotten by log time, the same at every fold, and its rows leave the changelog."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.agents import AgentSet, AgentTopics
from schemas.entries import WHOLE_PARTITION_KEY, Entry, Source
from schemas.observed import (
    AutoscalerDeleted,
    AutoscalerSet,
    Command,
    Heartbeat,
    PodSet,
    Point,
    Samples,
    ScaleSet,
    Serving,
)
from streams.decider.metrics import ignored_samples
from streams.partition import Partition
from streams.state import partitionrow, rowcodec
from streams.state.forgetting import LONG_MS, SWEEP_MS
from streams.state.ledger import StateError
from streams.state.partitionrow import IndexRow, index_key
from streams.state.rowcodec import DELETED, WholeCheckpoints, applied_offset, merge_row, merge_rows
from tests.kit.crowded import churn_log, few_names
from tests.kit.partition import KEY, LogBuilder, make_hpa, make_pod, scale
from tests.laws import examples

Rows = dict[bytes, bytes]


def log_with(*bodies: Any) -> LogBuilder:
    log = LogBuilder()
    log.add(AutoscalerSet(hpa=make_hpa(), session="s"), scale(session="s"), PodSet(pod=make_pod("web-0"), session="s"))
    if bodies:
        log.add(*bodies)
    return log


def hours(log: LogBuilder, count: int) -> None:
    for _ in range(count):
        log.add(after_ms=SWEEP_MS)


def stored(log: LogBuilder, rows: Rows) -> set[str]:
    merge_rows(rows, log.partition.checkpoint())
    return {key.decode() for key in rows}


def test_the_rows_of_a_deleted_hpa_and_its_namespace_leave_the_changelog() -> None:
    log, rows = log_with(), Rows()
    before = stored(log, rows)
    assert {"0|h/eu/shop/web", "0|n/eu/shop#0", "0|n/eu/shop#1"} < before
    log.add(AutoscalerDeleted(name="web", session="s"))
    hours(log, 1)
    assert stored(log, rows) == before - {"0|h/eu/shop/web"}
    hours(log, 4)
    assert stored(log, rows) == {"0|i/1.0", "0|p"}
    assert (log.partition.state.hpas, log.partition.state.namespaces) == ({}, {})


def test_a_row_is_deleted_only_after_the_partition_row_that_no_longer_counts_it() -> None:
    log = log_with()
    log.partition.checkpoint()
    log.add(AutoscalerDeleted(name="web", session="s"))
    hours(log, 5)
    written = log.partition.checkpoint()
    deleted = [b"0|h/eu/shop/web", b"0|n/eu/shop#0", b"0|n/eu/shop#1"]
    assert [key for key, value in written if value == DELETED] == deleted
    assert [key for key, _ in written] == [b"0|i/1.0", b"0|p", *deleted]


def test_an_hpa_that_comes_back_in_time_keeps_its_row() -> None:
    log, rows = log_with(AutoscalerDeleted(name="web", session="s")), Rows()
    hours(log, 1)
    stored(log, rows)
    log.add(AutoscalerSet(hpa=make_hpa(uid="again"), session="s"))
    hours(log, 3)
    assert "0|h/eu/shop/web" in stored(log, rows)
    assert log.partition.state.namespaces[KEY].pods.keys() == {"web-0"}


def preview(index: int) -> tuple[AutoscalerSet, ScaleSet]:
    name = f"preview-{index}"
    return AutoscalerSet(hpa=make_hpa(name, f"uid-{index}"), session="s"), scale(name, session="s")


def test_scales_that_no_hpa_has_named_for_an_hour_are_forgotten() -> None:
    log = log_with()
    for index in range(50):
        log.add(*preview(index), after_ms=1_000)
        log.add(AutoscalerDeleted(name=f"preview-{index}", session="s"), after_ms=60_000)
    assert len(log.partition.state.namespaces[KEY].scales) == 51
    hours(log, 2)
    assert list(log.partition.state.namespaces[KEY].scales) == [("apps", "Deployment", "web")]


def test_a_pause_or_mode_for_a_name_without_hpa_is_kept_for_thirty_days() -> None:
    log = log_with(Command(command="mode", name="later", mode="off"), Command(command="pause", name="web"))
    hours(log, 1)
    log.add(after_ms=LONG_MS - SWEEP_MS)
    assert sorted(log.partition.state.namespaces[KEY].commands) == ["later", "web"]
    hours(log, 2)
    assert sorted(log.partition.state.namespaces[KEY].commands) == ["web"]


def test_a_namespace_in_which_a_command_is_in_force_is_never_forgotten() -> None:
    log = LogBuilder()
    log.add(Command(command="pause", reason="an incident"))
    log.add(after_ms=LONG_MS)
    hours(log, 3)
    assert log.partition.state.namespaces[KEY].commands[""][1]["all"].reason == "an incident"


def test_an_agent_that_left_is_forgotten_with_what_it_reported_and_its_watermarks() -> None:
    log = LogBuilder()
    log.add(Entry(key=WHOLE_PARTITION_KEY, body=AgentSet(cluster="edge", incarnation=3)))
    source = Source(topic=AgentTopics("edge", 3).reports, partition=0, offset=1, index=0, time=log.now_ms)
    log.add(Entry(key="edge/shop", body=AutoscalerSet(hpa=make_hpa(), session="e"), source=source))
    log.add(Entry(key=WHOLE_PARTITION_KEY, body=Serving(session="e", clusters=["edge", "eu"])))
    log.add(Entry(key=WHOLE_PARTITION_KEY, body=AgentSet(cluster="edge", incarnation=3, left=True)))
    state = log.partition.state
    log.add(after_ms=LONG_MS - SWEEP_MS)
    assert (list(state.row.agents), len(state.hpas)) == (["edge"], 1)
    hours(log, 6)
    assert (state.row.agents, state.row.watermarks, state.row.sessions, state.hpas) == ({}, {}, {}, {})


def test_the_hpas_of_a_cluster_that_nobody_has_reported_for_thirty_days_are_forgotten() -> None:
    log = log_with()
    log.add(AutoscalerSet(hpa=make_hpa("kept"), origin="central"))
    log.add(after_ms=LONG_MS - SWEEP_MS)
    assert len(log.partition.state.hpas) == 2
    hours(log, 4)
    assert [name.name for name in log.partition.state.hpas] == ["kept"]


def test_observers_count_as_silent_only_after_a_gap_of_the_log_in_which_none_could_report() -> None:
    log = log_with()
    log.add(after_ms=2 * LONG_MS)
    assert [hpa.row.gone for hpa in log.partition.state.hpas.values()] == [False]
    log.add(AutoscalerSet(hpa=make_hpa(), session="s"))
    hours(log, 2)
    assert [hpa.row.gone for hpa in log.partition.state.hpas.values()] == [False]


def point() -> Samples:
    return Samples(points=[Point(type="Resource", metric="cpu", pod="web-0", milli=50, time=LogBuilder().now_ms)])


def test_samples_of_a_namespace_that_nobody_reports_leave_nothing_but_a_count() -> None:
    log = LogBuilder()
    for index in range(100):
        log.add(log.entry(point(), f"eu/random-{index}"))
    assert [key for key, _ in log.partition.checkpoint()] == [b"0|i/1.0", b"0|p"]
    assert ignored_samples(log.partition) == 100


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(AutoscalerSet(hpa=make_hpa(), origin="central"), id="a central HPA"),
        pytest.param(PodSet(pod=make_pod("web-0")), id="a pod"),
        pytest.param(Heartbeat(session="s", watches=["pods"]), id="an observer"),
    ],
)
def test_samples_are_taken_once_the_namespace_is_known(known: Any) -> None:
    log = LogBuilder()
    log.add(Heartbeat(session="s", watches=["pods"]) if isinstance(known, Heartbeat) else known)
    log.add(PodSet(pod=make_pod("web-0"), session="s"))
    log.add(point())
    assert ignored_samples(log.partition) == 0
    assert log.partition.state.namespaces[KEY].series


@settings(max_examples=examples(4))
@given(at=st.integers(30, 64), gap=st.integers(1, 12))
def test_every_prefix_of_a_checkpoint_that_forgets_gives_the_same_decisions(at: int, gap: int) -> None:
    """Of three checkpoints: rows, index, partition row, and the deletions of what it no longer counts."""
    records = churn_log()
    partition, rows, prefixes = Partition.empty(0), Rows(), list[tuple[Rows, int]]()
    checkpoints = WholeCheckpoints(rows)
    whole = Partition.empty(0)
    topic = {record.offset: {made.id: made.value for made in whole.apply(*record)} for record in records[: at + 8]}
    with pytest.MonkeyPatch.context() as patch:
        few_names(patch)
        for record in records[:at]:
            partition.apply(*record)
            if record.offset in (at - 1, at - 1 - gap, at - 1 - 2 * gap):
                for key, value in partition.checkpoint():
                    prefixes.append((dict(rows), record.offset))
                    checkpoints.add(key, value)
                prefixes.append((dict(rows), record.offset))
        for some, reached in prefixes[:: max(1, len(prefixes) // 8)]:
            restored = Partition.restore(0, some)
            again = [
                decision.value
                for record in records[restored.applied_offset + 1 : at + 8]
                for decision in restored.apply(*record, topic[record.offset] if record.offset <= reached else {})
            ]
            assert again == [value for offset in range(reached + 1, at + 8) for value in topic[offset].values()]


@settings(max_examples=examples(10))
@given(data=st.data())
def test_a_live_row_that_is_missing_or_old_is_noticed(data: st.DataObject) -> None:
    rows, older = Rows(), dict[bytes, list[bytes]]()
    partition = Partition.empty(0)
    with pytest.MonkeyPatch.context() as patch:
        few_names(patch)
        for record in churn_log()[: data.draw(st.integers(30, 60))]:
            partition.apply(*record)
            for key, value in partition.checkpoint():
                if key in rows and rows[key] != value:
                    older.setdefault(key, []).append(rows[key])
                merge_row(rows, key, value)
    live = sorted({key.encode() for key in partition.state.index.written} | {key for key in rows if b"|i/" in key})
    live = [key for key in live if b"|i/" not in key or key.startswith(b"0|i/%d." % len(partition.state.row.index))]
    key = data.draw(st.sampled_from(live))
    with pytest.raises(StateError, match=key.decode()):
        Partition.restore(0, {each: value for each, value in rows.items() if each != key})
    for value in older.get(key, [])[-3:]:
        if applied_offset(value) < applied_offset(rows[key]):
            with pytest.raises(StateError, match=key.decode()):
                Partition.restore(0, rows | {key: value})


def test_a_piece_of_the_index_that_was_left_over_and_is_written_again_is_not_deleted() -> None:
    log = LogBuilder()
    with pytest.MonkeyPatch.context() as patch:
        few_names(patch)
        for index in range(4):
            log.add(AutoscalerSet(hpa=make_hpa(f"hpa-{index}", f"uid-{index}"), session="s"))
        rows = dict(log.partition.checkpoint())
        rows |= {index_key(0, 2, at): rowcodec.encode_row(0, IndexRow()) for at in range(2)}
        log.partition = Partition.restore(0, rows)
        for index in range(4, 8):
            log.add(AutoscalerSet(hpa=make_hpa(f"hpa-{index}", f"uid-{index}"), session="s"))
        merge_rows(rows, log.partition.checkpoint())
    assert len(log.partition.state.row.index) == 2
    assert Partition.restore(0, rows).state.hpas.keys() == log.partition.state.hpas.keys()


def test_no_row_lists_all_rows() -> None:
    log = LogBuilder()
    for index in range(3 * partitionrow.MOST_NAMES):
        log.add(AutoscalerSet(hpa=make_hpa(f"hpa-{index}", f"uid-{index}"), session="s"))
    written = dict(log.partition.checkpoint())
    pieces = [key for key in written if b"|i/" in key]
    assert len(pieces) == 4
    assert len(written[b"0|p"]) < 4_096
    assert Partition.restore(0, written).state.hpas.keys() == log.partition.state.hpas.keys()
