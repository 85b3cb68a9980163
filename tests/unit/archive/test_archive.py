"""The archive's files: written, torn, resumed, read while being written, damaged."""

import errno
import os
import random
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw, structs

from streams.archive.archiver import PartitionWriter
from streams.archive.layout import (
    DECISIONS,
    GENESIS,
    LOG,
    ArchivedRecord,
    ArchiveError,
    archived_record,
    create,
    frame,
    open_archive,
    read_frames,
    read_snapshot,
    snapshots,
    write_snapshot,
)
from streams.archive.segmentreader import PartitionReader, SegmentManifest, open_file
from streams.history.archivepast import ArchivePast
from tests.kit.archive import SMALL, topics_of, write_archive
from tests.laws import examples


def record(offset: int) -> ArchivedRecord:
    return archived_record(offset, 1000 + offset, b"east/shop", (("ce_id", b"x"),), b'{"v":1,"n":%d}' % offset)


def write(root: Path, offsets: range, *, close_every: int = 5, topic: str = LOG) -> None:
    writer = PartitionWriter(root, topic, 0)
    for offset in offsets:
        writer.append(record(offset))
        if offset % 2:
            writer.flush()
        if offset % close_every == close_every - 1:
            writer.flush()
            writer.close_segment()
    writer.flush()


def verify(root: Path, topic: str = LOG) -> int:
    reader = PartitionReader(root, topic, 0)
    head, count = GENESIS, 0
    for manifest in reader.manifests():
        head = reader.verify_segment(manifest, head)
        count += manifest.records
    return count


@pytest.mark.parametrize("topic", [LOG, DECISIONS])
def test_what_was_written_is_read_back_also_from_the_open_segment(tmp_path: Path, topic: str) -> None:
    write(tmp_path, range(12), topic=topic)
    assert list(PartitionReader(tmp_path, topic, 0).records()) == [record(n) for n in range(12)]
    assert [r.offset for r in PartitionReader(tmp_path, topic, 0).records(7)] == [7, 8, 9, 10, 11]
    checked = PartitionReader(tmp_path, topic, 0, checked=True).records(3)
    assert [(r.headers, r.plain) for r in checked] == [(record(n).headers, record(n).plain) for n in range(3, 12)]
    assert verify(tmp_path, topic) == 10


def other_records(path: Path) -> None:
    """Put other records into a closed segment, as many as there were, in the same frames."""
    frames = [[structs.replace(each, value=b"x" + each.value) for each in found] for _, found in frames_of(path)]
    path.write_bytes(b"".join(map(frame, frames)))


def frames_of(path: Path) -> list[tuple[int, list[ArchivedRecord]]]:
    return list(read_frames(path, torn_end_ok=False))


def test_a_closed_segment_is_checked_once_and_again_when_its_file_changes(tmp_path: Path) -> None:
    write(tmp_path, range(12))
    reader = PartitionReader(tmp_path, LOG, 0, checked=True)
    one, other = reader.manifests()
    assert not reader.is_known(one)
    assert [each.offset for found in reader.frames(one, 3) for each in found] == [3, 4]
    assert [reader.is_known(one), reader.is_known(other)] == [True, False]
    assert [each.offset for found in reader.frames(one, 3) for each in found] == [3, 4]
    other_records(tmp_path / LOG / "0" / one.file)
    assert not reader.is_known(one)
    with pytest.raises(ArchiveError, match="not those that its manifest names"):
        list(reader.frames(one, 3))
    assert [each.offset for found in reader.frames(other, 7) for each in found] == [7, 8, 9]


async def test_what_is_read_unchecked_is_checked_later(tmp_path: Path) -> None:
    create(tmp_path, 1)
    write(tmp_path, range(12))
    past = ArchivePast(tmp_path, checked=True)
    await past.check(LOG, 0, range(sys.maxsize))
    manifests = PartitionReader(tmp_path, LOG, 0).manifests()
    other_records(tmp_path / LOG / "0" / manifests[0].file)
    read = [each.offset async for stretch in past.unchecked(LOG, 0, 3) for each in stretch]
    assert read == list(range(3, 12))
    await past.check(LOG, 0, range(manifests[1].first_offset, sys.maxsize))
    with pytest.raises(ArchiveError, match="not those that its manifest names"):
        await past.check(LOG, 0, range(3, 4))


