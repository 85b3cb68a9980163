"""Answers that come in parts: they count as one when the last part has come, after any crash, up to 20,000 pods."""

import random
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from reconciler.observer.observertopics import answer_records
from schemas.answers import Answers, MetricAnswer, PodUsage
from schemas.codec import decode, encode
from schemas.entries import Body, LogRecord, PublicRecord
from schemas.observed import AutoscalerSet, PodSet
from schemas.topics import MAX_LOG_RECORD_BYTES, SAMPLES
from streams.ingest.convert import convert
from streams.ingest.logwriter import Batcher, LogEntry, log_entries
from streams.ingest.mapping import Mapping, Resolver
from streams.ingest.pieces import RawRecord
from streams.state import partition as partitions
from streams.state.answers import FoldedBody, in_force, joined
from streams.state.ledger import LogError
from streams.state.partition import Partition
from streams.state.rowcodec import WholeCheckpoints
from tests.kit.partition import KEY, LogBuilder, cpu_answer, make_hpa, make_pod, scale
from tests.laws import examples

Json = dict[str, Any]


def parts_of(answer: MetricAnswer, count: int, answer_id: str) -> list[MetricAnswer]:
    """An answer cut into parts as an observer cuts one that is too large."""
    usages = [answer.usages[number::count] for number in range(count)]
    return [
        structs.replace(answer, usages=share, answer_id=answer_id, part=number, parts=count)
        for number, share in enumerate(usages)
    ]


def world(pods: int = 4) -> LogBuilder:
    log = LogBuilder()
    log.add(AutoscalerSet(hpa=make_hpa()), scale(spec=pods), *[PodSet(pod=make_pod(f"web-{i}")) for i in range(pods)])
    return log


def usage(log: LogBuilder, milli: int, pods: int = 4) -> MetricAnswer:
    return cpu_answer("web", {f"web-{i}": milli for i in range(pods)}, log.now_ms)


def test_an_answer_in_parts_counts_when_the_last_part_has_come() -> None:
    log = world()
    log.add(Answers(items=[usage(log, 50)]), after_ms=1_000)
    first, second, third = parts_of(usage(log, 75), 3, "a")
    assert log.add(Answers(items=[first]), after_ms=15_000) == []
    assert log.add(Answers(items=[second])) == []
    [decision] = log.add(Answers(items=[third]))
    assert decision["metrics"][0]["utilization"] == 75
    assert (decision["metrics"][0]["podsUsed"], decision["metrics"][0].get("podsMissing", 0)) == (4, 0)


@pytest.mark.parametrize(
    "come",
    [
        pytest.param([0, 2], id="one is missing"),
        pytest.param([1, 2], id="the first is missing"),
        pytest.param([0, 0, 2], id="the first twice"),
        pytest.param([0, 1, "b2"], id="the last is another answer's"),
    ],
)
def test_an_answer_that_lacks_a_part_replaces_nothing(come: list[Any]) -> None:
    log = world()
    before = usage(log, 50)
    log.add(Answers(items=[before]), after_ms=1_000)
    parts = {number: part for number, part in enumerate(parts_of(usage(log, 75), 3, "a"))}
    others: dict[Any, MetricAnswer] = {"b2": parts_of(usage(log, 99), 3, "b")[2]}
    for which in come:
        log.add(Answers(items=[(parts | others)[which]]))
    [decision] = log.add(after_ms=18_000)
    assert decision["metrics"][0]["utilization"] == 50, "evaluated with the answer that it had before"
    [kept] = log.partition.state.namespaces[KEY].answers.values()
    assert joined(in_force(kept)) == before
    [whole] = log.add(Answers(items=list(parts.values())), after_ms=15_000)
    assert whole["metrics"][0]["utilization"] == 75


def test_the_order_of_the_parts_plays_no_part() -> None:
    log = world()
    first, second, third = parts_of(usage(log, 75), 3, "a")
    log.add(Answers(items=[third]), Answers(items=[first]), Answers(items=[second]), after_ms=1_000)
    [kept] = log.partition.state.namespaces[KEY].answers.values()
    assert sorted(each.pod for each in joined(in_force(kept)).usages) == [f"web-{i}" for i in range(4)]


