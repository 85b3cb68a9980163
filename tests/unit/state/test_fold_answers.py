"""What the fold reads of log records, and answers that go from an observer through ingest into a decision."""

from typing import Any, get_args

import pytest

from reconciler.core.metricanswers import within_limits
from reconciler.observer.observertopics import answer_records
from schemas.answers import Answers, MetricAnswer, PodUsage, in_columns
from schemas.codec import decode, encode
from schemas.entries import Body, LogRecord, PublicRecord
from schemas.observed import AutoscalerSet, PodSet
from schemas.topics import MAX_LOG_RECORD_BYTES, SAMPLES
from streams.ingest.convert import convert
from streams.ingest.logwriter import Batcher, LogEntry, log_entries
from streams.ingest.mapping import Mapping, Resolver
from streams.ingest.pieces import RawRecord
from streams.partition import Partition
from streams.state.answers import FoldedBody
from streams.state.ledger import LogError
from tests.kit.partition import LogBuilder, make_hpa, make_pod, scale

Json = dict[str, Any]


def test_the_fold_reads_every_kind_of_entry() -> None:
    kinds = {body.__struct_config__.tag for body in get_args(Body)}
    assert {body.__struct_config__.tag for body in get_args(FoldedBody)} == kinds


def test_an_answer_that_cannot_be_read_stops_the_partition() -> None:
    log = LogBuilder()
    record = b'{"v":1,"entries":[{"key":"eu/shop","body":{"kind":"answers","items":[{"api":7}]}}]}'
    with pytest.raises(LogError, match=r"log partition 0 entry 0\.0: .*api"):
        log.partition.apply(0, log.now_ms, record)


def decided(count: int) -> tuple[LogBuilder, MetricAnswer, list[Json]]:
    """What is decided for a target of so many pods, 10 cores of CPU each asked for and 75 % of them used."""
    names = [f"web-7d8f9c6b5-{number:05}" for number in range(count)]
    log = LogBuilder()
    log.add(AutoscalerSet(hpa=make_hpa(maxReplicas=30_000)), scale(spec=count))
    for first in range(0, count, 1_000):
        log.add(*[PodSet(pod=make_pod(name)) for name in names[first : first + 1_000]])
    usages = [PodUsage(name, log.now_ms, 15_000, [("main", {"cpu": 75, "memory": 10**12})]) for name in names]
    answer = within_limits(MetricAnswer(api="resource", selector="app=web", pods=in_columns(usages)))
    made: list[Json] = []
    for offset, items in enumerate(answer_records([answer])):
        record = PublicRecord(v=1, cluster="eu", namespace="shop", time=log.now_ms, entries=[Answers(items=items)])
        raw = RawRecord(SAMPLES, 0, offset, log.now_ms, encode(record))
        found = convert(raw, Resolver(Mapping()))
        assert found.result == "ok", found.reason()
        batcher = Batcher(1)
        for entry in log_entries(found.pieces, raw, found.time_ms, 1):
            assert isinstance(entry, LogEntry)
            batcher.add(entry)
        for batch in batcher.batches():
            assert len(batch.value) <= MAX_LOG_RECORD_BYTES
            made += log.add(*decode(batch.value, LogRecord).entries)
    return log, answer, made


@pytest.mark.slow
def test_ten_thousand_pods_of_one_target_go_from_the_observer_through_ingest_into_a_decision() -> None:
    log, answer, [decision] = decided(10_000)
    assert (decision["metrics"][0]["podsUsed"], decision["metrics"][0]["utilization"]) == (10_000, 75)
    assert decision["finalDesiredReplicas"] == 15_000
    rows = log.partition.checkpoint()
    assert max(len(value) for _, value in rows) < 1_000_000, "a row must fit into a record of the changelog"
    restored = Partition.restore(0, dict(rows))
    [kept] = restored.state.namespace("eu", "shop").answers.values()
    assert kept.answer == answer


@pytest.mark.slow
def test_one_pod_more_is_a_failure_of_the_metric_that_names_the_bound() -> None:
    _, answer, [decision] = decided(10_001)
    text = "pods in an answer of a metrics API of resource: 10001 pods, the limit is 10000"
    assert answer == MetricAnswer(api="resource", selector="app=web", error=text)
    assert decision["metrics"][0]["error"].endswith(text)
    assert decision["finalDesiredReplicas"] == 10_001
