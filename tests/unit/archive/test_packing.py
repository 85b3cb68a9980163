"""What is stored with zstd: it is unpacked into a buffer of the stated length, and not without bound."""

import tracemalloc
from pathlib import Path

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.keys import HpaId
from schemas.packing import most_unpacked, pack, unpack
from streams.archive import layout
from streams.archive.layout import ArchiveError, read_frames, read_snapshot
from streams.state.ledger import StateError
from streams.state.rowcodec import decode_row, hpa_key
from tests.laws import examples


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """Fifty kilobytes that state 200 MiB."""
    packed = bytes(cramjam.zstd.compress(bytes(200 * 2**20), 3))
    assert len(packed) < 2**16
    return packed


@settings(max_examples=examples(50), deadline=None)
@given(plain=st.binary(max_size=3_000), times=st.integers(0, 2_000), level=st.sampled_from([1, 3, 9]))
def test_what_was_packed_is_unpacked_however_well_it_compresses(plain: bytes, times: int, level: int) -> None:
    whole = plain * times
    packed = pack(whole, level)
    assert unpack(packed) == unpack(packed, len(whole)) == whole
    assert len(whole) <= most_unpacked(len(packed))


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_535, 65_536, 65_791, 65_792, 2**20])
def test_every_size_is_read_from_the_header(size: int) -> None:
    assert unpack(pack(b"x" * size)) == b"x" * size


@pytest.mark.parametrize(
    ("packed", "length", "reason"),
    [
        pytest.param(pack(b"abc"), 4, "it states 3 bytes, and not 4", id="another length than elsewhere"),
        pytest.param(pack(b"abc") + pack(b"d"), None, "cannot be unpacked to the 3 bytes", id="more than it states"),
        pytest.param(pack(b"x" * 900)[:-3], None, "cannot be unpacked|it has", id="cut off"),
        pytest.param(pack(b"abc")[:5], None, "it is not zstd", id="a header that is cut off"),
        pytest.param(b"", None, "it is not zstd", id="nothing"),
        pytest.param(b"plain bytes", None, "it is not zstd", id="something else"),
        pytest.param(pack(b"abc")[:4] + b"\x00\x58" + bytes(9), None, "does not state its length", id="no length"),
        pytest.param(pack(b"abc")[:4] + b"\xe0" + b"\xff" * 8 + bytes(9), None, "the limit is", id="an absurd length"),
    ],
)
def test_what_is_damaged_is_refused(packed: bytes, length: int | None, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        unpack(packed, length)


@pytest.mark.parametrize("kind", ["frame", "snapshot", "row", "a frame that states less"])
def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, bomb: bytes, kind: str) -> None:
    path = tmp_path / "stored"
    stated = 1_000 if kind == "a frame that states less" else 200 * 2**20
    head = layout._FRAME_HEADER.pack(len(bomb), stated) if "frame" in kind else bytes(32)
    path.write_bytes(head + bomb)

    def read() -> object:
        if kind == "row":
            return decode_row(hpa_key(0, HpaId("east", "shop", "web")), bytes(8) + bomb)
        return read_snapshot(path) if kind == "snapshot" else list(read_frames(path, torn_end_ok=False))

    tracemalloc.start()
    try:
        with pytest.raises((ArchiveError, StateError)) as refused:
            read()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**22
    assert "the limit is" in str(refused.value) or "and not 1000" in str(refused.value)
