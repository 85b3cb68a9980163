"""What is read of a decision record: head and outline are parts of the whole decision, and charts need no more."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleethpa.page.hpapast import HpaPast
from fleethpa.page.hpaview import charts, timeline
from schemas.codec import WireError, encode
from schemas.decisions import DecisionOutline, MetricOutline
from schemas.keys import HpaId
from schemas.kubernetes.gotimes import parse_time_ms
from streams.archive.layout import DECISIONS, LOG, ArchivedRecord, archived_record
from streams.history.recorded import Expander, Recorded, expanded, head_of
from streams.state.partition import Partition
from streams.state.records import FULL_EVERY_MS, print_time
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
    return expanded(0, enumerate(values))[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_head_and_outline_are_parts_of_the_whole_decision(seed: int) -> None:
    for each in recorded_of(seed):
        whole, head, outline = each.decision, each.head, each.outline
        assert (head.id, head.seq, head.kind, head.completes) == (whole.id, whole.seq, whole.kind, whole.completes)
        assert each.hpa == HpaId(whole.cluster, whole.namespace, whole.name)
        assert each.time_ms == parse_time_ms(whole.time)
        for name in set(DecisionOutline.__struct_fields__) - {"metrics"}:
            assert getattr(outline, name) == getattr(whole, name), name
            assert name in ("id", "constraints_applied") or getattr(each.facts, name) == getattr(whole, name), name
        shown = [{name: getattr(m, name) for name in MetricOutline.__struct_fields__} for m in whole.metrics]
        assert [{name: getattr(m, name) for name in MetricOutline.__struct_fields__} for m in outline.metrics] == shown


def test_the_decisions_that_these_laws_are_tried_on_have_all_forms() -> None:
    everything = [each for seed in SEEDS for each in recorded_of(seed)]
    assert {(each.short, each.decision.kind) for each in everything} == {
        (True, "evaluation"),
        (False, "evaluation"),
        (False, "completion"),
    }
    assert any(each.outline.observed.get("change") for each in everything)
    assert any(metric.error for each in everything for metric in each.outline.metrics)


@pytest.mark.parametrize("seed", SEEDS)
def test_charts_and_timeline_of_short_records_are_those_of_whole_decisions(seed: int) -> None:
    decisions = recorded_of(seed)
    whole = expanded(0, ((each.offset, encode(each.decision)) for each in decisions))[1]
    assert not any(each.short for each in whole)
    for hpa in {each.hpa for each in decisions}:
        mine, others = ([each for each in all_ if each.hpa == hpa] for all_ in (decisions, whole))
        assert charts(mine) == charts(others)
        assert timeline(HpaPast(mine, (), True)) == timeline(HpaPast(others, (), True))


@given(st.integers(0, parse_time_ms("9999-12-31T23:59:59.999Z")))
def test_the_time_of_a_head_is_that_of_the_decision(time_ms: int) -> None:
    value = f'{{"id":"0-1-u","seq":1,"time":"{print_time(time_ms)}"}}'.encode()
    assert head_of(0, 0, value).time_ms == parse_time_ms(print_time(time_ms)) == time_ms


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"{", id="not JSON"),
        pytest.param(b"\xff", id="not text"),
        pytest.param(b'{"seq":1,"time":"2026-01-01T00:00:00.000Z"}', id="no id"),
        pytest.param(b'{"id":"u","seq":1,"time":"2026-01-01T00:00:00.000Z"}', id="another id"),
        pytest.param(b'{"id":"0-1-u","seq":1,"time":"2026-01-01T00:00:00.000"}', id="a time without its zone"),
    ],
)
def test_a_record_without_the_head_of_a_decision_is_named(value: bytes) -> None:
    with pytest.raises(WireError, match=r"^decision at 3@7: "):
        Expander().take(3, 7, value)


def test_a_damaged_record_is_named_when_it_is_looked_at() -> None:
    value = b'{"id":"0-1-u","seq":1,"time":"2026-01-01T00:00:00.000Z","uid":"u","metrics":7}'
    found = Expander().take(3, 7, value)
    assert found is not None
    with pytest.raises(WireError, match=r"^decision at 3@7: "):
        _ = found.decision
    with pytest.raises(WireError, match=r"^decision at 3@7: .*metrics"):
        _ = found.outline


def test_full_records_of_another_hpa_of_the_same_uid_do_not_displace_those_of_one() -> None:
    def value(number: int, cluster: str, rest: str) -> bytes:
        place = f'"cluster":"{cluster}","namespace":"n","name":"web"'
        return f'{{"id":"0-{number}-u","seq":{number},"time":"2026-01-01T00:00:00.000Z",{place},{rest}}}'.encode()

    expander, full = Expander(), '"uid":"u"'
    for number in range(1, 10):
        assert expander.take(0, number, value(number, "east" if number == 1 else "west", full)) is not None
    short = expander.take(0, 10, value(10, "", '"sameAs":"0-1-u"'))
    assert short is not None
    assert (short.hpa.cluster, expander.lacking) == ("east", [])


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
    """A stretch begins with short records whose full ones are in the stretch before: that is no reason to read all."""
    past, everything = StretchesPast(length), recorded_of(SEEDS[-1])
    found = (await past.tail(lambda _, decisions: len(decisions) >= asked))[0]
    assert [each.offset for each in found] == list(range(len(everything)))[len(everything) - len(found) :]
    assert len(found) >= min(asked, len(everything))
    repeated = max(each.offset - each.full.offset for each in everything if each.full is not None)
    assert past.read <= 2 * (asked + repeated) + 2 * length


async def test_who_follows_reads_back_until_every_hpa_can_be_expanded() -> None:
    past = StretchesPast(20)
    assert [each async for each in past.follow()] == []
    newest = {each.hpa: each.full or each for each in recorded_of(SEEDS[-1])}
    needed = len(recorded_of(SEEDS[-1])) - min(each.offset for each in newest.values())
    assert needed <= past.read < len(recorded_of(SEEDS[-1]))


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
    """The stretch before begins with short records of all HPAs whose full ones lie further back."""
    past, everything = PlacedPast(), recorded_of(SEEDS[-1])
    assert {each.hpa.name for each in everything} == {"app0", "app1", "app2"}
    since_ms = everything[-1].time_ms - 3 * 60_000
    found = [each async for each in past.decisions(0, since_ms, None, lambda hpa: hpa.name == name)]
    assert found == [each for each in everything if each.time_ms >= since_ms and each.hpa.name == name]
    assert found
    assert past.firsts == [await past.offset_at(DECISIONS, 0, since_ms - FULL_EVERY_MS)]
    assert past.firsts[0] > 0
