"""What makes an archive believable: checks of all its files, and signed checkpoints.

Checked are the layout, manifests, heads, the records of every segment, and the checkpoints: now and then the archive
signs the chain heads of all its topic partitions with Ed25519. A chain of hashes can be recomputed by all who may write
the files; a signature cannot. What a checkpoint names cannot be changed any more without a verifier with the public key
noticing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from schemas.codec import WireError, decode, encode
from streams.archive.layout import (
    DECISIONS,
    GENESIS,
    LOG,
    UNFINISHED,
    ArchivedRecord,
    ArchiveError,
    is_written,
    link,
    open_archive,
    read_small,
    reading,
    record_digest,
    sha256_hex,
    snapshots,
    struct_in,
    torn_bytes,
    write_atomically,
)
from streams.archive.segmentreader import HEAD_FILE, PartitionReader, SegmentManifest, open_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_ROOT = {"archive.json", "lock", LOG, DECISIONS, "snapshots", "checkpoints"}
Wanted = Mapping[int, str]
"""Offset -> chain head (hex) that a signed checkpoint names."""


def check_layout(root: Path) -> int:
    """Check that the archive has exactly the folders and files that belong to it; return the partition count.

    Raises ArchiveError: something is missing or does not belong there.
    """
    info = open_archive(root)
    if read_small(root / "archive.json") != encode(info):
        raise ArchiveError(f"{root / 'archive.json'}: is not in canonical form")
    if odd := sorted(_names(root) - _ROOT):
        raise ArchiveError(f"{root / odd[0]} does not belong to the archive")
    wanted = {str(number) for number in range(info.partitions)}
    for topic in (LOG, DECISIONS):
        names = _names(root / topic)
        if names != wanted:
            odd = sorted(names ^ wanted)
            raise ArchiveError(f"{root / topic / odd[0]} is missing or does not belong to {info.partitions} partitions")
    return info.partitions


def _names(folder: Path) -> set[str]:
    """The entries of a folder; empty if the path is not a folder."""
    with reading(folder):
        return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def check_segments(root: Path, topic: str, partition: int, wanted: Wanted, since_ms: int | None = None) -> int:
    """Check the files of one topic partition; return the number of segments checked.

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
    wanted = {HEAD_FILE, open_file(reader.topic)}
    for manifest in manifests:
        wanted |= {manifest.file, manifest.own_file, *([manifest.hpas_file] if manifest.hpas else [])}
    if odd := sorted(_names(reader.folder) - wanted):
        raise ArchiveError(
            f"{reader.folder / odd[0]} is not named by HEAD.json: it was put there, or the writer was killed just then "
            "(then `fleethpa admin archive --to` continues from it)"
        )
    path = reader.folder / open_file(reader.topic)
    if path.exists() and (torn := torn_bytes(path)):
        raise ArchiveError(
            f"{path}: its last {torn} bytes are not a whole frame: it was damaged, or the writer was killed just then "
            "(then `fleethpa admin archive --to` continues from it)"
        )


def _begun(records: Iterator[ArchivedRecord]) -> Iterator[ArchivedRecord]:
    """The same records, the first of them read: what is read on is the file of now."""
    first = next(records, None)
    return records if first is None else chain((first,), records)


def _check_open(
    reader: PartitionReader, records: Iterable[ArchivedRecord], head: bytes, wanted: Wanted, last: int
) -> int:
    """Check what is not closed yet: offsets without gaps, and the heads that are signed; return the last offset."""
    for record in records:
        if last >= 0 and record.offset != last + 1:
            raise ArchiveError(f"{reader.folder / open_file(reader.topic)}: offset {record.offset} follows {last}")
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
    """Return what the checkpoints say of one topic partition.

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


FOLDER = "checkpoints"
_HEAD = "HEAD.json"
_KEYGEN = "make a pair: fleethpa audit keygen"
_CHECKPOINT, _REPORT = b"fleethpa audit checkpoint v1\n", b"fleethpa report v1\n"
"""What a signature is of, before the text: one of a report is none of a checkpoint."""
_MOST_REPORT_BYTES = 64 << 20


class Heads(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is signed. `heads`: `topic/partition` -> (offset of its last record, chain head in hex).

    `previous`: SHA-256 (hex) of the checkpoint file before it, empty for the first. `time_ms`: newest record timestamp.
    """

    number: int
    previous: str
    time_ms: int
    heads: dict[str, tuple[int, str]]


