"""What is read of a decision record, and each decision once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import WireError, encode
from schemas.keys import HpaId
from schemas.kubernetes.gotimes import parse_time_ms
from streams.archive.layout import DECISIONS, LOG, ArchivedRecord, archived_record
from streams.history.past import NEAR_MS
from streams.history.recorded import Recorded, in_sequence, recorded_at
from streams.partition import Partition
from tests.kit.archive import ENFORCING
from tests.kit.generated_log import Fleet, partition_log
from tests.kit.memorypast import MemoryPast
from tests.kit.partition import disturbed_log

SEEDS = range(4)


@cache
def recorded_of(seed: int) -> list[Recorded]:
    """Decisions of a log in which everything happens, or (last seed) whose loads move as they do in a fleet."""
    records: Sequence[tuple[int, int, bytes]] = disturbed_log(seed, 250).records
    if seed == SEEDS[-1]:
        records = partition_log(Fleet(hpas=3, namespaces=1, minutes=30, metrics=3, settings=ENFORCING))
    partition = Partition.empty(0)
    values = [made.value for record in records for made in partition.apply(*record)]
    return in_sequence(0, enumerate(values))


def test_the_decisions_that_these_laws_are_tried_on_have_all_kinds() -> None:
    everything = [each for seed in SEEDS for each in recorded_of(seed)]
    assert {each.decision.kind for each in everything} == {"evaluation", "completion"}
    assert any(each.decision.observed.get("change") for each in everything)
    assert any(metric.error for each in everything for metric in each.decision.metrics)


def value(number: int = 1, **fields: Any) -> bytes:
    time = "2026-01-01T00:00:00.000Z"
    position = {"partition": 3, "offset": 7, "hash": ""}
    names = {"cluster": "east", "namespace": "n", "name": "web", "uid": "u"}
    made = {"id": f"0-{number}-u", "seq": number, "prev": ""} | names | {"time": time, "input": position}
    return encode(made | fields)


def test_a_record_says_whose_it_is_and_when_it_was_decided() -> None:
    found = recorded_at(3, 7, value())
    assert (found.hpa, found.partition, found.offset) == (HpaId("east", "n", "web"), 3, 7)
    assert found.time_ms == parse_time_ms("2026-01-01T00:00:00.000Z")


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(b"{", id="not JSON"),
        pytest.param(b"\xff", id="not text"),
        pytest.param(b'{"seq":1,"time":"2026-01-01T00:00:00.000Z"}', id="no id"),
        pytest.param(value(id="u"), id="another id"),
        pytest.param(value(time="2026-01-01T00:00:00.000"), id="a time without its zone"),
        pytest.param(value(metrics=7), id="metrics that are none"),
    ],
)
def test_a_record_that_is_no_decision_is_named(damaged: bytes) -> None:
    with pytest.raises(WireError, match=r"^decision at 3@7: "):
        recorded_at(3, 7, damaged)


def test_a_decision_that_was_recorded_twice_is_given_once() -> None:
    numbers = [1, 2, 3, 2, 3, 4]
    found = in_sequence(3, enumerate(map(value, numbers)))
    assert [(each.offset, each.decision.seq) for each in found] == [(0, 1), (1, 2), (2, 3), (5, 4)]


class StretchesPast(MemoryPast):
    """Its decisions are read backwards in stretches of some length, as from an archive's segments."""

    def __init__(self, length: int) -> None:
        records = [archived_record(each.offset, 0, b"", (), each.value) for each in recorded_of(SEEDS[-1])]
        super().__init__({(LOG, 0): [], (DECISIONS, 0): records})
        self.length, self.read = length, 0

    async def backwards(
        self, topic: str, partition: int, upto_ms: int | None = None
    ) -> AsyncGenerator[list[ArchivedRecord], None]:
        records = list(self.made[topic, partition])
        for end in range(len(records), 0, -self.length):
            stretch = records[max(0, end - self.length) : end]
            self.read += len(stretch)
            yield stretch


@given(st.integers(5, 200), st.integers(1, 400))
async def test_the_newest_decisions_are_read_no_further_back_than_asked(length: int, asked: int) -> None:
    past, everything = StretchesPast(length), recorded_of(SEEDS[-1])
    found = (await past.tail(lambda _, decisions: len(decisions) >= asked))[0]
    assert [each.offset for each in found] == list(range(len(everything)))[len(everything) - len(found) :]
    assert len(found) >= min(asked, len(everything))
    assert past.read <= 2 * asked + 2 * length


async def test_who_follows_begins_at_the_end() -> None:
    past = StretchesPast(20)
    assert [each async for each in past.follow()] == []
    assert past.read == 20


class PlacedPast(MemoryPast):
    """Its decisions are found by their log time, and it notes from where they are read."""

    def __init__(self) -> None:
        records = [archived_record(each.offset, each.time_ms, b"", (), each.value) for each in recorded_of(SEEDS[-1])]
        super().__init__({(LOG, 0): [], (DECISIONS, 0): records})
        self.firsts: list[int] = []

    async def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        return sum(record.timestamp_ms < time_ms for record in self.made[topic, partition])

    async def stretches(
        self, topic: str, partition: int, first: int = 0
    ) -> AsyncGenerator[Sequence[ArchivedRecord], None]:
        self.firsts.append(first)
        async for stretch in super().stretches(topic, partition, first):
            yield stretch


@pytest.mark.parametrize("name", ["app0", "app1", "app2"])
async def test_the_newest_decisions_of_one_hpa_are_read_from_their_place_on(name: str) -> None:
    past, everything = PlacedPast(), recorded_of(SEEDS[-1])
    assert {each.hpa.name for each in everything} == {"app0", "app1", "app2"}
    since_ms = everything[-1].time_ms - 3 * 60_000
    found = [each async for each in past.decisions(0, since_ms, None, lambda hpa: hpa.name == name)]
    assert found == [each for each in everything if each.time_ms >= since_ms and each.hpa.name == name]
    assert found
    assert past.firsts == [await past.offset_at(DECISIONS, 0, since_ms - NEAR_MS)]
    assert past.firsts[0] > 0
