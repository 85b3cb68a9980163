"""Reading one topic partition of an archive, and checking its segments against the manifests that chain them."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from pathlib import Path

import msgspec
from msgspec import Struct

from schemas.codec import encode
from schemas.decisions import links_of
from schemas.keys import HpaId
from streams.archive.layout import (
    BAD_JSON,
    DECISIONS,
    GENESIS,
    SEGMENT,
    ArchivedRecord,
    ArchiveError,
    frame_positions,
    link,
    read_frame,
    read_frames,
    read_small,
    record_digest,
    sha256_hex,
    struct_in,
)

HEAD_FILE = "HEAD.json"


def open_file(topic: str) -> str:
    """Return the name of the segment of a topic that is being written."""
    return f"open{SEGMENT[topic]}"


class SegmentManifest(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a closed segment holds. `head`: chain head (hex) after its last record; `previous`: SHA-256 of the
    manifest before it, empty for the first.

    `content`: SHA-256 (hex) over the chain of this segment alone, starting at GENESIS. Of decisions `hpas`: SHA-256 of
    the file that says in which frames those of each HPA are, and `first_seq`: the number of the first one.
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
    hpas: str = ""
    first_seq: int | None = None

    def __post_init__(self) -> None:
        if self.topic not in SEGMENT:
            raise ValueError(f"`topic` must be one of {', '.join(SEGMENT)}")
        if self.file != (named := segment_file(self.topic, self.first_offset)):
            raise ValueError(f"`file` must be {named}, which begins at its first offset")

    @property
    def own_file(self) -> str:
        """The name of its own file."""
        return f"{self.first_offset:020d}.json"

    @property
    def hpas_file(self) -> str:
        """The name of the file that says where the decisions of each HPA are."""
        return f"{self.first_offset:020d}.hpas"


def segment_file(topic: str, first_offset: int) -> str:
    """Return the name of the file of a closed segment: a manifest can name no other one, here or elsewhere."""
    return f"{first_offset:020d}{SEGMENT[topic]}"


HpaFrames = Mapping[str, list[int]]
"""`cluster/namespace/name` of an HPA -> where the frames begin that hold its decisions; empty: what names no HPA."""


class _Named(Struct, frozen=True, gc=False):
    cluster: str = ""
    namespace: str = ""
    name: str = ""


_named_in = msgspec.json.Decoder(_Named).decode


def hpa_of(record: ArchivedRecord) -> str:
    """`cluster/namespace/name` of the HPA that a decision is of; empty: it names none."""
    try:
        name = _named_in(record.value)
    except BAD_JSON:
        return ""
    return f"{name.cluster}/{name.namespace}/{name.name}" if name.name else ""


def hpa_frames(frames: Iterable[tuple[int, Iterable[ArchivedRecord]]]) -> HpaFrames:
    """Return what the file of a segment's HPAs says; the frames are given with where they begin."""
    by_name: dict[str, list[int]] = {}
    for position, records in frames:
        for hpa in dict.fromkeys(map(hpa_of, records)):
            by_name.setdefault(hpa, []).append(position)
    return dict(sorted(by_name.items()))


class Head(Struct, frozen=True, kw_only=True, rename="camel"):
    """The end of a topic partition in the archive."""

    segments: int
    manifest: str
    last_offset: int


