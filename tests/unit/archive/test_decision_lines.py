"""Archived decisions: lines of JSON in zstd frames, by HPA in a closed segment, and a file that says where each is."""

import random
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from schemas.decisions import Decision
from schemas.keys import HpaId
from schemas.packing import pack
from streams.archive import archiver, layout, segmentreader
from streams.archive.archiver import Archiver, PartitionWriter, SegmentLimits
from streams.archive.layout import (
    DECISIONS,
    GENESIS,
    LOG,
    ArchivedRecord,
    ArchiveError,
    archived_record,
    frame,
    line_of,
    read_frame,
    read_frames,
    sha256_hex,
)
from streams.archive.segmentreader import PartitionReader, hpa_of, open_file
from tests.kit.archive import ENFORCING, topics_of
from tests.kit.generated_log import Fleet
from tests.unit.archive.test_archive import damage

FLEET = Fleet(hpas=6, namespaces=3, minutes=4, partitions=1, settings=ENFORCING)
TOPICS = topics_of(FLEET)
MADE = TOPICS[DECISIONS, 0]
HPAS = sorted({hpa_of(record) for record in MADE})


def write(root: Path, records: list[ArchivedRecord], *, close_every: int = 40) -> PartitionWriter:
    writer = PartitionWriter(root, DECISIONS, 0)
    for count, record in enumerate(records, 1):
        writer.append(record)
        if count % 7 == 0:
            writer.flush()
        if count % close_every == 0:
            writer.flush()
            writer.close_segment()
    writer.flush()
    return writer


def read_again(root: Path, record: ArchivedRecord) -> list[ArchivedRecord]:
    path = root / open_file(DECISIONS)
    path.write_bytes(frame([record], DECISIONS))
    return [each for _, found in read_frames(path, torn_end_ok=False) for each in found]


NUMBERS = st.integers(-(2**63), 2**63 - 1)
OBJECTS = st.dictionaries(
    st.sampled_from(["id", "name", "recordOffset", "recordKey", "record"]) | st.text(max_size=5),
    st.none() | st.integers(-9, 9) | st.text(max_size=5),
)
VALUES = OBJECTS.map(orjson.dumps) | st.binary(max_size=30) | st.sampled_from([b"{}", b'{"a":\n1}', b'{"a":"\xff"}'])
TEXTS = st.text(max_size=6).map(str.encode) | st.binary(max_size=4)


@given(
    offset=NUMBERS,
    time_ms=NUMBERS,
    key=TEXTS,
    headers=st.lists(st.tuples(st.text(max_size=4), TEXTS), max_size=3),
    value=VALUES,
)
def test_whatever_a_record_holds_is_one_line_of_json_and_reads_back(
    tmp_path_factory: pytest.TempPathFactory,
    offset: int,
    time_ms: int,
    key: bytes,
    headers: list[tuple[str, bytes]],
    value: bytes,
) -> None:
    record = archived_record(offset, time_ms, key, headers, value)
    line = line_of(record)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    found = orjson.loads(line)
    assert (found["recordOffset"], found["recordTimeMs"]) == (offset, time_ms)
    assert read_again(tmp_path_factory.getbasetemp(), record) == [record]


def test_a_line_has_the_place_of_its_record_and_then_the_decision() -> None:
    assert not {"recordOffset", "recordTimeMs", "recordKey", "recordHeaders", "record"} & set(
        Decision.__struct_encode_fields__
    )
    for record in MADE[:50]:
        found: dict[str, Any] = orjson.loads(line_of(record))
        places = [found.pop(f"record{name}") for name in ("Offset", "TimeMs", "Key", "Headers")]
        headers = {name: value.decode() for name, value in record.headers}
        assert places == [record.offset, record.timestamp_ms, record.key.decode(), headers]
        assert found == orjson.loads(record.value)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"recordTimeMs":1,"recordOffset":0,"id":"x"}\n', id="in another order"),
        pytest.param(b'{"recordOffset":0, "recordTimeMs":1,"id":"x"}\n', id="with a space"),
        pytest.param(b'{"recordOffset":0,"recordTimeMs":1}\n', id="without a decision"),
        pytest.param(b'{"recordOffset":0,"recordTimeMs":1,"id":"x"}', id="without an end"),
        pytest.param(b'{"recordOffset":0,"recordTimeMs":1,"record":"%%"}\n', id="a record that is no base64"),
        pytest.param(b"\n", id="empty"),
    ],
)
def test_a_line_that_no_archiver_writes_is_refused(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / open_file(DECISIONS)
    path.write_bytes(_framed(line))
    with pytest.raises(ArchiveError, match="the frame at byte 0 cannot be read"):
        list(read_frames(path, torn_end_ok=False))


def _framed(plain: bytes) -> bytes:
    """A frame of these bytes, as those of an archive are."""
    packed = pack(plain)
    return layout._SKIPPED + layout._FRAME_HEADER.pack(len(packed), len(plain)) + packed


# --- closed segments --------------------------------------------------------------------------------------------------


@pytest.fixture
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiver, "_FRAME_BYTES", 4_000)


