"""How much of a topic that others write is read, and in which order."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from runtime.batches import BatchHeader
from schemas import topics
from schemas.agents import AgentSet
from schemas.limits import BATCH, CYCLE_BYTES, CYCLE_RECORDS, RECORD_BYTES
from streams.ingest import loop
from streams.ingest.convert import SAMPLE
from streams.ingest.logwriter import IngestMetrics
from streams.ingest.pieces import REPORTED_BYTES, SAMPLED_BYTES, Rate
from streams.ingest.preflight import EXAMPLE_TIME_MS, IngestConfig, example
from streams.ingest.sourcerates import SourceGate, cost_of, is_trusted

AGENT = AgentSet(cluster="east", incarnation=7).topics.reports
OTHER_AGENT = AgentSet(cluster="west", incarnation=7).topics.reports
SHOP = "shop.samples"
NOW_S = 1_790_000_000.0


@pytest.mark.parametrize(
    ("size", "records", "cost"),
    [
        pytest.param(1, 1, 256, id="a byte costs as much as 256"),
        pytest.param(0, 1, 256, id="no value, too"),
        pytest.param(256, 1, 256, id="just as many"),
        pytest.param(1_000, 1, 1_000, id="more by its bytes"),
        pytest.param(218_325, 300_000, 76_800_000, id="many tiny ones by their number"),
        pytest.param(1_000_000, 10, 1_000_000, id="few large ones by their bytes"),
    ],
)
def test_each_record_counts_for_256_bytes_at_least(size: int, records: int, cost: int) -> None:
    assert cost_of(size, records) == cost


@pytest.mark.parametrize("topic", topics.PUBLIC_TOPICS)
def test_the_topics_of_observers_and_operators_are_trusted_and_have_no_rate(topic: str) -> None:
    gate = SourceGate(lambda: NOW_S)
    assert is_trusted(topic)
    assert all(gate.refusal(TopicPartition(topic, 0), flood(number)) is None for number in range(50))


def flood(number: int, at_s: float = NOW_S, records: int = 10_000, size: int = 10_000) -> BatchHeader:
    """The batch of this number, of many tiny records."""
    return BatchHeader(number * records, (number + 1) * records - 1, records, size, int(at_s * 1000))


def taken(gate: SourceGate, batches: Sequence[BatchHeader], topic: str = AGENT, partitions: int = 1) -> int:
    """How many records of these batches are read."""
    tps = [TopicPartition(topic, number) for number in range(partitions)]
    return sum(
        batch.records for number, batch in enumerate(batches) if not gate.refusal(tps[number % partitions], batch)
    )


@pytest.mark.parametrize(("topic", "rate"), [(AGENT, REPORTED_BYTES), (SHOP, SAMPLED_BYTES)])
def test_at_once_no_more_is_read_than_the_rate_admits_by_number(topic: str, rate: Rate) -> None:
    most = rate.burst // RECORD_BYTES.most
    assert most - 10_000 < taken(SourceGate(lambda: NOW_S), [flood(number) for number in range(500)], topic) <= most


def test_all_partitions_of_a_topic_count_together() -> None:
    found = taken(SourceGate(lambda: NOW_S), [flood(number) for number in range(500)], SHOP, partitions=24)
    assert found <= SAMPLED_BYTES.burst // RECORD_BYTES.most


def test_another_topic_is_not_concerned() -> None:
    gate = SourceGate(lambda: NOW_S)
    taken(gate, [flood(number) for number in range(500)])
    assert gate.refusal(TopicPartition(OTHER_AGENT, 0), flood(0)) is None


def test_what_waited_while_ingest_was_away_is_no_flood() -> None:
    """An hour of reports of 8,000 records a second, read at once."""
    hour = [flood(number, NOW_S - 3_600 + 5 * number, records=40_000) for number in range(720)]
    assert taken(SourceGate(lambda: NOW_S), hour) == 720 * 40_000


@given(st.lists(st.floats(0, 2 * NOW_S), min_size=100, max_size=300))
def test_by_false_times_no_more_is_read_than_in_an_hour(times_s: list[float]) -> None:
    batches = [flood(number, at_s, records=120_000) for number, at_s in enumerate(times_s)]
    assert taken(SourceGate(lambda: NOW_S), batches) * 256 <= REPORTED_BYTES.burst + 3_600 * REPORTED_BYTES.per_s


def test_a_time_in_the_future_is_now() -> None:
    gate = SourceGate(lambda: NOW_S)
    assert taken(gate, [flood(number, NOW_S + 1e6 * number) for number in range(500)]) * 256 <= REPORTED_BYTES.burst


def test_what_a_batch_is_unpacked_counts_and_a_bomb_counts_as_much_as_may_be_unpacked() -> None:
    gate, tp = SourceGate(lambda: NOW_S), TopicPartition(AGENT, 0)
    small = [flood(number, records=1, size=60_000) for number in range(10)]
    read = 0
    for batch in small:
        if gate.refusal(tp, batch) is None:
            gate.unpacked(tp, batch, BATCH.most)
            read += 1
    assert read == 2


def test_a_batch_that_is_fetched_again_is_not_counted_again() -> None:
    gate, tp = SourceGate(lambda: NOW_S), TopicPartition(AGENT, 0)
    assert all(gate.refusal(tp, flood(0)) is None for _ in range(500))


def test_the_refusal_names_agent_rate_and_how_records_count() -> None:
    gate = SourceGate(lambda: NOW_S)
    taken(gate, [flood(number) for number in range(100)])
    refusal = gate.refusal(TopicPartition(AGENT, 0), flood(100))
    assert refusal is not None
    assert refusal.code == "overRate"
    assert "agent of cluster 'east'" in refusal.text
    assert "256" in refusal.text
    assert "2,097,152 per second" in refusal.text


# --- in turn ----------------------------------------------------------------------------------------------------------


class Consumer:
    """Remembers which partitions are paused."""

    def __init__(self) -> None:
        self.paused: set[TopicPartition] = set()

    def pause(self, tp: TopicPartition) -> None:
        self.paused.add(tp)

    def resume(self, tp: TopicPartition) -> None:
        self.paused.discard(tp)

    def ends_seen(self) -> dict[TopicPartition, int]:
        return {}


class Log:
    """Keeps which sources were written, in order."""

    def __init__(self) -> None:
        self.rejected: list[str] = []

    async def write(self, batches: Sequence[Any], rejects: Sequence[Any]) -> None:
        self.rejected += [dict(reject.headers)["topic"].decode() for reject in rejects]


def worker(log: Log, **config: Any) -> loop.Worker:
    return loop.Worker(IngestConfig(**config), Consumer(), log, IngestMetrics(), 4)  # type: ignore[arg-type]


def records(topic: str, count: int, *, partition: int = 0, value: bytes = b"x", time_ms: int = 1) -> Any:
    named: dict[str, Any] = {"timestamp": time_ms, "timestamp_type": 0, "key": None, "value": value, "checksum": None}
    named |= {"serialized_key_size": -1, "serialized_value_size": len(value), "headers": ()}
    tp = TopicPartition(topic, partition)
    return {tp: [ConsumerRecord(topic=topic, partition=partition, offset=each, **named) for each in range(count)]}


def places(*tps: TopicPartition) -> dict[TopicPartition, loop.PartitionProgress]:
    return {tp: loop.PartitionProgress(0, 0, 0, 0) for tp in tps}


async def test_no_record_of_an_observer_waits_for_those_of_a_producer_whatever_times_they_state() -> None:
    log = Log()
    made = worker(log)
    made._hold(records(SHOP, 10_000))
    made._hold(records(topics.SAMPLES, 3, value=b"bad", time_ms=EXAMPLE_TIME_MS))
    at = places(TopicPartition(SHOP, 0), TopicPartition(topics.SAMPLES, 0))
    await made._write(at)
    assert Counter(log.rejected) == {topics.SAMPLES: 3, SHOP: CYCLE_RECORDS.most}
    assert log.rejected[:3] == [topics.SAMPLES] * 3
    assert at[TopicPartition(SHOP, 0)].written == CYCLE_RECORDS.most


async def test_a_producer_that_is_behind_holds_no_observer_up() -> None:
    log = Log()
    made = worker(log)
    made._hold(records(topics.SAMPLES, 3, value=b"bad", time_ms=EXAMPLE_TIME_MS))
    at = places(TopicPartition(SHOP, 0), TopicPartition(topics.SAMPLES, 0))
    at[TopicPartition(SHOP, 0)].end = 1_000_000
    await made._write(at)
    assert log.rejected == [topics.SAMPLES] * 3


async def test_each_topic_has_its_turn_whoever_came_first_and_from_however_many_partitions() -> None:
    log = Log()
    made = worker(log)
    for partition in range(4):
        made._hold(records(SHOP, 1_000, partition=partition))
    made._hold(records("calm.samples", 20))
    await made._write(places(*(TopicPartition(SHOP, number) for number in range(4)), TopicPartition("calm.samples", 0)))
    assert log.rejected.count("calm.samples") == 20
    assert len(log.rejected) == CYCLE_RECORDS.most


async def test_large_records_of_a_cycle_are_bounded_by_their_bytes() -> None:
    log = Log()
    made = worker(log)
    made._hold(records(SHOP, 100, value=b" " * 1_000_000))
    await made._write(places(TopicPartition(SHOP, 0)))
    assert len(log.rejected) == CYCLE_BYTES.most // 1_000_000 + 1


async def test_all_is_written_in_order_and_a_paused_partition_is_read_on() -> None:
    log, consumer = Log(), Consumer()
    made = loop.Worker(IngestConfig(), consumer, log, IngestMetrics(), 4)  # type: ignore[arg-type]
    made._hold(records(SHOP, 20_000))
    tp = TopicPartition(SHOP, 0)
    assert consumer.paused == {tp}
    at = places(tp)
    while at[tp].written < 20_000:
        before = at[tp].written
        await made._write(at)
        assert at[tp].written == before + CYCLE_RECORDS.most
    assert (consumer.paused, len(log.rejected)) == (set(), 20_000)


async def test_in_playback_all_are_merged_by_their_times() -> None:
    made = worker(Log(), timestamp="source")
    made._hold(records(SHOP, 2, value=example(SAMPLE)))
    assert len(made._merge) == 2
