"""Signed checkpoints: now and then the archive signs the chain heads of all its topic partitions with Ed25519.

A chain of hashes can be recomputed by all who may write the files; a signature cannot. What a checkpoint names cannot
be changed any more without a verifier with the public key noticing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from schemas.codec import WireError, decode, encode
from streams.archive.layout import UNFINISHED, read_small, sha256_hex, struct_in, write_atomically
from streams.archive.segments import ArchiveError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FOLDER = "checkpoints"
_HEAD = "HEAD.json"
_KEYGEN = "make a pair: fleethpa audit keygen"
_DOMAIN = b"fleethpa audit checkpoint v1\n"


class Heads(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is signed. `heads`: `topic/partition` -> (offset of its last record, chain head in hex).

    `previous`: SHA-256 (hex) of the checkpoint file before it, empty for the first. `time_ms`: newest record timestamp.
    """

    number: int
    previous: str
    time_ms: int
    heads: dict[str, tuple[int, str]]


class Checkpoint(Struct, frozen=True, kw_only=True, rename="camel"):
    """A checkpoint file: the signed text and its signature, both as text (JSON, hex)."""

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
        made = Checkpoint(
            signed=signed.decode(),
            signature=self._key.sign(_DOMAIN + signed).hex(),
            public_key=_hex(self._key.public_key()),
        )
        path = self._folder / f"{number:012d}.json"
        data = encode(made)
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
    made: list[Heads] = []
    previous = ""
    for number, path in enumerate(checkpoint_files(root)):
        heads = _read(path, public)
        if heads.number != number or path.name != f"{number:012d}.json" or heads.previous != previous:
            raise ArchiveError(f"{path}: does not follow the checkpoint before it")
        previous = sha256_hex(read_small(path))
        made.append(heads)
    _check_newest(root, written=written)
    return made


def _check_newest(root: Path, *, written: bool) -> None:
    """The newest checkpoint that HEAD names is there; one more may be, if the writer was killed just then."""
    folder = root / FOLDER
    if not folder.exists():
        return
    path = folder / _HEAD
    data = read_small(path)
    files = checkpoint_files(root)
    odd = [found for found in sorted(folder.iterdir()) if not found.match("[0-9]*.json") and found != path]
    if odd := [found for found in odd if not (written and found.name.endswith(UNFINISHED))]:
        raise ArchiveError(f"{odd[0]} does not belong to the archive")
    newest = struct_in(path, data, Newest)
    if data != encode(newest) or newest.number not in (len(files) - 1, len(files) - 2):
        raise ArchiveError(f"{path}: names checkpoint {newest.number}, there are {len(files)}: one was left out")
    named = files[newest.number]
    if sha256_hex(read_small(named)) != newest.sha256:
        raise ArchiveError(f"{named}: is not the checkpoint that {_HEAD} names")


def _read(path: Path, public: Ed25519PublicKey | None) -> Heads:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    data = read_small(path)
    try:
        checkpoint = decode(data, Checkpoint)
        heads = decode(checkpoint.signed.encode(), Heads)
        signature = bytes.fromhex(checkpoint.signature)
        own = Ed25519PublicKey.from_public_bytes(bytes.fromhex(checkpoint.public_key))
        key = public or own
    except (WireError, ValueError) as error:
        raise ArchiveError(f"{path}: {error}") from error
    if data != encode(checkpoint):
        raise ArchiveError(f"{path}: is not in canonical form")
    if _hex(key) != checkpoint.public_key:
        raise ArchiveError(f"{path}: signed with another key ({checkpoint.public_key[:16]}…, not {_hex(key)[:16]}…)")
    try:
        key.verify(signature, _DOMAIN + checkpoint.signed.encode())
    except InvalidSignature as error:
        raise ArchiveError(f"{path}: the signature is not that of these heads") from error
    return heads
