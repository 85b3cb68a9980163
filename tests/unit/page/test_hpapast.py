"""What the view of an HPA reads, and what it keeps of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from msgspec import structs

from fleethpa.page import hpapast
from fleethpa.page.hpapast import (
    QUICK,
    WHOLE,
    Depth,
    HpaPast,
    KeptPasts,
    follow_changes,
    read_decisions,
    read_hpa,
    read_timeline,
)
from fleethpa.page.hpaview import charts, timeline
from schemas.codec import encode
from schemas.decisions import Decision, InputPosition
from schemas.keys import HpaId
from streams.archive.layout import DECISIONS, LOG, ArchivedRecord, ArchiveError, archived_record, frame, read_frames
from streams.history import recorded
from streams.history.archivepast import ArchivePast
from streams.history.recorded import DecisionWindow, Recorded, recorded_at
from streams.partition import Partition
from tests.kit.archive import Topics, topics_in_closed_loop, write_archive
from tests.kit.closedloop import ENFORCED
from tests.kit.generated_log import START_MS, Fleet
from tests.kit.memorypast import MemoryPast

HPA = HpaId("c0", "ns1", "app1")
MINUTES = 30
END_MS = START_MS + MINUTES * 60_000


@pytest.fixture(scope="module")
def topics() -> Topics:
    return topics_in_closed_loop(Fleet(hpas=5, namespaces=4, minutes=MINUTES, settings=ENFORCED, noise=0.05))


class Growing(MemoryPast):
    """A past that begins with a part of its records. `given`: how many were read from it."""

    def __init__(self, topics: Topics, until_ms: int) -> None:
        super().__init__({}, live=True)
        self._topics, self.given = topics, 0
        self.grow(until_ms)

    def grow(self, until_ms: int) -> None:
        self.made = {
            key: [record for record in records if record.timestamp_ms <= until_ms]
            for key, records in self._topics.items()
        }

    async def stretches(
        self, topic: str, partition: int, first: int = 0
    ) -> AsyncGenerator[Sequence[ArchivedRecord], None]:
        async for stretch in super().stretches(topic, partition, first):
            self.given += len(stretch)
            yield stretch


def records(decisions: Sequence[Recorded]) -> list[tuple[int, bytes]]:
    """Offsets and bytes of decisions: what was read of them."""
    return [(each.offset, each.value) for each in decisions]


async def test_what_is_read_again_reads_only_what_came_since_and_is_the_same(topics: Topics) -> None:
    kept, past = KeptPasts(), Growing(topics, START_MS + 10 * 60_000)
    for now_ms in range(START_MS + 10 * 60_000, END_MS, 197_000):
        before = sum(map(len, past.made.values()))
        past.grow(now_ms)
        came = sum(map(len, past.made.values())) - before
        past.given = 0
        since_ms = now_ms - 9 * 60_000
        found = await kept.decisions(past, HPA, since_ms)
        assert past.given <= came or now_ms == START_MS + 10 * 60_000
        assert records(found) == records([each async for each in past.decisions(0, since_ms, None, HPA.__eq__)])
        changes, read_ms = await kept.changes(past, HPA, now_ms, 9 * 60_000)
        assert read_ms == since_ms
        assert changes == await (await follow_changes(past, HPA, now_ms, 9 * 60_000)).read_on(past)


async def test_a_longer_span_is_read_anew(topics: Topics) -> None:
    kept, past = KeptPasts(), Growing(topics, END_MS)
    short = await kept.decisions(past, HPA, END_MS - 120_000)
    long = await kept.decisions(past, HPA, END_MS - 600_000)
    assert long[-len(short) :] == short
    assert records(long) == records([each async for each in past.decisions(0, END_MS - 600_000, None, HPA.__eq__)])
    assert await kept.decisions(past, HPA, END_MS - 120_000) == short


async def test_the_hpas_that_were_looked_at_last_are_kept(topics: Topics) -> None:
    kept, past = KeptPasts(), Growing(topics, END_MS)
    names = [HpaId("c0", f"ns{number % 4}", f"app{number}") for number in range(hpapast.HPAS_KEPT + 1)]
    for name in names:
        assert await kept.decisions(past, name, START_MS)
    for name, is_kept in ((names[-1], True), (names[0], False)):
        past.given = 0
        await kept.decisions(past, name, START_MS)
        assert (past.given == 0) == is_kept


async def test_many_decisions_of_one_hpa_are_not_all_kept(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hpapast, "DECISIONS_KEPT", 20)
    kept, past = KeptPasts(), Growing(topics, END_MS)
    everything = [each async for each in past.decisions(0, START_MS, None, HPA.__eq__)]
    assert records(await kept.decisions(past, HPA, START_MS)) == records(everything[-20:])
    assert records(await kept.decisions(past, HPA, everything[0].time_ms)) == records(everything[-20:])


class Timed(Growing):
    """A past that knows the offset of each time."""

    async def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        records = self.made[topic, partition]
        return next((each.offset for each in records if each.timestamp_ms >= time_ms), len(records))


@pytest.mark.parametrize(
    ("most", "hours"),
    [
        pytest.param(10_000, MINUTES / 60, id="few: the whole span"),
        pytest.param(300, 1 / 6, id="more: two whole hours, here of five minutes"),
        pytest.param(1, 1 / 12, id="many: one whole hour"),
    ],
)
async def test_a_span_with_too_many_decisions_is_read_in_whole_hours_before_its_end(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, most: int, hours: float
) -> None:
    monkeypatch.setattr(hpapast, "MOST_READ", most)
    monkeypatch.setattr(hpapast, "HOUR_MS", 300_000)
    past, span_ms, begin_ms = Timed(topics, END_MS), MINUTES * 60_000, END_MS - int(hours * 3_600_000)
    wanted = [each async for each in past.decisions(0, begin_ms, None, HPA.__eq__)]
    shown_ms = begin_ms if begin_ms > START_MS else 0
    for read in (read_decisions, read_timeline):
        found, read_since_ms = await read(past, HPA, END_MS, span_ms)
        assert (records(found), read_since_ms) == (records(wanted), shown_ms)
    assert charts(wanted, shown_ms) == charts(found, shown_ms)
    assert charts(found, shown_ms).since == shown_ms / 1000


async def test_changes_are_read_from_the_newest_stored_state_on_where_the_log_since_an_older_one_is_too_long(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = topics[LOG, 0]
    partition = Partition.empty(0)
    for record in log[:-5]:
        partition.apply(*record.plain)
    rows = dict(partition.checkpoint())

    class Stored(Growing):
        async def checkpoint(
            self, partition: int, *, below: int | None = None, before_ms: int | None = None
        ) -> Mapping[bytes, bytes]:
            return {} if below is None else rows

    past = Stored(topics, END_MS)
    assert (await follow_changes(past, HPA, END_MS, 600_000)).since_ms == END_MS - 600_000
    monkeypatch.setattr(hpapast, "MOST_FOLDED", 10)
    followed = await follow_changes(past, HPA, END_MS, 600_000)
    assert followed.since_ms == partition.clock_ms
    past.log_records_read = 0
    assert await followed.read_on(past) == []
    assert past.log_records_read == 5


async def test_a_view_that_is_shown_quickly_has_a_part_and_says_that_there_is_more(topics: Topics) -> None:
    quick = Depth(most_folded=50, most_again=50)
    past, kept, span_ms = Growing(topics, END_MS), KeptPasts(), 20 * 60_000
    past.at_ms = END_MS
    first = await read_hpa(past, HPA, None, END_MS, span_ms, kept, quick)
    assert past.log_records_read == 0
    assert first.has_more
    assert not kept.is_read(HPA, span_ms)
    whole = await read_hpa(past, HPA, None, END_MS, span_ms, kept)
    assert past.log_records_read > 0
    assert not whole.has_more
    assert kept.is_read(HPA, span_ms)
    assert not kept.is_read(HPA, span_ms + 1)
    assert first.decisions == whole.decisions
    assert first.again is not None
    assert whole.again is not None
    assert (first.again.is_far, first.again.would, whole.again.is_far) == (True, None, False)
    assert whole.again.would is not None


async def test_a_window_takes_all_decisions_of_its_hpa_and_decodes_few_others(topics: Topics, tmp_path: Path) -> None:
    """Records of others are not decoded."""
    archive = write_archive(
        tmp_path, Fleet(partitions=1), segment_ms=600_000, topics=topics, sign_every=10**9, flush_every=40
    )
    past = ArchivePast(archive)
    names = [HpaId("c0", f"ns{number % 4}", f"app{number}") for number in range(3)]
    for name, since_ms in product([*names, HpaId("c0", "ns0", "none")], range(START_MS, END_MS, 830_000)):
        found = await KeptPasts().decisions(past, name, since_ms)
        assert records(found) == records([each async for each in past.decisions(0, since_ms, None, name.__eq__)])
        assert bool(found) == (name in names)


def test_of_others_only_the_first_and_the_last_of_a_stretch_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [HPA, HpaId("c0", "ns1", "app2"), HpaId("c0", "ns2", "app1"), HpaId("c1", "ns1", "app1")]
    made = [archived_record(at, 0, b"", (), record_of(at, names[at % 4])) for at in range(1, 12)]
    decoded: list[int] = []

    def counted(partition: int, offset: int, value: bytes, read: Callable[[bytes], Decision]) -> Recorded:
        decoded.append(offset)
        return recorded_at(partition, offset, value, read)

    monkeypatch.setattr(recorded, "recorded_at", counted)
    window = DecisionWindow(0, 0, 0, None, HPA.__eq__)
    window.hpa = HPA
    assert [each.offset for each in (*window.add(made[:6]), *window.add(made[6:]))] == [4, 8]
    assert decoded == [1, 4, 6, 8, 11]
    assert window.position == 12


def record_of(number: int, hpa: HpaId) -> bytes:
    """A decision of an HPA."""
    return encode(
        Decision(
            id=f"0-{number}-u",
            seq=number,
            prev="",
            cluster=hpa.cluster,
            namespace=hpa.namespace,
            name=hpa.name,
            uid="u",
            time="2026-11-21T12:00:00.000Z",
            input=InputPosition(partition=0, offset=number, hash=""),
            scale_target_ref={},
            mode="shadow",
        )
    )


async def test_what_an_archive_holds_is_shown_before_it_is_checked(topics: Topics, tmp_path: Path) -> None:
    archive = write_archive(tmp_path, Fleet(partitions=1), segment_ms=600_000, topics=topics, sign_every=10**9)
    kept, past = KeptPasts(), ArchivePast(archive, checked=True)
    first = await read_hpa(past, HPA, None, END_MS, 600_000, kept, QUICK)
    change_newest_segment(archive)
    again = await read_hpa(past, HPA, None, END_MS, 600_000, KeptPasts(), QUICK)
    assert list(first.decisions) == list(again.decisions)
    with pytest.raises(ArchiveError, match="not those that its manifest names"):
        await read_hpa(past, HPA, None, END_MS, 600_000, kept)


def change_newest_segment(archive: Path) -> None:
    """Give the decisions of the newest closed segment another key."""
    change_segment(max((archive / DECISIONS / "0").glob("[0-9]*.zst")))


def change_segment(segment: Path) -> None:
    """Give the decisions of a closed segment another key."""
    frames = [found for _, found in read_frames(segment, torn_end_ok=False)]
    segment.write_bytes(
        b"".join(frame([structs.replace(each, key=b"x") for each in found], DECISIONS) for found in frames)
    )


async def test_a_view_of_an_archive_has_more_until_it_is_checked(topics: Topics, tmp_path: Path) -> None:
    archive = write_archive(tmp_path, Fleet(partitions=1), segment_ms=600_000, topics=topics, sign_every=10**9)
    kept, past = KeptPasts(), ArchivePast(archive, checked=True)
    quick = replace(QUICK, most_folded=20_000, most_again=20_000)
    assert (await read_hpa(past, HPA, None, END_MS, 600_000, kept, quick)).has_more
    assert not (await read_hpa(past, HPA, None, END_MS, 600_000, kept)).has_more
    assert not (await read_hpa(past, HPA, None, END_MS, 600_000, kept, quick)).has_more
    assert not (await read_hpa(past, HPA, None, END_MS, 600_000, KeptPasts(), quick)).has_more


async def test_a_moment_of_an_archive_is_not_verified_until_the_files_of_its_span_are_checked(
    topics: Topics, tmp_path: Path
) -> None:
    archive = write_archive(tmp_path, Fleet(partitions=1), segment_ms=600_000, topics=topics, sign_every=10**9)
    at_ms, span_ms = END_MS - 1_500_000, 300_000
    quick = replace(QUICK, most_folded=20_000, most_again=20_000)

    async def read(depth: Depth) -> tuple[bool, bool]:
        past = ArchivePast(archive, checked=True, at_ms=at_ms)
        found = await read_hpa(past, HPA, at_ms, at_ms, span_ms, KeptPasts(), depth)
        return found.is_checked, found.has_more

    assert await read(quick) == (False, True)
    change_newest_segment(archive)  # it is later than the span
    assert await read(WHOLE) == (True, False)
    assert await read(quick) == (True, False)
    change_segment(min((archive / DECISIONS / "0").glob("[0-9]*.zst")))
    with pytest.raises(ArchiveError, match=r"no frame begins at byte|not those that its manifest names"):
        await read(WHOLE)


async def test_what_becomes_of_an_archive_after_it_was_checked_is_checked_too(topics: Topics, tmp_path: Path) -> None:
    archive = write_archive(tmp_path, Fleet(partitions=1), segment_ms=600_000, topics=topics, sign_every=10**9)
    kept, past = KeptPasts(), ArchivePast(archive, checked=True)
    await read_hpa(past, HPA, None, END_MS, 600_000, kept)
    change_newest_segment(archive)
    with pytest.raises(ArchiveError, match="not those that its manifest names"):
        await read_hpa(past, HPA, None, END_MS, 600_000, kept)


async def test_what_would_have_changed_it_is_left_to_a_command_where_that_costs_too_much(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hpapast, "WHOLE", replace(WHOLE, most_again=50))
    past = Growing(topics, END_MS)
    past.at_ms = END_MS
    found = await read_hpa(past, HPA, None, END_MS, 20 * 60_000, KeptPasts(), hpapast.WHOLE)
    assert found.again is not None
    assert found.again.is_far
    assert not found.has_more
    assert found.next_step == f"fleethpa explain {found.again.recorded.decision.id}"


async def test_what_is_little_is_shown_whole_at_once(topics: Topics) -> None:
    quick = Depth(most_folded=20_000)
    past, span_ms = Growing(topics, END_MS), 10 * 60_000
    past.at_ms = END_MS
    assert await read_hpa(past, HPA, None, END_MS, span_ms, KeptPasts(), quick) == await read_hpa(
        past, HPA, None, END_MS, span_ms, KeptPasts()
    )


def test_a_write_whose_outcome_never_came_is_told_by_its_decision(topics: Topics) -> None:
    record = next(each for (topic, _), records in topics.items() if topic == DECISIONS for each in records)
    seen = recorded_at(0, 0, record.value)
    change = {"from": 2, "to": 4, "by": "decision", "decision": "0-2-uid", "outcome": "lost"}
    late = structs.replace(seen, decision=structs.replace(seen.decision, observed={"change": change}))
    told = [line["text"] for line in timeline(HpaPast([late], (), is_whole=True)) if line["kind"] == "hand"]
    assert told == ["written by fleethpa, for decision 0-2-uid, whose outcome never came"]
