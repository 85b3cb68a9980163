"""Writing an archive: its lock, a log that has lost its first records, keys, and what the archiver waits for."""

import os
from pathlib import Path

import orjson
import pytest
from msgspec import structs

from streams.archive.archiver import Archiver, SegmentLimits
from streams.archive.layout import DECISIONS, LOG, ArchiveError, is_written, last_sign_ms, snapshots
from streams.archive.segmentreader import PartitionReader, SegmentManifest
from streams.archive.signing import CheckpointWriter, make_key, read_private, read_public
from streams.history.archivepast import ArchivePast
from streams.history.replay import Task
from streams.history.verify import checkpoints_of, verify_partition
from streams.partition import Partition
from tests.kit.archive import Topics, in_order, topics_of, write_archive
from tests.kit.cli import Cli
from tests.kit.damage import judged_archive
from tests.kit.generated_log import Fleet

FLEET = Fleet(hpas=4, namespaces=2, minutes=2, partitions=1, metrics=1, seed=6)


@pytest.fixture(scope="module")
def made() -> Topics:
    return topics_of(FLEET)


def test_only_one_process_writes_an_archive(tmp_path: Path) -> None:
    archiver = Archiver(tmp_path, 1, SegmentLimits())
    assert is_written(tmp_path)
    with pytest.raises(ArchiveError, match="another process writes"):
        Archiver(tmp_path, 1, SegmentLimits())
    archiver.finish()
    assert not is_written(tmp_path)


def test_the_process_that_writes_an_archive_shows_when_it_worked_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_archive(tmp_path / "a", FLEET)
    run = Cli(monkeypatch)
    assert last_sign_ms(root) is None
    archiver = Archiver(root, 1, SegmentLimits())
    began_ms = last_sign_ms(root)
    assert began_ms is not None
    os.utime(root / "lock", (began_ms / 1000 - 60, began_ms / 1000 - 60))
    for verb in (["get", "hpa", "-A"], ["explain", "c0/ns0/app0"], ["decisions", "-A"]):
        shown = run(*verb, "--from", str(root)).stderr
        assert shown.startswith(
            "warning: the archiver hangs, does not run, may not commit heartbeats, or its clock is behind: "
            "no heartbeat "
        ), (verb, shown)
        assert "what is newer is in no archive. Next: fleethpa admin archive --to DIR" in shown
    made = run("doctor", "--from", str(root))
    assert (made.exit_code, made.stdout.count("failure  log        archiver  the archiver hangs")) == (1, 1), (
        made.output
    )
    archiver.sign_of_life()
    assert (last_sign_ms(root) or 0) >= began_ms
    assert "archiver" not in run("get", "hpa", "-A", "--from", str(root)).output
    archiver.finish()


def test_an_archive_of_another_partition_count_is_refused(tmp_path: Path) -> None:
    Archiver(tmp_path, 1, SegmentLimits()).finish()
    with pytest.raises(ArchiveError, match="has 1 partitions, the log has 4"):
        Archiver(tmp_path, 4, SegmentLimits())