@pytest.mark.parametrize("topic", [LOG, DECISIONS])
def test_a_second_writer_goes_on_where_the_first_stopped_and_drops_duplicates(tmp_path: Path, topic: str) -> None:
    write(tmp_path, range(8), topic=topic)
    writer = PartitionWriter(tmp_path, topic, 0)
    assert writer.next_offset == 8
    write(tmp_path, range(4, 20), topic=topic)
    assert [r.offset for r in PartitionReader(tmp_path, topic, 0).records()] == list(range(20))
    assert verify(tmp_path, topic) == 20


def append(writer: PartitionWriter, offsets: range, *, close: bool = False) -> None:
    for offset in offsets:
        writer.append(record(offset))
    writer.flush()
    if close:
        writer.close_segment()


@pytest.mark.parametrize("topic", [LOG, DECISIONS])
def test_a_reader_loses_nothing_when_segments_are_closed_and_begun_while_it_reads(tmp_path: Path, topic: str) -> None:
    writer = PartitionWriter(tmp_path, topic, 0)
    append(writer, range(3), close=True)
    append(writer, range(3, 6))
    records = PartitionReader(tmp_path, topic, 0).records()
    read = [next(records)]
    append(writer, range(6, 8), close=True)
    append(writer, range(8, 10))
    read += records
    assert [each.offset for each in read] == list(range(10))


class Interrupted(PartitionReader):
    """A reader while whose look at the manifests the writer closes a segment."""

    def __init__(self, root: Path, writer: PartitionWriter) -> None:
        super().__init__(root, LOG, 0)
        self._writer: PartitionWriter | None = writer

    def _chain(self) -> list[SegmentManifest]:
        found = super()._chain()
        if self._writer is not None:
            self._writer.close_segment()
            self._writer = None
        return found


def test_a_segment_that_is_closed_while_the_manifests_are_read_is_no_damage(tmp_path: Path) -> None:
    writer = PartitionWriter(tmp_path, LOG, 0)
    append(writer, range(3), close=True)
    append(writer, range(3, 6))
    assert [each.offset for each in Interrupted(tmp_path, writer).records()] == list(range(6))


@pytest.mark.parametrize("topic", [LOG, DECISIONS])
@pytest.mark.parametrize("left", ["manifest and HEAD", "HEAD"])
def test_the_records_of_a_close_cut_short_are_read(tmp_path: Path, left: str, topic: str) -> None:
    writer = PartitionWriter(tmp_path, topic, 0)
    append(writer, range(3), close=True)
    folder = tmp_path / topic / "0"
    heads = (folder / "HEAD.json").read_bytes()
    append(writer, range(3, 6), close=True)
    (folder / "HEAD.json").write_bytes(heads)
    if left == "manifest and HEAD":
        (folder / f"{3:020d}.json").unlink()
    reader = PartitionReader(tmp_path, topic, 0)
    assert [each.offset for each in reader.records()] == list(range(6))
    assert [each.offset for part in reversed(list(reader.backwards())) for each in part] == list(range(6))
    assert reader.last() == (5, 1005)


@pytest.mark.parametrize("topic", [LOG, DECISIONS])
@given(cut=st.integers(min_value=0, max_value=200))
@settings(max_examples=examples(60))
def test_a_torn_open_segment_is_cut_at_a_whole_frame(
    tmp_path_factory: pytest.TempPathFactory, cut: int, topic: str
) -> None:
    root = tmp_path_factory.mktemp("torn")
    write(root, range(4), close_every=100, topic=topic)
    path = root / topic / "0" / open_file(topic)
    path.write_bytes(path.read_bytes()[: -cut or None])
    resumed = PartitionWriter(root, topic, 0).next_offset or 0
    write(root, range(resumed, 6), close_every=100, topic=topic)
    assert [r.offset for r in PartitionReader(root, topic, 0).records()] == list(range(6))