class Signed(Struct, frozen=True, kw_only=True, rename="camel"):
    """A file with a signature, a checkpoint or a report: the signed text (JSON), its signature and key (hex)."""

    signed: str
    signature: str
    public_key: str


class Newest(Struct, frozen=True, kw_only=True, rename="camel"):
    """DIR/checkpoints/HEAD.json: the newest checkpoint, so that it cannot quietly be left out."""

    number: int
    sha256: str


def make_key(private: Path, public: Path) -> str:
    """Make a key pair, PEM; the private file is readable by its owner only. Gives the public key in hex.

    Raises FileExistsError: there is a key already; it is never overwritten.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return _hex(key.public_key())


def read_private(path: Path) -> Ed25519PrivateKey:
    """Read a private key file. Raises ArchiveError: no Ed25519 key in it."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    text = _pem(path)
    try:
        key = serialization.load_pem_private_key(text, password=None)
    except TypeError as error:
        raise ArchiveError(f"{path} is locked with a passphrase; {_KEYGEN}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ArchiveError(f"{path} is not a private key in PEM form; {_KEYGEN}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ArchiveError(f"{path} is a private key, but not an Ed25519 key; {_KEYGEN}")
    return key


def read_public(path: Path) -> Ed25519PublicKey:
    """Read a public key file. Raises ArchiveError: no Ed25519 public key in it."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    text = _pem(path)
    if b"PRIVATE KEY" in text:
        raise ArchiveError(f"{path} is a private key; name its public key, the file that ends in .pub")
    try:
        key = serialization.load_pem_public_key(text)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ArchiveError(f"{path} is not a public key in PEM form") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ArchiveError(f"{path} is a public key, but not an Ed25519 key")
    return key


def _pem(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArchiveError(f"{path} cannot be read: {error.strerror or error}") from error


def _hex(key: Ed25519PublicKey) -> str:
    from cryptography.hazmat.primitives import serialization

    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw).hex()


def _signed(key: Ed25519PrivateKey, of: bytes, text: bytes) -> Signed:
    return Signed(signed=text.decode(), signature=key.sign(of + text).hex(), public_key=_hex(key.public_key()))


def write_report(path: Path, key: Ed25519PrivateKey, text: bytes) -> None:
    """Write a report (JSON) with its signature. Raises OSError: the file cannot be written."""
    write_atomically(path, encode(_signed(key, _REPORT, text)))


def read_report(path: Path, public: Ed25519PublicKey) -> str:
    """Read a report that `write_report` wrote, signed with this key; return its text (JSON).

    Raises ArchiveError: it is no such file, is larger than a report, was signed with another key, or was changed since.
    """
    with reading(path):
        if path.stat().st_size > _MOST_REPORT_BYTES:
            raise ArchiveError(f"{path} has more than {_MOST_REPORT_BYTES >> 20} MiB")
    return _verified(path, public, _REPORT, "this report").signed


class CheckpointWriter:
    """Writes DIR/checkpoints/<number>.json, each naming the one before."""

    def __init__(self, root: Path, key: Ed25519PrivateKey) -> None:
        self._folder = root / FOLDER
        self._key = key
        self._heads: Mapping[str, tuple[int, str]] = {}

    def write(self, heads: Mapping[str, tuple[int, str]], time_ms: int = 0) -> Path | None:
        """Sign these heads; None where they have not moved since the last time."""
        if heads == self._heads:
            return None
        self._folder.mkdir(parents=True, exist_ok=True)
        files = checkpoint_files(self._folder.parent)
        previous = sha256_hex(files[-1].read_bytes()) if files else ""
        number = int(files[-1].stem) + 1 if files else 0
        signed = encode(Heads(number=number, previous=previous, time_ms=time_ms, heads=dict(heads)))
        path = self._folder / f"{number:012d}.json"
        data = encode(_signed(self._key, _CHECKPOINT, signed))
        write_atomically(path, data)
        write_atomically(self._folder / _HEAD, encode(Newest(number=number, sha256=sha256_hex(data))))
        self._heads = dict(heads)
        return path


def checkpoint_files(root: Path) -> list[Path]:
    """The checkpoint files of an archive, oldest first."""
    return sorted((root / FOLDER).glob("[0-9]*.json"))


def read_checkpoints(root: Path, public: Ed25519PublicKey | None, *, written: bool = False) -> list[Heads]:
    """Read and check all checkpoints: form, chain, and (with a key) signatures.

    `written`: a process writes the archive now, so that a file may be unfinished.

    Raises ArchiveError: names the first file that is not right, and why.
    """
    checkpoints: list[Heads] = []
    previous = ""
    for number, path in enumerate(checkpoint_files(root)):
        heads = _read(path, public)
        if heads.number != number or path.name != f"{number:012d}.json" or heads.previous != previous:
            raise ArchiveError(f"{path}: does not follow the checkpoint before it")
        previous = sha256_hex(read_small(path))
        checkpoints.append(heads)
    _check_newest(root, written=written)
    return checkpoints


def _check_newest(root: Path, *, written: bool) -> None:
    """The newest checkpoint that HEAD names is there; one more may be, if the writer was killed just then."""
    folder = root / FOLDER
    if not folder.exists():
        return
    path = folder / _HEAD
    data = read_small(path)
    files = checkpoint_files(root)
    odd = [each for each in sorted(folder.iterdir()) if not each.match("[0-9]*.json") and each != path]
    if odd := [each for each in odd if not (written and each.name.endswith(UNFINISHED))]:
        raise ArchiveError(f"{odd[0]} does not belong to the archive")
    newest = struct_in(path, data, Newest)
    if data != encode(newest) or newest.number not in (len(files) - 1, len(files) - 2):
        raise ArchiveError(f"{path}: names checkpoint {newest.number}, there are {len(files)}: one was left out")
    named = files[newest.number]
    if sha256_hex(read_small(named)) != newest.sha256:
        raise ArchiveError(f"{named}: is not the checkpoint that {_HEAD} names")


def _read(path: Path, public: Ed25519PublicKey | None) -> Heads:
    checkpoint = _verified(path, public, _CHECKPOINT, "these heads")
    try:
        return decode(checkpoint.signed.encode(), Heads)
    except WireError as error:
        raise ArchiveError(f"{path}: {error}") from error


def _verified(path: Path, public: Ed25519PublicKey | None, of: bytes, what: str) -> Signed:
    """Read a file with a signature. Without a key it is checked with the one that it names itself.

    Raises ArchiveError: it is no such file, or the signature is not that of its text.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    data = read_small(path)
    try:
        signed = decode(data, Signed)
        signature = bytes.fromhex(signed.signature)
        key = public or Ed25519PublicKey.from_public_bytes(bytes.fromhex(signed.public_key))
    except (WireError, ValueError) as error:
        raise ArchiveError(f"{path}: {error}") from error
    if data != encode(signed):
        raise ArchiveError(f"{path}: is not in canonical form")
    if _hex(key) != signed.public_key:
        raise ArchiveError(f"{path}: signed with another key ({signed.public_key[:16]}…, not {_hex(key)[:16]}…)")
    try:
        key.verify(signature, of + signed.signed.encode())
    except InvalidSignature as error:
        raise ArchiveError(f"{path}: the signature is not that of {what}") from error
    return signed
