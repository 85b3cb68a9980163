"""The keys of the audit: where the private one is, and how a command reads the one that it is given."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleethpa.frame.errors import usage
from streams.archive.layout import ArchiveError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def private_path() -> Path:
    """Return the private key file; its public one is beside it, `.pub`."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "fleethpa" / "audit.key"


class SigningKey(NamedTuple):
    """A private key, and the file that has it."""

    file: Path
    key: Ed25519PrivateKey


def signing_key(named: str | None) -> SigningKey | None:
    """Return the key of `--key`, else the one that `audit keygen` has created; None: that one is not there.

    Raises CommandError: the file that is named is missing, or a file has no key that signs (exit 2).
    """
    file = Path(named) if named else private_path()
    if not file.exists():
        if named:
            raise usage(f"--key {named}: no such file", next_step=f"fleethpa audit keygen --key {named}")
        return None
    # Here, as it brings cryptography along, which a command without a key does not need.
    from streams.archive.signing import read_private

    try:
        return SigningKey(file, read_private(file))
    except ArchiveError as error:
        raise usage(f"{'--key' if named else 'the key that signs:'} {error}") from error