@pytest.mark.parametrize("topic", [LOG, DECISIONS])
@pytest.mark.parametrize("left", ["manifest and HEAD", "HEAD"])
def test_a_close_cut_short_by_a_crash_is_finished(tmp_path: Path, left: str, topic: str) -> None:
    write(tmp_path, range(10), topic=topic)
    folder = tmp_path / topic / "0"
    heads = (folder / "HEAD.json").read_bytes()
    writer = PartitionWriter(tmp_path, topic, 0)
    for offset in range(10, 15):
        writer.append(record(offset))
    writer.flush()
    writer.close_segment()
    (folder / "HEAD.json").write_bytes(heads)
    if left == "manifest and HEAD":
        (folder / f"{10:020d}.json").unlink()
    write(tmp_path, range(15, 20), topic=topic)
    assert verify(tmp_path, topic) == 20


def test_a_gap_is_refused(tmp_path: Path) -> None:
    write(tmp_path, range(3))
    with pytest.raises(ArchiveError, match="offset 5 follows 2"):
        PartitionWriter(tmp_path, LOG, 0).append(record(5))


def damage(root: Path, rng: random.Random) -> str:
    """One random change to a closed file of the archive; returns what it was."""
    files = sorted(p for p in (root / LOG / "0").iterdir() if p.name != "open.seg")
    path = rng.choice(files)
    data = bytearray(path.read_bytes())
    kind = rng.choice(["flip", "delete", "truncate", "swap", "duplicate"])
    if kind == "flip":
        place = rng.randrange(len(data))
        data[place] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    elif kind == "delete":
        path.unlink()
    elif kind == "truncate":
        path.write_bytes(data[: rng.randrange(len(data))])
    else:
        other = rng.choice([p for p in files if p != path])
        theirs = other.read_bytes()
        other.write_bytes(data)
        if kind == "swap":
            path.write_bytes(theirs)
    return f"{kind} {path.name}"


def found(root: Path) -> bool:
    try:
        return verify(root) != 20
    except ArchiveError:
        return True


def contents(root: Path) -> list[ArchivedRecord]:
    return list(PartitionReader(root, LOG, 0).records())


def checked(root: Path) -> list[ArchivedRecord] | None:
    """What a reader gives that checks hashes; None: it finds something wrong."""
    try:
        return list(PartitionReader(root, LOG, 0, checked=True).records())
    except ArchiveError:
        return None


def test_every_single_change_to_a_closed_archive_is_found(tmp_path: Path) -> None:
    write(tmp_path, range(20))
    originals = {p: p.read_bytes() for p in (tmp_path / LOG / "0").iterdir()}
    before = contents(tmp_path)
    rng = random.Random(5)
    for _ in range(300):
        what = damage(tmp_path, rng)
        # A few bits of a zstd header carry nothing: a file that still holds the same records is not a change.
        assert found(tmp_path) or contents(tmp_path) == before, what
        assert checked(tmp_path) in (None, before), what
        for path, data in originals.items():
            path.write_bytes(data)
    assert not found(tmp_path)


def test_headers_that_cannot_be_read_name_the_record() -> None:
    damaged = structs.replace(record(7), packed_headers=Raw(b"\x91\x01"))
    with pytest.raises(ArchiveError, match="headers of the record at offset 7 cannot be read"):
        _ = damaged.headers


def test_a_snapshot_reads_back_and_a_flipped_bit_is_found(tmp_path: Path) -> None:
    rows = {b"0|p": b"x", b"0|h/a/b/c": b"y"}
    path = write_snapshot(tmp_path, 0, 41, rows)
    assert snapshots(tmp_path, 0) == [(41, path)]
    assert read_snapshot(path) == rows
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match="hash"):
        read_snapshot(path)