def random_log(seed: int) -> LogBuilder:
    """Whole answers, answers in parts, interrupted ones, and ones whose id was used before."""
    pick, log = random.Random(seed), world(6)
    for number in range(40):
        answer = usage(log, pick.choice((20, 45, 55, 90, 200)), 6)
        count = pick.choice((1, 2, 3, 5))
        parts = [answer] if count == 1 else parts_of(answer, count, pick.choice(("same", str(number))))
        if pick.random() < 0.2:
            parts.pop(pick.randrange(len(parts)))
        if pick.random() < 0.1:
            pick.shuffle(parts)
        while parts:
            some = pick.randrange(1, len(parts) + 1)
            log.add(Answers(items=parts[:some]), after_ms=pick.choice((10, 2_000, 6_000)))
            parts = parts[some:]
            if pick.random() < 0.3:
                log.add(after_ms=5_000)
    return log


@settings(max_examples=examples(30))
@given(seed=st.integers(0, 1_000_000), crashes=st.integers(0, 1_000_000), spread=st.booleans())
def test_crashes_between_and_inside_checkpoints_change_no_byte(seed: int, crashes: int, spread: bool) -> None:
    log, pick = random_log(seed), random.Random(crashes)
    topic: dict[int, dict[str, bytes]] = {}
    rows: dict[bytes, bytes] = {}
    changelog = WholeCheckpoints(rows)
    partition = Partition.empty(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "MAX_ROW_BYTES", 0 if spread else 2**30)
        while partition.applied_offset < log.records[-1].offset:
            record = log.records[partition.applied_offset + 1]
            stood = topic.setdefault(record.offset, {})
            stood.update({made.id: made.value for made in partition.apply(*record, stood)})
            if pick.random() < 0.3:
                written = partition.checkpoint()
                kept = written[: pick.randrange(len(written) + 1)] if pick.random() < 0.5 else written
                for key, value in kept:
                    changelog.take(key, value)
                if kept is not written:
                    partition = Partition.restore(0, rows)
            elif pick.random() < 0.1:
                partition = Partition.restore(0, rows)
    made = [value for offset in sorted(topic) for value in topic[offset].values()]
    assert made == [decision.value for decision in log.decisions]


@pytest.mark.slow
def test_twenty_thousand_pods_of_one_target_go_from_the_observer_through_ingest_into_a_decision() -> None:
    count = 20_000
    names = [f"web-7d8f9c6b5-{number:05}" for number in range(count)]
    log = LogBuilder()
    log.add(AutoscalerSet(hpa=make_hpa(maxReplicas=30_000)), scale(spec=count))
    for first in range(0, count, 1_000):
        log.add(*[PodSet(pod=make_pod(name)) for name in names[first : first + 1_000]])
    usages = [PodUsage(name, log.now_ms, 15_000, [("main", {"cpu": 75, "memory": 10**12})]) for name in names]
    answer = MetricAnswer(api="resource", selector="app=web", usages=usages)
    made: list[Json] = []
    for offset, items in enumerate(answer_records([answer], "1")):
        record = PublicRecord(v=1, cluster="eu", namespace="shop", time=log.now_ms, entries=[Answers(items=items)])
        raw = RawRecord(SAMPLES, 0, offset, log.now_ms, encode(record))
        found = convert(raw, Resolver(Mapping()))
        assert found.result == "ok", found.reason()
        batcher = Batcher(1)
        for entry in log_entries(found.pieces, raw, found.time_ms, 1):
            assert isinstance(entry, LogEntry)
            batcher.add(entry)
        for batch in batcher.take():
            assert len(batch.value) <= MAX_LOG_RECORD_BYTES
            made += log.add(*decode(batch.value, LogRecord).entries)
    [decision] = made
    assert (decision["metrics"][0]["podsUsed"], decision["metrics"][0]["utilization"]) == (count, 75)
    assert decision["finalDesiredReplicas"] == 30_000
    rows = log.partition.checkpoint()
    assert max(len(value) for _, value in rows) < 1_000_000, "a row must fit into a record of the changelog"
    restored = Partition.restore(0, dict(rows))
    [kept] = restored.state.namespace("eu", "shop").answers.values()
    assert joined(in_force(kept)) == answer


def test_the_fold_reads_every_kind_of_entry() -> None:
    kinds = {body.__struct_config__.tag for body in get_args(Body)}
    assert {body.__struct_config__.tag for body in get_args(FoldedBody)} == kinds


def test_an_answer_that_cannot_be_read_stops_the_partition() -> None:
    log = LogBuilder()
    record = b'{"v":1,"entries":[{"key":"eu/shop","body":{"kind":"answers","items":[{"api":7}]}}]}'
    with pytest.raises(LogError, match=r"log partition 0 entry 0\.0: .*api"):
        log.partition.apply(0, log.now_ms, record)
