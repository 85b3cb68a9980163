"""Verification over archives: what is right is found right, and the first wrong record is named."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from schemas.codec import encode
from schemas.entries import WHOLE_PARTITION_KEY, Entry, LogRecord
from schemas.settings import EngineSet
from streams.archive.layout import DECISIONS, LOG, ArchivedRecord, archived_record
from streams.history.archivepast import ArchivePast
from streams.history.parallel import ReplayPool
from streams.history.replay import Report, Task
from streams.history.verify import _Checker, checkpoints_of, verify, verify_partition
from streams.state.rowcodec import applied_offset, decode_row, encode_row, row_kind
from streams.state.rows import HpaRow
from tests.kit.archive import SMALL, topics_of, write_archive
from tests.kit.damage import decided_anew
from tests.kit.memorypast import MemoryPast


async def verified(root: Path, since_ms: int | None = None, jobs: int = 1) -> list[Report]:
    pool = ReplayPool(verify_partition, jobs)
    reports = [report async for report in verify(ArchivePast(root), since_ms, checkpoints_of(root, None), pool)]
    return sorted(reports, key=lambda report: report.partition)


@pytest.mark.parametrize("finish", [True, False], ids=["complete", "with open segments"])
async def test_an_archive_that_is_right_is_found_right(tmp_path: Path, finish: bool) -> None:
    write_archive(tmp_path, finish=finish)
    reports = await verified(tmp_path)
    want = topics_of(SMALL)
    assert [report.fault for report in reports] == ["", ""]
    assert [report.decisions for report in reports] == [len(want["decisions", n]) for n in range(2)]
    assert [report.log_records for report in reports] == [len(want["log", n]) for n in range(2)]
    assert all(report.snapshots >= 3 for report in reports)
    assert sum(report.decisions for report in reports) > 100


async def test_several_processes_find_the_same_as_one(tmp_path: Path) -> None:
    write_archive(tmp_path)
    assert await verified(tmp_path, jobs=2) == await verified(tmp_path, jobs=1)


@pytest.mark.parametrize("damage", ["none", "a copy", "another header", "another key"])
async def test_decisions_that_are_taken_as_recorded_are_found_as_where_each_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    made = topics_of(SMALL)
    records = made[DECISIONS, 0]
    at = len(records) // 2
    one = records[at]
    if damage == "a copy":
        records.insert(at, records[at - 1])
        records[:] = [structs.replace(record, offset=offset) for offset, record in enumerate(records)]
    elif damage == "another header":
        headers = [*one.headers, ("ce_more", b"1")]
        records[at] = archived_record(one.offset, one.timestamp_ms, one.key, headers, one.value)
    elif damage == "another key":
        records[at] = structs.replace(one, key=b"east/other")
    write_archive(tmp_path, topics=made)
    found = await verified(tmp_path)
    assert [report.fault for report in found] == ["", ""]
    assert found[0].duplicates == (damage == "a copy")
    assert found[0].diverged == (damage.startswith("another"))
    assert found[0].identical + found[0].diverged == found[0].decisions > 30
    monkeypatch.setattr(_Checker, "_are_as_recorded", lambda self, step: False)
    assert await verified(tmp_path) == found


async def test_an_engine_change_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("fold", "partition"):
        monkeypatch.setattr(f"streams.state.{module}.ENGINE", 2)
    made = topics_of(SMALL)
    change = encode(LogRecord(v=1, entries=[Entry(key=WHOLE_PARTITION_KEY, body=EngineSet(engine=2))]))
    log = made[LOG, 0]
    tick = next(n for n, record in enumerate(log) if n > 100 and record.value == encode(LogRecord(v=1, entries=[])))
    log[tick] = structs.replace(log[tick], value=change)
    forged = decided_anew(made, 0)
    assert forged is not None
    write_archive(tmp_path, topics=forged)
    reports = await verified(tmp_path)
    assert [report.fault for report in reports] == ["", ""]
    assert [report.engine_changes for report in reports] == [[(tick, 2)], []]


async def test_a_late_window_starts_from_a_snapshot(tmp_path: Path) -> None:
    write_archive(tmp_path)
    whole, late = await verified(tmp_path), await verified(tmp_path, SMALL.start_ms + 180_000)
    assert [report.fault for report in late] == ["", ""]
    assert all(0 < b.log_records < a.log_records / 2 for a, b in zip(whole, late, strict=True))
    assert all(report.start > 0 for report in late)


def _stored_hpas(rows: dict[bytes, bytes], change: Callable[[bytes, bytes], bytes]) -> dict[bytes, bytes]:
    return {key: change(key, value) if row_kind(key)[0] == "h" else value for key, value in rows.items()}


def _with_another_uid(key: bytes, value: bytes) -> bytes:
    row = decode_row(key, value)
    assert isinstance(row, HpaRow)
    return encode_row(applied_offset(value), structs.replace(row, uid="another"))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_with_another_uid, id="another content"),
        pytest.param(lambda key, value: b"\x7f" + value[1:], id="a later offset"),
        pytest.param(lambda key, value: value[:-3], id="torn"),
    ],
)
async def test_stored_rows_that_differ_from_those_of_the_log_are_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes, bytes], bytes]
) -> None:
    write_archive(tmp_path)
    whole = ArchivePast.snapshot_at

    def changed(self: ArchivePast, partition: int, offset: int) -> dict[bytes, bytes] | None:
        found = whole(self, partition, offset)
        return None if found is None else _stored_hpas(found, change)

    monkeypatch.setattr(ArchivePast, "snapshot_at", changed)
    assert all("is not what the log gives" in report.fault for report in await verified(tmp_path))


class _Expired(MemoryPast):
    """Topics whose decisions have lost their beginning; what is left may be nothing."""

    first = 20

    async def offsets(self, topic: str, partition: int) -> range:
        kept = await super().offsets(topic, partition)
        return kept or range(self.first, self.first)


def _late(records: list[ArchivedRecord]) -> list[ArchivedRecord]:
    return [record for record in records if record.offset >= _Expired.first]


@pytest.mark.parametrize("kept", [pytest.param(_late, id="some"), pytest.param(lambda _: [], id="none")])
def test_decisions_that_expired_before_their_log_are_reported_as_expired(
    kept: Callable[[list[ArchivedRecord]], list[ArchivedRecord]],
) -> None:
    made = topics_of(SMALL)
    past = _Expired(made | {(DECISIONS, 0): kept(made[DECISIONS, 0])}, partitions=2)
    assert (
        "decisions of partition 0 are kept from offset 20 on, and number 1 is not among them: they have expired "
        "(retention.ms of the topic) or were deleted"
    ) in verify_partition(Task(past, 0)).fault


def test_decisions_that_lack_their_end_are_reported_as_cut_off() -> None:
    made = topics_of(SMALL)
    past = MemoryPast(made | {(DECISIONS, 0): made[DECISIONS, 0][:20]}, partitions=2)
    assert "decisions of partition 0 end at number 20, but" in verify_partition(Task(past, 0)).fault
