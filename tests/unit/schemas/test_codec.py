"""The one codec: what it refuses, it refuses with a WireError that names the place."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import WireError, decode, encode, encode_to_keep
from schemas.entries import PublicRecord
from schemas.observed import Heartbeat

RECORD = PublicRecord(v=1, cluster="east", namespace="shop", time=5, entries=[Heartbeat(session="s")])


def test_a_record_reads_back() -> None:
    assert decode(encode(RECORD), PublicRecord) == RECORD


@pytest.mark.parametrize("length", [0, 1, 500, 600, 2_000, 100_000])
def test_what_is_kept_is_the_same_bytes(length: int) -> None:
    texts = ["x" * 10] * (length // 13)
    assert encode_to_keep(texts) == encode(texts)


@pytest.mark.parametrize(
    ("data", "where"),
    [
        pytest.param(b"", "truncated", id="empty"),
        pytest.param(b'{"v":1', "truncated", id="cut off"),
        pytest.param(b'{"v":"1","entries":[]}', r"\$\.v", id="a text for a number"),
        pytest.param(b'{"v":1,"entries":[{"kind":"nope"}]}', r"\$\.entries", id="an unknown kind"),
        pytest.param(b'{"v":1,"entries":[],"cluster":"\xb6"}', "utf-8", id="not UTF-8"),
        pytest.param(b"[" * 100_000, "Expected `object`", id="an array where a record should be"),
        pytest.param(b'{"v":1,"entries":[],"more":' + b"[" * 1_000_000, "nested", id="nested too deeply"),
    ],
)
def test_what_is_no_record_is_a_wire_error(data: bytes, where: str) -> None:
    with pytest.raises(WireError, match=where):
        decode(data, PublicRecord)


@given(place=st.integers(0, len(encode(RECORD)) - 1), byte=st.integers(0, 255))
def test_a_changed_byte_never_escapes_as_another_error(place: int, byte: int) -> None:
    data = bytearray(encode(RECORD))
    data[place] = byte
    with suppress(WireError):
        assert decode(bytes(data), PublicRecord)
