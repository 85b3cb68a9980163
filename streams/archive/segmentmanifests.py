"""Manifests of closed segments, and HEAD, which names the newest of them: what binds segments to a chain."""

from collections.abc import Iterable

from msgspec import Struct

from schemas.codec import encode
from streams.archive.durable import sha256_hex
from streams.archive.segments import GENESIS, ArchivedRecord, ArchiveError, link, record_digest

OPEN_FILE = "open.seg"
HEAD_FILE = "HEAD.json"


class SegmentManifest(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a closed segment holds. `head`: chain head (hex) after its last record; `previous`: SHA-256 of the
    manifest before it, empty for the first.

    `content`: SHA-256 (hex) over the chain of this segment alone, starting at GENESIS.
    """

    topic: str
    partition: int
    segment: int
    first_offset: int
    last_offset: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    records: int
    content: str
    head: str
    previous: str
    file: str


class Head(Struct, frozen=True, kw_only=True, rename="camel"):
    """The end of a topic partition in the archive."""

    segments: int
    manifest: str
    last_offset: int


def head_of(manifests: list[SegmentManifest]) -> Head:
    """What HEAD says of these closed segments, oldest first."""
    if not manifests:
        return Head(segments=0, manifest="", last_offset=-1)
    last = manifests[-1]
    return Head(segments=len(manifests), manifest=sha256_hex(encode(last)), last_offset=last.last_offset)


class Tally:
    """What is known of a segment while its records come in: counts, ends, and both hashes."""

    def __init__(self, head: bytes) -> None:
        self.records = 0
        self.first: ArchivedRecord | None = None
        self.last: ArchivedRecord | None = None
        self.content, self.head = GENESIS, head

    def add(self, records: Iterable[ArchivedRecord]) -> None:
        """Take more records, in order."""
        for record in records:
            digest = record_digest(record)
            self.content, self.head = link(self.content, digest), link(self.head, digest)
            self.first = self.first or record
            self.last = record
            self.records += 1

    def manifest(self, topic: str, partition: int, previous: SegmentManifest | None) -> SegmentManifest:
        """The manifest of a segment of these records.

        Raises:
            ArchiveError: the folder has no manifests.
        """
        if self.first is None or self.last is None:
            raise ArchiveError(f"{topic}-{partition}: a segment without records")
        return SegmentManifest(
            topic=topic,
            partition=partition,
            segment=previous.segment + 1 if previous else 0,
            first_offset=self.first.offset,
            last_offset=self.last.offset,
            first_timestamp_ms=self.first.timestamp_ms,
            last_timestamp_ms=self.last.timestamp_ms,
            records=self.records,
            content=self.content.hex(),
            head=self.head.hex(),
            previous=sha256_hex(encode(previous)) if previous else "",
            file=f"{self.first.offset:020d}.seg",
        )