def head_of(manifests: list[SegmentManifest]) -> Head:
    """Return what HEAD says of these closed segments, oldest first."""
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
        for record in records:
            digest = record_digest(record)
            self.content, self.head = link(self.content, digest), link(self.head, digest)
            self.first = self.first or record
            self.last = record
            self.records += 1

    def manifest(self, topic: str, partition: int, previous: SegmentManifest | None, hpas: str = "") -> SegmentManifest:
        """The manifest of a segment of these records. Raises ArchiveError: the segment has none.

        `hpas`: as of `SegmentManifest`.
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
            file=segment_file(topic, self.first.offset),
            hpas=hpas,
            first_seq=_seq_of(self.first) if topic == DECISIONS else None,
        )


_positions = lru_cache(maxsize=64)(frame_positions)
"""Closed segments do not change."""


@lru_cache(maxsize=4096)
def _begin(path: Path, position: int) -> tuple[int, int]:
    """Offset and timestamp (ms) of the first record of a frame of a closed segment."""
    first = read_frame(path, position)[0]
    return first.offset, first.timestamp_ms


_named: set[tuple[Path, int, int, str]] = set()
"""Files of closed segments that were checked: path, size, time of the last change (ns), content."""


class PartitionReader:
    """Reads one topic partition of an archive, also while it is being written.

    `checked`: a closed segment that was read to its end must be the one that its manifest names. A file that was found
    to be so is not checked again by this process while its size and time stay the same. `hpa`: of decisions only those
    of this HPA are given, and perhaps some others; then closed segments are not checked.
    """

    def __init__(
        self, root: Path, topic: str, partition: int, *, checked: bool = False, hpa: HpaId | None = None
    ) -> None:
        self.folder = root / topic / str(partition)
        self.topic, self.partition = topic, partition
        self._checked, self._hpa = checked and hpa is None, hpa
        self._holding = b"" if hpa is None else names_of(hpa)
        self._open_path = self.folder / open_file(topic)

    def manifests(self) -> list[SegmentManifest]:
        """The manifests of the closed segments, oldest first.

        Raises ArchiveError: HEAD, a manifest or the chain of manifests is damaged.
        """
        # HEAD is read once, before what it names: a writer may close a segment meanwhile.
        head_path = self.folder / HEAD_FILE
        data = read_small(head_path)
        head = struct_in(head_path, data, Head)
        manifests = self._chain()[: head.segments]
        if data != encode(head_of(manifests)):
            raise ArchiveError(f"{head_path}: names {head.segments} segments ending at another manifest than found")
        return manifests

    def _chain(self) -> list[SegmentManifest]:
        manifests: list[SegmentManifest] = []
        previous = ""
        for number, path in enumerate(sorted(self.folder.glob("[0-9]*.json"))):
            data = read_small(path)
            manifest = struct_in(path, data, SegmentManifest)
            if (manifest.topic, manifest.partition) != (self.topic, self.partition):
                raise ArchiveError(f"{path}: is the manifest of {manifest.topic}-{manifest.partition}")
            if manifest.segment != number or manifest.previous != previous:
                raise ArchiveError(f"{path}: does not follow the manifest before it (segment {manifest.segment})")
            if data != encode(manifest):
                raise ArchiveError(f"{path}: is not in canonical form")
            previous = sha256_hex(data)
            manifests.append(manifest)
        return manifests

    def last(self) -> tuple[int, int]:
        """Offset and timestamp (ms) of the last record, the open segment's included; -1 and 0: there is none."""
        manifests = self.manifests()
        last = (manifests[-1].last_offset, manifests[-1].last_timestamp_ms) if manifests else (-1, 0)
        for record in self.open_records(manifests):
            last = record.offset, record.timestamp_ms
        return last

    def first_offset(self) -> int | None:
        """Offset of the first record; None: none."""
        return next((record.offset for record in self.records()), None)

    def records(self, from_offset: int = 0) -> Iterator[ArchivedRecord]:
        """The records of `stretches`, one by one; raises as it does."""
        return chain.from_iterable(self.stretches(from_offset))

    def stretches(self, from_offset: int = 0) -> Iterator[list[ArchivedRecord]]:
        """The records from `from_offset` on, frame by frame: closed segments first, then the open one.

        A segment that is closed meanwhile is read on under its new name.

        Raises ArchiveError: a segment is damaged. Without `checked`, hashes are left to `verify_segment`, and frames
        that lie before the offset are not unpacked.
        """
        position, seen = from_offset, -1
        while True:
            manifests = self.manifests()
            for manifest in manifests[seen + 1 :]:
                seen = manifest.segment
                if manifest.last_offset >= position:
                    for stretch in self.frames(manifest, position):
                        position = stretch[-1].offset + 1
                        yield stretch
            opened = self._open_frames(manifests)
            first = next(opened, None)
            # A segment that was closed since: what is open now comes after it.
            if first is not None and len(self.manifests()) == len(manifests):
                for frame in chain((first,), opened):
                    if stretch := _since(frame, position):
                        position = stretch[-1].offset + 1
                        yield stretch
            if len(self.manifests()) == len(manifests):
                return

    def open_records(self, listed: list[SegmentManifest]) -> Iterator[ArchivedRecord]:
        """The records of the open segment, or of one whose close was cut short or is under way: HEAD names neither."""
        return chain.from_iterable(self._open_frames(listed))

    def _open_frames(self, listed: list[SegmentManifest]) -> Iterator[list[ArchivedRecord]]:
        closed = listed[-1].last_offset if listed else -1
        try:
            for frame in _frames(self._open_path, torn_end_ok=True, holding=self._holding):
                # A segment of decisions is removed from here only once it is listed.
                yield _since(frame, closed + 1)
        except FileNotFoundError:
            named = {manifest.file for manifest in listed}
            for path in sorted(self.folder.glob(f"[0-9]*{SEGMENT[self.topic]}")):
                if path.name not in named:
                    yield from _in_order(_frames(path, torn_end_ok=False, holding=self._holding), self.topic)

    def frames(self, manifest: SegmentManifest, from_offset: int = 0) -> Iterator[list[ArchivedRecord]]:
        """The records of a closed segment from an offset on, frame by frame. Raises ArchiveError: it is missing or
        cannot be read.
        """
        path = self._path(manifest)
        is_checked = self._checked and not self.is_known(manifest)
        if self.topic == DECISIONS and self._hpa is not None:
            of_hpa = self._of_hpa(path, manifest, self._hpa)
            if stretch := _since(of_hpa, from_offset):
                yield stretch
            return
        begin = 0
        if self.topic != DECISIONS and from_offset > manifest.first_offset and not is_checked:
            positions = _positions(path)
            at = bisect_right(positions, from_offset, key=lambda place: _begin(path, place)[0])
            begin = positions[max(0, at - 1)]
        frames = _in_order(_frames(path, torn_end_ok=False, begin=begin), self.topic)
        for frame in _as_named(frames, manifest, path) if is_checked else frames:
            if stretch := _since(frame, from_offset):
                yield stretch
        if is_checked:
            _named.add(_file_of(path, manifest))

    def is_known(self, manifest: SegmentManifest) -> bool:
        """Whether this process has found a closed segment to be the one that its manifest names; raises as `frames`."""
        return _file_of(self._path(manifest), manifest) in _named

    def offset_before(self, manifest: SegmentManifest, time_ms: int) -> int:
        """An offset of a closed segment at or before its first record of a time: that of a frame, or its first one.

        Raises ArchiveError: the segment is missing or damaged.
        """
        path = self._path(manifest)
        if self.topic == DECISIONS:  # their frames are by HPA
            return manifest.first_offset
        positions = _positions(path)
        at = bisect_left(positions, time_ms, key=lambda place: _begin(path, place)[1])
        return _begin(path, positions[at - 1])[0] if at > 1 else manifest.first_offset

    def backwards(self, upto_ms: int | None = None) -> Iterator[list[ArchivedRecord]]:
        """The records segment by segment, the newest segment first, each in order.

        `upto_ms`: segments whose first record has a later timestamp are passed over.
        """
        listed = self.manifests()
        last = [] if upto_ms is not None and self._opened_after(upto_ms, listed) else list(self.open_records(listed))
        if last:
            yield last
        # Again, and after the open one: a segment that was closed meanwhile is between the two.
        for manifest in reversed(self.manifests()):
            if upto_ms is not None and manifest.first_timestamp_ms > upto_ms:
                continue
            records = list(self.segment(manifest))
            if records and (not last or records[0].offset < last[0].offset):
                yield records

    def _opened_after(self, time_ms: int, listed: list[SegmentManifest]) -> bool:
        first = next(self.open_records(listed), None)
        return first is not None and first.timestamp_ms > time_ms

    def segment(self, manifest: SegmentManifest) -> Iterator[ArchivedRecord]:
        """The records of `frames`, one by one; raises as it does."""
        return chain.from_iterable(self.frames(manifest))

    def _path(self, manifest: SegmentManifest) -> Path:
        path = self.folder / manifest.file
        if not path.exists():
            raise ArchiveError(f"{path} is missing")
        return path

    def first_seq(self, manifest: SegmentManifest) -> int:
        """The number of the first decision of a closed segment of decisions."""
        if manifest.first_seq is None:
            raise ArchiveError(f"{self.folder / manifest.file}: offset {manifest.first_offset} is not a decision")
        return manifest.first_seq

    def hpas(self, manifest: SegmentManifest) -> HpaFrames:
        """In which frames of a closed segment of decisions those of each HPA are.

        Raises ArchiveError: the file that says so is missing, or another one than the manifest names.
        """
        path = self.folder / manifest.hpas_file
        data = read_small(path)
        if sha256_hex(data) != manifest.hpas:
            raise ArchiveError(f"{path}: is not the one that {manifest.own_file} names")
        return struct_in(path, data, dict[str, list[int]])

    def _of_hpa(self, path: Path, manifest: SegmentManifest, hpa: HpaId) -> list[ArchivedRecord]:
        positions = self.hpas(manifest).get(str(hpa), [])
        frames = [read_frame(path, position, self._holding) for position in positions]
        return sorted(chain.from_iterable(frames), key=_offset)

    def verify_segment(self, manifest: SegmentManifest, head: bytes) -> bytes:
        """Check one closed segment against its manifest: the chain head after it.

        Args:
            manifest: of the segment.
            head: chain head before it.

        Raises:
            ArchiveError: names the file and what differs.
        """
        path = self.folder / manifest.file
        tally = Tally(head)
        tally.add(_without_gap(self.segment(manifest), manifest.first_offset, path))
        self._check_hpas(manifest, path)
        if not tally.records:
            raise ArchiveError(f"{path} is empty")
        if tally.head.hex() != manifest.head or tally.content.hex() != manifest.content:
            raise ArchiveError(
                f"{path}: the records (offsets {manifest.first_offset} to {manifest.last_offset}) are not those that "
                f"{manifest.own_file} names: their chain ends in {tally.head.hex()[:16]}…, "
                f"not {manifest.head[:16]}…"
            )
        counted = tally.manifest(self.topic, self.partition, None)
        for name in ("last_offset", "first_timestamp_ms", "last_timestamp_ms", "records", "file", "first_seq"):
            if getattr(counted, name) != getattr(manifest, name):
                raise ArchiveError(f"{self.folder / manifest.own_file}: {name} is not that of the records")
        return tally.head

    def _check_hpas(self, manifest: SegmentManifest, path: Path) -> None:
        if self.topic != DECISIONS:
            return
        named = self.hpas(manifest)
        frames = zip(frame_positions(path), _frames(path, torn_end_ok=False), strict=True)
        if named != hpa_frames(frames):
            raise ArchiveError(f"{self.folder / manifest.hpas_file}: does not say where the decisions of each HPA are")


