"""The archive: log and decisions as closed, immutable segment files with manifests, plus snapshots of the state rows.

    DIR/archive.json                                  what this is: version, partition count
    DIR/<topic>/<partition>/<first offset>.seg        a closed segment
    DIR/<topic>/<partition>/<first offset>.json       its manifest; names the hash of the manifest before it
    DIR/<topic>/<partition>/HEAD.json                 how many segments there are and the hash of the newest manifest
    DIR/<topic>/<partition>/open.seg                  the segment being written
    DIR/snapshots/<partition>/<applied offset>.rows   the state rows at the end of a log segment
    DIR/checkpoints/<number>.json                     signed heads of all partitions, once there is a key

A segment is closed by writing its manifest and then HEAD, each by an atomic rename, so a crash leaves either the open
file or a closed segment. A file that was renamed but is not named by HEAD yet is taken up again at the next start.
"""

from pathlib import Path

from msgspec import Struct

from schemas.codec import encode
from schemas.topics import MAX_PARTITIONS
from streams.archive.durable import read_struct, write_atomically
from streams.archive.segments import ArchiveError, reading

VERSION = 1
LOG = "log"
DECISIONS = "decisions"


class ArchiveInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the directory is."""

    v: int
    partitions: int
    cluster_id: str = ""


def create(root: Path, partitions: int) -> ArchiveInfo:
    """Make `root` an archive, or open it.

    Raises:
        ArchiveError: it is an archive of another partition count or version.
    """
    root.mkdir(parents=True, exist_ok=True)
    path = root / "archive.json"
    if not path.exists():
        write_atomically(path, encode(ArchiveInfo(v=VERSION, partitions=partitions)))
    info = open_archive(root)
    if info.partitions != partitions:
        raise ArchiveError(f"{root}: has {info.partitions} partitions, the log has {partitions}; use another directory")
    return info


def open_archive(root: Path) -> ArchiveInfo:
    """What the archive is.

    Raises:
        ArchiveError: no archive, or one of another version.
    """
    path = root / "archive.json"
    with reading(path):
        there = path.exists()
    if not there:
        raise ArchiveError(f"{root} is not a fleethpa archive (no archive.json); make one: fleethpa archive --to DIR")
    info = read_struct(path, ArchiveInfo)
    if info.v != VERSION:
        raise ArchiveError(f"{path}: version {info.v}; this program reads version {VERSION}")
    if not 1 <= info.partitions <= MAX_PARTITIONS:  # a damaged number would have readers look for as many folders
        raise ArchiveError(f"{path}: {info.partitions} partitions; an archive has 1 to {MAX_PARTITIONS:,}")
    return info