def test_an_archive_that_grows_while_it_is_verified_is_found_right(
    made: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver = Archiver(tmp_path, 1, SegmentLimits(segment_ms=20_000))
    coming = iter(in_order(made))

    def grow(seconds: int) -> None:
        begin = len(snapshots(tmp_path, 0))
        for topic, number, record in coming:
            archiver.append(topic, number, record)
            archiver.flush()
            if len(snapshots(tmp_path, 0)) - begin == seconds // 20 and topic == DECISIONS:
                return

    verify_segment = PartitionReader.verify_segment

    def meanwhile(reader: PartitionReader, manifest: SegmentManifest, head: bytes) -> bytes:
        grow(20)
        return verify_segment(reader, manifest, head)

    grow(40)
    monkeypatch.setattr(PartitionReader, "verify_segment", meanwhile)
    report = verify_partition(Task(ArchivePast(tmp_path), 0))
    assert report.fault == ""
    assert report.segments >= 6
    archiver.finish()


def test_a_late_beginning_that_was_killed_leaves_nothing_behind(made: Topics, tmp_path: Path) -> None:
    partition = Partition.empty(0)
    for record in made[LOG, 0][:20]:
        partition.apply(record.offset, record.timestamp_ms, record.value)
    killed = Archiver(tmp_path, 1, SegmentLimits())
    killed.begin_with(0, dict(partition.checkpoint()))
    killed.release()
    report = verify_partition(Task(ArchivePast(begun_late(tmp_path, made, 60)), 0))
    assert (report.fault, report.start) == ("", 59)


def begun_late(root: Path, made: Topics, at: int) -> Path:
    """An archive of a log that has lost its first `at` records, begun from the decider's rows."""
    partition = Partition.empty(0)
    for record in made[LOG, 0][:at]:
        partition.apply(record.offset, record.timestamp_ms, record.value)
    rows = dict(partition.checkpoint())
    archiver = Archiver(root, 1, SegmentLimits(segment_ms=30_000))
    archiver.begin_with(0, rows)
    for record in made[LOG, 0][at - 5 :]:
        archiver.append(LOG, 0, record)
    for record in made[DECISIONS, 0]:
        archiver.append(DECISIONS, 0, record)
        archiver.flush()
    archiver.finish()
    return root


def test_an_archive_begun_late_starts_from_state_rows_and_is_verified_from_there(
    tmp_path: Path, made: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = begun_late(tmp_path / "a", made, 60)
    report = verify_partition(Task(ArchivePast(root), 0))
    assert report.fault == ""
    assert report.start == 59
    assert 0 < report.decisions < len(made[DECISIONS, 0])
    run = Cli(monkeypatch)
    for arguments in (["audit", "verify"], ["get", "hpa", "-A"], ["get", "hpa", "-A", "--at", "30s"]):
        assert run(*arguments, "--from", str(root)).exit_code in (0, 5)
    assert "nothing older was checked" in run("audit", "verify", "--from", str(root)).stdout
    early = run("get", "hpa", "-A", "--at", "2026-01-01T00:00:10Z", "--from", str(root))
    assert (early.exit_code, "begun later" in early.stderr) == (2, True), early.output


def test_it_goes_on_from_a_late_beginning(tmp_path: Path, made: Topics) -> None:
    root = begun_late(tmp_path, made, 60)
    before = len(snapshots(root, 0))
    archiver = Archiver(root, 1, SegmentLimits())
    assert archiver.next_offset(LOG, 0) == len(made[LOG, 0])
    assert archiver.behind() == []
    archiver.finish()
    assert len(snapshots(root, 0)) == before
    assert judged_archive(root, None).fault == ""


def test_a_snapshot_that_a_crash_left_out_is_made_at_the_next_start(tmp_path: Path, made: Topics) -> None:
    root = write_archive(tmp_path, FLEET, segment_ms=30_000, topics=made)
    stored = snapshots(root, 0)
    content = stored[-1][1].read_bytes()
    stored[-1][1].unlink()
    assert "is missing" in judged_archive(root, None).fault
    Archiver(root, 1, SegmentLimits()).finish()
    assert stored[-1][1].read_bytes() == content
    assert judged_archive(root, None).fault == ""


def test_decisions_wait_for_their_log_records_and_are_missed_when_they_do_not_come(
    tmp_path: Path, made: Topics
) -> None:
    archiver = Archiver(tmp_path, 1, SegmentLimits())
    for record in made[DECISIONS, 0]:
        archiver.append(DECISIONS, 0, record)
    archiver.flush()
    assert list(PartitionReader(tmp_path, DECISIONS, 0).records()) == []
    for record in made[LOG, 0]:
        archiver.append(LOG, 0, record)
    archiver.flush()
    assert len(list(PartitionReader(tmp_path, DECISIONS, 0).records())) == len(made[DECISIONS, 0])
    assert archiver.behind() == []
    archiver.finish()
    other = Archiver(tmp_path / "b", 1, SegmentLimits())
    for record in made[LOG, 0]:
        other.append(LOG, 0, record)
    other.flush()
    assert other.behind() == [0]
    other.finish()
    assert "follows from the log" in judged_archive(tmp_path / "b", None).fault


def test_a_log_that_cannot_be_folded_is_archived_all_the_same(tmp_path: Path, made: Topics) -> None:
    log = [*made[LOG, 0]]
    log[20] = structs.replace(log[20], value=b"garbage")
    before = [r for r in made[DECISIONS, 0] if orjson.loads(r.value)["input"]["offset"] < 20]
    root = write_archive(tmp_path, FLEET, segment_ms=30_000, topics={(LOG, 0): log, (DECISIONS, 0): before})
    assert list(PartitionReader(root, LOG, 0).records()) == log
    assert "is not a log record" in judged_archive(root, None).fault


def test_checkpoints_signed_with_another_key_are_refused(tmp_path: Path, made: Topics) -> None:
    for name in ("a", "b"):
        make_key(tmp_path / f"{name}.key", tmp_path / f"{name}.pub")
    root = tmp_path / "archive"
    writer = CheckpointWriter(root, read_private(tmp_path / "a.key"))
    write_archive(root, FLEET, topics=made, checkpoints=writer)
    assert len(checkpoints_of(root, tmp_path / "a.pub")) >= 1
    with pytest.raises(ArchiveError, match="signed with another key"):
        checkpoints_of(root, tmp_path / "b.pub")
    assert (tmp_path / "a.key").stat().st_mode & 0o077 == 0
    with pytest.raises(ArchiveError, match="is a private key"):
        read_public(tmp_path / "a.key")
    with pytest.raises(ArchiveError, match="not a private key"):
        read_private(tmp_path / "a.pub")


def test_an_archive_without_checkpoints_cannot_be_held_to_a_key(tmp_path: Path, made: Topics) -> None:
    make_key(tmp_path / "a.key", tmp_path / "a.pub")
    root = write_archive(tmp_path / "archive", FLEET, topics=made)
    with pytest.raises(ArchiveError, match="holds no signed checkpoint"):
        checkpoints_of(root, tmp_path / "a.pub")


def test_a_checkpoint_that_is_being_written_is_no_damage(made: Topics, tmp_path: Path) -> None:
    root, key = tmp_path / "archive", tmp_path / "audit.key"
    make_key(key, tmp_path / "audit.pub")
    write_archive(root, FLEET, topics=made, checkpoints=CheckpointWriter(root, read_private(key)))
    for name in ("HEAD.json.tmp", "000000000099.json.tmp"):
        (root / "checkpoints" / name).touch()
    archiver = Archiver(root, 1, SegmentLimits())
    assert checkpoints_of(root, tmp_path / "audit.pub")
    archiver.release()
    with pytest.raises(ArchiveError, match=r"000000000099\.json\.tmp does not belong"):
        checkpoints_of(root, tmp_path / "audit.pub")