def names_of(hpa: HpaId) -> bytes:
    """Return what every decision of an HPA holds."""
    return f'"cluster":"{hpa.cluster}","namespace":"{hpa.namespace}","name":"{hpa.name}"'.encode()


def _seq_of(record: ArchivedRecord) -> int | None:
    try:
        return links_of(record.value).seq
    except BAD_JSON:
        return None


_offset = attrgetter("offset")
_STRETCH = 1_000


def _in_order(frames: Iterable[list[ArchivedRecord]], topic: str) -> Iterator[list[ArchivedRecord]]:
    """The same records in the order of their offsets: those of decisions are by HPA."""
    if topic != DECISIONS:
        yield from frames
        return
    records = sorted(chain.from_iterable(frames), key=_offset)
    for at in range(0, len(records), _STRETCH):
        yield records[at : at + _STRETCH]


def _file_of(path: Path, manifest: SegmentManifest) -> tuple[Path, int, int, str]:
    stat = path.stat()
    return path, stat.st_size, stat.st_mtime_ns, manifest.content


def _as_named(
    frames: Iterable[list[ArchivedRecord]], manifest: SegmentManifest, path: Path
) -> Iterator[list[ArchivedRecord]]:
    content = GENESIS
    for frame in frames:
        for record in frame:
            content = link(content, record_digest(record))
        yield frame
    if content.hex() != manifest.content:
        raise ArchiveError(f"{path}: the records are not those that its manifest names")


def _without_gap(records: Iterable[ArchivedRecord], first_offset: int, path: Path) -> Iterator[ArchivedRecord]:
    for expected, record in enumerate(records, first_offset):
        if record.offset != expected:
            raise ArchiveError(f"{path}: offset {record.offset} where {expected} belongs")
        yield record


def _frames(path: Path, *, torn_end_ok: bool, begin: int = 0, holding: bytes = b"") -> Iterator[list[ArchivedRecord]]:
    return (records for _, records in read_frames(path, torn_end_ok=torn_end_ok, begin=begin, holding=holding))


def _since(frame: list[ArchivedRecord], offset: int) -> list[ArchivedRecord]:
    return frame if frame and frame[0].offset >= offset else [record for record in frame if record.offset >= offset]
