"""Verification of an archive's files: layout, manifests, heads, the records of every segment, signed checkpoints."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from schemas.codec import encode
from streams.archive.layout import DECISIONS, LOG, UNFINISHED, is_written, open_archive, read_small, snapshots
from streams.archive.segmentreader import HEAD_FILE, OPEN_FILE, PartitionReader, SegmentManifest
from streams.archive.segments import GENESIS, ArchivedRecord, ArchiveError, link, reading, record_digest, torn_bytes
from streams.archive.signing import Heads

_ROOT = {"archive.json", "lock", LOG, DECISIONS, "snapshots", "checkpoints"}
Wanted = Mapping[int, str]
"""Offset -> chain head (hex) that a signed checkpoint names."""


def check_layout(root: Path) -> int:
    """Check that the archive has exactly the folders and files that belong to it; gives the partition count.

    Raises ArchiveError: something is missing or does not belong there.
    """
    info = open_archive(root)
    if read_small(root / "archive.json") != encode(info):
        raise ArchiveError(f"{root / 'archive.json'}: is not in canonical form")
    if odd := sorted(_names(root) - _ROOT):
        raise ArchiveError(f"{root / odd[0]} does not belong to the archive")
    wanted = {str(number) for number in range(info.partitions)}
    for topic in (LOG, DECISIONS):
        found = _names(root / topic)
        if found != wanted:
            odd = sorted(found ^ wanted)
            raise ArchiveError(f"{root / topic / odd[0]} is missing or does not belong to {info.partitions} partitions")
    return info.partitions


def _names(folder: Path) -> set[str]:
    """The entries of a folder; empty if the path is not a folder."""
    with reading(folder):
        return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def check_segments(root: Path, topic: str, partition: int, wanted: Wanted, since_ms: int | None = None) -> int:
    """Check the files of one topic partition; gives the number of segments checked.

    Args:
        root: the archive.
        topic: `log` or `decisions`.
        partition: its number.
        wanted: chain heads that signed checkpoints name.
        since_ms: pass over segments that end before this time.

    Raises:
        ArchiveError: names the first file that is not right, and what differs.
    """
    reader = PartitionReader(root, topic, partition)
    if not is_written(root):
        _check_names(reader, reader.manifests())
    head, checked, last, seen = GENESIS, 0, -1, 0
    opened: Iterator[ArchivedRecord] = iter(())
    more = True
    while more:  # a writer may close segments meanwhile: what is open then comes after them
        manifests = reader.manifests()
        for manifest in manifests[seen:]:
            if since_ms is not None and manifest.last_timestamp_ms < since_ms:
                head = bytes.fromhex(manifest.head)
            else:
                _check_heads(reader, manifest, head, wanted)
                head = reader.verify_segment(manifest, head)
                checked += 1
            last = manifest.last_offset
        seen = len(manifests)
        opened = _begun(reader.open_records(manifests))
        more = len(reader.manifests()) > seen
    last = _check_open(reader, opened, head, wanted, last)
    if beyond := [at for at in wanted if at > last]:
        raise ArchiveError(
            f"{reader.folder}: ends at offset {last}, but a signed checkpoint names offset {max(beyond)}: "
            "the end has been cut off"
        )
    return checked


def _check_names(reader: PartitionReader, manifests: list[SegmentManifest]) -> None:
    """An archive that is not being written holds no file that its HEAD does not name."""
    wanted = {HEAD_FILE, OPEN_FILE}
    for manifest in manifests:
        wanted |= {manifest.file, manifest.file.replace(".seg", ".json")}
    if odd := sorted(_names(reader.folder) - wanted):
        raise ArchiveError(
            f"{reader.folder / odd[0]} is not named by HEAD.json: it was put there, or the writer was killed just then "
            "(then `fleethpa archive --to` continues from it)"
        )
    path = reader.folder / OPEN_FILE
    if path.exists() and (torn := torn_bytes(path)):
        raise ArchiveError(
            f"{path}: its last {torn} bytes are not a whole frame: it was damaged, or the writer was killed just then "
            "(then `fleethpa archive --to` continues from it)"
        )


def _begun(records: Iterator[ArchivedRecord]) -> Iterator[ArchivedRecord]:
    """The same records, the first of them read: what is read on is the file of now."""
    first = next(records, None)
    return records if first is None else chain((first,), records)


def _check_open(
    reader: PartitionReader, records: Iterable[ArchivedRecord], head: bytes, wanted: Wanted, last: int
) -> int:
    """Check what is not closed yet: offsets without gaps, and the heads that are signed; gives the last offset."""
    for record in records:
        if last >= 0 and record.offset != last + 1:
            raise ArchiveError(f"{reader.folder / OPEN_FILE}: offset {record.offset} follows {last}")
        last = record.offset
        head = next_head(head, record, wanted, f"{reader.topic}-{reader.partition}")
    return last


def _check_heads(reader: PartitionReader, manifest: SegmentManifest, head: bytes, wanted: Wanted) -> None:
    """Compare the chain head after each signed offset of a closed segment."""
    if any(manifest.first_offset <= at <= manifest.last_offset for at in wanted):
        for record in reader.segment(manifest):
            head = next_head(head, record, wanted, f"{reader.topic}-{reader.partition}")


def next_head(head: bytes, record: ArchivedRecord, wanted: Wanted, name: str) -> bytes:
    """The chain head after a record, compared with what a signed checkpoint names there.

    Raises ArchiveError: it differs.
    """
    head = link(head, record_digest(record))
    signed = wanted.get(record.offset)
    if signed is not None and head.hex() != signed:
        raise ArchiveError(
            f"{name}: the records up to offset {record.offset} are not those that were signed (their chain ends in "
            f"{head.hex()[:16]}…, the checkpoint says {signed[:16]}…): one at or before it was changed"
        )
    return head


def signed_heads(checkpoints: list[Heads], topic: str, partition: int) -> dict[int, str]:
    """What the checkpoints say of one topic partition.

    Raises ArchiveError: two checkpoints name different heads at one offset.
    """
    wanted: dict[int, str] = {}
    for heads in checkpoints:
        at, head = heads.heads.get(f"{topic}/{partition}", (-1, ""))
        if at >= 0 and wanted.setdefault(at, head) != head:
            raise ArchiveError(f"checkpoint {heads.number} names another head of {topic}/{partition} at offset {at}")
    return wanted


def check_snapshots(root: Path, partition: int) -> None:
    """Check that snapshots stand at the ends of log segments only (a first one may stand before the log's start).

    Raises ArchiveError: one does not.
    """
    # In this order: a writer may add a snapshot meanwhile, and closes the segment before it.
    folder = root / "snapshots" / str(partition)
    names = _names(folder)
    stored = snapshots(root, partition)
    ends = {manifest.last_offset for manifest in PartitionReader(root, LOG, partition).manifests()}
    for offset, path in stored[1:] if stored and PartitionReader(root, LOG, partition).first_offset() else stored:
        if offset not in ends:
            raise ArchiveError(f"{path}: no log segment ends at offset {offset}")
    if is_written(root):
        names = {name for name in names if not name.endswith(UNFINISHED)}
    if odd := sorted(names - {path.name for _, path in stored}):
        raise ArchiveError(f"{folder / odd[0]} does not belong to the archive")
