"""How state rows are stored: their keys and their bytes.

A row's value is its applied log offset (`streams.state.rowcopies`) and the MessagePack of its struct, a large one
compressed with zstd.
"""

from typing import Any

import cramjam
import msgspec

from schemas.keys import HpaId, namespace_key, parse_hpa_id, split_namespace_key
from streams.state.logerrors import StateError
from streams.state.partitionrow import IndexRow, PartitionRow
from streams.state.rowcopies import APPLIED_BYTES, applied_prefix
from streams.state.rows import HpaRow, NamespaceRow

_LEVEL = 1
_PLAIN_BYTES = 16_384
"""Smaller rows are stored as they are: compressing one costs more than it saves, and the broker compresses batches."""
_ZSTD = b"\x28\xb5\x2f\xfd"

Row = HpaRow | NamespaceRow | IndexRow | PartitionRow
_ENCODER = msgspec.msgpack.Encoder()
_HPA = msgspec.msgpack.Decoder(HpaRow)
_NAMESPACE = msgspec.msgpack.Decoder(NamespaceRow)
_PARTITION = msgspec.msgpack.Decoder(PartitionRow)
_INDEX = msgspec.msgpack.Decoder(IndexRow)


def hpa_key(partition: int, hpa: HpaId) -> bytes:
    """Key of an HPA's row."""
    return f"{partition}|h/{hpa}".encode()


def namespace_row_key(partition: int, cluster: str, namespace: str, part: int) -> bytes:
    """Key of a part of a namespace."""
    return f"{partition}|n/{namespace_key(cluster, namespace)}#{part}".encode()


def index_key(partition: int, pieces: int, piece: int) -> bytes:
    """Key of one of so many pieces of the partition's index of rows."""
    return f"{partition}|i/{pieces}.{piece}".encode()


def partition_key(partition: int) -> bytes:
    """Key of the partition's own row."""
    return f"{partition}|p".encode()


def encode_row(applied_offset: int, row: Row) -> bytes:
    """Encode a row as of log offset `applied_offset`."""
    body = _ENCODER.encode(row)
    if len(body) >= _PLAIN_BYTES:
        body = bytes(cramjam.zstd.compress(body, level=_LEVEL))
    return applied_prefix(applied_offset) + body


def decode_row(key: bytes, value: bytes) -> Row:
    """Read a stored row.

    Raises:
        StateError: key or value is not a row's; the text names the row.
    """
    kind = key.partition(b"|")[2][:1]
    decoder: Any = {b"h": _HPA, b"n": _NAMESPACE, b"i": _INDEX, b"p": _PARTITION}.get(kind)
    stored = value[APPLIED_BYTES:]
    if decoder is None or not stored:
        raise StateError(f"{key!r} is not a state row of fleethpa")
    try:
        body = bytes(cramjam.zstd.decompress(stored)) if stored.startswith(_ZSTD) else stored
        row: Row = decoder.decode(body)
    except (msgspec.DecodeError, cramjam.DecompressionError) as error:
        raise StateError(f"state row {key.decode(errors='replace')} cannot be read: {error}") from error
    return row


def row_kind(key: bytes) -> tuple[str, str]:
    """Split a row key into kind and rest.

    `h`: `cluster/namespace/name`; `n`: `cluster/namespace#part`; `i`: `pieces.piece`; `p`: nothing.
    """
    rest = key.partition(b"|")[2].decode()
    return rest[:1], rest[2:]


def hpa_of_key(rest: str) -> HpaId:
    """Identity in an HPA row's key."""
    return parse_hpa_id(rest)


def namespace_of_key(rest: str) -> tuple[str, str, int]:
    """(cluster, namespace, part) in a namespace row's key."""
    key, _, part = rest.rpartition("#")
    cluster, namespace = split_namespace_key(key)
    return cluster, namespace, int(part)