@pytest.mark.parametrize("left", [b"", b"\0", frame([record(2)])[:-3], frame([record(2)])], ids=len)
@pytest.mark.parametrize("is_closed_at_once", [False, True])
def test_what_a_full_disk_left_behind_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bytes, is_closed_at_once: bool
) -> None:
    """A write that fails half way, then room again, then the flush on the way out: nothing torn is closed."""
    writer = PartitionWriter(tmp_path, LOG, 0)
    for offset in range(2):
        writer.append(record(offset))
    writer.flush()
    writer.append(record(2))
    path, whole = tmp_path / LOG / "0" / open_file(LOG), writer.open_bytes

    def full(descriptor: int) -> None:
        os.ftruncate(descriptor, whole)
        os.pwrite(descriptor, left, whole)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("streams.archive.archiver.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        writer.flush()
    monkeypatch.undo()
    assert path.stat().st_size == whole + len(left)
    if not is_closed_at_once:
        writer.flush()
    assert writer.close_segment() is not None
    writer.flush()
    again = PartitionWriter(tmp_path, LOG, 0)
    assert again.next_offset == 3
    reader = PartitionReader(tmp_path, LOG, 0)
    closed = [each for manifest in reader.manifests() for each in reader.segment(manifest)]
    assert [each.offset for each in [*closed, *again.open_records()]] == [0, 1, 2]


@pytest.mark.parametrize(
    "name",
    ["../../../secret.seg", "/etc/passwd", "00000000000000000001.seg", "", "HEAD", "00000000000000000000.seg/../x"],
)
def test_a_manifest_names_no_file_but_its_own(tmp_path: Path, name: str) -> None:
    write(tmp_path, range(5))
    folder = tmp_path / LOG / "0"
    path = folder / "00000000000000000000.json"
    text = path.read_text()
    assert '"file":"00000000000000000000.seg"' in text
    path.write_text(text.replace("00000000000000000000.seg", name))
    with pytest.raises(ArchiveError, match=r"`file` must be 00000000000000000000\.seg"):
        PartitionReader(tmp_path, LOG, 0).manifests()


def test_an_archive_of_another_partition_count_is_refused(tmp_path: Path) -> None:
    create(tmp_path, 4)
    assert open_archive(tmp_path).partitions == 4
    with pytest.raises(ArchiveError, match="has 4 partitions, the log has 8"):
        create(tmp_path, 8)


def test_a_folder_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="is not a fleethpa archive"):
        open_archive(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.99, 1.0])
async def test_a_time_in_an_archive_is_near_its_first_record_and_not_after_it(tmp_path: Path, share: float) -> None:
    made = topics_of(SMALL)
    past = ArchivePast(write_archive(tmp_path, SMALL, topics=made, flush_every=10, segment_ms=3_600_000))
    for topic in (LOG, DECISIONS):
        records = made[topic, 0]
        first = records[int((len(records) - 1) * share)]
        wanted = next(each.offset for each in records if each.timestamp_ms >= first.timestamp_ms)
        found = await past.offset_at(topic, 0, first.timestamp_ms)
        assert found <= wanted
        assert topic == DECISIONS or wanted - 2 * 10 <= found, "of decisions the segment is found"
        assert await past.offset_at(topic, 0, records[-1].timestamp_ms + 1) == records[-1].offset + 1


@pytest.mark.parametrize(("offset", "timestamp_ms"), [(2**63, 0), (0, 2**63)], ids=["offset", "time"])
def test_a_number_beyond_64_bits_is_damage_and_no_crash(tmp_path: Path, offset: int, timestamp_ms: int) -> None:
    segment = tmp_path / "segment"
    segment.write_bytes(frame([ArchivedRecord(offset, timestamp_ms, b"", Raw(b"\x90"), b"")]))
    with pytest.raises(ArchiveError, match="the frame at byte 0 cannot be read"):
        list(read_frames(segment, torn_end_ok=False))
