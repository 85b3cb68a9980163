"""zstd of what is stored (frames, snapshots, state rows), and reading it back into a buffer of the stated length.

What unpacks to more than PACKED_RATIO times its size is refused before it is unpacked: a few kilobytes may state
gigabytes. What is written keeps to that: something that compresses better gets filling behind it.
"""

import struct
from typing import Final

import cramjam

from schemas.limits import PACKED_FREE, PACKED_RATIO

MAGIC: Final = b"\x28\xb5\x2f\xfd"
_FILLING: Final = 0x184D2A50
"""Magic of a frame that every reader of zstd passes over. Source: RFC 8878, 3.1.2."""


def most_unpacked(packed: int) -> int:
    """Return how many bytes so many packed bytes may give."""
    return PACKED_FREE.most + PACKED_RATIO.most * packed


def pack(plain: bytes, level: int = 3) -> bytes:
    """Compress something."""
    packed = bytes(cramjam.zstd.compress(plain, level))
    missing = -(-(len(plain) - PACKED_FREE.most) // PACKED_RATIO.most) - len(packed)
    return packed + struct.pack("<II", _FILLING, missing) + bytes(missing) if missing > 0 else packed


def unpack(packed: bytes, length: int | None = None) -> bytes:
    """Unpack it again.

    Args:
        length: what is stated elsewhere; None: the packed bytes state it.

    Raises ValueError: it is damaged, its length is another one, or it is more than is unpacked of so few bytes.
    """
    stated = _stated(packed)
    if length is not None and length != stated:
        raise ValueError(f"it states {stated} bytes, and not {length}")
    if stated > (most := most_unpacked(len(packed))):
        raise ValueError(f"{len(packed)} bytes state {stated} bytes, the limit is {most}")
    room = bytearray(stated)
    try:
        size = cramjam.zstd.decompress_into(packed, room)
    except cramjam.DecompressionError as error:
        raise ValueError(f"it cannot be unpacked to the {stated} bytes that it states: {error}") from error
    if size != stated:
        raise ValueError(f"it has {size} bytes, and states {stated}")
    return bytes(room)


def _stated(packed: bytes) -> int:
    """The length in the header of a zstd frame. Source: RFC 8878, 3.1.1.1. Raises ValueError: there is none."""
    if packed[:4] != MAGIC or len(packed) < 6:
        raise ValueError("it is not zstd")
    descriptor = packed[4]
    is_single = bool(descriptor & 0x20)
    size = (1 if is_single else 0, 2, 4, 8)[descriptor >> 6]
    begin = 5 + (0 if is_single else 1) + (0, 1, 2, 4)[descriptor & 3]
    field = packed[begin : begin + size]
    if not size or len(field) < size:
        raise ValueError("it does not state its length")
    return int.from_bytes(field, "little") + (256 if size == 2 else 0)
