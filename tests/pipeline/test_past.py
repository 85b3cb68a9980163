"""State rows as a broker's changelog holds them: the newest checkpoint, also where some rows are quiet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fleethpa.lab.simulator.broker import EmbeddedBroker
from fleethpa.page.hpapast import KeptPasts, number_of
from schemas import topics
from schemas.connection import KafkaSettings
from schemas.keys import HpaId
from schemas.observed import Command
from schemas.partitioning import partition_for
from schemas.topics import EMBEDDED_PARTITIONS as PARTITIONS
from streams.archive.layout import DECISIONS
from streams.history import kafkapast
from streams.history.checkpointrows import NewestCheckpoint
from streams.history.kafkapast import KafkaPast
from streams.partition import Partition
from streams.state.rowcodec import applied_offset, merge_row, row_kind
from tests.kit.archive import ENFORCING, decided
from tests.kit.generated_log import START_MS, Fleet, GeneratedRecord, partition_log
from tests.kit.questions import TopicRecord, _record, produce

FLEET = Fleet(hpas=6, namespaces=2, minutes=6, metrics=1, settings=ENFORCING)
HPA = HpaId("c0", "ns1", "app1")
Rows = list[tuple[bytes, bytes]]


@pytest.fixture(scope="module")
def rows() -> Rows:
    """The changelog of a partition in which one HPA of six is off, so that its row is written once."""
    partition, found = Partition.empty(0), Rows()
    log = partition_log(FLEET)
    off = _record("c0/ns0", START_MS + 500, 0, Command(command="mode", name="app0", mode="off"))
    known = 1 + FLEET.namespaces  # settings, and a record for each namespace
    for offset, (_, time_ms, value) in enumerate([*log[:known], (0, START_MS + 500, off.value), *log[known:]]):
        partition.apply(offset, time_ms, value)
        if partition.due_checkpoint:
            found += partition.checkpoint()
    return found


@pytest.fixture(scope="module")
def broker(rows: Rows) -> Iterator[KafkaSettings]:
    with EmbeddedBroker() as running:
        running.ensure_topics([topics.LOG, topics.DECISIONS, topics.CHANGELOG])
        settings = KafkaSettings(bootstrap_servers=running.bootstrap)
        produce(settings, [TopicRecord(topics.CHANGELOG, 0, START_MS, key, value) for key, value in rows])
        yield settings


@pytest.mark.parametrize("shared", [True, False], ids=["one connection", "a connection for each reading"])
async def test_rows_that_have_been_quiet_are_looked_up_where_they_are(
    broker: KafkaSettings, rows: Rows, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest: dict[bytes, bytes] = {}
    for key, value in rows:
        merge_row(newest, key, value)
    quiet = [key for key, _ in rows if row_kind(key) == ("h", "c0/ns0/app0")]
    assert len(quiet) == 1
    taken = 0
    take = NewestCheckpoint.add

    def counted(found: NewestCheckpoint, *record: Any) -> None:
        nonlocal taken
        taken += 1
        take(found, *record)

    monkeypatch.setattr(NewestCheckpoint, "add", counted)
    monkeypatch.setattr(kafkapast, "ROWS", 8)
    past = KafkaPast(broker)
    if shared:
        async with past.opened():
            found = await past.newest_rows(0)
    else:
        found = await past.newest_rows(0)
    assert found == newest
    assert not past.rows_gone
    assert taken < len(rows) / 2


async def test_a_decider_continues_from_the_newest_checkpoint_unless_its_rows_are_in_many_places(
    broker: KafkaSettings, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafkapast, "ROWS", 8)
    newest: dict[bytes, bytes] = {}
    for key, value in rows:
        merge_row(newest, key, value)
    end_record = max(at for at, (key, _) in enumerate(rows) if key == b"0|p")
    assert await KafkaPast(broker).checkpoint_to_continue(0) == (newest, end_record)
    monkeypatch.setattr(kafkapast, "MOST_LOOKUPS", 0)
    assert await KafkaPast(broker).checkpoint_to_continue(0) is None
    assert await KafkaPast(broker).checkpoint_to_continue(1) is None


async def test_a_checkpoint_below_an_offset_is_found_without_reading_what_is_before(
    broker: KafkaSettings, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafkapast, "ROWS", 8)
    offsets = [applied_offset(value) for key, value in rows if key == b"0|p"]
    for below in (offsets[3] + 1, offsets[len(offsets) // 2], offsets[-1] + 100):
        wanted = max(offset for offset in offsets if offset < below)
        assert (await KafkaPast(broker).restored(0, below=below)).applied_offset == wanted
    assert not await KafkaPast(broker).checkpoint(0, below=offsets[0])


@pytest.fixture(scope="module")
def decisions() -> Iterator[KafkaSettings]:
    """Decisions of six HPAs in many batches, compressed as the decider's are."""
    made = decided([GeneratedRecord(0, *record) for record in partition_log(FLEET)], 1)
    records = [
        TopicRecord(
            topics.DECISIONS, partition_for(HPA.namespace_key, PARTITIONS), each.timestamp_ms, each.key, each.value
        )
        for topic, _, each in made
        if topic == DECISIONS
    ]
    with EmbeddedBroker() as running:
        running.ensure_topics([topics.LOG, topics.DECISIONS, topics.CHANGELOG])
        settings = KafkaSettings(bootstrap_servers=running.bootstrap)
        for first in range(0, len(records), 40):
            produce(settings, records[first : first + 40])
        yield settings


async def test_of_the_decisions_on_topics_those_of_one_hpa_are_decoded(decisions: KafkaSettings) -> None:
    async with KafkaPast(decisions).opened() as past:
        number = await number_of(past, HPA)
        everything = [each async for each in past.decisions(number, None, None, HPA.__eq__)]
        for since_ms in (START_MS, everything[-3].time_ms):
            found = await KeptPasts().decisions(past, HPA, since_ms)
            wanted = [(each.offset, each.value) for each in everything if each.time_ms >= since_ms]
            assert [(each.offset, each.value) for each in found] == wanted != []


async def test_where_nothing_is_wanted_reading_goes_on_from_the_end(decisions: KafkaSettings) -> None:
    none = HpaId("c0", "ns1", "none")
    async with KafkaPast(decisions).opened() as past:
        number = await number_of(past, HPA)
        window, *_ = await past.windows(number, None, None, none.__eq__)
        end = (await past.offsets(DECISIONS, number)).stop
        window.hpa = none
        read = [each async for each in past.newer(window, checked=False)]
        assert not any(read)
        assert window.position == end
