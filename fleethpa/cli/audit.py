"""`fleethpa audit`: check that no decision was altered, and create the key that signs checkpoints."""

from __future__ import annotations

from typing import ClassVar

import click

from fleethpa.frame.errors import ImportedGroup


class AuditGroup(ImportedGroup):
    """The commands of `audit`."""

    places: ClassVar = {
        "verify": "cli.verify:audit_verify",
        "report": "cli.verify:audit_report",
        "keygen": "cli.verify:audit_keygen",
    }


@click.group(cls=AuditGroup)
def audit() -> None:
    """Check that no decision was altered, and create the key that signs checkpoints."""
