"""Where the audit key is kept, when no option names a file: beside the configuration."""

from __future__ import annotations

import os
from pathlib import Path


def private_path() -> Path:
    """The private key file."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "fleethpa" / "audit.key"


def public_path(private: Path) -> Path:
    """The public key file that belongs to a private one."""
    return private.with_suffix(".pub")