@pytest.mark.usefixtures("small_frames")
def test_of_one_hpa_only_its_frames_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, MADE, close_every=len(MADE))
    (manifest,) = PartitionReader(tmp_path, DECISIONS, 0).manifests()
    read: list[int] = []

    def counted(path: Path, position: int, holding: bytes = b"") -> list[ArchivedRecord]:
        read.append(position)
        return read_frame(path, position, holding)

    monkeypatch.setattr(segmentreader, "read_frame", counted)
    frames = len(list(read_frames(tmp_path / DECISIONS / "0" / manifest.file, torn_end_ok=False)))
    for hpa in HPAS:
        read.clear()
        reader = PartitionReader(tmp_path, DECISIONS, 0, hpa=HpaId(*hpa.split("/")))
        assert list(reader.records()) == [record for record in MADE if hpa_of(record) == hpa]
        assert read == reader.hpas(manifest)[hpa]
        assert len(read) < frames
    assert list(PartitionReader(tmp_path, DECISIONS, 0, hpa=HpaId("c", "n", "none")).records()) == []


@pytest.mark.usefixtures("small_frames")
def test_all_of_a_closed_segment_is_read_in_order(tmp_path: Path) -> None:
    writer = write(tmp_path, MADE)
    assert len(writer.manifests) > 1
    assert list(PartitionReader(tmp_path, DECISIONS, 0, checked=True).records()) == MADE
    assert [manifest.first_seq for manifest in writer.manifests] == [
        orjson.loads(MADE[manifest.first_offset].value)["seq"] for manifest in writer.manifests
    ]


def verified(root: Path) -> int:
    reader, head, count = PartitionReader(root, DECISIONS, 0), GENESIS, 0
    for manifest in reader.manifests():
        head = reader.verify_segment(manifest, head)
        count += manifest.records
    return count


@pytest.mark.usefixtures("small_frames")
@pytest.mark.parametrize("changed", ["missing", "another", "named again"])
def test_a_file_of_hpas_that_is_wrong_is_found(tmp_path: Path, changed: str) -> None:
    writer = write(tmp_path, MADE, close_every=len(MADE))
    (manifest,) = writer.manifests
    path = tmp_path / DECISIONS / "0" / manifest.hpas_file
    assert verified(tmp_path) == len(MADE)
    data = orjson.dumps(orjson.loads(path.read_bytes()) | {HPAS[-1]: [0]})
    if changed == "missing":
        path.unlink()
    else:
        path.write_bytes(data)
    if changed == "named again":
        manifest = structs.replace(manifest, hpas=sha256_hex(data))
    reader = PartitionReader(tmp_path, DECISIONS, 0)
    wrong = {"missing": "is missing", "another": "is not the one that", "named again": "does not say where"}
    with pytest.raises(ArchiveError, match=wrong[changed]):
        reader.verify_segment(manifest, GENESIS)


@pytest.mark.usefixtures("small_frames")
@pytest.mark.parametrize("before", ["HEAD", "the manifest", "the file of HPAs"])
def test_a_crash_while_a_segment_is_closed_loses_and_repeats_nothing(tmp_path: Path, before: str) -> None:
    writer = write(tmp_path, MADE[:60], close_every=1_000)
    folder = tmp_path / DECISIONS / "0"
    opened, head = folder / open_file(DECISIONS), (folder / "HEAD.json").read_bytes()
    kept = opened.read_bytes()
    manifest = writer.close_segment()
    assert manifest is not None
    assert not opened.exists()
    opened.write_bytes(kept)  # it is removed last
    assert list(PartitionReader(tmp_path, DECISIONS, 0).records()) == MADE[:60]
    (folder / "HEAD.json").write_bytes(head)
    if before != "HEAD":
        (folder / manifest.own_file).unlink()
    if before == "the file of HPAs":
        (folder / manifest.hpas_file).unlink()
    write(tmp_path, MADE[50:])
    assert list(PartitionReader(tmp_path, DECISIONS, 0).records()) == MADE
    assert verified(tmp_path) > 60


def test_a_segment_with_much_in_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiver, "PLAIN_BYTES", 100_000)
    made = TOPICS
    written = Archiver(tmp_path, FLEET.partitions, SegmentLimits())
    for topic in (LOG, DECISIONS):
        for number in range(FLEET.partitions):
            for record in made[topic, number]:
                written.append(topic, number, record)
    written.flush()
    assert PartitionReader(tmp_path, DECISIONS, 0).manifests()
    assert not PartitionReader(tmp_path, LOG, 0).manifests()
    written.release()


def test_every_single_change_to_closed_decisions_is_found(tmp_path: Path) -> None:
    root, folder = tmp_path / "a", tmp_path / "a" / LOG / "0"
    write(root, MADE[:80], close_every=20)
    shutil.move(root / DECISIONS, root / LOG)  # where `damage` changes files
    originals = {path: path.read_bytes() for path in folder.iterdir()}
    chosen = random.Random(7)
    for _ in range(150):
        what = damage(root, chosen)
        shutil.move(root / LOG, root / DECISIONS)
        try:
            is_found = verified(root) != 80
        except ArchiveError:
            is_found = True
        assert is_found or list(PartitionReader(root, DECISIONS, 0).records()) == MADE[:80], what
        shutil.move(root / DECISIONS, root / LOG)
        for path, data in originals.items():
            path.write_bytes(data)
