"""The record that the topic of rejected records gets: the original bytes, and in headers whence and why."""

import hashlib
from typing import NamedTuple

from schemas import limits
from schemas.topics import REJECTED_KEPT_BYTES
from streams.ingest.pieces import RawRecord

KEPT_WHOLE_BYTES = 512 * 1024
"""Up to here the original is kept whole, above it only its first part."""


class Rejected(NamedTuple):
    """Value and headers for the topic of rejected records."""

    value: bytes
    headers: list[tuple[str, bytes]]


def rejected(raw: RawRecord, code: str, reason: str, format_: str) -> Rejected:
    """Make the rejected record of a raw one.

    Headers: `topic`, `partition`, `offset`, `time` (Kafka's, ms), `format`, `code` (one word), `reason` (a sentence);
    where the value is cut also `length` and `sha256` of the whole; the original's own headers as `original.<name>`.
    """
    value = raw.value or b""
    headers = [
        ("topic", raw.topic.encode()),
        ("partition", b"%d" % raw.partition),
        ("offset", b"%d" % raw.offset),
        ("time", b"%d" % raw.timestamp_ms),
        ("format", format_.encode()),
        ("code", code.encode()),
        ("reason", reason.encode("utf-8", "replace")[: limits.REASON.most]),
    ]
    if len(value) > KEPT_WHOLE_BYTES:
        headers += [("length", b"%d" % len(value)), ("sha256", hashlib.sha256(value).hexdigest().encode())]
        value = value[:REJECTED_KEPT_BYTES]
    return Rejected(value, headers + _originals(raw))


def _originals(raw: RawRecord) -> list[tuple[str, bytes]]:
    """The first headers of the original; a producer may send any number of any size."""
    return [(f"original.{name[:100]}", (value or b"")[:1_024]) for name, value in raw.headers[:16]]
