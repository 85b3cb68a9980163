"""`fleethpa admin`: topics, sources of ingest, the archive, and clusters with an agent."""

from __future__ import annotations

from typing import ClassVar

import click

from fleethpa.frame.errors import ImportedGroup


class AdminGroup(ImportedGroup):
    """The commands of `admin`."""

    places: ClassVar = {
        "topics": "cli.topics:topics",
        "ingest": "cli.ingest:ingest",
        "archive": "cli.archive:archive",
        "clusters": "cli.clusters:clusters",
    }


@click.group(cls=AdminGroup)
def admin() -> None:
    """Topics, sources of ingest, the archive, and clusters with an agent: what the operators of the hub need."""
